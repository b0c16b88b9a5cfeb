"""Moves over named parameters: `random`, `mutate`, `cross` and `neighbour`, for templates of any proposer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Protocol

from kernelwright.agents.proposing import Attempt, Context, Parameter, Template
from kernelwright.platforms.candidates import Candidate, ParameterValue
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

Values = dict[str, ParameterValue]
Point = tuple[str, tuple[tuple[str, str, ParameterValue], ...]]
"""A template and its values; the type's name keeps 1 and True apart."""

TRIES_PER_CANDIDATE = 60
NEAR_STEP_CHANCE = 0.6
"""How often a mutation moves to a neighbouring value instead of any other."""


class TemplateSource(Protocol):
    """Makes the templates of a task, such as `agents.drafter.templates`."""

    def __call__(self, task: Task, graph: Graph, device: Device) -> Sequence[Template]: ...


class TemplateCatalog:
    """All templates of a task by key, made once."""

    def __init__(self, sources: Sequence[TemplateSource]) -> None:
        self._sources = tuple(sources)
        self._key: tuple[str, str] | None = None
        self._templates: dict[str, Template] = {}

    def templates(self, context: Context) -> dict[str, Template]:
        """By `space.template`, in the sources' order; empty where the reference has no graph."""
        if context.graph is None:
            return {}
        key = (context.task.id, context.device.id)
        if key != self._key:
            made = [t for source in self._sources for t in source(context.task, context.graph, context.device)]
            self._templates = {template.space.template: template for template in made}
            self._key = key
        return self._templates


class Variation:
    """A proposer that moves in the parameter spaces of a catalog."""

    def __init__(self, name: str, catalog: TemplateCatalog) -> None:
        self._name = name
        self._catalog = catalog
        self._move = _MOVES[name]

    @property
    def name(self) -> str:
        """`random`, `mutate`, `cross` or `neighbour`; the operator has the same name."""
        return self._name

    def propose(self, context: Context, *, operator: str, count: int, rng: Random) -> Sequence[Candidate]:
        """Up to `count` points that were neither judged nor proposed before."""
        templates = self._catalog.templates(context)
        if operator != self._name or not templates:
            return ()
        known = {_point_of(c) for c in (*(a.candidate for a in context.history), *context.pending)}
        made: list[Candidate] = []
        for tries, (template, values, parents, why) in enumerate(self._move(templates, context, rng)):
            if len(made) == count or tries == count * TRIES_PER_CANDIDATE:
                break
            point = _point(template.space.template, values)
            if point in known:
                continue
            known.add(point)
            try:
                candidate = template.render(values)
            except ValueError:
                # Not every combination of legal values is legal; the template is who knows.
                continue
            origin = candidate.origin.replace(
                proposer=self._name, operator=self._name, parents=tuple(p.candidate.id for p in parents), plan=why
            )
            made.append(candidate.model_copy(update={"origin": origin}))
        return made


Draw = tuple[Template, Values, tuple[Attempt, ...], str]


def _random(templates: dict[str, Template], context: Context, rng: Random) -> Iterator[Draw]:
    """Uniform over templates, then over the values of each parameter."""
    ordered = list(templates.values())
    while True:
        template = rng.choice(ordered)
        yield template, {p.name: rng.choice(p.values) for p in template.space.parameters}, (), "a random draw"


def _mutate(templates: dict[str, Template], context: Context, rng: Random) -> Iterator[Draw]:
    """Changes one parameter of a parent, and each further one with chance 1 / parameters."""
    parents = _placed(templates, context)
    while parents:
        parent, template = rng.choice(parents)
        values = dict(parent.candidate.parameters)
        movable = [p for p in template.space.parameters if len(p.values) > 1 and p.name in values]
        if not movable:
            return
        first = rng.choice(movable)
        changed = [p for p in movable if p is first or rng.random() < 1 / len(movable)]
        notes = []
        for parameter in changed:
            before = values[parameter.name]
            values[parameter.name] = _moved(parameter, before, rng)
            notes.append(f"{parameter.name} {before} → {values[parameter.name]}")
        yield template, values, (parent,), ", ".join(notes)


def _cross(templates: dict[str, Template], context: Context, rng: Random) -> Iterator[Draw]:
    """The first parent's template; each value from either parent where both have a legal one."""
    parents = _placed(templates, context)
    while len(parents) > 1:
        (first, template), (second, _) = rng.sample(parents, 2)
        values = dict(first.candidate.parameters)
        taken = []
        for parameter in template.space.parameters:
            other = second.candidate.parameters.get(parameter.name)
            legal = other is not None and _place(parameter, other) is not None
            if legal and rng.random() < 0.5 and other is not None and other != values.get(parameter.name):
                values[parameter.name] = other
                taken.append(f"{parameter.name} = {other}")
        yield template, values, (first, second), f"with {', '.join(taken) or 'nothing'} of the second parent"


def _neighbour(templates: dict[str, Template], context: Context, rng: Random) -> Iterator[Draw]:
    """Every point one step away: of the first parent in random order, then of the next one."""
    for parent, template in _placed(templates, context):
        moves: list[Draw] = []
        for parameter in template.space.parameters:
            before = parent.candidate.parameters.get(parameter.name)
            for value in () if before is None else _nearest(parameter, before):
                values = {**parent.candidate.parameters, parameter.name: value}
                moves.append((template, values, (parent,), f"{parameter.name} {before} → {value}"))
        rng.shuffle(moves)
        yield from moves


_MOVES: dict[str, Callable[[dict[str, Template], Context, Random], Iterator[Draw]]] = {
    "random": _random,
    "mutate": _mutate,
    "cross": _cross,
    "neighbour": _neighbour,
}
VARIATIONS = tuple(_MOVES)


def _placed(templates: dict[str, Template], context: Context) -> list[tuple[Attempt, Template]]:
    """The parents that live in a parameter space, each with its template."""
    keyed = [(a, templates.get(a.candidate.origin.template)) for a in context.parents]
    return [(a, t) for a, t in keyed if t is not None]


def _place(parameter: Parameter, value: ParameterValue) -> int | None:
    same = (i for i, v in enumerate(parameter.values) if v == value and type(v) is type(value))
    return next(same, None)


def _nearest(parameter: Parameter, value: ParameterValue) -> list[ParameterValue]:
    """The values beside `value`; all others where it is a word, since words have no meaningful distance."""
    place = _place(parameter, value)
    if place is None or isinstance(value, str):
        return [v for i, v in enumerate(parameter.values) if i != place]
    return [parameter.values[i] for i in (place - 1, place + 1) if 0 <= i < len(parameter.values)]


def _moved(parameter: Parameter, value: ParameterValue, rng: Random) -> ParameterValue:
    if rng.random() < NEAR_STEP_CHANCE:
        return rng.choice(_nearest(parameter, value))
    place = _place(parameter, value)
    return rng.choice([v for i, v in enumerate(parameter.values) if i != place])


def _point(template: str, values: Values) -> Point:
    return template, tuple(sorted((name, type(value).__name__, value) for name, value in values.items()))


def _point_of(candidate: Candidate) -> Point:
    return _point(candidate.origin.template, candidate.parameters)
