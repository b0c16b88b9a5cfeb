"""Which honest kernels pass and which dishonest ones fail, on every distribution that the judge draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kernelwright.core.dtypes import DType
from kernelwright.tasks.arrays import from_torch, to_torch
from kernelwright.tasks.audit import passes
from kernelwright.tasks.inputs import distributions_for, draw
from kernelwright.tasks.loading import Reference
from kernelwright.tasks.model import Distribution, Task
from kernelwright.tasks.oracle import Illegal, OracleArrays, compute, magnitude


def drawn(task: Task, reference: Reference, family: str, axes=None, seed=3):
    axes = axes or task.workloads[0].axes
    own = reference.own_inputs(axes)
    generator = np.random.default_rng(seed)
    spec = Distribution(family=family)
    return [
        to_torch(draw(s, s.shape(axes), spec, generator, from_torch(t)), s.dtype)
        for s, t in zip(task.kernel_inputs, own, strict=True)
    ]


ORACLES: dict = {}


def verdicts(task: Task, reference: Reference, candidate, axes=None) -> dict[str, bool]:
    """Family to whether the candidate is right on it; illegal families left out."""
    found = {}
    for distribution in distributions_for(task):
        key = (id(reference), distribution.family, str(axes))
        if key not in ORACLES:
            inputs = drawn(task, reference, distribution.family, axes)
            ORACLES[key] = (reference, inputs, compute(reference, inputs, task))
        _, inputs, oracle = ORACLES[key]
        if isinstance(oracle, OracleArrays):
            result = candidate(*inputs)
            outputs = result if isinstance(result, tuple) else (result,)
            found[distribution.family] = passes(oracle, [from_torch(o) for o in outputs])
    return found


def right(task, reference, candidate, axes=None) -> bool:
    found = verdicts(task, reference, candidate, axes)
    assert len(found) >= 3
    return all(found.values())


MATMUL = (
    "def f(a, b):\n    return a @ b\ndef get_inputs():\n    return [torch.randn(50, {k}{t}), torch.randn({k}, 24{t})]\n"
)


def one_accumulator(a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


def blocked(a, b):
    return sum(a[:, k : k + 96] @ b[k : k + 96] for k in range(0, a.shape[1], 96))


def without_last_rows(function):
    def candidate(*tensors):
        out = function(*tensors).clone()
        out[-max(1, out.shape[0] // 25) :] = 0
        return out

    return candidate


def test_long_matrix_product(task_of):
    task, reference = task_of(MATMUL.format(k=4096, t=""))
    for honest in (torch.matmul, one_accumulator, blocked, lambda a, b: (a.double() @ b.double()).float()):
        assert right(task, reference, honest)
    for name, cheat in {
        "half": lambda a, b: (a.half() @ b.half()).float(),
        "bfloat16": lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
        "ten bits": lambda a, b: _ten_bits(a) @ _ten_bits(b),
        "rows left out": without_last_rows(torch.matmul),
        "last product left out": lambda a, b: a[:, :-1] @ b[:-1],
        "zeros": lambda a, b: torch.zeros(50, 24),
    }.items():
        found = verdicts(task, reference, cheat)
        assert not found["own"], name
        assert not found["large"], name


def _ten_bits(x):
    return (x.view(torch.int32) & -8192).view(torch.float32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_products_accumulate_in_float32(task_of, dtype):
    task, reference = task_of(MATMUL.format(k=768, t=f", dtype=torch.{dtype}"))
    assert right(task, reference, lambda a, b: (a.float() @ b.float()).to(a.dtype))
    found = verdicts(task, reference, one_accumulator)
    assert not found["own"]
    assert not found["positive"]


def online_softmax(x):
    top, total = torch.full((len(x), 1), -torch.inf), torch.zeros(len(x), 1)
    for block in x.split(128, 1):
        higher = torch.maximum(top, block.amax(1, keepdim=True))
        total = total * torch.exp(top - higher) + torch.exp(block - higher).sum(1, keepdim=True)
        top = higher
    return torch.exp(x - top) / total


def test_softmax_over_a_long_axis(task_of):
    task, reference = task_of(
        "def f(x):\n    return x.softmax(1)\ndef get_inputs():\n    return [torch.randn(4, 32768)]\n"
    )
    assert right(task, reference, online_softmax)
    assert not any(verdicts(task, reference, torch.zeros_like).values())
    assert not any(verdicts(task, reference, without_last_rows(online_softmax)).values())
    overflowing = verdicts(task, reference, lambda x: x.exp() / x.exp().sum(1, keepdim=True))
    assert overflowing["own"]
    assert not overflowing["large"]


def test_cumulative_sum_in_other_association(task_of):
    task, reference = task_of(
        "def f(x):\n    return x.cumsum(1)\ndef get_inputs():\n    return [torch.randn(12, 4096)]\n"
    )

    def tree(x):
        out, step = x.clone(), 1
        while step < x.shape[1]:
            out[:, step:] = out[:, step:] + out[:, :-step].clone()
            step *= 2
        return out

    def sequential(x):
        return torch.from_numpy(np.add.accumulate(x.numpy(), axis=1, dtype=np.float32))

    assert right(task, reference, tree)
    assert right(task, reference, sequential)
    assert not right(task, reference, lambda x: x.half().cumsum(1).float())


def test_other_formula_for_a_pointwise_function_is_told_apart(task_of):
    task, reference = task_of("def f(x):\n    return F.gelu(x)\ndef get_inputs():\n    return [torch.randn(64, 300)]\n")
    assert right(task, reference, lambda x: 0.5 * x * (1 + torch.erf(x * 2**-0.5)))
    assert not verdicts(task, reference, lambda x: F.gelu(x, approximate="tanh"))["own"]


def test_parameters_are_really_used(task_of):
    task, reference = task_of(
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = nn.LayerNorm(256)\n"
        "    def forward(self, x):\n        return self.n(x)\ndef get_inputs():\n    return [torch.randn(32, 256)]\n"
    )

    def one_pass(x, w, b):
        mean = x.mean(1, True)
        return (x - mean) * ((x * x).mean(1, True) - mean**2 + 1e-5).rsqrt() * w + b

    assert right(task, reference, one_pass)
    ignoring = verdicts(task, reference, lambda x, w, b: F.layer_norm(x, (256,)))
    assert ignoring["own"]  # fresh parameters are ones and zeros
    assert not ignoring["normal"]


def test_indices_are_exact_with_the_first_of_ties(task_of):
    task, reference = task_of(
        "def f(x):\n    return (x * 2 + 1).argmax(1)\ndef get_inputs():\n    return [torch.randn(64, 500)]\n"
    )
    assert right(task, reference, lambda x: x.argmax(1))
    last = verdicts(task, reference, lambda x: x.shape[1] - 1 - x.flip(1).argmax(1))
    assert last["own"]
    assert not last["ties"]


SATURATED = (
    "def f(x):\n    return torch.topk(torch.tanh(x) * 3, 5, dim=1)\n"
    "def get_inputs():\n    return [torch.randn(200, 400) * 2]\n"
)


def other_tanh(x):
    """Off by a rounding or so, as a vectorised tanh is; equal values give equal results."""
    wide = x.double()
    return (torch.tanh(wide) * (1 + 1.2e-7 * torch.sin(1e6 * wide))).float()


@pytest.mark.parametrize("seed", range(4))
def test_indices_that_hang_on_roundings_on_the_way_are_not_held_against_a_kernel(task_of, seed):
    task, reference = task_of(SATURATED)
    easy, near = (drawn(task, reference, family, seed=seed)[0][:100] for family in ("normal", "uniform"))
    inputs = [torch.cat([easy, near + 4])]
    oracle = compute(reference, inputs, task)
    honest = torch.topk(other_tanh(inputs[0]) * 3, 5, dim=1)
    assert (honest[1] != reference.call(inputs)[1]).any(), "the case does not show the problem"
    assert passes(oracle, [o.numpy() for o in honest])
    stable = oracle.outputs[1].stable
    assert stable is not None
    assert stable.mean() > 0.4
    assert not passes(oracle, [honest[0].numpy(), honest[1].flip(1).numpy()])


def test_flags_of_a_value_against_its_own_maximum_stay_exact(task_of):
    task, reference = task_of(
        "def f(x):\n    y = torch.sigmoid(x)\n    return y >= y.amax(1, keepdim=True), y > y.mean()\n"
        "def get_inputs():\n    return [torch.randn(64, 500)]\n"
    )
    oracle = compute(reference, reference.own_inputs(task.workloads[0].axes), task)
    peaks, above = (o.stable for o in oracle.outputs)
    assert peaks.all()
    assert above.mean() > 0.999


def test_positions_of_infinities_and_nan_must_agree(task_of):
    text = (
        "def f(x, keep):\n    return torch.logsumexp(x.masked_fill(~keep, float('-inf')), 1)\n"
        "def get_inputs():\n    keep = torch.rand(64, 128) > 0.3\n    keep[::8] = False\n"
        "    return [torch.randn(64, 128), keep]\n"
    )
    task, reference = task_of(text)
    inputs = reference.own_inputs(task.workloads[0].axes)
    oracle = compute(reference, inputs, task)
    assert isinstance(oracle, OracleArrays)
    expected = reference.call(inputs)[0]
    assert torch.isneginf(expected).any()
    assert passes(oracle, [expected.numpy()])
    assert not passes(oracle, [torch.nan_to_num(expected, neginf=-1e30).numpy()])
    assert not passes(oracle, [torch.where(expected.isinf(), torch.nan, expected).numpy()])


def test_special_values_where_the_task_asks_for_them(tmp_path, task_of):
    task, reference = task_of(
        "from kernelwright.tasks import operation\n"
        "@operation(x='float32[B, N]', workloads=[{'B': 16, 'N': 64}], special_values=True)\n"
        "def f(x):\n    return torch.relu(x)\n"
    )
    assert distributions_for(task)[-1].family == "special"
    assert right(task, reference, lambda x: x.clamp(min=0))
    swallowing = verdicts(task, reference, lambda x: torch.where(x > 0, x, torch.zeros(())))
    assert swallowing.pop("special") is False
    assert all(swallowing.values())


def test_distributions_outside_the_domain_are_illegal(task_of):
    task, reference = task_of(
        "def f(x):\n    return torch.log(x)\ndef get_inputs():\n    return [torch.rand(8, 64) + 0.1]\n"
    )
    assert isinstance(compute(reference, drawn(task, reference, "normal"), task), Illegal)
    found = verdicts(task, reference, torch.log)
    assert set(found) >= {"own", "uniform", "positive"}
    assert all(found.values())
    assert any("outside the operation's domain: normal" in note for note in task.notes)


def test_probabilities_still_have_three_families(task_of):
    task, reference = task_of(
        "def f(p, t):\n    return F.binary_cross_entropy(p, t)\n"
        "def get_inputs():\n    return [torch.rand(64, 32), torch.randint(0, 2, (64, 32)).float()]\n"
    )

    def written_out(p, t):
        return -(t * p.log().clamp(min=-100) + (1 - t) * (1 - p).log().clamp(min=-100)).mean()

    found = verdicts(task, reference, written_out)
    assert set(found) == {"own", "uniform", "booleans"}
    assert all(found.values())


def test_raising_for_a_distribution_is_illegal_too(task_of):
    task, reference = task_of(
        "def f(x):\n    assert (x >= 0).all(), 'negative'\n    return x.sqrt()\n"
        "def get_inputs():\n    return [torch.rand(8, 64)]\n"
    )
    illegal = compute(reference, drawn(task, reference, "normal"), task)
    assert isinstance(illegal, Illegal)
    assert "negative" in illegal.reason


def test_casts_inside_the_reference_are_widened(task_named):
    task, reference = task_named("bfloat16")
    inputs = drawn(task, reference, "normal")
    oracle = compute(reference, inputs, task)
    assert isinstance(oracle, OracleArrays)
    assert oracle.in_double
    x, residual, weight = (t.double() for t in inputs)
    h = x + residual
    expected = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * weight
    np.testing.assert_allclose(oracle.outputs[0].expected, expected.numpy(), rtol=1e-12)


def test_a_reference_that_insists_on_its_dtype_is_its_own_oracle(task_of):
    task, reference = task_of(
        "def f(x):\n    if x.dtype != torch.float32:\n        raise TypeError('float32 only')\n    return x.exp().sum(1)\n"
        "def get_inputs():\n    return [torch.randn(16, 512)]\n"
    )
    inputs = drawn(task, reference, "normal")
    oracle = compute(reference, inputs, task)
    assert isinstance(oracle, OracleArrays)
    assert not oracle.in_double
    assert passes(oracle, [inputs[0].double().exp().sum(1).float().numpy()])
    assert not passes(oracle, [inputs[0].half().exp().sum(1).float().numpy()])


def test_overflow_of_the_reference_is_not_judged(task_of):
    task, reference = task_of("def f(x):\n    return x.exp()\ndef get_inputs():\n    return [torch.randn(8, 64)]\n")
    x = torch.zeros(8, 64)
    x[0, 0], x[1, 1] = 88.72, 500.0
    oracle = compute(reference, [x], task)
    assert isinstance(oracle, OracleArrays)
    assert np.isinf(oracle.outputs[0].expected[1, 1])
    assert passes(oracle, [x.exp().numpy()])
    for row in (1, 2):  # beside the overflow, and elsewhere
        wrong = x.exp()
        wrong[row, 2] = 1.001
        assert not passes(oracle, [wrong.numpy()])


def test_author_can_widen_but_not_tighten(task_of):
    text = "def f(x):\n    return x.sum(1)\ndef get_inputs():\n    return [torch.randn(16, 100)]\n"
    task, reference = task_of(text)
    inputs = reference.own_inputs(task.workloads[0].axes)

    def allowed(**changes):
        oracle = compute(reference, inputs, task.replace(tolerance=task.tolerance.replace(**changes)))
        assert isinstance(oracle, OracleArrays)
        return oracle.outputs[0].allowed

    assert (allowed(rtol=1e-12, atol=0.0) == allowed()).all()
    assert (allowed(atol=0.5) >= 0.5).all()


def test_magnitude_follows_rows_and_columns():
    rows, columns = np.array([1e-6, 1.0, 1e4]), np.array([1.0, 1e3, 10.0, 0.1])
    signs = np.where(np.arange(12).reshape(3, 4) % 2, 1, -1)
    np.testing.assert_allclose(magnitude(signs * np.outer(rows, columns)), np.outer(rows, columns))
    assert magnitude(np.zeros((2, 3))).tolist() == [[0.0] * 3] * 2


def test_a_wrong_small_row_beside_a_large_one_is_seen(task_of):
    task, reference = task_of("def f(x):\n    return x * 3\ndef get_inputs():\n    return [torch.randn(16, 32)]\n")
    x = torch.randn(16, 32)
    x[3] *= 1e-5
    oracle = compute(reference, [x], task)
    assert isinstance(oracle, OracleArrays)
    wrong = x * 3
    wrong[3] = 0
    assert not passes(oracle, [wrong.numpy()])


def test_length_of_reductions_is_measured(task_of):
    for text, low, high in (("x * 2", 0.5, 2), ("x.sum(1)", 200, 800), ("x.exp().sum()", 1e4, 1e5)):
        task, reference = task_of(
            f"def f(x):\n    return {text}\ndef get_inputs():\n    return [torch.randn(300, 400)]\n"
        )
        compute(reference, reference.own_inputs(task.workloads[0].axes), task)
        (length,) = reference.lengths.values()
        assert low <= length <= high, text


def test_dtypes_of_the_allowance(task_named):
    task, reference = task_named("other_name")
    oracle = compute(reference, reference.own_inputs(task.workloads[0].axes), task)
    assert isinstance(oracle, OracleArrays)
    values, indices = oracle.outputs
    assert (values.expected.dtype, values.allowed.dtype, values.stable) == (np.float64, np.float32, None)
    assert indices.dtype is DType.INT64
    assert indices.expected.dtype == np.int64
    assert indices.stable is not None
    assert indices.stable.mean() > 0.9


def test_a_kernel_that_knows_better_than_a_cancelling_oracle_is_right(task_of):
    task, reference = task_of("def f(x):\n    return F.gelu(x)\ndef get_inputs():\n    return [torch.randn(2, 64)]\n")
    x = torch.linspace(-12.0, 12.0, 128).reshape(2, 64)
    x[:, 5] = -8.4
    oracle = compute(reference, [x], task)
    exact = (x.double() * 0.5 * torch.special.erfc(-x.double() / 2**0.5)).float()
    assert exact[0, 5] != 0 and float(oracle.outputs[0].expected[0, 5]) == 0
    assert passes(oracle, [from_torch(exact)])
    assert not passes(oracle, [from_torch(torch.where(x < -2, torch.zeros(()), exact))])
