"""Folders of runs made from records: every outcome, a model, hostile text, and runs that never ended."""

from __future__ import annotations

import math

from kernelwright.agents.run import Budget, Finalist, ModelConfig, RunConfig, RunResult
from kernelwright.agents.state import StepRecord
from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, LedgerModelCall, RunHeader
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.dtypes import DType
from kernelwright.judge.evaluation import (
    BaselineTiming,
    BuildFailed,
    Check,
    Crashed,
    Guard,
    Incorrect,
    Invalid,
    JudgeError,
    Passed,
    Rejected,
    Speed,
    Stage,
    TensorError,
    TimedOut,
    WorkloadTiming,
)
from kernelwright.platforms.candidates import Candidate, KernelStep, LibraryStep, Origin, Plan
from kernelwright.platforms.device import Ceilings, Compiler, Device
from kernelwright.tasks.model import Axis, Task, TaskSource, TensorSpec, Workload
from kernelwright.tasks.request import TaskRequest

RUN = "20260131-235959-k3fq"
X = TensorSpec(name="x", dtype=DType.FLOAT32, dims=("B", "C"))
WORKLOADS = {"large": {"B": 4096, "C": 4096}, "tall": {"B": 65536, "C": 64}, "small": {"B": 128, "C": 256}}
REFERENCE = '''"""A reference."""
import torch

@operation(x="float32[B, C]")
def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 0.5  # half
'''
KERNEL = """// One pass.
#include "kernelwright.h"
namespace {
constexpr int LANES = 16;
}
KW_ENTRY(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * kw::tanh(x[i]);  /* <fused> */
}
"""
TASK = Task(
    name="scaled",
    source=TaskSource(kind="function", path="/tasks/scaled.py", attribute="scaled", text=REFERENCE),
    arguments=(X,),
    outputs=(X.replace(name="out", role="output"),),
    axes=(Axis(name="B", origin="declared", default=4096), Axis(name="C", origin="declared", default=4096)),
    workloads=tuple(Workload(name=n, axes=a, timed=True) for n, a in WORKLOADS.items()),
    notes=("zeros would pass under the distribution tiny, so it does not count alone",),
)
DEVICE = Device(
    name="An ordinary processor",
    architecture="x86_64",
    cores=8,
    simd="avx512",
    simd_bits=512,
    features=("fma",),
    l1d_bytes=49152,
    l2_bytes=2**21,
    last_level_bytes=2**25,
    memory_bytes=2**35,
    compilers=(Compiler(path="/usr/bin/g++", name="gcc", version="13.2.0"),),
    ceilings=Ceilings(
        copy_gbytes_per_s=51.7,
        read_gbytes_per_s=62.3,
        cache_copy_gbytes_per_s=226.0,
        fma_gflops={DType.FLOAT32: 528.7, DType.FLOAT64: 264.4},
        call_us=0.7,
        footprint_bytes=2**29,
        samples={},
        measured_at="2026-01-31T20:00:00+00:00",
    ),
)
CONFIG = RunConfig(request=TaskRequest(target="scaled.py"), budget=Budget(evaluations=40))


def header(task=TASK, device=DEVICE, config=CONFIG):
    return RunHeader(
        run=RUN,
        config=config.model_dump(mode="json"),
        task=task,
        device=device,
        versions={"kernelwright": "0.1.0", "torch": "2.13.0"},
        started_at="2026-01-31T23:59:59.000000+00:00",
    )


def candidate(text=KERNEL, *, proposer="drafter", operator="draft", parents=(), plan="One pass over memory", **more):
    parameters = more.pop("parameters", {"lanes": 16, "unroll": 2, "store": "stream", "threads": 8})
    left = more.pop("left_to_library", ())
    return Candidate(
        language=more.pop("language", "cpp"),
        sources=more.pop("sources", {"kernel.cpp": text}),
        parameters=parameters,
        origin=Origin(
            proposer=proposer,
            operator=operator,
            parents=parents,
            plan=plan,
            template="fused",
            covered=("aten.tanh.default", "aten.mul.Tensor"),
            left_to_library=left,
        ),
        **more,
    )


def check(workload, distribution, ratio, *, hidden=False, detail=""):
    error = TensorError(
        output="out", max_abs_error=1e-7, max_relative_error=1e-7, worst_ratio=ratio, mismatched=0, elements=1000
    )
    return Check(
        workload=workload,
        axes={} if hidden else WORKLOADS.get(workload, {}),
        distribution=distribution,
        hidden=hidden,
        passed=ratio <= 1,
        detail=detail,
        errors=(error,),
    )


