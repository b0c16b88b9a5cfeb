"""A judge without a machine: an analytic landscape over named parameters. Only tests know it."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from kernelwright.agents.proposing import Parameter, ParameterSpace
from kernelwright.agents.variation import VARIATIONS, TemplateCatalog, Variation
from kernelwright.core.dtypes import DType
from kernelwright.judge.evaluation import (
    BaselineTiming,
    BuildFailed,
    Incorrect,
    JudgeError,
    Passed,
    Speed,
    Stage,
    WorkloadTiming,
)
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.platforms.device import Compiler, Device
from kernelwright.tasks.graph import Graph, Node, ValueRef, ValueSpec
from kernelwright.tasks.model import Axis, Task, TaskSource, TensorSpec, Workload

DEVICE = Device(
    name="a synthetic machine",
    architecture="x86_64",
    cores=2,
    simd="avx2",
    simd_bits=256,
    features=("fma",),
    l1d_bytes=32768,
    l2_bytes=1 << 20,
    last_level_bytes=1 << 25,
    memory_bytes=1 << 33,
    compilers=(Compiler(path="/usr/bin/c++", name="gcc", version="0"),),
)
X = TensorSpec(name="x", dtype=DType.FLOAT32, dims=("N",))
Y = TensorSpec(name="y", dtype=DType.FLOAT32, dims=("N",), role="output")
TASK = Task(
    name="synthetic",
    source=TaskSource(kind="function", path="/synthetic.py", attribute="f", text="def f(x): return x.exp()"),
    arguments=(X,),
    outputs=(Y,),
    axes=(Axis(name="N", origin="declared", default=4096),),
    workloads=(Workload(name="default", axes={"N": 4096}, timed=True),),
)
VALUE_X, VALUE_Y = (ValueSpec(name=n, dtype=DType.FLOAT32, dims=("N",)) for n in ("x", "y"))
GRAPH = Graph(
    inputs=(VALUE_X,),
    nodes=(Node(op="aten.exp.default", args=(ValueRef(name="x"),), outputs=(VALUE_Y,)),),
    outputs=("y",),
)
SPACE = {
    "unroll": (1, 2, 4, 8),
    "lanes": (4, 8, 16),
    "rows": (1, 2, 4, 8, 16, 32, 64),
    "block": (256, 512, 1024, 2048, 4096),
    "store": ("normal", "stream"),
    "accumulate": ("float", "double"),
}
OPTIMUM = {"unroll": 4, "lanes": 8, "rows": 16, "block": 1024, "store": "stream", "accumulate": "float"}


@dataclass(frozen=True)
class SyntheticTemplate:
    """Renders its values into a source, so that equal values are equal candidates."""

    key: str

    @property
    def space(self):
        return ParameterSpace(
            template=self.key,
            parameters=tuple(
                Parameter(name=n, values=v, default=v[0], meaning="a synthetic decision") for n, v in SPACE.items()
            ),
        )

    def render(self, values):
        if values["unroll"] * values["lanes"] > 64:
            raise ValueError("too many registers")
        text = f"// {self.key}\nint {self.key}_values[] = {json.dumps(sorted(values.items()))};\n"
        origin = Origin(proposer="drafter", operator="draft", template=self.key, plan="the template's own choice")
        return Candidate(language="cpp", sources={"kernel.cpp": text}, parameters=values, origin=origin)


TEMPLATES = (SyntheticTemplate("wide"), SyntheticTemplate("narrow"))


class SyntheticDrafter:
    name = "drafter"

    def propose(self, context, *, operator, count, rng):
        return [t.render(t.space.defaults()) for t in TEMPLATES][:count] if operator == "draft" else ()


def synthetic_proposers():
    catalog = TemplateCatalog([lambda task, graph, device: TEMPLATES])
    return {"drafter": SyntheticDrafter(), **{name: Variation(name, catalog) for name in VARIATIONS}}


def true_speedup(candidate: Candidate) -> float:
    """Smooth in each parameter, with one interaction; 3.0 at the optimum of `wide`, 2.2 at that of `narrow`."""
    values = candidate.parameters
    penalty = 0.0
    for name, choices in SPACE.items():
        distance = abs(choices.index(values[name]) - choices.index(OPTIMUM[name]))
        penalty += 0.16 * distance
    if values["store"] == "normal" and values["rows"] > 16:
        penalty += 0.2
    return (3.0 if candidate.origin.template == "wide" else 2.2) * math.exp(-penalty)


def is_broken(candidate: Candidate) -> bool:
    """About one candidate in five is wrong or does not build, whatever its parameters promise."""
    return int(hashlib.sha256(candidate.id.encode()).hexdigest(), 16) % 5 == 0


@dataclass
class SyntheticSession:
    """Implements `TaskSession`. Noise depends on the candidate and the seed only, so that a run can be repeated."""

    noise: float = 0.02
    noise_seed: int = 0
    roofline_speedup: float = 10.0
    seconds: float = 0.0
    failures: bool = True
    hook: Callable[[int, Candidate], object] | None = None
    judged: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    task: Task = TASK
    device: Device = DEVICE
    graph_value: Graph | str = GRAPH

    def graph(self):
        return self.graph_value

    def inductor_sources(self):
        return "there is no torch in the synthetic world"

    def baselines(self):
        return (BaselineTiming(mode="eager", workload="default", median_us=100.0),)

    def build(self, candidate):
        self.built.append(candidate.id)

    def evaluate(self, candidate, *, rule="own-kernel", timing=None, allowed_library=()):
        self.judged.append(candidate.id)
        if self.hook is not None:
            replaced = self.hook(len(self.judged), candidate)
            if replaced is not None:
                return replaced
        if self.seconds:
            time.sleep(self.seconds)
        common = {"candidate": candidate.id, "task": self.task.id, "device": self.device.id, "rule": rule}
        if self.failures and is_broken(candidate):
            if int(candidate.id[:2], 16) % 2:
                return BuildFailed(reason="error: expected ';'", log="kernel.cpp:1: error", **common)
            return Incorrect(reason="output y is wrong on default", **common)
        return Passed(speed=self._speed(candidate, timing), **common)

    def _speed(self, candidate, timing):
        pairs = timing.pairs if timing else 25
        rng = Random(f"{candidate.id}:{self.noise_seed}:{pairs}")
        measured = true_speedup(candidate) * math.exp(rng.gauss(0.0, self.noise))
        half = 2 * self.noise / math.sqrt(pairs / 25)
        interval = (measured * math.exp(-half), measured * math.exp(half))
        verdict = "faster" if interval[0] > 1 else "slower" if interval[1] < 1 else "inconclusive"
        fraction = measured / self.roofline_speedup
        row = WorkloadTiming(
            workload="default",
            axes={"N": 4096},
            baseline="eager",
            candidate_us=(100.0 / measured,) * 3,
            baseline_us=(100.0,) * 3,
            speedup=measured,
            speedup_ci=interval,
            roofline_us=100.0 / self.roofline_speedup,
            roofline_fraction=fraction,
            bound="memory",
            moved_bytes=32768,
            operations=4096,
        )
        return Speed(
            verdict=verdict,
            speedup=measured,
            speedup_ci=interval,
            roofline_fraction=fraction,
            workloads=(row,),
            clock="none: synthetic",
        )


def our_failure(candidate):
    return JudgeError(
        candidate=candidate.id, task=TASK.id, device=DEVICE.id, stage=Stage.LOAD, reason="the runner did not start"
    )


@dataclass
class SyntheticJudge:
    """Implements `Judge`."""

    session: SyntheticSession = field(default_factory=SyntheticSession)
    described: int = 0

    def describe(self, request):
        self.described += 1
        return self.session.task

    @contextmanager
    def open(self, task):
        yield self.session


@dataclass
class Recorder:
    """Implements `Observer`."""

    events: list = field(default_factory=list)
    hook: Callable[[object], None] | None = None

    def on_event(self, event):
        self.events.append(event)
        if self.hook is not None:
            self.hook(event)

    def of(self, kind):
        return [e for e in self.events if e.kind == kind]
