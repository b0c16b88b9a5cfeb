"""What several commands read from the user's words."""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.core.errors import EnvironmentProblem, ResumeError, TaskError, UsageError
from kernelwright.judge.evaluation import Rule
from kernelwright.platforms.device import Device
from kernelwright.tasks.request import TaskRequest

RUNS = Path("kernelwright-runs")
"""Where runs lie that were given no folder."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h)?")
_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def task_request(target: str, inputs: tuple[str, ...], workloads: tuple[str, ...]) -> TaskRequest:
    """The request, with the absolute path of a file, so that a run can be resumed from elsewhere.

    Raises:
        TaskError: there is no such file; everything else about it is found out in the sandbox.
    """
    head, colon, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    path = Path(head).expanduser()
    if path.suffix == ".py" and not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise TaskError("missing_file", f"{path}: {what}", hint="give a Python file, or module.path:callable")
    if path.is_file():
        target = f"{path.resolve()}{colon}{attribute}"
    return TaskRequest(target=target, inputs=inputs, workloads=workloads)


def rule_named(word: str) -> Rule:
    """The rule.

    Raises:
        UsageError: there is none of this name.
    """
    try:
        return Rule(word)
    except ValueError as error:
        raise UsageError(f"no rule {word!r}", hint=f"one of: {', '.join(Rule)}") from error


def seconds_of(word: str) -> float | None:
    """`90`, `90s`, `3m`, `1h` in seconds; `none` is no limit.

    Raises:
        UsageError: it is none of these.
    """
    if word.strip().lower() in ("none", "0"):
        return None
    found = _DURATION.fullmatch(word.strip().lower())
    if found is None:
        raise UsageError(f"not a time: {word!r}", hint="such as 90, 90s, 3m, or none")
    return float(found[1]) * _UNITS[found[2] or "s"]


def device_at_hand(word: str) -> Device:
    """The device with its measured ceilings.

    Raises:
        EnvironmentProblem: it is not supported, torch is missing, or there is no compiler.
    """
    if word != "cpu":
        raise EnvironmentProblem(
            f"the device {word!r} is not supported in this version",
            hint="--device cpu; kernels for GPUs are not supported yet",
        )
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentProblem("torch is not installed", hint="pip install 'kernelwright[torch]'")
    from kernelwright.platforms.detect import detect_device

    return detect_device()


def run_folder(given: Path | None) -> Path:
    """The named run (a folder, or the name of one under `kernelwright-runs/`), else the latest there.

    Raises:
        ResumeError: there is none.
    """
    if given is not None:
        if not given.exists() and (RUNS / given / "run.json").is_file():
            return RUNS / given
        if not (given / "run.json").is_file():
            raise ResumeError(f"there is no run in {given}", hint="a run's folder holds run.json")
        return given
    latest = latest_run()
    if latest is None:
        raise ResumeError(f"there is no run in {RUNS}", hint="name a run's folder")
    return latest


def latest_run() -> Path | None:
    """The run under `kernelwright-runs/` that was started last."""
    found = [(path.stat().st_mtime, path.parent) for path in RUNS.glob("*/run.json")]
    return max(found)[1] if found else None
