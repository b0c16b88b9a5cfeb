"""What a reader needs to trust or repeat the run: task, machine, method, model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelwright.archive.records import LedgerModelCall
from kernelwright.interfaces.report.figures import NOTHING, byte_count, count, digits, duration, one_line
from kernelwright.interfaces.report.reading import RunRecords
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task, TensorSpec

Facts = list[tuple[str, str]]
"""Names with values, in order."""


def task_facts(task: Task) -> Facts:
    """What must be computed."""
    tensors = [_tensor(a) for a in task.arguments if isinstance(a, TensorSpec)]
    scalars = [
        f"{one_line(a.name, 40)} = {one_line(a.value, 40)}" for a in task.arguments if not isinstance(a, TensorSpec)
    ]
    return [
        ("Reference", one_line(f"{task.source.attribute} in {task.source.path}", 300)),
        ("Inputs", "; ".join(tensors) or NOTHING),
        *([("Fixed arguments", "; ".join(scalars))] if scalars else []),
        *([("Parameters and buffers", "; ".join(_tensor(s) for s in task.state))] if task.state else []),
        ("Outputs", "; ".join(_tensor(o) for o in task.outputs)),
        ("Workloads", "; ".join(_workload(w.name, w.axes, w.timed) for w in task.workloads)),
        ("Identity", task.id[:16]),
    ]


def _tensor(spec: TensorSpec) -> str:
    return one_line(f"{spec.name}: {spec.dtype}[{', '.join(str(d) for d in spec.dims)}]", 160)


def _workload(name: str, axes: dict[str, int], timed: bool) -> str:
    sizes = ", ".join(f"{k} {v:,}" for k, v in axes.items())
    return one_line(f"{name}{f' ({sizes})' if sizes else ''}{', timed' if timed else ''}", 160)


def device_facts(device: Device) -> Facts:
    """The machine and what it was measured to reach."""
    facts: Facts = [
        ("Processor", one_line(f"{device.name}, {device.architecture}, {count(device.cores, 'core')}", 200)),
        ("Vectors", f"{device.simd}, {device.simd_bits} bits"),
        (
            "Caches",
            f"L1d {byte_count(device.l1d_bytes)} and L2 {byte_count(device.l2_bytes)} a core,"
            f" last level {byte_count(device.last_level_bytes)}",
        ),
        ("Memory", byte_count(device.memory_bytes)),
        ("Compilers", ", ".join(one_line(f"{c.name} {c.version}", 60) for c in device.compilers) or "none"),
    ]
    ceilings = device.ceilings
    if ceilings is None:
        return [*facts, ("Ceilings", "not measured")]
    peaks = ", ".join(f"{digits(v)} in {k}" for k, v in ceilings.fma_gflops.items())
    return [
        *facts,
        ("Measured copy bandwidth", f"{digits(ceilings.copy_gbytes_per_s)} GB/s from memory"),
        ("Measured read bandwidth", f"{digits(ceilings.read_gbytes_per_s)} GB/s from memory"),
        ("Measured cache bandwidth", f"{digits(ceilings.cache_copy_gbytes_per_s)} GB/s"),
        ("Measured peak", f"{peaks} GFLOP/s"),
        ("Shortest call", f"{digits(ceilings.call_us)} µs"),
        ("Measured", one_line(ceilings.measured_at, 40)),
    ]


def method_facts(run: RunRecords) -> Facts:
    """How it was searched and timed."""
    facts: Facts = [
        ("Run", one_line(run.header.run, 80)),
        ("Started", one_line(run.header.started_at[:19], 40) + " UTC"),
    ]
    config = run.config
    if config is not None:
        budget = config.budget
        limits = [
            count(budget.evaluations, "evaluation") if budget.evaluations is not None else "",
            duration(budget.wall_seconds) if budget.wall_seconds is not None else "",
            count(budget.tokens, "token") if budget.tokens is not None else "",
            f"${budget.cost_usd:.2f}" if budget.cost_usd is not None else "",
        ]
        facts += [
            ("Search", one_line(f"{config.preset}, seed {config.seed}, rule {config.rule}", 160)),
            ("Budget", ", ".join(filter(None, limits)) or "none"),
            (
                "Timing",
                f"up to {config.timing.pairs} interleaved pairs and {digits(config.timing.seconds)} s a workload;"
                f" {count(config.finalists, 'finalist')} measured again for longer in fresh processes",
            ),
        ]
    facts += verdict_facts(run.best_evaluation)
    versions = ", ".join(one_line(f"{name} {version}", 100) for name, version in run.header.versions.items())
    return [*facts, ("Versions", versions)]


def verdict_facts(evaluation: Evaluation | None) -> Facts:
    """How the best was judged, in the judge's own words."""
    if evaluation is None:
        return []
    facts: Facts = []
    if isinstance(evaluation, Passed) and evaluation.speed is not None:
        facts.append(("Clock and memory", one_line(evaluation.speed.clock, 400)))
    if evaluation.sandbox:
        facts.append(("Sandbox", one_line(evaluation.sandbox, 400)))
    if evaluation.seconds:
        stages = ", ".join(f"{one_line(stage, 20)} {digits(s)} s" for stage, s in evaluation.seconds.items())
        facts.append(("Time of the verdict", stages))
    return facts


def model_facts(run: RunRecords) -> Facts:
    """What a language model did and cost; empty where none was asked."""
    model = run.config.model if run.config else None
    calls = run.calls
    tokens = run.result.tokens if run.result else 0
    if model is None and not calls and not tokens:
        return []
    names = dict.fromkeys([*([model.name] if model else []), *(c.model for c in calls)])
    outcomes = Counter(c.outcome for c in calls)
    return [
        ("Model", one_line(", ".join(names), 200)),
        ("Calls", f"{len(calls):,}"),
        ("Tokens", f"{sum(c.input_tokens for c in calls):,} in, {sum(c.output_tokens for c in calls):,} out"),
        ("Cost", _cost(calls)),
        ("Time of its answers", duration(sum(c.seconds for c in calls))),
        ("Roles", one_line(", ".join(f"{r} {n}" for r, n in Counter(c.role for c in calls).items()), 200) or NOTHING),
        ("Answers", one_line(", ".join(f"{o} {n}" for o, n in outcomes.most_common()), 300) or NOTHING),
    ]


def _cost(calls: Sequence[LedgerModelCall]) -> str:
    known = [c.cost_usd for c in calls if c.cost_usd is not None]
    unknown = len(calls) - len(known)
    said = f"${sum(known):.4f}" if known or not calls else "not known"
    return f"{said}, and {count(unknown, 'call')} without a known price" if known and unknown else said