CHECKS = tuple(
    check(workload, distribution, ratio + 0.013 * place, hidden=workload.startswith("hidden"))
    for place, distribution in enumerate(("own", "normal", "large", "tiny", "ties"))
    for workload, ratio in (("small", 0.05), ("large", 0.2), ("hidden1", 0.4), ("hidden2", 0.001))
)


def speed(ratio, *, spread=0.06, workloads=WORKLOADS, operations=4):
    timings = []
    for place, (name, axes) in enumerate(workloads.items()):
        elements = axes["B"] * axes["C"]
        baseline = 20.0 + elements * 8 / 20e3 / (1 + place)
        pairs = [1 + 0.01 * (n % 3 - 1) for n in range(9)]
        usable = ratio if math.isfinite(ratio) and ratio > 0 else 1.0
        kernel = baseline / usable
        timings.append(
            WorkloadTiming(
                workload=name,
                axes=axes,
                baseline="compile" if place else "eager",
                candidate_us=tuple(kernel * p for p in pairs),
                baseline_us=tuple(baseline * p for p in pairs),
                speedup=ratio,
                speedup_ci=(ratio * (1 - spread), ratio * (1 + spread)),
                roofline_us=elements * 8 / 51.7e3,
                roofline_fraction=elements * 8 / 51.7e3 / kernel,
                bound="memory",
                moved_bytes=elements * 8,
                operations=elements * operations,
            )
        )
    verdict = "faster" if ratio * (1 - spread) > 1 else "slower" if ratio * (1 + spread) < 1 else "inconclusive"
    return Speed(
        verdict=verdict,
        speedup=ratio,
        speedup_ci=(ratio * (1 - spread), ratio * (1 + spread)),
        roofline_fraction=0.21 * ratio if math.isfinite(ratio) else 0.0,
        workloads=tuple(timings),
        clock="a steady clock around each call; warm heap",
    )


def common(made, task=TASK):
    return {"candidate": made.id, "task": task.id, "device": DEVICE.id, "seconds": {"build": 0.31, "verify": 0.22}}


def passed(made, ratio=None, **more):
    timed = None if ratio is None else more.pop("speed", None) or speed(ratio)
    return Passed(**common(made), checks=CHECKS, speed=timed, untimed=more.pop("untimed", ""), **more)


def failures(text):
    """A candidate and a verdict of each kind of failure, each with `text` as its reason."""
    made = [candidate(f"// bad {n}\n{KERNEL}") for n in range(len(Guard) + 8)]
    rest = iter(made)
    verdicts = [
        Rejected(**common(m), stage=Stage.GUARD, guard=guard, reason=f"{guard}: {text}")
        for guard, m in zip(Guard, rest, strict=False)
    ]
    rest = iter(made[len(Guard) :])
    bad = (check("small", "large", 3.2, detail=text),)
    verdicts += [
        Incorrect(**common(next(rest)), reason=text, checks=bad),
        BuildFailed(**common(next(rest)), reason=text, log=text * 3),
        Crashed(**common(next(rest)), stage=Stage.LOAD, reason=text, signal=11),
        TimedOut(**common(next(rest)), stage=Stage.VERIFY, reason=text, limit="memory"),
        Invalid(**common(next(rest)), reason=text),
        JudgeError(**common(next(rest)), stage=Stage.TIME, reason=text),
        Passed(**common(next(rest)), speed=None, untimed=text),
    ]
    return list(zip(made, verdicts, strict=False))


def attempt(index, made, evaluation):
    return LedgerAttempt(
        run=RUN, index=index, step=index // 4, elapsed_seconds=2.5 * index, candidate=made, evaluation=evaluation
    )


def result(best, finalists=(), *, outcome="improved", stop_reason="evaluations", evaluations=1, reason="", **more):
    return RunResult(
        run=RUN,
        outcome=outcome,
        reason=reason or "the best candidate runs at 2.60x the best baseline",
        stop_reason=stop_reason,
        task=TASK.id,
        device=DEVICE.id,
        best=best,
        finalists=finalists,
        baselines=(
            *(BaselineTiming(mode="eager", workload=w, median_us=912.5 + 10 * len(w)) for w in WORKLOADS),
            *(BaselineTiming(mode="compile", workload=w, median_us=612.5) for w in WORKLOADS),
            BaselineTiming(mode="compile-max-autotune", workload="large", median_us=None, failure="no template fits"),
        ),
        evaluations=evaluations,
        seconds=154.2,
        **more,
    )


