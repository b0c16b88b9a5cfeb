"""Where a command's words go: one JSON object, or text, on standard output; everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from kernelwright.core.errors import EnvironmentProblem
from kernelwright.core.text import strip_escapes


@dataclass
class Output:
    """The answer of a command.

    With `as_json` the process's descriptor 1 is standard error while the command works, so that nothing that a library
    or child process prints can join the object.
    """

    as_json: bool = False
    quiet: bool = False
    color: bool = True
    lost: bool = False
    """Whether standard output could not take the answer."""
    _stream: TextIO | None = None

    @property
    def stream(self) -> TextIO:
        """The real standard output."""
        return self._stream or sys.stdout

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Keep standard output for the answer."""
        if not self.as_json:
            yield
            return
        sys.stdout.flush()
        try:
            kept = os.dup(1)
        except OSError:
            yield
            return
        before = sys.stdout
        try:
            os.dup2(2, 1)
            with os.fdopen(kept, "w", encoding="utf-8", errors="backslashreplace") as stream:
                # A test runner replaces sys.stdout; then the answer belongs there.
                self._stream = stream if _is_descriptor_one(before) else before
                sys.stdout = sys.stderr
                yield
                stream.flush()
                sys.stdout = before
                os.dup2(stream.fileno(), 1)
        finally:
            sys.stdout = before
            self._stream = None

    def answer(self, payload: Mapping[str, Any]) -> None:
        """Print the one object."""
        from kernelwright.core.records import SCHEMA_VERSION

        whole = {"schema_version": SCHEMA_VERSION, **payload}
        self._write(json.dumps(whole, indent=1, allow_nan=False, default=str))

    def say(self, text: str = "") -> None:
        """A line of the answer for people."""
        if not self.as_json:
            self._write(printable(text, self.stream))

    def _write(self, text: str) -> None:
        try:
            print(text, file=self.stream, flush=True)
        except BrokenPipeError:
            # The reader went away (`| head`); what the command keeps on disk is still worth finishing.
            _silence(self.stream)
        except OSError as error:
            _silence(self.stream)
            self.lost = True
            raise EnvironmentProblem(
                f"standard output cannot be written: {error.strerror or error}",
                hint="free some space, or send the output elsewhere",
            ) from error

    def note(self, text: str) -> None:
        """A remark beside the answer, on standard error."""
        if not self.quiet:
            sys.stderr.write(printable(text, sys.stderr) + "\n")
            sys.stderr.flush()


def ensure_standard_streams() -> None:
    """Open what the caller closed (`>&-`), so that no file of ours becomes descriptor 0, 1 or 2 by chance."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))


def _silence(stream: TextIO) -> None:
    """What is still in the stream's buffer, and all that follows, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def folded(text: str, indent: str = "  ") -> list[str]:
    """Prose as lines of at most 78 characters; words such as paths are never broken."""
    return textwrap.wrap(
        " ".join(text.split()), 78, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def printable(text: str, stream: TextIO) -> str:
    """`text` without escapes, in what the stream's encoding can show."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return strip_escapes(text).encode(encoding, "replace").decode(encoding)


def finite(value: float | None) -> float | None:
    """A number that JSON can hold, or None."""
    return value if value is not None and abs(value) < float("inf") else None


def wants_color(stream: TextIO, allowed: bool = True) -> bool:
    """Whether colours and cursor movements may be used: a terminal, and nobody asked for none."""
    if not allowed or os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("dumb", ""):
        return False
    return stream.isatty()


def _is_descriptor_one(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):
        return False
