"""What the one loop asks of a proposer, and the parameter space it moves in."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from kernelwright.core.records import Record
from kernelwright.judge.evaluation import Evaluation
from kernelwright.platforms.candidates import Candidate, ParameterValue
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task


class Parameter(Record):
    """One named schedule decision."""

    name: str
    """Such as `unroll`, `rows_per_block`, `tile_m`, `intermediate` (`recompute` or `store`)."""
    values: tuple[ParameterValue, ...]
    """The legal values on this device, in a meaningful order: neighbours are similar."""
    default: ParameterValue
    meaning: str
    """One sentence for the report."""


class ParameterSpace(Record):
    """All decisions of one template."""

    template: str
    parameters: tuple[Parameter, ...]

    def defaults(self) -> dict[str, ParameterValue]:
        """The template's own choice."""
        return {p.name: p.default for p in self.parameters}


class Attempt(Record):
    """A candidate and its verdict, as the ledger holds them."""

    candidate: Candidate
    evaluation: Evaluation


class Context(Record):
    """What a proposer is shown. Hidden workloads, seeds and oracle outputs never appear here."""

    task: Task
    graph: Graph | None
    graph_failure: str = ""
    device: Device
    parents: tuple[Attempt, ...] = ()
    best: Attempt | None = None
    history: tuple[Attempt, ...] = ()
    """Recent attempts, newest last."""
    pending: tuple[Candidate, ...] = ()
    """Proposed in earlier steps and not judged yet: no need to propose them again."""


class Template(Protocol):
    """Renders a kernel for given parameter values (the drafter's unit)."""

    @property
    def space(self) -> ParameterSpace: ...

    def render(self, values: dict[str, ParameterValue]) -> Candidate:
        """The candidate for these values; its `origin.template` is `space.template`, `parameters` the values.

        Raises:
            ValueError: a value is not legal, or the combination is not.
        """
        ...


class Proposer(Protocol):
    """Makes candidates. Deterministic given (context, rng) unless it says otherwise."""

    @property
    def name(self) -> str: ...

    def propose(self, context: Context, *, operator: str, count: int, rng: Random) -> Sequence[Candidate]:
        """Up to `count` candidates; an empty sequence means it has nothing (more) to say for this operator."""
        ...
