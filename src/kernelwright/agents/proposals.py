"""One step: parents, context, the proposer's answer, screens. Everything here may run in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.agents.population import select_parents
from kernelwright.agents.preset import Preset, StepSpec
from kernelwright.agents.proposing import Attempt, Context, Proposer
from kernelwright.agents.screens import Screens
from kernelwright.agents.state import SearchState, StepRecord, keyed_random
from kernelwright.core.errors import KernelwrightError
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

HISTORY = 500
"""So many recent attempts are shown to a proposer."""
ROUNDS = 4
"""So often a proposer is asked in one step, while the screens take out what it says. Once where it costs tokens."""


@dataclass(frozen=True)
class Surroundings:
    """What stays the same over a run."""

    task: Task
    device: Device
    graph: Graph | None
    graph_failure: str
    seed: int


@dataclass(frozen=True)
class StepPlan:
    """A decided step: frozen, so that verdicts that come in meanwhile cannot change it."""

    number: int
    name: str
    phase: int
    spec: StepSpec
    parents: tuple[Attempt, ...] | None
    """None where the population has no parents for it."""
    best: Attempt | None
    history: tuple[Attempt, ...]
    seen: int
    pending: tuple[Candidate, ...]


def plan_step(preset: Preset, state: SearchState, name: str, phase: int, seed: int) -> StepPlan:
    """Decide parents, and freeze what the proposer will be shown."""
    spec = preset.steps[name]
    number = len(state.steps)
    rng = keyed_random(seed, number, "parents")
    return StepPlan(
        number=number,
        name=name,
        phase=phase,
        spec=spec,
        parents=select_parents(preset.population, spec, state, rng),
        best=state.best,
        history=tuple(state.attempts[-HISTORY:]),
        seen=len(state.attempts),
        pending=tuple(state.queue),
    )


def carry_out(
    plan: StepPlan,
    proposer: Proposer,
    screens: Screens,
    around: Surroundings,
    drafted: Callable[[Sequence[Candidate]], None],
) -> StepRecord:
    """Ask the proposer and screen what it says; `drafted` hears at once what passed, so that it can be built.

    Raises:
        KernelwrightError: what the proposer raised on purpose (a key that is refused, …).
    """
    kept: list[Candidate] = []
    screened: dict[str, str] = {}
    failure = ""
    for turn in range(0 if plan.parents is None else 1 if plan.spec.background else ROUNDS):
        try:
            drafts = _ask(plan, proposer, around, kept, turn)
        except KernelwrightError:
            raise
        except Exception as error:  # noqa: BLE001 - a proposer may be anybody's code: its fault ends its step, not the run
            failure = f"{type(error).__name__}: {error}"
            break
        fresh, taken_out = screens.sift(drafts)
        kept += fresh
        screened |= taken_out
        drafted(fresh)
        if not drafts or len(kept) >= plan.spec.count:
            break
    return StepRecord(
        step=plan.number,
        name=plan.name,
        phase=plan.phase,
        proposer=plan.spec.proposer,
        operator=plan.spec.operator,
        seen=plan.seen,
        parents=tuple(a.candidate.id for a in plan.parents or ()),
        drafts=tuple(kept),
        screened=screened,
        failure=failure,
    )


def _ask(
    plan: StepPlan, proposer: Proposer, around: Surroundings, kept: list[Candidate], turn: int
) -> Sequence[Candidate]:
    context = Context(
        task=around.task,
        graph=around.graph,
        graph_failure=around.graph_failure,
        device=around.device,
        parents=plan.parents or (),
        best=plan.best,
        history=plan.history,
        pending=(*plan.pending, *kept),
    )
    wanted = plan.spec.count - len(kept)
    rng = keyed_random(around.seed, plan.number, f"{plan.name}:{turn}")
    return proposer.propose(context, operator=plan.spec.operator, count=wanted, rng=rng)[:wanted]