def write(folder, attempts=(), finalists=(), calls=(), steps=(), outcome=None, head=None):
    """The folder of a run, by the code that writes real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    place = RunFolder(folder)
    place.start(head or header())
    for name, records in (
        ("attempts.jsonl", attempts),
        ("finalists.jsonl", finalists),
        ("calls.jsonl", calls),
        ("steps.jsonl", steps),
    ):
        for record in records:
            place.append(name, record)
    if outcome is not None:
        place.write_result(outcome)
    return folder


def evolution():
    """Attempts in which one line of descent gets better, its last candidate the best."""
    first = candidate()
    ratios = (1.31, 0.82, 1.02, 1.64, 1.5, 2.1, 1.2, 2.4, 0.6, 2.62)
    attempts = [attempt(1, first, passed(first, ratios[0]))]
    for index, ratio in enumerate(ratios[1:], start=2):
        grown = max(attempts, key=lambda a: a.evaluation.speed.speedup)
        changed = {**grown.candidate.parameters, "unroll": 2 ** (index % 4), "rows_per_block": index}
        parents = (grown.candidate.id, first.id) if index % 3 == 0 else (grown.candidate.id,)
        made = candidate(
            f"// {index}\n{KERNEL}",
            proposer="mutate" if len(parents) == 1 else "cross",
            operator="mutate" if len(parents) == 1 else "cross",
            parents=parents,
            parameters=changed,
            plan="",
        )
        attempts.append(attempt(index, made, passed(made, ratio)))
    return attempts


def full_run(folder, text="error: expected ';' before '}' token"):
    """Everything at once: an evolution, every failure, an Inductor candidate, a model, finalists, a plan of two steps."""
    attempts = evolution()
    lifted = candidate(
        "",
        proposer="inductor",
        language="python",
        entry="model_new.py",
        sources={"model_new.py": "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"},
    )
    attempts.append(attempt(len(attempts) + 1, lifted, passed(lifted, 1.11)))
    for made, verdict in failures(text):
        attempts.append(attempt(len(attempts) + 1, made, verdict))
    parent = max((a for a in attempts if a.candidate.origin.proposer != "inductor" and _ratio(a)), key=_ratio)
    best = candidate(
        f"// best\n{KERNEL}",
        proposer="model",
        operator="improve",
        parents=(parent.candidate.id,),
        parameters={**parent.candidate.parameters, "store": "normal"},
        left_to_library=("aten.convolution.default: no kernel covers it",),
        plan="Keep the row in registers",
    )
    best = best.replace(
        plan=Plan(
            steps=(
                LibraryStep(op="aten.convolution.default", args=(), outputs=("t",)),
                KernelStep(entry="kernelwright_run", inputs=("t",), outputs=("out",)),
            )
        )
    )
    attempts.append(attempt(len(attempts) + 1, best, passed(best, 2.9)))
    again = passed(best, 2.6)
    second = passed(parent.candidate, 2.5)
    finalists = [
        LedgerFinalist(run=RUN, rank=r, candidate=e.candidate, elapsed_seconds=100.0, evaluation=e)
        for r, e in enumerate((again, second))
    ]
    calls = [
        LedgerModelCall(
            run=RUN,
            index=n,
            step=n,
            model="a-model",
            role="draft" if n < 3 else "repair",
            prompt_hash="0" * 64,
            input_tokens=1200,
            output_tokens=345,
            cost_usd=0.0125 if n else None,
            seconds=3.5,
            outcome="candidate" if n else "no_code",
            candidate=None,
        )
        for n in range(4)
    ]
    steps = [
        StepRecord(step=0, name="seed", proposer="drafter", operator="draft", seen=0, screened={"a": "seen before"}),
        StepRecord(step=1, name="model", proposer="model", operator="draft", seen=3, failure=text),
    ]
    outcome = result(
        best.id,
        tuple(Finalist(candidate=f.candidate, evaluation=f.evaluation) for f in finalists),
        evaluations=len(attempts),
        tokens=6180,
        cost_usd=0.0375,
    )
    config = CONFIG.replace(model=ModelConfig(name="a-model"))
    return write(folder, attempts, finalists, calls, steps, outcome, header(config=config))


def _ratio(attempt):
    verdict = attempt.evaluation
    return verdict.speed.speedup if isinstance(verdict, Passed) and verdict.speed else 0.0
