"""A task made ready on this machine: cases with their oracle, rings, baselines; evaluates candidates one at a time."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelwright.core.errors import InternalError, KernelwrightError
from kernelwright.core.paths import cache_dir
from kernelwright.judge.ahead import Ahead
from kernelwright.judge.baselines import MODES, Baselines, Mode, Ring, make_ring
from kernelwright.judge.cases import Case, Cases, OracleOutput, oracle_of, own_seed
from kernelwright.judge.evaluating import Evaluating, Facts
from kernelwright.judge.evaluation import BaselineTiming, Evaluation, JudgeError, Rule, Speed, Stage
from kernelwright.judge.gate import TimingGate
from kernelwright.judge.processes import ServerHandle
from kernelwright.judge.protocol import Limits, TimingPlan
from kernelwright.judge.questions import CandidateProcess, Stopped, start_folder
from kernelwright.judge.references import ReferenceProcess
from kernelwright.judge.regions import canary, same_bytes
from kernelwright.judge.sandbox import level_in_force
from kernelwright.judge.timing import TimedWorkload, time_candidate
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.cost import estimate
from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.build import BuildResult, build
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

_CHECKED_SLOTS = 2
"""Slots of each ring whose oracle is known, so that a timed iteration on one of them can be checked."""
_GATE = TimingGate()


@dataclass
class _Timed:
    """What timing on one workload needs, made once."""

    ring: Ring
    oracles: dict[int, list[OracleOutput]]


class LocalSession:
    """Implements `judge.protocol.TaskSession`."""

    def __init__(
        self,
        task: Task,
        device: Device,
        *,
        server: ServerHandle,
        limits: Limits,
        seed: int,
        modes: Sequence[Mode] = MODES,
    ) -> None:
        self._task = task
        self._device = device
        self._server = server
        self._limits = limits
        self._seed = seed
        self._modes = modes
        self._evaluating = threading.Lock()
        self._reference = ReferenceProcess(server, limits, device.cores, task)
        self._cases = Cases(task, self._reference, seed)
        compiled = [mode for mode in modes if mode != "eager"]
        self._ahead = Ahead(task, server, ReferenceProcess(server, limits, device.cores, task), _GATE, compiled)
        self._baselines = Baselines(task, server, limits, _GATE, device.cores, self._ahead, modes)
        self._facts: Facts | None = None
        self._timed: dict[str, _Timed] = {}
        self._count = 0

    @property
    def task(self) -> Task:
        """The task that this session judges."""
        return self._task

    @property
    def device(self) -> Device:
        """The machine that it judges on."""
        return self._device

    def graph(self) -> Graph | str:
        """The reference as core ATen operations, or the reason why it cannot be traced. Traced once."""
        return self._ahead.graph()

    def inductor_sources(self) -> Sequence[Candidate] | str:
        """What torch.compile generates for the timed workloads; or the reason why not."""
        return self._ahead.lifted()

    def baselines(self) -> Sequence[BaselineTiming]:
        """Every mode on every timed workload; measured once, on first use.

        Raises:
            TaskError: not even the reference itself runs in the time that there is.
        """
        self._ahead.start()
        with self._evaluating:
            for name in [w.name for w in self._task.timed_workloads]:
                self._baselines.best(self._ready(name, TimingPlan()).ring)
            self._end_reference()
            if set(self._modes) - {"eager"}:
                # Now, not beside the first candidate: the two together need more memory than this is to take.
                self._ahead.lifted()
            return tuple(self._baselines.measured)

    def build(self, candidate: Candidate) -> None:
        """Build ahead into the cache; stands still while anything is timed."""
        if candidate.language == "cpp":
            self._build(candidate)

    def evaluate(
        self,
        candidate: Candidate,
        *,
        rule: Rule = Rule.OWN_KERNEL,
        timing: TimingPlan | None = None,
        allowed_library: tuple[str, ...] = (),
    ) -> Evaluation:
        """The verdict, in fresh processes; one candidate at a time."""
        plan = timing or TimingPlan()
        allowed = (*self._task.allowed_library, *allowed_library)
        if plan.pairs:
            self._ahead.start()
        with self._evaluating:
            verdict = self._evaluate(candidate, rule, plan, allowed)
            if isinstance(verdict, JudgeError):
                verdict = self._evaluate(candidate, rule, plan, allowed)
            return verdict

    def close(self) -> None:
        """End every process of this session."""
        self._ahead.close()
        self._baselines.close()
        self._reference.close()
        for timed in self._timed.values():
            timed.ring.region.close()
        self._timed.clear()

    def _evaluate(self, candidate: Candidate, rule: Rule, plan: TimingPlan, allowed: tuple[str, ...]) -> Evaluation:
        self._count += 1
        generator = np.random.default_rng([self._seed, 3, self._count])
        evaluating = Evaluating(
            task=self._task,
            candidate=candidate,
            rule=rule,
            allowed_library=allowed,
            limits=self._limits,
            device_id=self._device.id,
            sandbox=level_in_force(),
            cases=self._cases,
            facts=self._known_facts,
            build=self._build,
            start=lambda c, library: self._start(c, library, generator),
            prepare_timing=lambda: self._prepare_timing(plan),
            measure=lambda process: self._measure(process, plan, generator, evaluating.waited),
            untimed="" if plan.pairs else "timing was not asked for",
        )
        return evaluating.run()

    def _build(self, candidate: Candidate) -> BuildResult:
        return build(
            candidate.sources,
            options=candidate.build_options,
            device=self._device,
            timeout=self._limits.build_seconds,
            pause=_GATE.compiling,
        )

    def _start(self, candidate: Candidate, library: str, generator: np.random.Generator) -> CandidateProcess:
        pattern = canary(generator)
        folder = start_folder()
        kept = _build_folder(candidate)
        cores = self._device.cores
        try:
            runner = self._server.spawn(
                "candidate",
                folder=folder,
                memory_bytes=self._limits.memory_bytes,
                output_bytes=self._limits.output_bytes,
                settings={
                    "task": self._task.to_json(),
                    "candidate": candidate.to_json(),
                    "library": library,
                    "threads": min(cores, candidate.threads or cores),
                    "canary": pattern.tobytes().hex(),
                },
                environment=_build_environment(kept),
                writable=[kept],
            )
        except KernelwrightError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise Stopped(JudgeError, stage=Stage.LOAD, reason=error.message) from error
        return CandidateProcess(runner, folder, self._task, self._limits, pattern)

    def _measure(
        self,
        process: CandidateProcess,
        plan: TimingPlan,
        generator: np.random.Generator,
        waited: Callable[[float], None],
    ) -> Speed:
        workloads = self._timed_workloads(plan)
        begun = time.monotonic()
        with _GATE.exclusive():
            waited(time.monotonic() - begun)
            return time_candidate(self._task, self._device, process, workloads, plan, generator)

    def _prepare_timing(self, plan: TimingPlan) -> None:
        self._timed_workloads(plan)

    def _timed_workloads(self, plan: TimingPlan) -> list[TimedWorkload]:
        graph = self.graph()
        known = graph if isinstance(graph, Graph) else None
        found = []
        for workload in self._task.timed_workloads:
            timed = self._ready(workload.name, plan)
            baseline = self._baselines.best(timed.ring)
            cost = estimate(self._task, workload.axes, known, self._device)
            found.append(TimedWorkload(timed.ring, baseline, timed.oracles, cost))
        return found

    def _ready(self, name: str, plan: TimingPlan) -> _Timed:
        """Ring and oracles of a timed workload, made on first use."""
        if name not in self._timed:
            workload = next(w for w in self._task.timed_workloads if w.name == name)
            seed = own_seed(self._seed)
            # The oracles first: they need much memory for a moment, and the ring keeps much for good.
            case = self._cases.own_case(workload)
            oracles = {0: case.oracle} if case else {}
            for slot in range(len(oracles), _CHECKED_SLOTS):
                inputs = self._reference.own_inputs(workload.axes, [seed + slot])[0]
                found = oracle_of(self._task, self._reference, workload.axes, inputs, seed=slot)
                if not isinstance(found, str):
                    oracles[slot] = found
            ring = make_ring(self._task, self._reference, workload, plan, seed)
            if case:
                _keep_inputs_once(case, ring)
            self._timed[name] = _Timed(ring, oracles)
        return self._timed[name]

    def _end_reference(self) -> None:
        """Everything that it was asked is known; it starts again should anything else be asked."""
        self._known_facts()
        self._reference.close()

    def _known_facts(self) -> Facts:
        if self._facts is None:
            workload = min(self._task.workloads, key=lambda w: self._task.compulsory_bytes(w.axes))
            said = self._reference.ask({"do": "facts", "axes": workload.axes})
            self._facts = Facts(
                frozenset(int(i) for i in said["written"]), frozenset((int(o), int(i)) for o, i in said["shared"])
            )
        return self._facts


def _keep_inputs_once(case: Case, ring: Ring) -> None:
    """The first slot of a ring is a case as well.

    Raises:
        InternalError: the task's generator gave something else for the same seed.
    """
    if not all(map(same_bytes, case.inputs, ring.inputs[0])):
        raise InternalError("the task's generator gives other inputs for the same seed")
    case.inputs = ring.inputs[0]


def _build_folder(candidate: Candidate) -> Path:
    """Where what a candidate builds while it loads is kept, so that the same sources are built once.

    A folder for each candidate: torch keys an extension by its name alone, and nobody may plant a build for another.
    """
    folder = cache_dir() / "extensions" / candidate.id[:2] / candidate.id
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build_environment(folder: Path) -> dict[str, str]:
    return {
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
