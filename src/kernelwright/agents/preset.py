"""Presets: a search as data. A preset wires steps, a schedule and a population into the one loop (`agents.loop`)."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from kernelwright.core.errors import UsageError
from kernelwright.core.records import Record


class StepSpec(Record):
    """One kind of step: who is asked for what, and from which parents."""

    proposer: str
    """Name in `agents.registry`."""
    operator: str
    select: Literal["none", "best", "tournament", "uniform", "unrepaired"] = "none"
    """Where parents come from: the population, or (`unrepaired`) the newest failure that nothing was made from yet."""
    parents: Annotated[int, Field(ge=0)] = 0
    proposed_by: tuple[str, ...] = ()
    """Parents are only taken among candidates of these proposers; empty means of any."""
    count: Annotated[int, Field(ge=1)] = 1
    """Candidates asked for at once."""
    background: bool = False
    """Whether the proposer mostly waits (a model's answer), so that it may run while a candidate is timed."""


class Population(Record):
    """Which attempts may become parents."""

    kind: Literal["single", "elite", "islands"] = "single"
    """`single`: the best only. `elite`: the `size` best. `islands`: as many elites apart, taken in turn by the steps."""
    size: Annotated[int, Field(ge=1)] = 1
    per_template: Annotated[int, Field(ge=1)] | None = None
    """At most so many members of one parameter space, which keeps other designs alive."""
    tournament: Annotated[int, Field(ge=1)] = 2
    """Members drawn by `tournament`, of which the best becomes the parent."""
    islands: Annotated[int, Field(ge=1)] = 1
    migrate_every: Annotated[int, Field(ge=1)] = 10
    """Islands: every so many steps a step takes its parents from all islands together."""


class Phase(Record):
    """A stretch of a search."""

    name: str
    order: Literal["each_once", "mixed"]
    """`each_once`: every step in the order given. `mixed`: drawn by weight."""
    steps: Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    """Step name to weight."""
    until: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The phase ends when this part of the budget is spent (evaluations; else wall time)."""


class Generations(Record):
    """Phases one after the other; a phase also ends when none of its steps has anything new to propose."""

    kind: Literal["generations"] = "generations"
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]


class TableRow(Record):
    """One transition: after these outcomes take this step."""

    after: Annotated[tuple[str, ...], Field(min_length=1)]
    """Outcomes of the last attempt, `start` before the first one, or `any`."""
    step: str
    at_most: Annotated[int, Field(ge=1)] | None = None
    """Not more often than this in a row; then the next row that fits is taken."""


class Table(Record):
    """The step follows from the last attempt's outcome: the first row that fits."""

    kind: Literal["table"] = "table"
    rows: Annotated[tuple[TableRow, ...], Field(min_length=1)]


class Preset(Record):
    """A search strategy."""

    name: str
    description: str
    steps: Annotated[dict[str, StepSpec], Field(min_length=1)]
    population: Population = Population()
    schedule: Annotated[Generations | Table, Field(discriminator="kind")]
    ahead: Annotated[int, Field(ge=0)] = 3
    """The next step is taken when no more than so many candidates wait, so that they are built while one is timed."""

    @model_validator(mode="after")
    def _steps_exist(self) -> Self:
        schedule = self.schedule
        if isinstance(schedule, Table):
            named = [row.step for row in schedule.rows]
        else:
            named = [step for phase in schedule.phases for step in phase.steps]
        unknown = sorted(set(named) - self.steps.keys())
        if unknown:
            raise ValueError(f"the schedule names unknown steps: {', '.join(unknown)}")
        return self

    def only(self, proposers: frozenset[str]) -> Preset | None:
        """This preset without the steps of other proposers; None when no step is left."""
        steps = {name: spec for name, spec in self.steps.items() if spec.proposer in proposers}
        if not steps:
            return None
        if isinstance(self.schedule, Table):
            rows = tuple(row for row in self.schedule.rows if row.step in steps)
            return self.replace(steps=steps, schedule=Table(rows=rows)) if rows else None
        phases = tuple(
            phase.replace(steps={name: weight for name, weight in phase.steps.items() if name in steps})
            for phase in self.schedule.phases
            if phase.steps.keys() & steps.keys()
        )
        return self.replace(steps=steps, schedule=Generations(phases=phases)) if phases else None


def preset_names() -> tuple[str, ...]:
    """Names of the presets that come with the package."""
    folder = files("kernelwright.agents") / "presets"
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_preset(name: str) -> Preset:
    """A preset by name, or from a `.toml` file of the user's own.

    Raises:
        UsageError: there is none of that name, or the file is not a preset; the message names the key.
    """
    if name.endswith(".toml"):
        try:
            return _parsed(name, Path(name).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the preset {name}: {error}", hint="give a TOML file") from error
    names = preset_names()
    if name not in names:
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"no preset called {name!r}", hint=f"{hint}have: {', '.join(names)}; or a .toml file")
    resource = files("kernelwright.agents") / "presets" / f"{name}.toml"
    return _parsed(name, resource.read_text(encoding="utf-8"))


def _parsed(name: str, text: str) -> Preset:
    try:
        return Preset.model_validate_json(_json(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"preset {name} is not TOML: {error}", hint="see the presets that come with us") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(str(p) for p in e['loc']) or 'preset'}: {e['msg']}" for e in error.errors())
        raise UsageError(f"preset {name}: {faults}", hint="see the presets that come with the package") from error


def _json(tree: dict[str, object]) -> str:
    import json

    return json.dumps(tree, default=str)
