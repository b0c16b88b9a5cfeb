"""Interleaved timing of a candidate against the best baseline of each workload."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelwright.judge.allocation import RULE
from kernelwright.judge.baselines import LiveBaseline, Ring, calls_per_sample
from kernelwright.judge.cases import OracleOutput
from kernelwright.judge.evaluation import Guard, Speed, WorkloadTiming
from kernelwright.judge.protocol import TimingPlan
from kernelwright.judge.questions import CandidateProcess, Stopped
from kernelwright.judge.statistics import combined, geometric_mean, paired_speedup, verdict
from kernelwright.platforms.cost import CostEstimate
from kernelwright.platforms.device import Device
from kernelwright.tasks.comparison import compare
from kernelwright.tasks.model import Task

CLOCK = (
    f"perf_counter_ns around each call in the runner, checked against the judge's own; {RULE}; "
    "idle OpenMP threads sleep after a bounded spin"
)
_SETTLE_SECONDS = 0.0005
"""Time for the other side's OpenMP threads to go to sleep."""
_CLEARLY_SLOWER = 0.8
_CLEARLY_FASTER = 1.1
_NARROW = 1.08
"""Upper over lower end of an interval."""
_LOOK_AFTER, _LOOK_EVERY = 3, 5
"""Pairs beyond the fewest ones before the first look, and between looks."""
_HIDDEN_SHARE, _HIDDEN_NS = 0.2, 1_000_000
"""A sample may look this much longer from outside than from inside before the clock is doubted."""
_ROOFLINE_MARGIN = 0.5


@dataclass
class TimedWorkload:
    """One workload to time on, with the oracle of a slot that is checked afterwards."""

    ring: Ring
    baseline: LiveBaseline
    oracles: dict[int, list[OracleOutput]]
    """By slot."""
    cost: CostEstimate


@dataclass
class Pairs:
    """Samples in order."""

    candidate_us: list[float]
    baseline_us: list[float]
    outside_ns: list[int]
    inside_ns: list[int]


def time_candidate(  # noqa: PLR0917 - all of it is needed, none of it optional
    task: Task,
    device: Device,
    candidate: CandidateProcess,
    workloads: Sequence[TimedWorkload],
    plan: TimingPlan,
    generator: np.random.Generator,
) -> Speed:
    """Time on every workload.

    Raises:
        Stopped: a guard fired, or the candidate died or hung.
    """
    timings = []
    for workload in workloads:
        axes = workload.ring.workload.axes
        candidate.prepare(axes, workload.ring)
        pairs = _pairs(candidate, workload, plan, generator)
        _check_clock(pairs)
        _check_output(task, candidate, workload, generator)
        timings.append(_timing(workload, pairs, seed=int(generator.integers(1 << 31))))
        _check_floor(task, device, timings[-1])
    speedup, interval = combined([t.speedup for t in timings], [t.speedup_ci for t in timings])
    return Speed(
        verdict=verdict(speedup, interval),
        speedup=speedup,
        speedup_ci=interval,
        roofline_fraction=geometric_mean([t.roofline_fraction for t in timings]),
        workloads=tuple(timings),
        clock=CLOCK,
    )


def _pairs(
    candidate: CandidateProcess, workload: TimedWorkload, plan: TimingPlan, generator: np.random.Generator
) -> Pairs:
    baseline, slots = workload.baseline, workload.ring.slots
    warm = [int(s) for s in generator.integers(0, slots, 3)]
    candidate_ns = min(candidate.sample([slot])[0] for slot in warm)
    baseline_ns = min(baseline.sample([slot]) for slot in warm)
    calls = (calls_per_sample(candidate_ns), calls_per_sample(baseline_ns))
    found = Pairs([], [], [], [])
    place = int(generator.integers(slots))
    begun = time.monotonic()
    for number in range(plan.pairs):
        if number >= plan.minimum_pairs and (
            time.monotonic() - begun > plan.seconds
            or _hopeless(found, number, plan.minimum_pairs)
            or _decided(found, number, plan.minimum_pairs)
        ):
            break
        sides = ("candidate", "baseline") if generator.integers(2) else ("baseline", "candidate")
        for side in sides:
            count = calls[0] if side == "candidate" else calls[1]
            chosen = [(place + k) % slots for k in range(count)]
            place = (place + count) % slots
            time.sleep(_SETTLE_SECONDS)
            if side == "baseline":
                found.baseline_us.append(baseline.sample(chosen) / count / 1000)
            else:
                inside, outside = candidate.sample(chosen)
                found.candidate_us.append(inside / count / 1000)
                found.inside_ns.append(inside)
                found.outside_ns.append(outside)
    return found


