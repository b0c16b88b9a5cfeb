"""The candidates that do no work, and what is found out about a reference."""

from __future__ import annotations

import numpy as np
import pytest

from kernelwright.core.errors import TaskError
from kernelwright.tasks.audit import findings, trivial_candidates


def test_candidates_have_the_outputs_shape_and_storage(task_of):
    task, _ = task_of("def f(x, y):\n    return (x * y).tanh(), (x > y)\n" + PAIR)
    x, y = (np.full((4, 6), v, np.float32) for v in (2.0, 3.0))
    expected = [np.linspace(0, 1, 24).reshape(4, 6), np.zeros((4, 6), np.bool_)]
    made = dict(trivial_candidates(task, [x, y], expected, previous=expected))
    assert set(made) == {"zeros", "ones", "mean", "uninitialised memory", "previous output", "copy of x", "copy of y"}
    for outputs in made.values():
        assert [(o.shape, o.dtype) for o in outputs] == [((4, 6), np.float32), ((4, 6), np.bool_)]
    assert made["copy of y"][0].min() == 3.0
    assert made["mean"][0].max() == pytest.approx(0.5)


PAIR = "def get_inputs():\n    return [torch.randn(24, 40), torch.randn(24, 40)]\n"


def test_the_mean_of_one_number_is_no_candidate(task_of):
    task, _ = task_of("def f(x, y):\n    return (x - y).square().mean()\n" + PAIR)
    names = [name for name, _ in trivial_candidates(task, [np.zeros((2, 3), np.float32)] * 2, [np.array(0.5)])]
    assert names == ["zeros", "ones", "uninitialised memory"]


def test_a_task_that_was_fine_is_refused_after_its_tolerance_was_opened(task_of):
    task, reference = task_of("def f(x, y):\n    return (x @ y.T).softmax(1)\n" + PAIR)
    assert all("trivial" not in note or "others refuse" in note for note in findings(task, reference))
    opened = task.replace(tolerance=task.tolerance.replace(rtol=2.0))
    with pytest.raises(
        TaskError, match=r"the tolerance rtol=2\.0 lets a candidate that does no work pass: zeros"
    ) as caught:
        findings(opened, reference)
    assert caught.value.reason == "trivial_candidate_passes"
