"""`run_search`: starts or resumes a run in a folder, and sees to it that whatever happens, what was done is kept."""

from __future__ import annotations

import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from kernelwright import __version__
from kernelwright.agents.events import Event, Note, Observer, PhaseStarted, RunFinished, RunStarted
from kernelwright.agents.journal import Journal
from kernelwright.agents.preset import Preset, load_preset
from kernelwright.agents.proposing import Proposer
from kernelwright.agents.registry import make_proposers
from kernelwright.agents.run import Budget, RunConfig, RunResult
from kernelwright.agents.screens import Screens
from kernelwright.agents.search import Search
from kernelwright.agents.spending import Spending
from kernelwright.archive.ledger import Archive
from kernelwright.archive.records import RunHeader
from kernelwright.archive.run_folder import RunFolder, new_run_id, now_utc
from kernelwright.core.errors import InternalError, Interrupted, KernelwrightError, ResumeError, UsageError
from kernelwright.judge.protocol import Judge, TaskSession
from kernelwright.platforms.device import Device

LIBRARIES = ("torch", "numpy", "triton")


def run_search(
    config: RunConfig,
    judge: Judge,
    *,
    device: Device,
    archive: Archive,
    folder: Path,
    observer: Observer,
    resume: bool = False,
    proposers: Mapping[str, Proposer] | None = None,
) -> RunResult:
    """Search for a faster kernel, as `config` says.

    Args:
        config: Resolved; a resumed run must have the same.
        judge: Open and ready.
        device: Where candidates run.
        archive: Gets every attempt, beside the folder.
        folder: Of this run alone; made where it is missing. Its name becomes the run's id where it is one.
        observer: Hears every event, in this thread.
        resume: Continue the run in `folder`. A run that ended gives its result again, and nothing is done twice.
        proposers: More proposers by name, or others in place of the built-in ones.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; everything is kept.
        TaskError: the task is unusable.
        ResumeError: there is nothing to resume, the configuration differs, or another process works on this run.
        UsageError: the preset is wrong, or the folder holds a run already.
        EnvironmentProblem: the disk is full, a folder cannot be written, the archive cannot be reached, or the model
            has no key (nothing is written then).
    """
    place = RunFolder(folder)
    preset = load_preset(config.preset)
    if not resume:
        _check_model(config, preset, proposers or {})

    def emit(event: Event) -> None:
        try:
            observer.on_event(event)
        except KernelwrightError:
            raise
        except Exception as error:
            raise InternalError(f"the observer failed on {event.kind}: {type(error).__name__}: {error}") from error

    search: Search | None = None
    with _stoppable(), place.locked():
        try:
            if resume:
                header = _checked_header(place, config, device)
                done = finished_result(folder)
                if done is not None:
                    emit(RunFinished(result=done))
                    return done
                journal = Journal.resume(place, archive, header)
            else:
                header = _new_header(place, config, judge, device, emit)
                journal = Journal.start(place, archive, header)
            emit(
                RunStarted(
                    run=header.run,
                    folder=str(folder),
                    config=config,
                    task=header.task,
                    device=device,
                    resumed_evaluations=len(journal.attempts),
                )
            )
            emit(PhaseStarted(phase="oracle"))
            spending = Spending(config.budget, config.finalists)
            spending.tokens = sum(c.input_tokens + c.output_tokens for c in journal.calls)
            spending.cost_usd = sum(c.cost_usd or 0.0 for c in journal.calls)
            with judge.open(header.task) as session:
                usable = _proposers(config, preset, session, spending, given=proposers, emit=emit)
                left = preset.only(frozenset(usable))
                if left is None:
                    raise UsageError(f"no proposer of preset {preset.name!r} is available", hint="see doctor")
                screens = Screens(_failing_builds(config, archive, header))
                search = Search(
                    config,
                    left,
                    proposers=usable,
                    session=session,
                    journal=journal,
                    spending=spending,
                    screens=screens,
                    emit=emit,
                )
                try:
                    return search.run()
                except KeyboardInterrupt:
                    search.interrupted()
                    raise
        except KeyboardInterrupt as stop:
            raise _interrupted(place, search) from stop


def finished_result(folder: Path) -> RunResult | None:
    """What the run in `folder` came to; None while it works, was killed or interrupted.

    Raises:
        ResumeError: the result is none that this version writes.
    """
    stored = RunFolder(folder).result()
    if stored is None or stored.get("stop_reason") == "interrupted":
        return None
    try:
        return RunResult.model_validate(stored, strict=False)
    except ValidationError as error:
        raise _unreadable(folder / "result.json", error) from error


