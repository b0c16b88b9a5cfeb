"""Verdicts in words and as the keys of `--json`; pure functions over records."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernelwright.core.text import strip_escapes
from kernelwright.interfaces.output import finite
from kernelwright.judge.evaluation import Evaluation, Passed, Speed, WorkloadTiming
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device

BASELINE_WORDS = {
    "eager": "eager PyTorch",
    "compile": "torch.compile",
    "compile-max-autotune": "torch.compile max-autotune",
}


def evaluation_keys(evaluation: Evaluation, device: Device) -> dict[str, Any]:
    """The keys that `evaluate --json` promises, and a few more."""
    speed = evaluation.speed if isinstance(evaluation, Passed) else None
    guard = getattr(evaluation, "guard", None)
    return {
        "outcome": evaluation.outcome,
        "guard": str(guard) if guard else None,
        "stage": stage_of(evaluation),
        "reason": strip_escapes(reason_of(evaluation)) or None,
        "speed": speed.verdict if speed else None,
        **speed_keys(speed),
        "workloads": [workload_keys(w) for w in speed.workloads] if speed else [],
        "seconds": {stage: round(s, 4) for stage, s in evaluation.seconds.items()},
        "device": device.name,
        "rule": str(evaluation.rule),
        "candidate": evaluation.candidate,
        "task": evaluation.task,
        "checks": {"passed": sum(c.passed for c in evaluation.checks), "failed": failed_checks(evaluation)},
        "notes": [strip_escapes(note) for note in evaluation.notes],
        "sandbox": evaluation.sandbox,
    }


def speed_keys(speed: Speed | None) -> dict[str, Any]:
    """Speedup with interval, over which baseline, and the roofline fraction; all None where nothing was timed."""
    return {
        "speedup": finite(speed.speedup) if speed else None,
        "speedup_ci": [finite(bound) for bound in speed.speedup_ci] if speed else None,
        "baseline": baseline_of(speed) if speed else None,
        "roofline_fraction": finite(speed.roofline_fraction) if speed else None,
    }


def workload_keys(timing: WorkloadTiming) -> dict[str, Any]:
    """One timed workload; medians instead of samples."""
    return {
        "workload": timing.workload,
        "axes": timing.axes,
        "baseline": timing.baseline,
        "baseline_us": statistics.median(timing.baseline_us),
        "candidate_us": statistics.median(timing.candidate_us),
        "pairs": len(timing.candidate_us),
        "speedup": finite(timing.speedup),
        "speedup_ci": [finite(bound) for bound in timing.speedup_ci],
        "roofline_us": finite(timing.roofline_us),
        "roofline_fraction": finite(timing.roofline_fraction),
        "bound": timing.bound,
        "moved_bytes": timing.moved_bytes,
        "operations": timing.operations,
    }


def baseline_of(speed: Speed) -> str:
    """The baseline that is the fastest on most workloads."""
    return str(Counter(w.baseline for w in speed.workloads).most_common(1)[0][0])


def stage_of(evaluation: Evaluation) -> str:
    """How far the candidate came."""
    if isinstance(evaluation, Passed):
        return "time" if evaluation.speed else "verify"
    return str(evaluation.stage)


def reason_of(evaluation: Evaluation) -> str:
    """Why it was not right, or was right but not timed; else empty."""
    return evaluation.untimed if isinstance(evaluation, Passed) else evaluation.reason


def failed_checks(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The comparisons that failed. Hidden sizes stay hidden."""
    return [
        {
            "workload": "hidden" if c.hidden else c.workload,
            "axes": {} if c.hidden else c.axes,
            "distribution": c.distribution,
            "detail": strip_escapes(c.detail),
        }
        for c in evaluation.checks
        if not c.passed
    ]


def outcome_words(evaluation: Evaluation) -> str:
    """One or two words: `faster`, `slower`, `right, untimed`, `wrong`, `rejected: library_fallback`, …"""
    if isinstance(evaluation, Passed):
        return evaluation.speed.verdict if evaluation.speed else "right, untimed"
    guard = getattr(evaluation, "guard", None)
    plain = {"incorrect": "wrong", "build_failed": "no build", "timed_out": "timed out", "judge_error": "judge failed"}
    return str(guard).replace("_", " ") if guard else plain.get(evaluation.outcome, evaluation.outcome)


def speed_words(speed: Speed) -> str:
    """`1.52x (95% CI 1.48-1.57)`."""
    low, high = speed.speedup_ci
    return f"{speed.speedup:.2f}x (95% CI {low:.2f}-{high:.2f})"


def change_words(candidate: Candidate, parent: Candidate | None = None) -> str:
    """What an attempt tries: the parameters that differ from its parent's, else its plan."""
    if parent is not None and parent.origin.template == candidate.origin.template:
        changed = [f"{k}={v}" for k, v in candidate.parameters.items() if parent.parameters.get(k) != v]
        if changed:
            return one_line(", ".join(changed))
    return one_line(candidate.origin.plan or ", ".join(f"{k}={v}" for k, v in candidate.parameters.items()))


def one_line(text: str, limit: int = 0) -> str:
    """`text` without escapes and line breaks, perhaps cut to `limit` characters."""
    flat = " ".join(strip_escapes(text).split())
    return flat if not limit or len(flat) <= limit else f"{flat[: max(1, limit - 1)]}…"


def microseconds(value: float) -> str:
    """Three digits and a unit: `812 us`, `20.8 ms`, `1.20 s`."""
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if value >= scale:
            size = value / scale
            return f"{size:.{0 if size >= 100 else 1 if size >= 10 else 2}f} {unit}"
    return f"{value:.2f} us"


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """A table as lines: columns two blanks apart, those in `right` flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def workload_table(speed: Speed) -> list[str]:
    """Per workload: times of baseline and kernel, speedup, roofline fraction."""
    rows = [["workload", "baseline", "kernel", "speedup (95% CI)", "roofline"]]
    for timing in speed.workloads:
        low, high = timing.speedup_ci
        rows.append(
            [
                one_line(timing.workload, 24),
                f"{microseconds(statistics.median(timing.baseline_us))} {timing.baseline}",
                microseconds(statistics.median(timing.candidate_us)),
                f"{timing.speedup:.2f}x ({low:.2f}-{high:.2f})",
                f"{timing.roofline_fraction:.0%}",
            ]
        )
    return aligned(rows, right=frozenset({2, 4}))
