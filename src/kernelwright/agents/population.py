"""Which attempts become parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from kernelwright.agents.preset import Population, StepSpec
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.state import SearchState, fitness
from kernelwright.judge.evaluation import JudgeError, Passed


def members(population: Population, attempts: Iterable[Attempt]) -> list[Attempt]:
    """The population after these attempts, best first. Only right candidates are members; each is one once."""
    best_of: dict[str, tuple[float, int, Attempt]] = {}
    for order, attempt in enumerate(attempts):
        score = fitness(attempt.evaluation)
        identity = attempt.candidate.id
        if score is not None and (identity not in best_of or score > best_of[identity][0]):
            best_of[identity] = (score, order, attempt)
    ranked = sorted(best_of.values(), key=lambda entry: (-entry[0], entry[1]))
    size = 1 if population.kind == "single" else population.size
    chosen: list[Attempt] = []
    taken: Counter[str] = Counter()
    for _, _, attempt in ranked:
        template = attempt.candidate.origin.template
        if population.per_template is not None and taken[template] >= population.per_template:
            continue
        taken[template] += 1
        chosen.append(attempt)
        if len(chosen) == size:
            break
    return chosen


def select_parents(
    population: Population, spec: StepSpec, state: SearchState, rng: Random
) -> tuple[Attempt, ...] | None:
    """Parents for a step; None when there are not enough of them (a second parent may be missing)."""
    if spec.select == "none" or spec.parents == 0:
        return ()
    eligible = [a for a in state.attempts if not spec.proposed_by or a.candidate.origin.proposer in spec.proposed_by]
    if spec.select == "unrepaired":
        failure = _newest_unrepaired(eligible, state)
        return None if failure is None else (failure,)
    pool = members(population, _island(population, state, eligible))
    if not pool:
        return None
    if spec.select == "best":
        return tuple(pool[: spec.parents])
    chosen: list[Attempt] = []
    for _ in range(min(spec.parents, len(pool))):
        rest = [a for a in pool if a not in chosen]
        rounds = population.tournament if spec.select == "tournament" else 1
        # Members are ranked, so the smallest place wins the tournament.
        chosen.append(rest[min(rng.randrange(len(rest)) for _ in range(rounds))])
    return tuple(chosen)


def _newest_unrepaired(eligible: list[Attempt], state: SearchState) -> Attempt | None:
    used = {parent for step in state.steps for parent in step.parents}
    for attempt in reversed(eligible):
        failed = not isinstance(attempt.evaluation, Passed | JudgeError)
        if failed and attempt.candidate.id not in used:
            return attempt
    return None


def _island(population: Population, state: SearchState, eligible: list[Attempt]) -> list[Attempt]:
    """The attempts that the next step may see: those of its own island, or all of them at a migration.

    Step `s` works on island `s mod islands`, and what it proposed belongs there.
    """
    step = len(state.steps)
    if population.kind != "islands" or step % population.migrate_every == population.migrate_every - 1:
        return eligible
    home = {d.id: s.step % population.islands for s in state.steps for d in s.drafts}
    mine = [a for a in eligible if home.get(a.candidate.id) == step % population.islands]
    return mine or eligible
