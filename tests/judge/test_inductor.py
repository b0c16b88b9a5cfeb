"""Lifting what torch.compile generates: against eager, on the generated sizes and on others."""

from __future__ import annotations

import types
from types import SimpleNamespace

import pytest
import torch

from kernelwright.core.dtypes import DType
from kernelwright.judge import inductor
from kernelwright.judge.inductor_source import NotLiftable, take_apart
from kernelwright.platforms.candidates import Candidate
from kernelwright.tasks.model import TensorSpec

LATE = torch.arange(24.0).reshape(4, 6).T / 7


class Reference:
    """What `lift` needs of a reference, around a function of the kernel inputs."""

    def __init__(self, function, state=()):
        self.function = function
        self.task = SimpleNamespace(state=tuple(state))

    def as_module(self):
        return self.function


def load(candidate: Candidate):
    written = types.ModuleType("candidate")
    exec(compile(candidate.sources[candidate.entry], candidate.entry, "exec"), written.__dict__)
    return written.ModelNew


def by_kind(candidates: list[Candidate] | str) -> dict[str, Candidate]:
    assert not isinstance(candidates, str), candidates
    return {c.origin.template.removeprefix("inductor/"): c for c in candidates}


def softmax_of_sum(x, y):
    return torch.softmax(torch.nn.functional.gelu(x + y), dim=-1)


def test_a_fused_function_runs_on_its_own_sizes_and_through_symbolic_sizes_on_others():
    torch.manual_seed(3)
    workloads = [[torch.randn(64, 100), torch.randn(100)], [torch.randn(32, 257), torch.randn(257)]]
    found = by_kind(inductor.lift(Reference(softmax_of_sum), workloads))
    assert {"default", "symbolic"} <= found.keys()
    assert found["default"].origin.left_to_library == ()
    model = load(found["default"])()
    for tensors in [*workloads, [torch.randn(65, 101), torch.randn(101)]]:
        exact = softmax_of_sum(*(t.double() for t in tensors))
        torch.testing.assert_close(model(*tensors).double(), exact, rtol=1e-5, atol=1e-7)


def test_what_it_was_not_generated_for_is_refused():
    workloads = [[torch.randn(64, 100), torch.randn(100)]]
    model = load(by_kind(inductor.lift(Reference(softmax_of_sum), workloads))["symbolic"])()
    with pytest.raises(NotImplementedError, match="element types"):
        model(torch.randn(64, 100).double(), torch.randn(100).double())
    with pytest.raises(NotImplementedError, match="other shapes"):
        model(torch.randn(64, 100), torch.randn(64, 100))
    with pytest.raises(NotImplementedError, match="other shapes"):
        model(torch.randn(100, 64).T, torch.randn(100))
    with pytest.raises(NotImplementedError, match="2 tensor arguments"):
        model(torch.randn(64, 100))


def test_sizes_that_happen_to_be_equal_may_differ():
    square = [torch.randn(32, 32), torch.randn(32)]
    model = load(by_kind(inductor.lift(Reference(softmax_of_sum), [square], tune=False))["symbolic"])()
    for tensors in [square, [torch.randn(33, 47), torch.randn(47)]]:
        exact = softmax_of_sum(*(t.double() for t in tensors))
        torch.testing.assert_close(model(*tensors).double(), exact, rtol=1e-5, atol=1e-7)


def test_autotuned_matrix_products_are_lifted_too_and_nothing_is_printed(capfd):
    def attention_scores(q, k):
        return torch.softmax(q @ k.transpose(1, 2), -1)

    tensors = [torch.randn(2, 48, 16), torch.randn(2, 48, 16)]
    found = by_kind(inductor.lift(Reference(attention_scores), [tensors]))
    for candidate in found.values():
        torch.testing.assert_close(load(candidate)()(*tensors), attention_scores(*tensors), rtol=1e-5, atol=1e-6)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def linear_then_norm(x, weight, bias, scale):
    y = torch.nn.functional.linear(x, weight, bias)
    return torch.nn.functional.layer_norm(y, (y.shape[-1],)) * scale


