"""Fitted output sizes against shape functions known in advance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.core.dimensions import evaluate_dim
from kernelwright.tasks.hidden import hidden_workloads, legal_size, verification_workloads
from kernelwright.tasks.model import Axis, TensorSpec
from kernelwright.tasks.output_dims import fit_output_dims

AXES = (
    Axis(name="B", origin="derived", default=6, minimum=2),
    Axis(name="H", origin="derived", default=56, minimum=9),
    Axis(name="W", origin="derived", default=40, minimum=9),
)


@pytest.mark.parametrize(
    "size",
    [
        "7", "B", "2*H", "H + 3", "B*H", "3*B*H*W", "H + W", "B + 2*H + 5", "(H - 3)//2 + 1", "(H + 2)//2", "H//4",
        "B*((H - 2)//2)", "max(H, W)", "min(B, W)", "H*H", "(H + 1)//2*W", "B*H//2",
    ],
)  # fmt: skip
def test_expression_is_found_and_holds_elsewhere(size):
    found = fit_output_dims(AXES, lambda axes: ((axes["B"], evaluate_dim(size, axes)),))
    assert found is not None
    assert found[0][0] == "B"
    for seed in range(20):
        rng = np.random.default_rng(seed)
        axes = {"B": int(rng.integers(2, 99)) * 2, "H": int(rng.integers(9, 500)), "W": int(rng.integers(9, 500))}
        assert evaluate_dim(found[0][1], axes) == evaluate_dim(size, axes), found


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 11), st.integers(1, 4), st.integers(0, 5), st.integers(1, 3), st.booleans())
def test_windows_of_convolution_and_pooling(kernel, stride, padding, dilation, ceil):
    def out(size):
        span = size + 2 * padding - dilation * (kernel - 1) - 1
        return (-(-span // stride) if ceil else span // stride) + 1

    axis = Axis(name="L", origin="derived", default=64, minimum=dilation * (kernel - 1) + 2)
    found = fit_output_dims((axis,), lambda axes: ((out(axes["L"]),),))
    assert found is not None
    for size in (*range(max(33, axis.minimum), 90), 1000, 1001, 1002, 1003):
        assert evaluate_dim(found[0][0], {"L": size}) == out(size)


def test_what_no_expression_gives_is_none():
    assert fit_output_dims(AXES, lambda axes: ((axes["H"].bit_count() * 7 + axes["H"] % 5,),)) is None
    assert fit_output_dims(AXES, lambda axes: ((3,) * (1 + axes["H"] % 2),)) is None


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 6), st.integers(1, 3000), st.booleans())
def test_legal_sizes_are_legal(default, multiple, low, target, odd):
    axis = Axis(
        name="N", origin="derived", default=default * multiple, multiple=multiple, minimum=min(low, default) * multiple
    )
    for bounded in (axis, axis.replace(maximum=axis.default)):
        size = legal_size(bounded, target, odd=odd)
        assert size % multiple == 0
        assert bounded.minimum <= size
        assert bounded.maximum is None or size <= bounded.maximum


def test_verification_workloads_are_small_and_one_is_odd():
    x = TensorSpec(name="x", dtype="float32", dims=("B", 64, "H", "W"))
    odd, small = verification_workloads(AXES, (x,))
    assert all(size % 2 == 1 for size in odd.axes.values())
    assert not (odd.timed or small.timed)
    for workload in (odd, small):
        assert np.prod(x.shape(workload.axes)) <= 1 << 20
    assert verification_workloads(tuple(a.replace(varies=False) for a in AXES), (x,)) == ()


def test_hidden_workloads_are_legal_new_and_drawn_from_the_seed(every_task):
    task, reference = every_task
    known = [w.axes for w in task.workloads]
    drawn = [hidden_workloads(task, np.random.default_rng(seed)) for seed in range(6)]
    assert len({str(w) for w in drawn}) > 3
    assert drawn[0] == hidden_workloads(task, np.random.default_rng(0))
    for hidden in drawn:
        assert len(hidden) == 2
        assert all(size % 2 for size in hidden[0].axes.values())
        for workload in hidden:
            assert workload.hidden
            assert workload.axes not in known
            assert max(np.prod(s.shape(workload.axes)) for s in (*task.kernel_inputs, *task.outputs)) <= 1 << 20
            outputs = reference.call(reference.own_inputs(workload.axes))
            assert [tuple(o.shape) for o in outputs] == [s.shape(workload.axes) for s in task.outputs]
