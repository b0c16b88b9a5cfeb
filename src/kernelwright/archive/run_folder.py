"""A run's folder: the truth about one run. The ledger only indexes it.

    run.json         what was asked: resolved configuration, task, device, versions
    steps.jsonl      what each step proposed, before any of it was judged
    attempts.jsonl   each verdict, on disk before the next step
    finalists.jsonl  second measurements
    calls.jsonl      what calls of language models cost
    result.json      what came out, once the run ended or was interrupted
    run.lock         held by the process that works on it

Lines are appended and fsynced. A last line torn by a kill is dropped, and what it held is done again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, LedgerModelCall, RunHeader
from kernelwright.core.errors import EnvironmentProblem, ResumeError, UsageError
from kernelwright.core.records import Record

R = TypeVar("R", bound=Record)


def now_utc() -> str:
    """The time as ISO 8601 in UTC, microseconds included, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_run_id() -> str:
    """A sortable time stamp and a few random letters, such as `20260131-235959-k3fq`."""
    letters = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{letters}"


class RunFolder:
    """Reads and appends. Every write is durable when the call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_run(self) -> bool:
        """Whether a run was ever started here."""
        return (self.path / "run.json").exists()

    def start(self, header: RunHeader) -> None:
        """Begin a run here.

        Raises:
            UsageError: a run was started here before.
            EnvironmentProblem: the folder cannot be written.
        """
        if self.has_run:
            raise UsageError(f"{self.path} holds a run already", hint="--resume continues it; or choose another folder")
        self._write("run.json", header.to_json())

    def header(self) -> RunHeader:
        """What the run was asked.

        Raises:
            ResumeError: there is no run here, or `run.json` is damaged.
        """
        path = self.path / "run.json"
        try:
            return RunHeader.from_json(path.read_bytes())
        except FileNotFoundError as error:
            raise ResumeError(f"there is no run in {self.path}", hint="start it without --resume") from error
        except (OSError, ValidationError) as error:
            raise ResumeError(f"{path} cannot be read as a run: {error}", hint="start a new run") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the kernel lets go of it however the process ends.

        Raises:
            ResumeError: another process works on this run.
            EnvironmentProblem: the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._problem(error) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ResumeError(
                    f"another process is working on the run in {self.path}", hint="wait for it, or stop it first"
                ) from error
            yield
        finally:
            os.close(handle)

    def append(self, name: str, record: Record) -> None:
        """Add one line to a `.jsonl` file.

        Raises:
            EnvironmentProblem: the disk is full or the folder cannot be written; the line is not there then.
        """
        line = (record.to_json() + "\n").encode()
        path = self.path / name
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                before = os.fstat(handle).st_size
                try:
                    _write_all(handle, line)
                    os.fsync(handle)
                    if not before:
                        _sync_names(self.path)
                except OSError:
                    os.ftruncate(handle, before)
                    raise
            finally:
                os.close(handle)
        except OSError as error:
            raise self._problem(error) from error

    def read(self, name: str, kind: type[R]) -> list[R]:
        """The whole lines of a `.jsonl` file.

        Raises:
            ResumeError: a line that is not the last one is damaged.
        """
        lines, _ = self._lines(name)
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(kind.from_json(line))
            except ValidationError as error:
                raise ResumeError(
                    f"{self.path / name}, line {number}, is damaged: {error.errors()[0]['msg']}",
                    hint="start a new run; this one cannot be continued",
                ) from error
        return records

    def drop_torn_lines(self) -> None:
        """Cut what a kill left of a last line, so that the next line starts at its beginning."""
        for path in self.path.glob("*.jsonl"):
            _, whole = self._lines(path.name)
            if path.stat().st_size > whole:
                os.truncate(path, whole)

    def attempts(self) -> list[LedgerAttempt]:
        """Every verdict, in order."""
        return self.read("attempts.jsonl", LedgerAttempt)

    def finalists(self) -> list[LedgerFinalist]:
        """Every second measurement, in order."""
        return self.read("finalists.jsonl", LedgerFinalist)

    def model_calls(self) -> list[LedgerModelCall]:
        """Every call of a language model, in order."""
        return self.read("calls.jsonl", LedgerModelCall)

    def result(self) -> dict[str, Any] | None:
        """What came out; None while the run works or when it was killed."""
        try:
            return dict(json.loads((self.path / "result.json").read_bytes()))
        except (OSError, ValueError):
            return None

    def write_result(self, result: Record) -> None:
        """Keep what came out, in place of an earlier interrupted result."""
        self._write("result.json", result.to_json())

    def _lines(self, name: str) -> tuple[list[bytes], int]:
        """The complete lines, and how many bytes they take."""
        try:
            content = (self.path / name).read_bytes()
        except FileNotFoundError:
            return [], 0
        whole = content.rfind(b"\n") + 1
        return content[: max(whole - 1, 0)].split(b"\n") if whole else [], whole

    def _write(self, name: str, text: str) -> None:
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self.path / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            _sync_names(self.path)
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"cannot write to the run's folder {self.path}: {error.strerror or error}",
            hint="free some space or choose another folder; --resume continues from what is there",
        )


def _sync_names(folder: Path) -> None:
    """A new or renamed file survives a power cut only once its folder is on disk too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