def test_state_is_held_by_name_and_library_calls_are_listed():
    torch.manual_seed(4)
    state = [
        TensorSpec(name="body.linear.weight", dtype=DType.FLOAT32, dims=(48, 40), role="parameter"),
        TensorSpec(name="body.linear.bias", dtype=DType.FLOAT32, dims=(48,), role="parameter"),
        TensorSpec(name="scale", dtype=DType.FLOAT32, dims=(48,), role="buffer"),
    ]
    tensors = [torch.randn(33, 40), torch.randn(48, 40), torch.randn(48), torch.randn(48)]
    found = by_kind(inductor.lift(Reference(linear_then_norm, state), [tensors]))
    candidate = found["default"]
    assert any("addmm" in call or "linear" in call for call in candidate.origin.left_to_library)
    model = load(candidate)()
    assert set(model.state_dict()) == {spec.name for spec in state}
    assert {name for name, _ in model.named_parameters()} == {"body.linear.weight", "body.linear.bias"}
    model.load_state_dict(dict(zip([spec.name for spec in state], tensors[1:], strict=True)))
    exact = linear_then_norm(*(t.double() for t in tensors))
    torch.testing.assert_close(model(tensors[0]).double(), exact, rtol=1e-4, atol=1e-5)


def test_tensors_kept_outside_the_state_are_written_into_the_text():
    def shifted(x):
        return (x + LATE).sum(dim=1), x * torch.tensor([1.0, 2.0, 4.0, 8.0])

    x = torch.randn(6, 4)
    found = by_kind(inductor.lift(Reference(shifted), [[x]]))
    total, scaled = load(found["default"])()(x)
    torch.testing.assert_close(total, (x + LATE).sum(dim=1))
    torch.testing.assert_close(scaled, x * torch.tensor([1.0, 2.0, 4.0, 8.0]))


def test_a_large_tensor_outside_the_state_is_a_reason():
    large = torch.randn(1024, 1024)
    reason = inductor.lift(Reference(lambda x: x + large), [[torch.randn(1024)]])
    assert isinstance(reason, str)
    assert "4194304 bytes outside its parameters" in reason


def test_a_graph_break_is_a_reason():
    def branches(x):
        return x + 1 if x.sum().item() > 0 else x - 1

    reason = inductor.lift(Reference(branches), [[torch.randn(8)]])
    assert isinstance(reason, str)
    assert "torch.compile" in reason


def test_an_output_that_is_an_input_is_a_reason_or_right():
    def passes_on(x):
        return x, x * 2

    x = torch.randn(8)
    found = inductor.lift(Reference(passes_on), [[x]])
    if isinstance(found, str):
        assert "does not do what the compiled one does" in found
    else:
        first, second = load(found[0])()(x)
        torch.testing.assert_close(first, x)
        torch.testing.assert_close(second, x * 2)


def test_integer_and_16_bit_results():
    x = torch.randn(16, 50).bfloat16()

    def largest(x):
        return x.argmax(dim=1), torch.tanh(x)

    found = by_kind(inductor.lift(Reference(largest), [[x]]))
    index, value = load(found["default"])()(x)
    torch.testing.assert_close(index, x.argmax(dim=1))
    torch.testing.assert_close(value, torch.tanh(x))


def test_a_reference_that_writes_to_its_inputs_is_a_reason():
    x = torch.ones(8)
    reason = inductor.lift(Reference(lambda x: x.mul_(2).sum()), [[x]])
    assert isinstance(reason, str)
    assert "changes its inputs" in reason
    torch.testing.assert_close(x, torch.ones(8))


def test_no_compile_worker_is_left_behind():
    import multiprocessing

    inductor.lift(Reference(softmax_of_sum), [[torch.randn(8, 16), torch.randn(16)]])
    assert multiprocessing.active_children() == []
    from torch._inductor.async_compile import AsyncCompile

    assert AsyncCompile.process_pool.cache_info().currsize == 0


def test_code_that_is_no_straight_line_of_cpp_kernels_is_refused():
    with pytest.raises(NotLiftable, match="no call sequence"):
        take_apart("import torch\n")
    with pytest.raises(NotLiftable, match="triton"):
        take_apart("k = async_compile.triton('k', '''''')\ndef call(args):\n    return ()\n")
