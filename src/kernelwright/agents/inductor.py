"""What torch.compile generates, as starting points of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kernelwright.agents.proposing import Context
from kernelwright.platforms.candidates import Candidate


class InductorProposer:
    """Offers the lifted kernels once, for the operator `draft`."""

    def __init__(self, sources: Callable[[], Sequence[Candidate] | str]) -> None:
        """`sources` is `TaskSession.inductor_sources`; it is called on first use, since it compiles."""
        self._sources = sources
        self._offered: tuple[Candidate, ...] | None = None
        self._notes: list[str] = []

    @property
    def name(self) -> str:
        """`inductor`."""
        return "inductor"

    def propose(self, context: Context, *, operator: str, count: int, rng: Random) -> Sequence[Candidate]:
        """The lifted kernels that were not proposed before."""
        del rng
        if operator != "draft":
            return ()
        if self._offered is None:
            self._offered = self._lift()
        known = {c.id for c in (*(a.candidate for a in context.history), *context.pending)}
        return [candidate for candidate in self._offered if candidate.id not in known][:count]

    def take_notes(self) -> tuple[str, ...]:
        """What the user should know, since this was last asked."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _lift(self) -> tuple[Candidate, ...]:
        found = self._sources()
        if isinstance(found, str):
            self._notes.append(f"no starting point from torch.compile: {found}")
            return ()
        return tuple(
            c.model_copy(update={"origin": c.origin.replace(proposer=self.name, operator="draft")}) for c in found
        )
