"""`kernelwright report` and `kernelwright export`: what can be made of a run's folder."""

from __future__ import annotations

from pathlib import Path

from kernelwright.archive.export import export_candidate
from kernelwright.core.errors import ExitCode, UsageError
from kernelwright.interfaces.output import Output
from kernelwright.interfaces.requests import run_folder
from kernelwright.interfaces.summary import FinishedRun, read_run
from kernelwright.interfaces.wording import BASELINE_WORDS, baseline_of, speed_keys

PAGE = "report.html"


def write_report(run: Path | None, out: Path | None, output: Output) -> ExitCode:
    """Write a run's page and say where it is."""
    found = read_run(run_folder(run))
    path = page(found, out)
    if output.as_json:
        output.answer({"report": str(path), "run": found.header.run, "folder": str(found.folder.path.absolute())})
    else:
        output.say(str(path))
    return ExitCode.OK


def write_export(run: Path | None, out: Path | None, candidate: str | None, output: Output) -> ExitCode:
    """Write a kernel's package and say where it is."""
    found = read_run(run_folder(run))
    identity = _full_id(found, candidate) if candidate else None
    path = export_winner(found, out or found.folder.path / "best", identity)
    winner = found.winner(identity)
    if output.as_json:
        output.answer(
            {
                "best": str(path),
                "candidate": winner.candidate.id if winner else None,
                "run": found.header.run,
                **speed_keys(winner.speed if winner else None),
            }
        )
    else:
        output.say(str(path))
        output.say(f"  from {path.name} import optimized    (with {path.parent} on sys.path)")
    return ExitCode.OK


def page(run: FinishedRun, out: Path | None) -> Path:
    """Write the report of a run; returns its path.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    from kernelwright.interfaces.report.page import write_page

    return write_page(run.folder.path, (out or run.folder.path / PAGE).absolute())


def export_winner(run: FinishedRun, destination: Path, identity: str | None = None) -> Path:
    """Export the run's best candidate, or another one of it.

    Raises:
        UsageError: no such candidate passed.
    """
    winner = run.winner(identity)
    if winner is None:
        raise UsageError(
            f"no candidate of the run in {run.folder.path} can be exported: none passed", hint="see kernelwright report"
        )
    note = f"The best baseline is {BASELINE_WORDS[baseline_of(winner.speed)]}." if winner.speed else ""
    return export_candidate(
        run.header.task,
        winner.candidate,
        winner.evaluation,
        run.header.device,
        destination,
        baseline_note=note,
        versions=run.header.versions,
    )


def _full_id(run: FinishedRun, beginning: str) -> str:
    found = list(dict.fromkeys(a.candidate.id for a in run.attempts if a.candidate.id.startswith(beginning)))
    if len(found) != 1:
        what = "no candidate" if not found else f"{len(found)} candidates"
        raise UsageError(f"{what} of this run has an id that begins with {beginning!r}", hint="see kernelwright report")
    return found[0]
