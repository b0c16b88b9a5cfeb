"""Small records for the ledger."""

from __future__ import annotations

from pathlib import Path

from kernelwright.archive.ledger import Archive
from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, LedgerModelCall, RunHeader
from kernelwright.core.dtypes import DType
from kernelwright.judge.evaluation import BuildFailed, Incorrect, Passed, Speed
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task, TaskSource, TensorSpec, Workload

X = TensorSpec(name="x", dtype=DType.FLOAT32, dims=(8,))
TASK = Task(
    name="exp",
    source=TaskSource(kind="function", path="/exp.py", attribute="f", text="def f(x): return x.exp()"),
    arguments=(X,),
    outputs=(X.replace(name="y", role="output"),),
    workloads=(Workload(name="default", axes={}, timed=True),),
)
DEVICE = Device(
    name="a small machine",
    architecture="x86_64",
    cores=1,
    simd="scalar",
    simd_bits=64,
    features=(),
    l1d_bytes=1,
    l2_bytes=1,
    last_level_bytes=1,
    memory_bytes=1,
    compilers=(),
)


def header(run="20260101-000000-aaaa", *, task=TASK, device=DEVICE, started_at="2026-01-01T00:00:00.000000+00:00"):
    return RunHeader(
        run=run,
        config={"preset": "evolve", "seed": 2**70},
        task=task,
        device=device,
        versions={"kernelwright": "0"},
        started_at=started_at,
    )


def candidate(text, *, parents=(), operator="draft", **parameters):
    return Candidate(
        language="cpp",
        sources={"kernel.cpp": text},
        parameters=parameters,
        origin=Origin(proposer="drafter", operator=operator, parents=parents, template="t", plan="why — \u0000 not"),
    )


def passed(made, low=1.5, high=1.7, task=TASK, device=DEVICE):
    speed = Speed(
        verdict="faster" if low > 1 else "inconclusive",
        speedup=(low + high) / 2,
        speedup_ci=(low, high),
        roofline_fraction=0.5,
        workloads=(),
        clock="none",
    )
    return Passed(candidate=made.id, task=task.id, device=device.id, speed=speed)


def incorrect(made):
    return Incorrect(candidate=made.id, task=TASK.id, device=DEVICE.id, reason="wrong")


def build_failed(made):
    return BuildFailed(candidate=made.id, task=TASK.id, device=DEVICE.id, reason="error: ;", log="x" * 100)


def attempt(index, made, evaluation, run="20260101-000000-aaaa", step=0):
    return LedgerAttempt(
        run=run, index=index, step=step, elapsed_seconds=float(index), candidate=made, evaluation=evaluation
    )


def finalist(rank, made, evaluation, run="20260101-000000-aaaa"):
    return LedgerFinalist(run=run, rank=rank, candidate=made.id, elapsed_seconds=9.0, evaluation=evaluation)


def model_call(index, run="20260101-000000-aaaa", cost_usd=0.25):
    return LedgerModelCall(
        run=run,
        index=index,
        step=0,
        model="m",
        role="draft",
        prompt_hash="0" * 64,
        input_tokens=100,
        output_tokens=50,
        cost_usd=cost_usd,
        seconds=1.0,
        outcome="candidate",
        record={"turn": 1},
    )


def write_many(url, artifacts, run, count):
    """What the two-process test runs in each process."""
    with Archive.open(url, artifacts=Path(artifacts)) as archive:
        archive.record_run(header(run), Path("/runs") / run)
        for index in range(1, count + 1):
            # Every second candidate is the same in both processes.
            made = candidate(f"shared {index}" if index % 2 else f"{run} {index}")
            archive.record_attempt(attempt(index, made, passed(made), run=run))