def stored_config(folder: Path) -> RunConfig:
    """The configuration of the run in `folder`.

    Raises:
        ResumeError: there is no readable run.
    """
    try:
        return RunConfig.model_validate(RunFolder(folder).header().config, strict=False)
    except ValidationError as error:
        raise _unreadable(folder / "run.json", error) from error


def _unreadable(path: Path, error: ValidationError) -> ResumeError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return ResumeError(
        f"{path} is not what this version writes: {where}: {first['msg']}",
        hint="continue it with the version that wrote it, or start a new run",
    )


def differing_keys(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Dotted names of the values that differ, each with both values."""
    before, now = dict(_flat(stored)), dict(_flat(asked))
    missing = "(absent)"
    return [
        f"{key}: {before.get(key, missing)!r} then, {now.get(key, missing)!r} now"
        for key in sorted(before.keys() | now.keys())
        if before.get(key, missing) != now.get(key, missing)
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_model(config: RunConfig, preset: Preset, given: Mapping[str, Proposer]) -> None:
    """A model that cannot be asked is found out before anything is written."""
    asked = any(spec.proposer == "model" for spec in preset.steps.values())
    if config.model is not None and asked and "model" not in given:
        from kernelwright.agents.model import ModelProposer

        ModelProposer(config.model, budget=config.budget)


def _new_header(
    place: RunFolder, config: RunConfig, judge: Judge, device: Device, emit: Callable[[Event], None]
) -> RunHeader:
    if place.has_run:
        raise UsageError(f"{place.path} holds a run already", hint="--resume continues it; or choose another folder")
    emit(PhaseStarted(phase="audit", detail=config.request.target))
    task = judge.describe(config.request)
    return RunHeader(
        run=place.path.name if _is_run_id(place.path.name) else new_run_id(),
        config=config.model_dump(mode="json"),
        task=task,
        device=device,
        versions=_versions(),
        started_at=now_utc(),
    )


def _checked_header(place: RunFolder, config: RunConfig, device: Device) -> RunHeader:
    header = place.header()
    differing = differing_keys(header.config, config.model_dump(mode="json"))
    if header.device.id != device.id:
        differing.append(f"device: {header.device.name!r} ({header.device.id}) then, {device.name!r} ({device.id}) now")
    if differing:
        lines = "\n  ".join(differing)
        raise ResumeError(
            f"the run in {place.path} was started with another configuration:\n  {lines}",
            hint="give the same options to resume it, or choose another folder",
        )
    return header


def _proposers(
    config: RunConfig,
    preset: Preset,
    session: TaskSession,
    spending: Spending,
    *,
    given: Mapping[str, Proposer] | None,
    emit: Callable[[Event], None],
) -> dict[str, Proposer]:
    mine = dict(given or {})
    steps = {name: spec for name, spec in preset.steps.items() if spec.proposer not in mine}
    if steps:
        budget = _left(config.budget, spending)
        names = frozenset(spec.proposer for spec in steps.values())
        made = make_proposers(config, names, budget=budget, sources=session.inductor_sources)
        for note in made.notes:
            emit(Note(text=note))
        mine |= made.by_name
    return mine


def _left(budget: Budget, spending: Spending) -> Budget:
    tokens = None if budget.tokens is None else max(0, budget.tokens - spending.tokens)
    cost = None if budget.cost_usd is None else max(0.0, budget.cost_usd - spending.cost_usd)
    return budget.replace(tokens=tokens, cost_usd=cost)


def _failing_builds(config: RunConfig, archive: Archive, header: RunHeader) -> frozenset[str]:
    # A serial run must come out the same whatever else the archive holds.
    return frozenset() if config.serial else archive.failing_builds(header.task.id, header.device.id)


def _interrupted(place: RunFolder, search: Search | None) -> Interrupted:
    if search is None and not place.has_run:
        return Interrupted("stopped before the search began", folder=str(place.path))
    hint = f"continue with --resume in {place.path}"
    return Interrupted("stopped; every finished attempt is kept", folder=str(place.path), hint=hint)


def _is_run_id(name: str) -> bool:
    day, _, rest = name.partition("-")
    clock, _, letters = rest.partition("-")
    return len(day) == 8 and len(clock) == 6 and (day + clock).isdigit() and letters.isalnum()


def _versions() -> dict[str, str]:
    found = {"kernelwright": __version__, "python": platform.python_version(), "system": platform.platform()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops a run as Ctrl-C does. Only the main thread may say so; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
