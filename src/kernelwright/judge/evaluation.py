"""`Evaluation`: one verdict on one candidate on one device. A tagged union, so that impossible states cannot be written."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.core.records import SCHEMA_VERSION, Record


class Stage(StrEnum):
    """Where a candidate is on its way through the judge."""

    SCREEN = "screen"
    BUILD = "build"
    LOAD = "load"
    VERIFY = "verify"
    GUARD = "guard"
    TIME = "time"


class Rule(StrEnum):
    """Who must do the work."""

    OWN_KERNEL = "own-kernel"
    """The candidate's own kernel; library operations only where the task allows them."""
    ANY_CODE = "any-code"
    """Framework operations are fine too."""


class Guard(StrEnum):
    """Named ways to be rejected although the numbers may look right."""

    LIBRARY_FALLBACK = "library_fallback"
    """Framework operations did the work under `own-kernel`."""
    INPUT_MODIFIED = "input_modified"
    OUTPUT_ALIASES_INPUT = "output_aliases_input"
    OUTPUT_REUSED = "output_reused"
    """The same output storage came back from a second call with other inputs."""
    WRONG_OUTPUT_TYPE = "wrong_output_type"
    """Not a plain torch.Tensor: a subclass, a list, an array, another device."""
    OUT_OF_BOUNDS_WRITE = "out_of_bounds_write"
    NON_DETERMINISTIC = "non_deterministic"
    """Two calls with equal inputs differ by more than the tolerance."""
    TASK_REDEFINED = "task_redefined"
    """The candidate's file defines get_inputs, Model, … to shrink or change the task."""
    FASTER_THAN_ROOFLINE = "faster_than_roofline"
    TIMED_OUTPUT_WRONG = "timed_output_wrong"
    """The output of a timed iteration was wrong: the work is skipped while the clock runs."""
    CLOCK_MISMATCH = "clock_mismatch"
    """In-process time and time seen from outside disagree."""
    LEFT_BEHIND = "left_behind"
    """Threads or child processes were still running after the call."""
    EARLY_EXIT = "early_exit"
    """The process ended cleanly without doing what it was asked."""


class TensorError(Record):
    """How far one output is from the fp64 oracle on one check."""

    output: str
    max_abs_error: float
    max_relative_error: float
    """Largest |candidate - oracle| / max(|oracle|, rms(oracle))."""
    worst_ratio: float
    """Largest error over allowed error; <= 1 passes."""
    mismatched: int
    elements: int
    worst_index: tuple[int, ...] = ()
    expected: float = 0.0
    got: float = 0.0


class Check(Record):
    """One comparison: a workload under a distribution."""

    workload: str
    axes: dict[str, int]
    """Empty for a hidden workload in what a proposer sees."""
    distribution: str
    hidden: bool = False
    passed: bool
    detail: str = ""
    """One sentence when it failed."""
    errors: tuple[TensorError, ...] = ()


class BaselineTiming(Record):
    """What PyTorch already gives on one workload."""

    mode: Literal["eager", "compile", "compile-max-autotune"]
    workload: str
    median_us: float | None
    """None when the mode failed."""
    failure: str = ""


class WorkloadTiming(Record):
    """Candidate and best baseline, interleaved, on one workload."""

    workload: str
    axes: dict[str, int]
    baseline: Literal["eager", "compile", "compile-max-autotune"]
    """The fastest mode on this workload."""
    candidate_us: tuple[float, ...]
    """One sample per interleaved pair, microseconds."""
    baseline_us: tuple[float, ...]
    speedup: float
    """Median over pairs of baseline / candidate."""
    speedup_ci: tuple[float, float]
    """95 % bootstrap interval."""
    roofline_us: float
    """Shortest possible time from the measured ceilings."""
    roofline_fraction: float
    """roofline_us / median candidate_us."""
    bound: Literal["memory", "compute", "latency"]
    moved_bytes: int
    """Compulsory bytes."""
    operations: int


class Speed(Record):
    """Is it fast, and how sure are we."""

    verdict: Literal["faster", "slower", "inconclusive"]
    speedup: float
    """Geometric mean over timed workloads of baseline time / candidate time."""
    speedup_ci: tuple[float, float]
    roofline_fraction: float
    """Geometric mean over timed workloads."""
    workloads: tuple[WorkloadTiming, ...]
    clock: str
    """Which clock, and the allocation rule, in words."""


class _Verdict(Record):
    schema_version: int = SCHEMA_VERSION
    candidate: str
    """Id of the candidate."""
    task: str
    """Id of the task."""
    device: str
    """Id of the device."""
    rule: Rule = Rule.OWN_KERNEL
    seconds: dict[str, float] = {}
    """Where the time went: one entry a stage."""
    sandbox: str = ""
    """Isolation level in force."""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


class Passed(_Verdict):
    """Right. `speed` is None when it was not timed (`untimed` says why)."""

    outcome: Literal["passed"] = "passed"
    speed: Speed | None
    untimed: str = ""
    specialised: bool = False
    """Refuses other shapes than the task's own (allowed where the task declares no axes)."""


class Incorrect(_Verdict):
    """Wrong results; `checks` says where."""

    outcome: Literal["incorrect"] = "incorrect"
    stage: Stage = Stage.VERIFY
    reason: str


class Rejected(_Verdict):
    """A guard fired."""

    outcome: Literal["rejected"] = "rejected"
    stage: Stage
    guard: Guard
    reason: str


class BuildFailed(_Verdict):
    """It does not compile."""

    outcome: Literal["build_failed"] = "build_failed"
    stage: Stage = Stage.BUILD
    reason: str
    """The compiler's first error, trimmed."""
    log: str = ""


class Crashed(_Verdict):
    """The process died (signal) or the candidate raised."""

    outcome: Literal["crashed"] = "crashed"
    stage: Stage
    reason: str
    signal: int | None = None


class TimedOut(_Verdict):
    """It took longer than the limit, or ate the memory it was given (`limit` says which)."""

    outcome: Literal["timed_out"] = "timed_out"
    stage: Stage
    reason: str
    limit: Literal["seconds", "memory", "output"] = "seconds"


class Invalid(_Verdict):
    """Not a candidate at all: does not parse, no entry point, wrong signature."""

    outcome: Literal["invalid"] = "invalid"
    stage: Stage = Stage.SCREEN
    reason: str


class JudgeError(_Verdict):
    """Our own failure; never counts against a candidate."""

    outcome: Literal["judge_error"] = "judge_error"
    stage: Stage
    reason: str


Evaluation = Annotated[
    Passed | Incorrect | Rejected | BuildFailed | Crashed | TimedOut | Invalid | JudgeError,
    Field(discriminator="outcome"),
]
EVALUATION: TypeAdapter[Evaluation] = TypeAdapter(Evaluation)
"""Reads any evaluation: `EVALUATION.validate_json(text)`."""
