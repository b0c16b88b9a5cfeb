"""One candidate through the stages: screen, build, load, verify, guard, time. Each ends in a verdict or in the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernelwright.core.errors import KernelwrightError
from kernelwright.judge.cases import Case, Cases
from kernelwright.judge.evaluation import (
    BuildFailed,
    Check,
    Crashed,
    Evaluation,
    Guard,
    Incorrect,
    Invalid,
    JudgeError,
    Passed,
    Rule,
    Speed,
    Stage,
)
from kernelwright.judge.protocol import Limits
from kernelwright.judge.questions import Called, CandidateProcess, Refused, Stopped
from kernelwright.platforms.candidates import Candidate, KernelStep, LibraryStep
from kernelwright.platforms.languages.cpp.build import BuildResult
from kernelwright.platforms.languages.python import screening
from kernelwright.platforms.languages.python.library_record import not_allowed
from kernelwright.tasks.model import Task

_POISONS = (0x7F, 0xFE)
"""Two states of uninitialised memory: large positive and large negative in every floating type."""
_REPEATED_BYTES = 64 << 20
UNTIMED_TRITON = "Triton ran in its interpreter, which shows that a kernel is right and says nothing about its speed"


@dataclass(frozen=True)
class Facts:
    """What the reference itself does that a candidate may do too."""

    written: frozenset[int]
    """Inputs that it writes to."""
    shared: frozenset[tuple[int, int]]
    """Pairs (output, input) that share memory."""


@dataclass
class Evaluating:
    """The way of one candidate."""

    task: Task
    candidate: Candidate
    rule: Rule
    allowed_library: tuple[str, ...]
    limits: Limits
    device_id: str
    sandbox: str
    cases: Cases
    facts: Callable[[], Facts]
    build: Callable[[Candidate], BuildResult]
    start: Callable[[Candidate, str], CandidateProcess]
    """Starts a process for the candidate, given the path of its library (or an empty string)."""
    prepare_timing: Callable[[], None]
    """Makes baselines and inputs ready; their cost is the task's."""
    measure: Callable[[CandidateProcess], Speed]
    untimed: str = ""
    """Why a right candidate is not to be timed."""
    seconds: dict[str, float] = field(default_factory=dict)
    stage: Stage = Stage.SCREEN
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    process: CandidateProcess | None = None
    refusals: list[str] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)

    def run(self) -> Evaluation:
        """The verdict."""
        try:
            verdict = self._through_the_stages()
        except Stopped as stopped:
            verdict = stopped.verdict(self.stage, **self._shared())
        except KernelwrightError as error:
            verdict = JudgeError(stage=self.stage, reason=error.message, **self._shared())
        finally:
            self._end_process()
        return verdict

    def _through_the_stages(self) -> Evaluation:
        with self._at(Stage.SCREEN):
            self._screen()
        library = ""
        if self.candidate.language == "cpp":
            with self._at(Stage.BUILD):
                library = self._built()
        # Outside of every stage: the oracle and the reference's habits belong to the task, not to this candidate.
        every, facts = self.cases.all(), self.facts()
        with self._at(Stage.LOAD):
            self.process = self.start(self.candidate, library)
            builds = self.candidate.language != "cpp"
            said = self.process.load(self.limits.load_seconds + (self.limits.build_seconds if builds else 0.0))
        with self._at(Stage.VERIFY):
            operations = self._verify(self.process, every, facts)
        with self._at(Stage.GUARD):
            self._guard(self.process, said, operations)
        speed: Speed | None = None
        untimed = UNTIMED_TRITON if self.candidate.language == "triton" else self.untimed
        if not untimed:
            self.prepare_timing()
            with self._at(Stage.TIME):
                speed = self.measure(self.process)
        with self._at(Stage.GUARD):
            self._guard_ending()
        return Passed(speed=speed, untimed=untimed, specialised=bool(self.refusals), **self._shared())

    @contextmanager
    def _at(self, stage: Stage) -> Iterator[None]:
        self.stage = stage
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - begun, 4)

    def waited(self, seconds: float) -> None:
        """Time in which another judge on this machine was timing: an entry of its own, no part of the stage."""
        self.seconds["waiting"] = round(seconds, 4)
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) - seconds

    def _screen(self) -> None:
        reason = _cpp_refusal(self.candidate, self.task) if self.candidate.language == "cpp" else ""
        if self.candidate.language != "cpp":
            reason = screening.refusal(self.candidate, self.task)
        if reason:
            raise Stopped(Invalid, reason=reason)
        library = [step.op.rsplit(".", 1)[0] for step in self.candidate.plan.steps if isinstance(step, LibraryStep)]
        self._refuse_library(tuple(library), "its plan leaves to the library")

    def _built(self) -> str:
        result = self.build(self.candidate)
        if result.kind == "built":
            return str(result.path)
        raise Stopped(BuildFailed, reason=result.reason, log=result.log)

    def _verify(self, process: CandidateProcess, every: list[Case], facts: Facts) -> tuple[str, ...]:
        """All cases; the operations of the library that ran during them."""
        operations: dict[str, None] = {}
        seen: set[str] = set()
        for number, case in enumerate(every):
            first = case.workload.name not in seen
            if case.workload.name in {r.split(":")[0] for r in self.refusals}:
                continue
            seen.add(case.workload.name)
            called = self._called(process, case, facts, number, record=first)
            if called is None:
                continue
            operations.update(dict.fromkeys(called.computed_by_library))
            self._judge(case, called, facts)
            if first and sum(a.nbytes for a in case.inputs) <= _REPEATED_BYTES:
                again = self._called(process, case, facts, number + 1, record=False)
                check = case.judged(self.task, again.outputs) if again else None
                if check is not None and not check.passed:
                    raise Stopped.guard(
                        Guard.NON_DETERMINISTIC,
                        f"right in one call, wrong in the next with equal inputs: {check.detail}",
                    )
        if not any(case.workload.timed and case.workload.name in seen for case in every):
            raise Stopped(Incorrect, reason="no case on a timed workload could be checked")
        return tuple(operations)

    def _called(
        self, process: CandidateProcess, case: Case, facts: Facts, number: int, *, record: bool
    ) -> Called | None:
        """One call; None where the candidate refuses a shape that it may refuse."""
        self._spend()
        timed = case.workload.timed
        try:
            return process.call(
                case.workload.axes,
                case.inputs,
                poison=_POISONS[number % 2],
                record=record and self.candidate.language != "cpp",
                watch=record and timed,
                may_write=facts.written,
            )
        except Refused as refused:
            declared = any(axis.origin == "declared" for axis in self.task.axes)
            if timed:
                raise Stopped(Crashed, reason=f"on the task's own sizes: {refused}") from None
            if declared:
                self.checks.append(case.check(passed=False, detail=str(refused)))
                raise Stopped(
                    Incorrect, reason=f"it refuses other sizes, and the task declares its axes: {refused}"
                ) from None
            self.refusals.append(f"{case.workload.name}: {refused}")
            self.notes.append(f"specialised: it refuses other sizes than the task's own ({refused})")
            return None

    def _judge(self, case: Case, called: Called, facts: Facts) -> None:
        check = case.judged(self.task, called.outputs)
        if not case.binding:
            if not check.passed:
                self.notes.append(
                    f"NaN, infinities or denormals come out otherwise than in the reference: {check.detail}"
                )
            return
        self.checks.append(check)
        if not check.passed:
            where = "a hidden workload" if case.workload.hidden else f"the workload {case.workload.name}"
            raise Stopped(Incorrect, reason=f"on {where}, distribution {case.distribution.family}: {check.detail}")
        aliases = set(called.shared) - facts.shared
        if aliases:
            output, index = min(aliases)
            names = [spec.name for spec in self.task.kernel_inputs] + ["own state"]
            raise Stopped.guard(
                Guard.OUTPUT_ALIASES_INPUT,
                f"`{self.task.outputs[output].name}` shares memory with `{names[min(index, len(names) - 1)]}`",
            )
        if called.reused and not facts.shared:
            raise Stopped.guard(
                Guard.OUTPUT_REUSED, "a second call returned memory that still belongs to the first result"
            )

    def _guard(self, process: CandidateProcess, said: dict[str, Any], operations: tuple[str, ...]) -> None:
        failures = [str(f) for f in said.get("extension_failures", ())]
        if failures:
            from kernelwright.platforms.languages.cpp.diagnostics import first_error

            self.notes.append(
                f"an extension of the candidate does not build: {first_error(failures[0]) or failures[0][:300]}"
            )
        redefined = said.get("redefined", ())
        if redefined:
            self.notes.append(f"the file defines {', '.join(map(str, redefined))} too; only the task's own were used")
        suffix = f" ({self.notes[0]})" if failures else ""
        self._refuse_library(operations, "during the call the library computed", suffix)
        self._guard_processes(process)

    def _refuse_library(self, operations: tuple[str, ...], words: str, suffix: str = "") -> None:
        if self.rule is not Rule.OWN_KERNEL:
            return
        refused = not_allowed(operations, self.allowed_library)
        if refused:
            raise Stopped.guard(Guard.LIBRARY_FALLBACK, f"{words} {', '.join(refused)}{suffix}")

    def _guard_processes(self, process: CandidateProcess) -> None:
        process.refuse_running_processes()
        if process.dropped_bytes:
            self.notes.append(f"{process.dropped_bytes} bytes of output beyond the limit were dropped")

    def _guard_ending(self) -> None:
        assert self.process is not None
        ending = self.process.close()
        if ending.left_behind:
            raise Stopped.guard(Guard.LEFT_BEHIND, f"{ending.left_behind} processes were still running after the end")

    def _spend(self) -> None:
        if time.monotonic() - self._begun > self.limits.evaluation_seconds + self.seconds.get(Stage.BUILD, 0.0):
            from kernelwright.judge.evaluation import TimedOut

            raise Stopped(TimedOut, reason=f"the evaluation took more than {self.limits.evaluation_seconds:g} s")

    def _end_process(self) -> None:
        if self.process is not None:
            self.process.close()

    def _shared(self) -> dict[str, Any]:
        return {
            "candidate": self.candidate.id,
            "task": self.task.id,
            "device": self.device_id,
            "rule": self.rule,
            "seconds": dict(self.seconds),
            "sandbox": self.sandbox,
            "checks": tuple(self.checks),
            "notes": tuple(self.notes),
        }


def _cpp_refusal(candidate: Candidate, task: Task) -> str:
    """Why the plan of a C++ candidate cannot be carried out, or an empty string."""
    known = {spec.name for spec in task.kernel_inputs} | {c.spec.name for c in candidate.plan.constants}
    places = {spec.name for spec in task.outputs} | {b.name for b in candidate.plan.buffers}
    for number, step in enumerate(candidate.plan.steps):
        if isinstance(step, KernelStep):
            missing = [name for name in step.inputs if name not in known]
            nowhere = [name for name in step.outputs if name not in places]
            if missing or nowhere:
                return (
                    f"step {number} of the plan names `{(missing or nowhere)[0]}`, which does not exist at that point"
                )
            if not step.entry.isidentifier():
                return f"step {number} of the plan names the entry {step.entry!r}, which is no C name"
        known |= set(step.outputs)
    if candidate.plan.steps and not {spec.name for spec in task.outputs} <= known:
        return f"no step of the plan makes `{next(s.name for s in task.outputs if s.name not in known)}`"
    return ""
