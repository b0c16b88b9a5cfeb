"""Proposers by name: the built-in ones, and those that other packages offer as entry points.

An entry point of the group `kernelwright.proposers` names a callable without arguments that returns a
`agents.proposing.Proposer`. A preset uses it by the entry point's name. What is broken there is a note of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import entry_points

from kernelwright.agents.inductor import InductorProposer
from kernelwright.agents.proposing import Proposer
from kernelwright.agents.run import Budget, RunConfig
from kernelwright.agents.variation import VARIATIONS, TemplateCatalog, Variation
from kernelwright.core.errors import KernelwrightError, UsageError
from kernelwright.platforms.candidates import Candidate

GROUP = "kernelwright.proposers"
BUILT_IN = ("drafter", "inductor", "model", *VARIATIONS)


@dataclass(frozen=True)
class Proposers:
    """What a run can ask."""

    by_name: dict[str, Proposer]
    notes: tuple[str, ...] = ()
    """Why some are missing."""


@dataclass
class _Making:
    config: RunConfig
    budget: Budget
    sources: Callable[[], Sequence[Candidate] | str]
    notes: list[str] = field(default_factory=list)
    catalog: TemplateCatalog | None = None

    def variation(self, name: str) -> Proposer:
        if self.catalog is None:
            from kernelwright.agents.drafter import templates

            self.catalog = TemplateCatalog([templates])
        return Variation(name, self.catalog)

    def built_in(self, name: str) -> Proposer | None:
        if name == "model":
            if self.config.model is None:
                return None
            from kernelwright.agents.model import ModelProposer

            return ModelProposer(self.config.model, budget=self.budget)
        if self.config.model is not None and self.config.model.only:
            return None
        if name == "inductor":
            return InductorProposer(self.sources)
        if name == "drafter":
            from kernelwright.agents.drafter import Drafter

            return Drafter()
        return self.variation(name)


def make_proposers(
    config: RunConfig, names: frozenset[str], *, budget: Budget, sources: Callable[[], Sequence[Candidate] | str]
) -> Proposers:
    """The named proposers, as far as the configuration wants them and they can be made.

    Args:
        config: Decides whether there is a model, and whether it works alone.
        names: Those that the preset names.
        budget: What is left for the model.
        sources: `TaskSession.inductor_sources`.

    Raises:
        UsageError: the preset names one that nobody offers; or the model's configuration is wrong.
        EnvironmentProblem: the model's client cannot be made.
    """
    making = _Making(config, budget, sources)
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    made: dict[str, Proposer] = {}
    for name in sorted(names):
        if name in BUILT_IN:
            proposer = making.built_in(name)
        elif name in offered:
            proposer = _extension(name, offered[name].load, making.notes)
        else:
            raise _unknown(name, (*BUILT_IN, *offered))
        if proposer is not None:
            made[name] = proposer
    return Proposers(by_name=made, notes=tuple(making.notes))


def _extension(name: str, load: Callable[[], Callable[[], Proposer]], notes: list[str]) -> Proposer | None:
    try:
        return load()()
    except KernelwrightError as error:
        notes.append(f"proposer {name} is not available: {error.message}")
    except Exception as error:  # noqa: BLE001 - another package's code: whatever it raises, the run goes on without it
        notes.append(f"proposer {name} is broken: {type(error).__name__}: {error}")
    return None


def _unknown(name: str, have: Sequence[str]) -> UsageError:
    near = get_close_matches(name, have, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"no proposer called {name!r}", hint=f"{hint}have: {', '.join(have)}")
