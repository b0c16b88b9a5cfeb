"""Makes the ledger again from run folders, which are the truth."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import UsageError
from kernelwright.core.records import Record
from kernelwright.judge.evaluation import Evaluation, Passed


class Rebuilt(Record):
    """What was found in the folders."""

    runs: tuple[str, ...]
    attempts: int
    unreadable: dict[str, str] = {}
    """Folder and reason, for each run that could not be read; the others are in the ledger."""


def rebuild(archive: Archive, folders: Iterable[Path]) -> Rebuilt:
    """Put every run under `folders` into the archive; what is already there stays as it is.

    Args:
        archive: Usually a new one.
        folders: Run folders, or folders that hold them at any depth.
    """
    runs: list[str] = []
    attempts = 0
    unreadable: dict[str, str] = {}
    for folder in _run_folders(folders):
        try:
            attempts += index(archive, RunFolder(folder))
            runs.append(RunFolder(folder).header().run)
        except UsageError as error:
            unreadable[str(folder)] = error.message
    return Rebuilt(runs=tuple(runs), attempts=attempts, unreadable=unreadable)


def index(archive: Archive, folder: RunFolder) -> int:
    """Put one run into the archive; returns the number of its attempts.

    Raises:
        ResumeError: the folder holds no readable run.
    """
    header = folder.header()
    attempts = folder.attempts()
    finalists = folder.finalists()
    archive.record_run(header, folder.path)
    archive.record_attempts(attempts)
    for finalist in finalists:
        archive.record_finalist(finalist)
    for call in folder.model_calls():
        archive.record_model_call(call)
    result = folder.result()
    if result is not None:
        written = datetime.fromtimestamp((folder.path / "result.json").stat().st_mtime, UTC)
        known = {a.candidate.id: a.evaluation for a in attempts} | {f.candidate: f.evaluation for f in finalists}
        archive.finish_run(
            header.run,
            result,
            finished_at=written.isoformat(timespec="microseconds"),
            speedup=speedup_of(known.get(str(result.get("best")))),
        )
    return len(attempts)


def speedup_of(evaluation: Evaluation | None) -> float | None:
    """The measured speedup; None where there is none."""
    if not isinstance(evaluation, Passed) or evaluation.speed is None:
        return None
    return evaluation.speed.speedup


def _run_folders(folders: Iterable[Path]) -> list[Path]:
    found = {path.parent for folder in folders for path in folder.rglob("run.json")}
    return sorted(found)
