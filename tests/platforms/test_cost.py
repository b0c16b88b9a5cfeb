"""Counts against loops that count, against torch's own flop counter, and the roofline against arithmetic by hand."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import EnvironmentProblem
from kernelwright.platforms.cost import estimate
from kernelwright.platforms.device import Ceilings, Device
from kernelwright.platforms.operations import WEIGHTS, count
from kernelwright.tasks.graph import Graph, ListArg, LiteralArg, Node, ValueRef, ValueSpec
from kernelwright.tasks.model import Axis, Task, TaskSource, TensorSpec, Workload

CEILINGS = Ceilings(
    copy_gbytes_per_s=10.0,
    read_gbytes_per_s=20.0,
    cache_copy_gbytes_per_s=100.0,
    fma_gflops={DType.FLOAT64: 50.0, DType.FLOAT32: 100.0, DType.FLOAT16: 200.0, DType.BFLOAT16: 1000.0},
    call_us=2.0,
    footprint_bytes=512 << 20,
    samples={},
    measured_at="2026-01-01T00:00:00+00:00",
)
DEVICE = Device(
    name="test",
    architecture="x86_64",
    cores=2,
    simd="avx2",
    simd_bits=256,
    features=(),
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    last_level_bytes=8 << 20,
    memory_bytes=1 << 34,
    compilers=(),
    ceilings=CEILINGS,
)
sizes = st.integers(1, 6)


def _ref(name: str) -> ValueRef:
    return ValueRef(name=name)


def _node(op: str, args: list, out: tuple, dims: tuple, dtype: DType = DType.FLOAT32, **kwargs) -> Node:
    names = (out,) if isinstance(out, str) else out
    specs = tuple(ValueSpec(name=name, dtype=dtype, dims=dims) for name in names)
    return Node(op=op, args=tuple(args), kwargs=kwargs, outputs=specs)


def _task(inputs: dict[str, tuple], output: tuple, dtype: DType = DType.FLOAT32, **special) -> Task:
    specs = tuple(
        TensorSpec(
            name=name, dtype=special.get(f"{name}_dtype", dtype), dims=dims, structure=special.get(name, "general")
        )
        for name, dims in inputs.items()
    )
    axes = {dim for dims in (*inputs.values(), output) for dim in dims if isinstance(dim, str)}
    return Task(
        name="t",
        source=TaskSource(kind="function", path="/t.py", attribute="t", text=""),
        arguments=specs,
        outputs=(TensorSpec(name="out", dtype=dtype, dims=output, role="output"),),
        axes=tuple(Axis(name=name, origin="declared", default=4) for name in sorted(axes)),
        workloads=(Workload(name="w", axes=dict.fromkeys(axes, 4), timed=True),),
    )


def _graph(task: Task, nodes: list[Node], output: str) -> Graph:
    inputs = tuple(ValueSpec(name=s.name, dtype=s.dtype, dims=s.dims) for s in task.kernel_inputs)
    return Graph(inputs=inputs, nodes=tuple(nodes), outputs=(output,))


@given(m=sizes, n=sizes, k=sizes)
def test_a_matrix_product_by_counting_its_loops(m: int, n: int, k: int) -> None:
    operations = sum(2 for _ in itertools.product(range(m), range(n), range(k)))
    node = _node("aten.mm.default", [_ref("a"), _ref("b")], "c", (m, n))
    counted = count(node, {"a": (m, k), "b": (k, n), "c": (m, n)}, {})
    assert counted.operations == operations and counted.product


@given(batch=sizes, cin=sizes, cout=sizes, size=st.integers(3, 7), kernel=st.integers(1, 3))
def test_a_convolution_by_counting_its_loops(batch: int, cin: int, cout: int, size: int, kernel: int) -> None:
    out = size - kernel + 1
    loops = itertools.product(*map(range, (batch, cout, out, out, cin, kernel, kernel)))
    node = _node(
        "aten.convolution.default",
        [_ref("x"), _ref("w"), LiteralArg(value=None), *[ListArg(items=())] * 3, LiteralArg(value=False)],
        "y",
        (batch, cout, out, out),
    )
    shapes = {"x": (batch, cin, size, size), "w": (cout, cin, kernel, kernel), "y": (batch, cout, out, out)}
    assert count(node, shapes, {}).operations == sum(2 for _ in loops)


@given(batch=sizes, rows=sizes, columns=sizes, width=sizes, causal=st.booleans())
def test_attention_by_counting_the_visible_pairs(batch: int, rows: int, columns: int, width: int, causal: bool) -> None:
    operations = 0
    for _, row, column in itertools.product(range(batch), range(rows), range(columns)):
        if not causal or column <= row:
            operations += 2 * width + 2 * width + 12
    node = _node(
        "aten.scaled_dot_product_attention.default",
        [_ref("q"), _ref("k"), _ref("v"), LiteralArg(value=None), LiteralArg(value=0.0), LiteralArg(value=causal)],
        "o",
        (batch, rows, width),
    )
    shapes = {
        "q": (batch, rows, width),
        "k": (batch, columns, width),
        "v": (batch, columns, width),
        "o": (batch, rows, width),
    }
    assert count(node, shapes, {}).operations == operations


@given(batch=sizes, channels=sizes, out=sizes, window=st.integers(1, 3))
def test_pooling_by_counting_its_windows(batch: int, channels: int, out: int, window: int) -> None:
    loops = itertools.product(*map(range, (batch, channels, out, out, window, window)))
    kernel = ListArg(items=(LiteralArg(value=window), LiteralArg(value=window)))
    node = _node("aten.avg_pool2d.default", [_ref("x"), kernel], "y", (batch, channels, out, out))
    shapes = {"x": (batch, channels, out * window, out * window), "y": (batch, channels, out, out)}
    assert count(node, shapes, {}).operations == sum(1 for _ in loops)


def test_products_agree_with_torch_s_own_counter() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    x, w, b = torch.randn(3, 4, 9, 9), torch.randn(6, 2, 3, 3), torch.randn(5, 7)
    with FlopCounterMode(display=False) as counter:
        y = torch.nn.functional.conv2d(x, w, groups=2)
        torch.nn.functional.linear(torch.randn(11, 7), b)
    convolution = _node(
        "aten.convolution.default",
        [_ref("x"), _ref("w"), LiteralArg(value=None), *[ListArg(items=())] * 3, LiteralArg(value=False)],
        "y",
        tuple(y.shape),
    )
    linear = _node("aten.linear.default", [_ref("a"), _ref("b")], "c", (11, 5))
    shapes = {"x": tuple(x.shape), "w": tuple(w.shape), "y": tuple(y.shape), "a": (11, 7), "b": (5, 7), "c": (11, 5)}
    assert count(convolution, shapes, {}).operations + count(linear, shapes, {}).operations == counter.get_total_flops()


@pytest.mark.parametrize(
    ("op", "shape_in", "shape_out", "expected"),
    [
        ("aten.add.Tensor", (3, 5), (3, 5), 15),
        ("aten.exp.default", (3, 5), (3, 5), 15 * WEIGHTS["exp"]),
        ("aten.sum.dim_IntList", (3, 5), (3,), 15),
        ("aten._softmax.default", (3, 5), (3, 5), 15 * 12),
        ("aten.view.default", (3, 5), (15,), 0),
        ("aten.max.dim", (3, 5), (3,), 15),
        ("aten.some_future_op.default", (3, 5), (3, 5), 15),
    ],
)
def test_pointwise_reductions_and_moves(op: str, shape_in: tuple, shape_out: tuple, expected: int) -> None:
    assert count(_node(op, [_ref("x")], "y", shape_out), {"x": shape_in, "y": shape_out}, {}).operations == expected


def test_a_pointwise_chain_is_bound_by_memory() -> None:
    task = _task({"x": ("B", "N"), "y": ("B", "N")}, ("B", "N"))
    nodes = [
        _node("aten.mul.Tensor", [_ref("x"), _ref("y")], "m", ("B", "N")),
        _node("aten.tanh.default", [_ref("m")], "out", ("B", "N")),
    ]
    cost = estimate(task, {"B": 1024, "N": 1024}, _graph(task, nodes, "out"), DEVICE)
    elements = 1 << 20
    assert cost.moved_bytes == 3 * 4 * elements == task.compulsory_bytes({"B": 1024, "N": 1024})
    assert cost.operations == elements * (1 + WEIGHTS["tanh"])
    # Written and as much read at 10 GB/s, the second input at 20 GB/s.
    assert cost.memory_us == pytest.approx((2 * 4 * elements / 10e9 + 4 * elements / 20e9) * 1e6)
    assert cost.bound == "memory" and cost.roofline_us == cost.memory_us
    assert cost.floor_us < cost.roofline_us


@given(b=st.integers(1, 512), n=st.integers(1, 512))
def test_roofline_is_the_largest_part_and_grows_with_size(b: int, n: int) -> None:
    task = _task({"x": ("B", "N")}, ("B", "N"))
    graph = _graph(task, [_node("aten.exp.default", [_ref("x")], "out", ("B", "N"))], "out")
    cost = estimate(task, {"B": b, "N": n}, graph, DEVICE)
    assert cost.roofline_us == max(cost.memory_us, cost.compute_us, cost.latency_us)
    assert {"memory": cost.memory_us, "compute": cost.compute_us, "latency": cost.latency_us}[
        cost.bound
    ] == cost.roofline_us
    assert estimate(task, {"B": b + 1, "N": n}, graph, DEVICE).roofline_us >= cost.roofline_us


def test_a_large_product_is_bound_by_compute_and_tiles_count_only_for_products() -> None:
    for dtype, peak in ((DType.FLOAT32, 100.0), (DType.BFLOAT16, 1000.0), (DType.FLOAT64, 50.0)):
        task = _task({"a": ("N", "N"), "b": ("N", "N")}, ("N", "N"), dtype)
        node = _node("aten.mm.default", [_ref("a"), _ref("b")], "out", ("N", "N"), dtype)
        cost = estimate(task, {"N": 2048}, _graph(task, [node], "out"), DEVICE)
        assert cost.compute_us == pytest.approx(2 * 2048**3 / (peak * 1e3))
        assert cost.bound == "compute" and cost.dtype == dtype
    task = _task({"a": ("N",)}, ("N",), DType.BFLOAT16)
    node = _node("aten.exp.default", [_ref("a")], "out", ("N",), DType.BFLOAT16)
    assert estimate(task, {"N": 1000}, _graph(task, [node], "out"), DEVICE).compute_us == pytest.approx(8000 / 100e3)


def test_an_embedding_reads_the_rows_it_touches() -> None:
    task = _task({"w": ("V", "D"), "i": ("N",)}, ("N", "D"), i_dtype=DType.INT64)
    graph = _graph(task, [_node("aten.embedding.default", [_ref("w"), _ref("i")], "out", ("N", "D"))], "out")
    few = estimate(task, {"V": 100_000, "D": 64, "N": 10}, graph, DEVICE)
    assert few.read_bytes == pytest.approx(10 * 64 * 4 + 10 * 8, rel=0.01)
    many = estimate(task, {"V": 100, "D": 64, "N": 100_000}, graph, DEVICE)
    assert many.read_bytes == pytest.approx(100 * 64 * 4 + 100_000 * 8, rel=0.01)


def test_rows_drawn_twice_are_read_once() -> None:
    import random

    task = _task({"w": ("V", "D"), "i": ("N",)}, ("N", "D"), i_dtype=DType.INT64)
    graph = _graph(task, [_node("aten.embedding.default", [_ref("w"), _ref("i")], "out", ("N", "D"))], "out")
    cost = estimate(task, {"V": 1000, "D": 16, "N": 1500}, graph, DEVICE)
    rng = random.Random(1)
    drawn = sum(len({rng.randrange(1000) for _ in range(1500)}) for _ in range(200)) / 200
    assert (cost.read_bytes - 1500 * 8) / (16 * 4) == pytest.approx(drawn, rel=0.02)


def test_a_slice_reads_its_part_and_an_unused_input_nothing() -> None:
    task = _task({"x": ("N",), "unused": ("N",)}, (8,))
    graph = _graph(task, [_node("aten.slice.Tensor", [_ref("x")], "out", (8,))], "out")
    cost = estimate(task, {"N": 1_000_000}, graph, DEVICE)
    assert cost.read_bytes == 32 and cost.written_bytes == 32 and cost.bound == "latency"


def test_dead_nodes_and_constants_cost_nothing() -> None:
    task = _task({"x": ("N",)}, ("N",))
    nodes = [
        _node("aten.arange.default", [LiteralArg(value=9)], "steps", ("N",)),
        _node("aten.cos.default", [_ref("steps")], "table", ("N",)),
        _node("aten.exp.default", [_ref("x")], "dead", ("N",)),
        _node("aten.mul.Tensor", [_ref("x"), _ref("table")], "out", ("N",)),
    ]
    assert estimate(task, {"N": 100}, _graph(task, nodes, "out"), DEVICE).operations == 100


def test_causal_attention_written_out_counts_half_of_both_products() -> None:
    task = _task({"q": ("B", "L", "D"), "k": ("B", "D", "L")}, ("B", "L", "D"))
    square = ("B", "L", "L")

    def graph(masked: bool) -> Graph:
        nodes = [
            _node("aten.full.default", [LiteralArg(value=0.0)], "zeros", ("L", "L")),
            _node("aten.bmm.default", [_ref("q"), _ref("k")], "scores", square),
            _node("aten.add.Tensor", [_ref("scores"), _ref("zeros")], "shifted", square),
            _node("aten._softmax.default", [_ref("shifted" if masked else "scores")], "weights", square),
            _node("aten.bmm.default", [_ref("weights"), _ref("q")], "out", ("B", "L", "D")),
        ]
        return _graph(task, nodes, "out")

    axes = {"B": 2, "L": 64, "D": 32}
    products = 2 * 2 * 64 * 64 * 32 * 2
    full = estimate(task, axes, graph(False), DEVICE).operations
    half = estimate(task, axes, graph(True), DEVICE).operations
    elementwise = 2 * 64 * 64
    assert full == products + 12 * elementwise
    assert half == products // 2 + (12 + 1) * elementwise


def test_triangular_operands_by_counting_non_zero_terms() -> None:
    n = 48
    exact = sum(2 for i, j, k in itertools.product(range(n), repeat=3) if k <= i and j <= k)
    task = _task({"a": ("N", "N"), "b": ("N", "N")}, ("N", "N"), a="lower_triangular", b="lower_triangular")
    node = _node("aten.mm.default", [_ref("a"), _ref("b")], "out", ("N", "N"))
    assert estimate(task, {"N": n}, _graph(task, [node], "out"), DEVICE).operations == pytest.approx(exact, rel=0.1)


def test_without_a_graph_bytes_are_still_exact() -> None:
    task = _task({"x": ("B", "N")}, ("B",), DType.FLOAT64)
    cost = estimate(task, {"B": 7, "N": 9}, None, DEVICE)
    assert cost.moved_bytes == 8 * (63 + 7) and not cost.from_graph and cost.dtype == DType.FLOAT64


def test_sizes_that_the_axes_do_not_decide_fall_back_to_no_graph() -> None:
    task = _task({"x": ("N",)}, ("N",))
    graph = _graph(task, [_node("aten.nonzero.default", [_ref("x")], "out", ("u0", 1))], "out")
    assert not estimate(task, {"N": 10}, graph, DEVICE).from_graph


def test_unmeasured_ceilings_are_an_environment_problem() -> None:
    task = _task({"x": ("N",)}, ("N",))
    with pytest.raises(EnvironmentProblem):
        estimate(task, {"N": 10}, None, DEVICE.replace(ceilings=None))


def test_the_task_s_default_sizes_stand_in_for_axes_that_are_not_bound() -> None:
    task = _task({"x": ("B", "N")}, ("B", "N"))
    assert estimate(task, {"N": 10}, None, DEVICE).moved_bytes == 2 * 4 * prod((4, 10))
