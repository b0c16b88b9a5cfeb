"""What stays with the library, and the kernels around it: sizes that a kernel sees only inside expressions, dropped templates."""
# ruff: noqa: E501

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernelwright.agents.drafter.coverage import undrafted
from kernelwright.agents.drafter.index import as_expr, modulo, render, size
from kernelwright.agents.drafter.templates import DraftTemplate
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device

M, W = "float32[B, 6, H, W]", "float32[8, 6, 3, 3]"

CONVOLUTIONS = {
    "bias": (lambda x, w, b: torch.relu(F.conv2d(x, w)) + b, [M, W, "float32[8, 1, 1]"], 1, True),
    "stride": (lambda x, w: F.conv2d(x, w, stride=2, padding=1) * 2, [M, W], 1, True),
    "dilation": (lambda x, w: F.hardswish(F.conv2d(x, w, stride=2, dilation=2, padding=2)) + 1, [M, W], 1, False),
    "pooled": (lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, stride=2)), 3, 2, 1) * 2, [M, W], 1, True),
    "global": (lambda x, w: F.adaptive_avg_pool2d(F.mish(F.conv2d(x, w)), 1).flatten(1), [M, W], 1, False),
    "length": (lambda x, w: F.conv1d(x, w, stride=3, padding=1).tanh(), ["float32[B, 6, L]", "float32[8, 6, 3]"], 1, False),
    "volume": (lambda x, w: F.softmax(F.conv3d(x, w), 1).amax((2, 3)), ["float32[B, 3, 6, H, W]", "float32[8, 3, 3, 3, 3]"], 2, False),
    "transposed": (lambda x, w, b: torch.clamp(F.conv_transpose2d(x, w, stride=2) + b, 0, 1) * 2, [M, "float32[6, 8, 3, 3]", "float32[8, 1, 1]"], 1, True),
    "normalised": (lambda x, w: F.instance_norm(F.conv2d(x, w)) / 2, [M, W], 1, False),
    "group_norm": (lambda x, w: F.group_norm(F.conv2d(x, w), 4).clamp(0.1, 0.9).min(1, keepdim=True)[0], [M, W], 2, False),
    "two": (lambda x, w, v: F.conv2d(F.relu(F.conv2d(x, w, padding=1)), v).sigmoid() + 1, [M, W, "float32[4, 8, 1, 1]"], 2, False),
    "beside_input": (lambda x, w: torch.cat([x, F.relu(F.conv2d(x, w, padding=1))], 1), [M, W], 1, False),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if CONVOLUTIONS[n][3] else pytest.mark.slow) for n in CONVOLUTIONS]
)
def test_kernels_around_a_convolution(name: str, device: Device, bench) -> None:
    function, inputs, kernels, _ = CONVOLUTIONS[name]
    case = bench(function, inputs, device)
    candidate = case.candidate()
    assert candidate.sources["kernel.cpp"].count("// Computes ") == kernels
    assert all("convolution" in entry for entry in candidate.origin.left_to_library)
    run = case.compiled(candidate)
    for sizes in case.size_sets():
        drawn = {n: max(s, 7) if n in {"H", "W", "L"} else s for n, s in sizes.items()}
        case.check(run, case.inputs(drawn, seed=sum(drawn.values())))


def test_a_size_inside_an_expression_is_solved_or_borrowed(device: Device, bench) -> None:
    plain = bench(lambda x, w: F.conv2d(x, w) * 2, [M, W], device).candidate()
    assert "inputs[0].shape[2] + 2" in plain.sources["kernel.cpp"]
    assert len(plain.plan.steps[-1].inputs) == 1
    strided = bench(lambda x, w: F.conv2d(x, w, stride=2) * 2, [M, W], device).candidate()
    assert strided.plan.steps[-1].inputs == ("convolution", "x0")


def test_remainders_round_down_as_torch_rolls() -> None:
    n = size("N")
    assert modulo(n - 1, n) == n - 1
    text = render(modulo(n - 2, n), lambda atom: "7")
    assert text == "remainder_int<int64_t>(-2, 7)"
    assert render(modulo(as_expr(-2), as_expr(7)), lambda atom: "") == "5"


def test_results_that_no_kernel_makes_come_from_the_library(device: Device, bench) -> None:
    case = bench(lambda x: F.max_pool2d(x.exp(), 2, return_indices=True), [M], device)
    candidate = case.candidate()
    assert candidate.origin.left_to_library == ("aten.max_pool2d_with_indices.default: no kernel makes its result 2",)
    case.check(case.compiled(candidate), case.inputs({"B": 3, "H": 9, "W": 8}))


def test_steps_end_in_the_outputs_of_the_task(device: Device, bench) -> None:
    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.conv2d(x, w)
        return y, torch.relu(y)

    case = bench(both, [M, W], device)
    plan = case.candidate().plan
    made = [name for step in plan.steps for name in step.outputs]
    assert made == ["y0", "y1"]
    case.check(case.compiled(case.candidate()), case.inputs({"B": 2, "H": 9, "W": 8}))


def test_a_template_that_cannot_be_printed_is_dropped_with_its_reason(device: Device, bench, monkeypatch) -> None:
    case = bench(lambda x: F.softmax(x, -1), ["float32[B, N]"], device)
    whole = DraftTemplate.render

    def render(self: DraftTemplate, values: dict[str, object]) -> Candidate:
        if self.space.template == "fused":
            raise ValueError("no place for it")
        return whole(self, values)

    monkeypatch.setattr(DraftTemplate, "render", render)
    assert [t.space.template for t in case.templates()] == ["split"]
    assert undrafted(case.task, case.graph, device) == ("template fused: no place for it",)
