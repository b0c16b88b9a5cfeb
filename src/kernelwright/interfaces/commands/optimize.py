"""`kernelwright optimize`: a search from the user's words to a summary."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright.agents.events import Observer
from kernelwright.agents.loop import run_search, stored_config
from kernelwright.agents.run import Budget, ModelConfig, RunConfig, RunResult
from kernelwright.archive.export import VERIFICATION
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder, new_run_id
from kernelwright.core.errors import EnvironmentProblem, ExitCode, Interrupted, UsageError
from kernelwright.interfaces.commands.results import export_winner, page
from kernelwright.interfaces.output import Output, wants_color
from kernelwright.interfaces.requests import RUNS, device_at_hand, latest_run, rule_named, seconds_of, task_request
from kernelwright.interfaces.summary import FinishedRun, read_run, show_summary, summary_keys
from kernelwright.interfaces.watching import PlainObserver
from kernelwright.judge.local import LocalJudge
from kernelwright.tasks.request import TaskRequest

_RUN_FILES = (
    "run.json",
    "steps.jsonl",
    "attempts.jsonl",
    "finalists.jsonl",
    "calls.jsonl",
    "result.json",
    "report.html",
)


@dataclass(frozen=True)
class OptimizeOptions:
    """The words of the command line."""

    task: str | None
    inputs: tuple[str, ...]
    workloads: tuple[str, ...]
    preset: str
    evaluations: int
    wall: str
    seed: int
    rule: str
    model: str | None
    model_only: bool
    tokens: int | None
    cost: float | None
    record: Path | None
    replay: Path | None
    serial: bool
    finalists: int
    run_dir: Path | None
    resume: bool
    fresh: bool
    out: Path | None
    archive: str | None
    no_archive: bool
    device: str
    given: frozenset[str]
    """Names of the options that were really given."""


class _Silent:
    """Watches without a word."""

    def on_event(self, event: object) -> None:
        """Nothing."""


def optimize(options: OptimizeOptions, output: Output) -> ExitCode:
    """Search, export the winner, write the report, print the summary; 0 when a faster kernel was found."""
    folder = _folder(options)
    config = _resumed_config(options, folder) if options.resume else _config(options)
    device = device_at_hand(options.device)
    if device.ceilings is None:
        raise EnvironmentProblem(
            "no C++ compiler was found", hint="install g++ (Debian, Ubuntu: apt-get install g++ make)"
        )
    if options.fresh:
        _clear(folder)
    secret = config.seed if config.serial else None
    try:
        with (
            _archive(options) as archive,
            LocalJudge(device, secret_seed=secret) as judge,
            _observer(output) as observer,
        ):
            result = run_search(
                config, judge, device=device, archive=archive, folder=folder, observer=observer, resume=options.resume
            )
    except Interrupted as stop:
        line = f"kernelwright optimize --resume --run-dir {shlex.quote(stop.folder)}"
        hint = f"continue with: {line}" if (folder / "run.json").exists() else ""
        raise Interrupted(stop.message, folder=stop.folder, hint=hint) from stop
    return _finish(folder, result, options, output)


def _finish(folder: Path, result: RunResult, options: OptimizeOptions, output: Output) -> ExitCode:
    run = read_run(folder)
    best = None
    if result.outcome == "improved":
        best = export_winner(run, options.out or folder / "best")
    report = _report(run, output)
    if output.as_json:
        output.answer(summary_keys(run, result, best, report))
    else:
        show_summary(run, result, best, report, output)
    return ExitCode.OK if result.outcome == "improved" else ExitCode.NOT_PASSED


def _report(run: FinishedRun, output: Output) -> Path | None:
    try:
        return page(run, None)
    except Exception as error:  # noqa: BLE001 - a page that cannot be drawn must not take the result of a search with it
        output.note(f"note: the report could not be written: {error}; try kernelwright report {run.folder.path}")
        return None


def _config(options: OptimizeOptions) -> RunConfig:
    if not options.task:
        raise UsageError("no task was given", hint="kernelwright optimize my_op.py")
    return RunConfig(
        request=task_request(options.task, options.inputs, options.workloads),
        preset=options.preset,
        seed=options.seed,
        budget=Budget(
            evaluations=options.evaluations or None,
            wall_seconds=seconds_of(options.wall),
            tokens=options.tokens,
            cost_usd=options.cost,
        ),
        rule=rule_named(options.rule),
        model=_model(options),
        finalists=options.finalists,
        serial=options.serial,
    )


def _model(options: OptimizeOptions) -> ModelConfig | None:
    if options.record and options.replay:
        raise UsageError("--record and --replay exclude each other")
    if options.model is None:
        if options.record or options.replay or options.model_only:
            raise UsageError("--record, --replay and --model-only need --model NAME")
        return None
    if options.replay and not options.replay.is_file():
        raise UsageError(f"there is no recording {options.replay}", hint="make one with --record FILE")
    paths = [str(p.absolute()) if p else None for p in (options.record, options.replay)]
    return ModelConfig(name=options.model, record=paths[0], replay=paths[1], only=options.model_only)


def _resumed_config(options: OptimizeOptions, folder: Path) -> RunConfig:
    """The stored configuration, changed by what was given again; the loop refuses a run whose configuration differs."""
    stored = stored_config(folder)
    given = options.given
    whole = _config(options if options.task else _with_task(options, stored.request))
    request = stored.request.model_dump()
    request |= {"target": whole.request.target} if "task" in given else {}
    request |= {n: getattr(whole.request, n) for n in ("inputs", "workloads") if n in given}
    budget = stored.budget.model_dump()
    names = {"evaluations": "evaluations", "wall": "wall_seconds", "tokens": "tokens", "cost": "cost_usd"}
    budget |= {field: getattr(whole.budget, field) for option, field in names.items() if option in given}
    changes: dict[str, Any] = {
        n: getattr(whole, n) for n in ("preset", "seed", "rule", "finalists", "serial") if n in given
    }
    if given & {"model", "record", "replay", "model_only"}:
        changes["model"] = whole.model
    try:
        return stored.replace(request=TaskRequest(**request), budget=Budget(**budget), **changes)
    except ValidationError as error:
        raise UsageError(f"these options do not fit the run in {folder}: {error.errors()[0]['msg']}") from error


def _with_task(options: OptimizeOptions, request: TaskRequest) -> OptimizeOptions:
    return replace(options, task=request.target)


def _folder(options: OptimizeOptions) -> Path:
    """Where the run lies.

    Raises:
        UsageError: the folder holds something already, or there is nothing to resume.
    """
    if options.resume and options.fresh:
        raise UsageError("--resume and --fresh exclude each other")
    if options.resume:
        found = options.run_dir or latest_run()
        if found is None:
            raise UsageError(f"there is no run in {RUNS} to resume", hint="name its folder with --run-dir")
        return found
    folder = options.run_dir or RUNS / new_run_id()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="choose another with --run-dir")
    if (folder / "run.json").exists() and not options.fresh:
        raise UsageError(
            f"{folder} holds a run already",
            hint="--resume continues it, --fresh replaces it, or choose another --run-dir",
        )
    others = [p.name for p in folder.iterdir() if p.name != "run.lock"] if folder.is_dir() else []
    if others and not (folder / "run.json").exists():
        raise UsageError(f"{folder} is not empty and holds no run ({others[0]})", hint="choose another --run-dir")
    return folder


def _clear(folder: Path) -> None:
    """Remove an earlier run, and nothing that is not ours."""
    if not (folder / "run.json").exists():
        return
    place = RunFolder(folder)
    with place.locked():
        for name in _RUN_FILES:
            (folder / name).unlink(missing_ok=True)
        if (folder / "best" / VERIFICATION).is_file():
            shutil.rmtree(folder / "best")


@contextlib.contextmanager
def _archive(options: OptimizeOptions) -> Iterator[Archive]:
    if options.no_archive:
        place = tempfile.TemporaryDirectory(prefix="kernelwright-")
        with place, Archive.open(Path(place.name) / "archive.sqlite") as archive:
            yield archive
        return
    with Archive.open(options.archive) as archive:
        yield archive


@contextlib.contextmanager
def _observer(output: Output) -> Iterator[Observer]:
    if output.quiet:
        yield _Silent()
    elif not output.as_json and wants_color(output.stream, output.color):
        from kernelwright.interfaces.live import LiveObserver

        with LiveObserver() as observer:
            yield observer
    else:
        yield PlainObserver(output)