def _hopeless(pairs: Pairs, number: int, minimum: int) -> bool:
    """Clearly slower after the fewest pairs: no more of them are worth their time. Only a loss is called early."""
    if number != minimum:
        return False
    _, interval = paired_speedup(pairs.baseline_us, pairs.candidate_us)
    return interval[1] < _CLEARLY_SLOWER


def _decided(pairs: Pairs, number: int, minimum: int) -> bool:
    """Far from 1 and narrow: more pairs would change neither the verdict nor the figure. Looked at only now and then,
    and with a margin, since an interval that is looked at often is left too early."""
    if number < minimum + _LOOK_AFTER or (number - minimum) % _LOOK_EVERY:
        return False
    _, (low, high) = paired_speedup(pairs.baseline_us, pairs.candidate_us)
    return (low > _CLEARLY_FASTER or high < _CLEARLY_SLOWER) and high < low * _NARROW


def _check_clock(pairs: Pairs) -> None:
    """The runner's own time against the judge's. A patched clock hides time in every sample; a busy machine in some."""
    hidden, outside = min((o - i, o) for i, o in zip(pairs.inside_ns, pairs.outside_ns, strict=True))
    if any(i > o for i, o in zip(pairs.inside_ns, pairs.outside_ns, strict=True)):
        raise Stopped.guard(
            Guard.CLOCK_MISMATCH, "a sample took longer by the candidate's process than by the judge's clock"
        )
    if hidden > _HIDDEN_NS + _HIDDEN_SHARE * outside:
        raise Stopped.guard(
            Guard.CLOCK_MISMATCH,
            f"every sample hides time: at best {(outside - hidden) / 1e6:.3f} ms by the candidate's process were "
            f"{outside / 1e6:.3f} ms by the judge's clock",
        )


def _check_output(
    task: Task, candidate: CandidateProcess, workload: TimedWorkload, generator: np.random.Generator
) -> None:
    """The output of a timed iteration, on a slot that nobody can foresee, is held against the oracle."""
    slot = int(generator.choice(sorted(workload.oracles)))
    candidate.sample([slot])
    outputs = candidate.fetch(workload.ring.workload.axes)
    for spec, oracle, got in zip(task.outputs, workload.oracles[slot], outputs, strict=True):
        found = compare(spec.name, oracle.expected, oracle.allowed, oracle.stable, got, spec.dtype)
        if not found.passed:
            raise Stopped.guard(
                Guard.TIMED_OUTPUT_WRONG,
                f"`{spec.name}` of a timed iteration is wrong at {found.mismatched} of {found.elements} elements, "
                "although verification passed",
            )


def _check_floor(task: Task, device: Device, timing: WorkloadTiming) -> None:
    """Writing the outputs alone takes longer. Work that a rewrite saves, and inputs that need not be read, do not count."""
    if device.ceilings is None:
        return
    written = sum(_count(s.shape(timing.axes)) * s.dtype.itemsize for s in task.outputs)
    floor_us = written / (device.ceilings.cache_copy_gbytes_per_s * 1e3)
    fastest = min(timing.candidate_us)
    if fastest < _ROOFLINE_MARGIN * floor_us:
        raise Stopped.guard(
            Guard.FASTER_THAN_ROOFLINE,
            f"{fastest:.2f} us a call on {timing.workload}, but this machine needs at least {floor_us:.2f} us to write "
            f"{written} bytes of output even within its caches",
        )


def _timing(workload: TimedWorkload, pairs: Pairs, *, seed: int) -> WorkloadTiming:
    speedup, interval = paired_speedup(pairs.baseline_us, pairs.candidate_us, seed=seed)
    return WorkloadTiming(
        workload=workload.ring.workload.name,
        axes=workload.ring.workload.axes,
        baseline=workload.baseline.mode,
        candidate_us=tuple(pairs.candidate_us),
        baseline_us=tuple(pairs.baseline_us),
        speedup=speedup,
        speedup_ci=interval,
        roofline_us=workload.cost.roofline_us,
        roofline_fraction=workload.cost.roofline_us / float(np.median(pairs.candidate_us)),
        bound=workload.cost.bound,
        moved_bytes=workload.cost.moved_bytes,
        operations=workload.cost.operations,
    )


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
