"""What goes into a prompt's slots, out of a `Context`. Hidden workloads and oracle values have no way in."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agents.model.feedback import describe_failure
from kernelwright.agents.model.prompting import language_text
from kernelwright.agents.proposing import Attempt, Context
from kernelwright.judge.evaluation import Passed
from kernelwright.platforms.candidates import Candidate, Language
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Arg, DimRef, Graph, ListArg, LiteralArg
from kernelwright.tasks.model import ScalarSpec, Task, TensorSpec, Workload


def fill(slot: str, context: Context, parent: Attempt | None, language: Language) -> str:
    """The text of one slot; empty where there is nothing to say.

    Raises:
        KeyError: there is no such slot, or it needs a parent and there is none.
    """
    match slot:
        case "task":
            return context.task.source.text
        case "shapes":
            return shapes(context.task)
        case "operations":
            return operations(context.graph)
        case "hardware":
            return hardware(context.device)
        case "interface" | "example":
            return language_text(language, "interface" if slot == "interface" else "example")
        case "tried":
            return tried(context.history, context.pending)
    if parent is not None:
        match slot:
            case "source":
                return source(parent.candidate)
            case "feedback":
                return describe_failure(parent.evaluation, context.task)
            case "timing":
                return timing(parent, context.task)
    raise KeyError(slot)


def visible_workloads(task: Task) -> tuple[Workload, ...]:
    """The workloads that a proposer may know."""
    return tuple(w for w in task.workloads if not w.hidden)


def shapes(task: Task) -> str:
    """Inputs and outputs in kernel order, plain arguments, sizes."""
    reference = f"`{task.source.attribute}`" + (" (a module)" if task.source.kind == "kernelbench" else "")
    lines = [f"The reference is {reference}. Kernel inputs, in order:"]
    lines += [f"  inputs[{i}] {_tensor(spec)}" for i, spec in enumerate(task.kernel_inputs)]
    lines += ["Outputs:"] + [f"  outputs[{i}] {_tensor(spec)}" for i, spec in enumerate(task.outputs)]
    scalars = [a for a in task.arguments if isinstance(a, ScalarSpec)]
    if scalars:
        lines.append("Fixed plain arguments: " + ", ".join(f"{a.name}={a.value!r}" for a in scalars))
    lines.append("Sizes:")
    for workload in visible_workloads(task):
        axes = ", ".join(f"{name}={size}" for name, size in workload.axes.items()) or "as given above"
        lines.append(f"  {workload.name}: {axes}{' (timed)' if workload.timed else ''}")
    if task.axes:
        names = ", ".join(axis.name for axis in task.axes)
        lines.append(f"The kernel must be right for any size of: {names}.")
    return "\n".join(lines)


def operations(graph: Graph | None) -> str:
    """The reference as core ATen operations."""
    if graph is None:
        return ""
    lines = ["The same in core ATen operations:"]
    for node in graph.nodes:
        made = ", ".join(f"{o.name}: {o.dtype}[{', '.join(map(str, o.dims))}]" for o in node.outputs)
        given = [_argument(a) for a in node.args] + [f"{k}={_argument(a)}" for k, a in node.kwargs.items()]
        lines.append(f"  {made} = {node.op}({', '.join(given)})")
    lines.append(f"  return {', '.join(graph.outputs)}")
    return "\n".join(lines)


def hardware(device: Device) -> str:
    """The card of the machine, with what was measured on it."""
    lines = [
        f"{device.name} ({device.architecture}), {device.cores} cores, {device.simd} ({device.simd_bits}-bit vectors)",
        f"caches: {device.l1d_bytes >> 10} KiB L1 and {device.l2_bytes >> 10} KiB L2 a core, "
        f"{device.last_level_bytes >> 20} MiB last level, shared",
    ]
    if device.features:
        lines.append("instruction sets: " + " ".join(device.features))
    if ceilings := device.ceilings:
        peak = ", ".join(f"{dtype} {gflops:.0f} GFLOP/s" for dtype, gflops in ceilings.fma_gflops.items())
        lines.append(
            f"measured, all cores: memory copy {ceilings.copy_gbytes_per_s:.1f} GB/s, "
            f"in cache {ceilings.cache_copy_gbytes_per_s:.1f} GB/s; multiply-add peak {peak}; "
            f"starting the threads {ceilings.call_us:.1f} us"
        )
    return "\n".join(lines)


def source(candidate: Candidate) -> str:
    """All files of a candidate, each under its name."""
    if len(candidate.sources) == 1:
        return next(iter(candidate.sources.values()))
    return "\n".join(f"// file: {name}\n{text}" for name, text in candidate.sources.items())


def timing(attempt: Attempt, task: Task) -> str:
    """Times of a passed attempt on the visible workloads, beside the baseline and the roofline."""
    evaluation = attempt.evaluation
    if not isinstance(evaluation, Passed) or evaluation.speed is None:
        return "It was not timed."
    visible = {w.name for w in visible_workloads(task)}
    lines = [f"verdict {evaluation.speed.verdict}, speedup {evaluation.speed.speedup:.2f} over the best of PyTorch"]
    for w in evaluation.speed.workloads:
        if w.workload not in visible:
            continue
        candidate_us = sorted(w.candidate_us)[len(w.candidate_us) // 2]
        baseline_us = sorted(w.baseline_us)[len(w.baseline_us) // 2]
        lines.append(
            f"{w.workload}: {candidate_us:.1f} us, PyTorch ({w.baseline}) {baseline_us:.1f} us; the {w.bound} bound is "
            f"{w.roofline_us:.1f} us ({w.moved_bytes} bytes, {w.operations} operations), "
            f"{100 * w.roofline_fraction:.0f} % of it is reached"
        )
    return "\n".join(lines)


def tried(history: Sequence[Attempt], pending: Sequence[Candidate] = ()) -> str:
    """One line an attempt, newest last, then those that wait for their verdict."""
    lines: list[str] = []
    for attempt in history:
        evaluation = attempt.evaluation
        came = str(evaluation.outcome)
        if isinstance(evaluation, Passed) and evaluation.speed is not None:
            came += f", speedup {evaluation.speed.speedup:.2f}"
        lines.append(f"- {_approach(attempt.candidate)} -> {came}")
    lines += [f"- {_approach(candidate)} -> not judged yet" for candidate in pending]
    return "\n".join(lines)


def _approach(candidate: Candidate) -> str:
    origin = candidate.origin
    decisions = ", ".join(f"{k}={v}" for k, v in candidate.parameters.items())
    what = "; ".join(part for part in (origin.plan, decisions) if part) or "no plan given"
    return f"{origin.proposer} {origin.operator}: {what}"


def _tensor(spec: TensorSpec) -> str:
    role = "" if spec.role in ("input", "output") else f" ({spec.role})"
    structure = "" if spec.structure == "general" else f", {spec.structure}"
    return f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.dims))}]{role}{structure}"


def _argument(argument: Arg) -> str:
    match argument:
        case LiteralArg(value=value):
            return repr(value)
        case DimRef(expression=expression):
            return str(expression)
        case ListArg(items=items):
            return f"[{', '.join(_argument(i) for i in items)}]"
    return argument.name
