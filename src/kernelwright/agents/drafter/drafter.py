"""`Drafter`: the proposer that needs no model. Drafts, samples, mutates and crosses the templates' parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random

from kernelwright.agents.drafter.templates import DraftTemplate, Values, templates
from kernelwright.agents.proposing import Attempt, Context, Parameter
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

_TRIES_PER_CANDIDATE = 20


class Drafter:
    """Implements `agents.proposing.Proposer`.

    Operators: `draft` (each template with its own choices), `sample` (random legal values), `mutate` (one or two
    decisions of a parent moved to a neighbour), `cross` (decisions mixed from two parents of one template).
    """

    @property
    def name(self) -> str:
        """`drafter`."""
        return "drafter"

    def propose(self, context: Context, *, operator: str, count: int, rng: Random) -> Sequence[Candidate]:
        """Up to `count` new candidates; empty where the graph is missing, or nothing new is left to say."""
        if context.graph is None:
            return ()
        made = _templates(context.task, context.graph, context.device)
        known = {a.candidate.id for a in (*context.history, *context.parents)}
        proposals = {"draft": self._draft, "sample": self._sample, "mutate": self._mutate, "cross": self._cross}
        if operator not in proposals or not made:
            return ()
        found: list[Candidate] = []
        for tries, candidate in enumerate(proposals[operator](made, context, rng)):
            if candidate is not None and candidate.id not in known:
                known.add(candidate.id)
                found.append(candidate)
            if len(found) >= count or tries >= count * _TRIES_PER_CANDIDATE:
                break
        return found

    def _draft(self, made: Sequence[DraftTemplate], context: Context, rng: Random) -> Iterator[Candidate | None]:
        for template in made:
            yield _rendered(template, template.space.defaults())

    def _sample(self, made: Sequence[DraftTemplate], context: Context, rng: Random) -> Iterator[Candidate | None]:
        while True:
            template = rng.choice(made)
            values = {p.name: rng.choice(p.values) for p in template.space.parameters}
            yield _with_origin(_rendered(template, values), "sample", (), "random legal decisions")

    def _mutate(self, made: Sequence[DraftTemplate], context: Context, rng: Random) -> Iterator[Candidate | None]:
        parents = [(a, t) for a in context.parents if (t := _template_of(a, made)) is not None]
        while parents:
            parent, template = rng.choice(parents)
            values, changes = dict(parent.candidate.parameters), []
            movable = [p for p in template.space.parameters if len(p.values) > 1]
            for parameter in rng.sample(movable, k=min(rng.choice((1, 1, 2)), len(movable))):
                before = values[parameter.name]
                values[parameter.name] = _neighbour(parameter, values, rng)
                changes.append(f"{parameter.name} {before} -> {values[parameter.name]}")
            why = ", ".join(changes)
            yield _with_origin(_rendered(template, values), "mutate", (parent.candidate.id,), why)

    def _cross(self, made: Sequence[DraftTemplate], context: Context, rng: Random) -> Iterator[Candidate | None]:
        parents = [(a, t) for a in context.parents if (t := _template_of(a, made)) is not None]
        while len(parents) > 1:
            first, template = rng.choice(parents)
            mates = [a for a, t in parents if t is template and a is not first]
            if not mates:
                return
            second = rng.choice(mates)
            sources = (first.candidate.parameters, second.candidate.parameters)
            values = {p.name: rng.choice(sources)[p.name] for p in template.space.parameters}
            ids = (first.candidate.id, second.candidate.id)
            yield _with_origin(_rendered(template, values), "cross", ids, "decisions of both parents")


def _neighbour(parameter: Parameter, values: Values, rng: Random) -> bool | int | str:
    place = parameter.values.index(values[parameter.name])
    near = [p for p in (place - 1, place + 1) if 0 <= p < len(parameter.values)]
    return parameter.values[rng.choice(near)]


def _template_of(attempt: Attempt, made: Sequence[DraftTemplate]) -> DraftTemplate | None:
    for template in made:
        names = {p.name for p in template.space.parameters}
        if template.space.template == attempt.candidate.origin.template and names == set(attempt.candidate.parameters):
            return template
    return None


def _rendered(template: DraftTemplate, values: Values) -> Candidate | None:
    """The candidate, or None for decisions that do not go together."""
    try:
        return template.render(values)
    except ValueError:
        return None


def _with_origin(candidate: Candidate | None, operator: str, parents: tuple[str, ...], plan: str) -> Candidate | None:
    if candidate is None:
        return None
    origin = candidate.origin.replace(operator=operator, parents=parents, plan=plan)
    return candidate.model_copy(update={"origin": origin})


def _templates(task: Task, graph: Graph, device: Device) -> Sequence[DraftTemplate]:
    return _made(_Keyed((task.to_json(), graph.to_json(), device.id), task, graph, device))


class _Keyed:
    """Compared by key alone, so that large records can be cached by their content."""

    def __init__(self, key: tuple[str, ...], task: Task, graph: Graph, device: Device) -> None:
        self.key, self.task, self.graph, self.device = key, task, graph, device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=16)
def _made(request: _Keyed) -> Sequence[DraftTemplate]:
    return templates(request.task, request.graph, request.device)
