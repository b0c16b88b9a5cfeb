"""What every benchmark writes: machine, versions, date, command, rows with samples, a summary, and the figures asked for."""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelwright.platforms.device import Device

RESULTS = Path(__file__).parent / "results"
_COMPARISONS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
}


@dataclass(frozen=True)
class Shortfall:
    """A figure that does not reach what was asked; `value` is None when it was not measured."""

    benchmark: str
    figure: str
    asked: str
    value: float | None


def write(
    name: str,
    device: Device,
    *,
    rows: Sequence[Mapping[str, Any]],
    summary: Mapping[str, float | None],
    asked: Mapping[str, str],
) -> Path:
    """Write `results/<name>.json` in one step and return its path."""
    RESULTS.mkdir(exist_ok=True)
    record = {
        "benchmark": name,
        "machine": _machine(device),
        "versions": versions(device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "rows": list(rows),
        "summary": dict(summary),
        "asked": dict(asked),
    }
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", "utf-8")
    temporary.replace(path)
    return path


def shortfalls(record: Mapping[str, Any]) -> list[Shortfall]:
    """The figures of one result file that are missing or do not reach what was asked."""
    found = []
    for figure, asked in record["asked"].items():
        value = record["summary"].get(figure)
        if value is None or not reaches(value, asked):
            found.append(Shortfall(record["benchmark"], figure, asked, value))
    return found


def reaches(value: float, asked: str) -> bool:
    """Whether `value` satisfies a condition such as `>=1.35`.

    Raises:
        ValueError: the condition is not `>=` or `<=` and a number.
    """
    if asked[:2] not in _COMPARISONS:
        raise ValueError(f"expected >=NUMBER or <=NUMBER, got {asked!r}")
    return _COMPARISONS[asked[:2]](value, float(asked[2:]))


def versions(device: Device) -> dict[str, str]:
    """Versions of everything that decides a figure."""
    found = {"python": platform.python_version()}
    for package in ("kernelwright", "torch", "numpy", "triton"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    for compiler in device.compilers:
        found[compiler.name] = compiler.version
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    found["commit"] = commit.stdout.strip() or "unknown"
    return found


def _machine(device: Device) -> dict[str, Any]:
    described = device.model_dump(mode="json", exclude={"ceilings": {"samples": True}, "compilers": True})
    return {**described, "kernel": platform.release()}
