"""Tables of times: the timed workloads, the baselines, the finalists, and every attempt."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.archive.records import LedgerAttempt
from kernelwright.interfaces.report.figures import byte_count, interval, microseconds, one_line, percent, times
from kernelwright.interfaces.report.kinds import Kind, kind_of
from kernelwright.interfaces.report.progress_chart import speed_of
from kernelwright.interfaces.report.reading import RunRecords
from kernelwright.interfaces.wording import BASELINE_WORDS
from kernelwright.judge.evaluation import BaselineTiming, Evaluation, Speed, WorkloadTiming


@dataclass(frozen=True)
class WorkloadRow:
    """One timed workload of the best candidate."""

    workload: str
    axes: str
    baseline: str
    baseline_time: str
    kernel_time: str
    speedup: str
    interval: str
    roofline_time: str
    fraction: str
    kernel_share: float
    """Roofline time over kernel time in percent, 0 to 100, for the bar."""
    baseline_share: float
    bound: str
    moved: str
    pairs: int


@dataclass(frozen=True)
class BaselineRow:
    """What the modes of PyTorch took on one workload."""

    workload: str
    cells: tuple[tuple[str, str, bool], ...]
    """For each mode: time, why it failed, whether it is the fastest."""


@dataclass(frozen=True)
class FinalistRow:
    """One candidate that was measured again."""

    index: str
    kind: Kind
    first: str
    """Speedup in the search."""
    again: str
    interval: str
    fraction: str
    is_best: bool


@dataclass(frozen=True)
class AttemptRow:
    """One attempt of the list of all."""

    index: int
    made: str
    template: str
    kind: Kind
    speedup: str
    interval: str
    fraction: str
    elapsed: float
    language: str


def workload_rows(speed: Speed) -> list[WorkloadRow]:
    """The timed workloads."""
    return [_workload(w) for w in speed.workloads]


def _workload(w: WorkloadTiming) -> WorkloadRow:
    kernel, baseline = _median(w.candidate_us), _median(w.baseline_us)
    return WorkloadRow(
        workload=one_line(w.workload, 80),
        axes=", ".join(f"{one_line(k, 20)} {v:,}" for k, v in w.axes.items()),
        baseline=BASELINE_WORDS[w.baseline],
        baseline_time=microseconds(baseline),
        kernel_time=microseconds(kernel),
        speedup=times(w.speedup),
        interval=interval(w.speedup_ci),
        roofline_time=microseconds(w.roofline_us),
        fraction=percent(w.roofline_fraction),
        kernel_share=_share(w.roofline_us, kernel),
        baseline_share=_share(w.roofline_us, baseline),
        bound=w.bound,
        moved=byte_count(w.moved_bytes),
        pairs=len(w.candidate_us),
    )


def _median(samples: Sequence[float]) -> float | None:
    return statistics.median(samples) if samples else None


def _share(shortest: float, taken: float | None) -> float:
    if not taken or not math.isfinite(taken) or not math.isfinite(shortest):
        return 0.0
    return round(min(max(100 * shortest / taken, 0.0), 100.0), 1)


def baseline_modes(baselines: Sequence[BaselineTiming]) -> list[str]:
    """The modes that were asked, in words."""
    return [BASELINE_WORDS[mode] for mode in dict.fromkeys(b.mode for b in baselines)]


def baseline_rows(baselines: Sequence[BaselineTiming]) -> list[BaselineRow]:
    """One row a workload."""
    modes = list(dict.fromkeys(b.mode for b in baselines))
    by_workload: dict[str, dict[str, BaselineTiming]] = {}
    for timing in baselines:
        by_workload.setdefault(timing.workload, {})[timing.mode] = timing
    rows = []
    for workload, found in by_workload.items():
        known = [t.median_us for t in found.values() if t.median_us is not None]
        fastest = min(known, default=None)
        cells = [_baseline_cell(found.get(mode), fastest) for mode in modes]
        rows.append(BaselineRow(one_line(workload, 80), tuple(cells)))
    return rows


def _baseline_cell(timing: BaselineTiming | None, fastest: float | None) -> tuple[str, str, bool]:
    if timing is None:
        return "not measured", "", False
    if timing.median_us is None:
        return "failed", one_line(timing.failure, 400), False
    return microseconds(timing.median_us), "", timing.median_us == fastest


def finalist_rows(run: RunRecords) -> list[FinalistRow]:
    """The second measurements, in the order of the search's own ranking."""
    return [_finalist(run, candidate, evaluation) for candidate, evaluation in run.measured_again.items()]


def _finalist(run: RunRecords, candidate: str, evaluation: Evaluation) -> FinalistRow:
    attempt = run.by_candidate.get(candidate)
    first, again = speed_of(attempt.evaluation) if attempt else None, speed_of(evaluation)
    return FinalistRow(
        index=f"#{attempt.index}" if attempt else candidate[:8],
        kind=kind_of(evaluation),
        first=times(first.speedup if first else None),
        again=times(again.speedup if again else None),
        interval=interval(again.speedup_ci if again else None),
        fraction=percent(again.roofline_fraction if again else None),
        is_best=candidate == run.best_id,
    )


def attempt_rows(attempts: Sequence[LedgerAttempt]) -> list[AttemptRow]:
    """Every attempt in order."""
    return [_attempt(a) for a in attempts]


def _attempt(attempt: LedgerAttempt) -> AttemptRow:
    origin, speed = attempt.candidate.origin, speed_of(attempt.evaluation)
    return AttemptRow(
        index=attempt.index,
        made=one_line(" · ".join(dict.fromkeys(filter(None, (origin.proposer, origin.operator)))), 60),
        template=one_line(origin.template, 40),
        kind=kind_of(attempt.evaluation),
        speedup=times(speed.speedup) if speed else "",
        interval=interval(speed.speedup_ci) if speed else "",
        fraction=percent(speed.roofline_fraction) if speed else "",
        elapsed=attempt.elapsed_seconds,
        language=attempt.candidate.language,
    )
