"""What keeps a draft from the judge: cheap checks before anything is built."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable

from kernelwright.core.records import content_id
from kernelwright.platforms.candidates import Candidate

_CPP = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Screens:
    """Knows what was proposed and what cannot be built."""

    def __init__(self, failing_builds: frozenset[str] = frozenset()) -> None:
        self._failing_builds = failing_builds
        self._ids: set[str] = set()
        self._shapes: set[str] = set()

    def verdict(self, candidate: Candidate) -> str:
        """The name of the screen that takes `candidate` out; empty where it passes."""
        if candidate.id in self._ids:
            return "duplicate"
        if normalised_id(candidate) in self._shapes:
            return "same_source"
        if candidate.id in self._failing_builds:
            return "known_failing_build"
        return ""

    def sift(self, drafts: Iterable[Candidate]) -> tuple[list[Candidate], dict[str, str]]:
        """What passes, in order and remembered; and the id of each other one with its screen."""
        kept: list[Candidate] = []
        screened: dict[str, str] = {}
        for draft in drafts:
            screen = self.verdict(draft)
            if screen:
                screened[draft.id] = screen
            else:
                kept.append(draft)
                self.admit([draft])
        return kept, screened

    def admit(self, candidates: Iterable[Candidate]) -> None:
        """Remember these as proposed."""
        for candidate in candidates:
            self._ids.add(candidate.id)
            self._shapes.add(normalised_id(candidate))


def normalised_id(candidate: Candidate) -> str:
    """Equal for candidates that differ in comments, blank space and origin only."""
    sources = {path: _normalised(path, text) for path, text in candidate.sources.items()}
    payload = candidate.model_dump(mode="json", exclude={"origin": True, "parameters": True, "sources": True})
    return content_id({**payload, "sources": sources})


def _normalised(path: str, text: str) -> str:
    if path.endswith(".py"):
        return _python(text)
    without = _CPP.sub(lambda match: match[0] if match[0][0] in "\"'" else " ", text)
    # A directive ends at its line's end, so line ends stay where one begins or ends.
    lines = (" ".join(line.split()) for line in without.splitlines())
    return "\n".join(line for line in lines if line)


def _python(text: str) -> str:
    skipped = {tokenize.COMMENT, tokenize.NL}
    try:
        tokens = [
            (token.type, token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in skipped
        ]
    except (tokenize.TokenError, SyntaxError):
        return text
    # The depth of indentation is in INDENT and DEDENT; how many blanks make it does not matter.
    return repr([(kind, "" if kind in (tokenize.INDENT, tokenize.NEWLINE) else string) for kind, string in tokens])
