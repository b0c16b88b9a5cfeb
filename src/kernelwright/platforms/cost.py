"""The cost model: compulsory bytes and operations of a task, and the shortest time that the measured ceilings allow.

    roofline = max(memory, compute, latency)
    memory   = bytes read and written in equal parts / copy bandwidth + the surplus / read bandwidth (written: copy)
    compute  = sum over element types of operations / multiply-add peak of that type
    latency  = an empty parallel region

Data is cold by rule (timing rotates its inputs through a footprint larger than the caches a core owns), so the
bandwidths are always those of memory, also for workloads that would fit into a cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from kernelwright.core.dimensions import evaluate_shape
from kernelwright.core.dtypes import DType
from kernelwright.core.errors import EnvironmentProblem
from kernelwright.platforms.device import Ceilings, Device
from kernelwright.platforms.operations import MOVES, PRODUCTS, Shape, base_name, count, references
from kernelwright.tasks.graph import Graph, Node
from kernelwright.tasks.model import Task, TensorSpec

Bound = Literal["memory", "compute", "latency"]

# A consumer of this kind reads only what it returns (of its first argument).
_PARTIAL_READS = frozenset({"slice", "select", "narrow", "diagonal", "split", "split_with_sizes"})
_ROW_READS = frozenset({"embedding", "index_select", "gather", "index", "take_along_dim"})
_MASKED = 0.5


@dataclass(frozen=True)
class CostEstimate:
    """What one workload must cost on one device."""

    moved_bytes: int
    """Compulsory: each input element that is needed read once, each output element written once."""
    operations: int
    """Scalar operations of the definition (see `operations`)."""
    roofline_us: float
    """max of the three below."""
    bound: Bound
    """Which of the three it is."""
    dtype: DType
    """Element type that most operations are done in."""
    read_bytes: int
    written_bytes: int
    memory_us: float
    compute_us: float
    latency_us: float
    floor_us: float
    """Below this no honest kernel can be: the bytes at the speed of the caches. Unlike the roofline it stays true when
    the data happens to be warm and when an identity saves arithmetic, so a guard can rely on it."""
    from_graph: bool
    """False when the reference could not be traced: then operations are one per element moved."""


def estimate(task: Task, axes: Mapping[str, int], graph: Graph | None, device: Device) -> CostEstimate:
    """The cost of `task` under the binding `axes` (every axis of the task bound).

    Raises:
        EnvironmentProblem: the device's ceilings were not measured.
    """
    ceilings = device.ceilings
    if ceilings is None:
        raise EnvironmentProblem(
            "this machine's ceilings are not measured, so there is no roofline",
            hint="install g++ and run `kernelwright doctor`",
        )
    bound_axes = {axis.name: axis.default for axis in task.axes} | dict(axes)
    shapes = _shapes(graph, bound_axes) if graph else None
    written = sum(_bytes(spec, bound_axes) for spec in task.outputs)
    if graph is None or shapes is None:
        read = sum(_bytes(spec, bound_axes) for spec in task.kernel_inputs)
        work = {_main_dtype(task): sum(prod(spec.shape(bound_axes)) for spec in (*task.kernel_inputs, *task.outputs))}
        products: dict[DType, int] = {}
    else:
        read = _read_bytes(task, graph, shapes, bound_axes)
        work, products = _operations(task, graph, shapes, bound_axes)
    return _estimate(read, written, work, products, ceilings, from_graph=shapes is not None)


def _estimate(
    read: int,
    written: int,
    work: Mapping[DType, int],
    products: Mapping[DType, int],
    ceilings: Ceilings,
    *,
    from_graph: bool,
) -> CostEstimate:
    memory_us = _memory_us(read, written, ceilings)
    compute_us = sum(operations / vector_gflops(dtype, ceilings) for dtype, operations in work.items()) / 1e3
    compute_us += sum(operations / product_gflops(dtype, ceilings) for dtype, operations in products.items()) / 1e3
    times: dict[Bound, float] = {"memory": memory_us, "compute": compute_us, "latency": ceilings.call_us}
    bound: Bound = max(times, key=lambda name: times[name])
    totals: dict[DType, int] = defaultdict(int)
    for share in (work, products):
        for dtype, operations in share.items():
            totals[dtype] += operations
    fastest = max(ceilings.cache_copy_gbytes_per_s, ceilings.copy_gbytes_per_s, ceilings.read_gbytes_per_s)
    return CostEstimate(
        moved_bytes=read + written,
        operations=sum(totals.values()),
        roofline_us=times[bound],
        bound=bound,
        dtype=max(totals, key=lambda dtype: totals[dtype]) if totals else DType.FLOAT32,
        read_bytes=read,
        written_bytes=written,
        memory_us=memory_us,
        compute_us=compute_us,
        latency_us=ceilings.call_us,
        floor_us=(read + written) / fastest / 1e3,
        from_graph=from_graph,
    )


def vector_gflops(dtype: DType, ceilings: Ceilings) -> float:
    """Peak of ordinary vector arithmetic; integers as a float of their size, bfloat16 through float32."""
    peaks = ceilings.fma_gflops
    if dtype in (DType.FLOAT64, DType.FLOAT16):
        return peaks[dtype]
    if dtype in (DType.FLOAT32, DType.BFLOAT16):
        return peaks[DType.FLOAT32]
    return peaks[DType.FLOAT32] * 4 / dtype.itemsize


def product_gflops(dtype: DType, ceilings: Ceilings) -> float:
    """Peak of matrix products, with the units that exist for nothing else."""
    return ceilings.fma_gflops.get(dtype, vector_gflops(dtype, ceilings))


def _memory_us(read: int, written: int, ceilings: Ceilings) -> float:
    paired = min(read, written)
    # A copy reads half of what it moves, so reading alone is at least that fast.
    reading = max(ceilings.read_gbytes_per_s, ceilings.copy_gbytes_per_s / 2)
    surplus_read = (read - paired) / reading
    surplus_written = (written - paired) / ceilings.copy_gbytes_per_s
    return (2 * paired / ceilings.copy_gbytes_per_s + surplus_read + surplus_written) / 1e3


def _shapes(graph: Graph, axes: Mapping[str, int]) -> dict[str, Shape] | None:
    specs = [*graph.inputs, *(constant.spec for constant in graph.constants)]
    specs += [spec for node in graph.nodes for spec in node.outputs]
    try:
        return {spec.name: evaluate_shape(spec.dims, axes) for spec in specs}
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def _live_nodes(graph: Graph) -> list[Node]:
    """Nodes whose result reaches an output and depends on an input: the rest need not run at every call."""
    varying = {spec.name for spec in graph.inputs}
    for node in graph.nodes:
        if any(name in varying for name in references([*node.args, *node.kwargs.values()])):
            varying.update(spec.name for spec in node.outputs)
    needed = set(graph.outputs)
    live = []
    for node in reversed(graph.nodes):
        if any(spec.name in needed for spec in node.outputs):
            needed.update(references([*node.args, *node.kwargs.values()]))
            if any(spec.name in varying for spec in node.outputs):
                live.append(node)
    return live[::-1]


def _read_bytes(task: Task, graph: Graph, shapes: Mapping[str, Shape], axes: Mapping[str, int]) -> int:
    live = _live_nodes(graph)
    total = 0
    for spec in task.kernel_inputs:
        whole = prod(spec.shape(dict(axes)))
        touched = whole if spec.name in graph.outputs else 0
        for node in live:
            if spec.name in references([*node.args, *node.kwargs.values()]):
                touched += _touched(node, spec.name, shapes, whole)
        total += min(whole, touched) * spec.dtype.itemsize
    return total


def _touched(node: Node, name: str, shapes: Mapping[str, Shape], whole: int) -> int:
    """Elements of the value `name` that `node` needs."""
    operation = base_name(node.op)
    returned = sum(prod(shapes[spec.name]) for spec in node.outputs)
    first = references(node.args[:1])
    if name not in first:
        return whole
    if operation in _PARTIAL_READS:
        return min(whole, returned)
    if operation in _ROW_READS:
        # Some rows are drawn twice: what n uniform draws out of `whole` leave untouched is whole * (1 - 1/whole)**n.
        row = max(1, shapes[name][-1]) if operation == "embedding" and shapes[name] else 1
        rows, draws = whole / row, returned / row
        return int(row * rows * (1.0 - (1.0 - 1.0 / rows) ** draws)) if rows > 1 else whole
    return whole


def _operations(
    task: Task, graph: Graph, shapes: Mapping[str, Shape], axes: Mapping[str, int]
) -> tuple[dict[DType, int], dict[DType, int]]:
    dtypes = {spec.name: spec.dtype for spec in graph.inputs}
    dtypes |= {constant.spec.name: constant.spec.dtype for constant in graph.constants}
    dtypes |= {spec.name: spec.dtype for node in graph.nodes for spec in node.outputs}
    scale = _product_scales(task, graph)
    work: dict[DType, int] = defaultdict(int)
    products: dict[DType, int] = defaultdict(int)
    for node in _live_nodes(graph):
        counted = count(node, shapes, axes)
        read = [dtypes[name] for name in references(node.args) if name in dtypes]
        dtype = read[0] if read else node.outputs[0].dtype
        if counted.product:
            products[dtype] += int(counted.operations * scale.get(node.outputs[0].name, 1.0))
        else:
            work[dtype] += counted.operations
    return dict(work), dict(products)


def _product_scales(task: Task, graph: Graph) -> dict[str, float]:
    """Share of a product's multiply-adds that must be done, where less than all of them.

    Half for a triangular operand, a sixth for two; half where a constant mask hides part of the result (causal
    attention written out), for the product before the softmax and the one after it.
    """
    triangular = {spec.name for spec in task.kernel_inputs if spec.structure.endswith("_triangular")}
    constant = {spec.spec.name for spec in graph.constants}
    varying = {spec.name for spec in graph.inputs}
    from_product: dict[str, frozenset[str]] = {}
    masked: set[str] = set()
    scales: dict[str, float] = {}
    for node in graph.nodes:
        name, refs = base_name(node.op), references(node.args)
        result = node.outputs[0].name
        if any(ref in varying for ref in refs):
            varying.update(spec.name for spec in node.outputs)
        else:
            constant.update(spec.name for spec in node.outputs)
        sources = frozenset().union(*(from_product.get(ref, frozenset()) for ref in refs))
        if name in PRODUCTS:
            operands = sum(ref in triangular for ref in refs[-2:])
            scales[result] = (1.0, 0.5, 1.0 / 6.0)[operands]
            if any(ref in masked for ref in refs):
                scales[result] *= _MASKED
            from_product[result] = frozenset({result})
            continue
        from_product[result] = sources
        if name in MOVES and refs and refs[0] in triangular:
            triangular.add(result)
        if any(ref in masked for ref in refs):
            masked.add(result)
        elif name in ("_softmax", "softmax") and refs and _is_masked_sum(refs[0], graph, constant):
            masked.add(result)
            scales.update({source: scales[source] * _MASKED for source in sources})
        elif name in ("tril", "triu"):
            scales.update({source: scales[source] * _MASKED for source in sources if scales[source] > 0.4})
    return scales


def _is_masked_sum(name: str, graph: Graph, constant: set[str]) -> bool:
    """Whether `name` is a value combined with something that no input decides (a fixed mask)."""
    maker = next((node for node in graph.nodes if any(spec.name == name for spec in node.outputs)), None)
    if maker is None or base_name(maker.op) not in ("add", "where", "masked_fill"):
        return False
    return any(ref in constant for ref in references(maker.args))


def _bytes(spec: TensorSpec, axes: Mapping[str, int]) -> int:
    return prod(spec.shape(dict(axes))) * spec.dtype.itemsize


def _main_dtype(task: Task) -> DType:
    floating = [spec.dtype for spec in (*task.kernel_inputs, *task.outputs) if spec.dtype.is_floating]
    return floating[0] if floating else task.outputs[0].dtype
