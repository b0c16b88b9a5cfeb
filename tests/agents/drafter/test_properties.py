"""Random expressions and all parameter values: whatever is drafted builds, and agrees with torch in float64."""

from __future__ import annotations

from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.agents.drafter import Drafter
from kernelwright.agents.drafter.index import Expr, as_expr, flatten, render, size, unflatten, variable
from kernelwright.agents.proposing import Attempt, Context
from kernelwright.core.dimensions import evaluate_dim
from kernelwright.judge.evaluation import Passed
from kernelwright.platforms.device import Device

UNARY = [torch.tanh, torch.sigmoid, torch.abs, torch.neg, F.relu, F.silu, torch.square, torch.cos]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum]
REDUCE = [
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x.mean(0, keepdim=True),
    lambda x: x.amax(-1, keepdim=True),
    lambda x: x.amin(0, keepdim=True),
    lambda x: x.mean(),
    lambda x: F.softmax(x, -1),
    lambda x: F.softmax(x, 0),
    lambda x: F.layer_norm(x, (x.shape[-1],)),
    lambda x: x.cumsum(-1) * 0.1,
    lambda x: x.cumsum(0) * 0.1,
    lambda x: x.flip(1),
    lambda x: x + x[:1] * x[:, :1],
]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """A straight-line program: (family, function, operand, operand), operands counted back from the newest value."""
    return [
        (draw(st.integers(0, 2)), draw(st.integers(0, 11)), draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        for _ in range(draw(st.integers(2, 6)))
    ]


def interpreted(program: list[tuple[int, int, int, int]]):
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [w, x]
        for family, which, first, second in program:
            a, b = (values[-1 - min(k, len(values) - 1)] for k in (first, second))
            if family == 0:
                values.append(UNARY[which % len(UNARY)](a))
            elif family == 1:
                values.append(BINARY[which % len(BINARY)](a, b))
            else:
                values.append(REDUCE[which](a + x * 0))
        return values[-1] + x * 0.5, values[-2] * 1.0

    return function


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_random_programs_agree(program: list[tuple[int, int, int, int]], device: Device, bench) -> None:
    case = bench(interpreted(program), ["float32[B, N]", "float32[N]"], device)
    run = case.compiled(case.candidate())
    for sizes in ({"B": 7, "N": 37}, {"B": 33, "N": 16}):
        case.check(run, case.inputs(sizes, seed=5))


def test_every_parameter_value_renders_and_samples_agree(device: Device, bench) -> None:
    case = bench(lambda x, w: F.softmax(x * w, -1) + x.sum(0), ["float32[B, N]", "float32[N]"], device)
    for template in case.templates():
        for parameter in template.space.parameters:
            for value in parameter.values:
                candidate = template.render({**template.space.defaults(), parameter.name: value})
                assert candidate.parameters[parameter.name] == value
    rng = Random(3)
    for _ in range(4):
        template = case.templates()[0]
        values = {p.name: rng.choice(p.values) for p in template.space.parameters}
        run = case.compiled(template.render(values))
        case.check(run, case.inputs({"B": 19, "N": 70}, seed=2))


@pytest.mark.slow
def test_many_samples_agree(device: Device, bench) -> None:
    functions = [
        (lambda x: F.gelu(F.softmax(x, -1)) * 2, ["float32[B, N]"]),
        (lambda x: (x.std(0), x.sum(0)), ["float32[B, N]"]),
        (lambda x: x.cumsum(0), ["float32[B, N]"]),
        (lambda x: x.cumsum(1), ["float32[B, N]"]),
        (lambda x, w: F.silu(x @ w), ["float32[B, K]", "float32[K, N]"]),
    ]
    rng = Random(11)
    for function, inputs in functions:
        case = bench(function, inputs, device)
        for _ in range(6):
            template = rng.choice(case.templates())
            values = {p.name: rng.choice(p.values) for p in template.space.parameters}
            case.check(case.compiled(template.render(values)), case.inputs(case.size_sets()[-1], seed=2))


def test_illegal_values_are_refused(device: Device, bench) -> None:
    template = bench(lambda x: x + 1, ["float32[N]"], device).templates()[0]
    with pytest.raises(ValueError, match="is not one of"):
        template.render({**template.space.defaults(), "unroll": 3})
    with pytest.raises(ValueError, match="expected values for"):
        template.render({"unroll": 4})


def test_special_values_propagate_as_in_torch(device: Device, bench) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.amax(1),
            x.argmax(1),
            x.amin(0),
            F.relu(x),
            x.sum(1),
            torch.clamp(x, -1, 1),
            torch.tanh(x),
            F.softmax(x, 1),
        )

    case = bench(function, ["float32[B, N]"], device)
    x = case.inputs({"B": 9, "N": 37})[0]
    x[0, 3], x[1, 5], x[2, 7], x[3, 36], x[4, 0] = torch.nan, torch.inf, -torch.inf, torch.nan, -0.0
    x[5, 2] = x[5, 30] = torch.inf
    x[6] = -torch.inf
    case.check(case.compiled(case.candidate()), (x,))


def test_rendering_is_deterministic_and_proposals_follow_their_parents(device: Device, bench) -> None:
    case = bench(lambda x: F.softmax(x, -1), ["float32[B, N]"], device)
    context = Context(task=case.task, graph=case.graph, device=device)
    drafter = Drafter()
    first, again = (drafter.propose(context, operator="draft", count=4, rng=Random(0)) for _ in range(2))
    assert [c.id for c in first] == [c.id for c in again]
    assert first[0].origin.covered == ("aten._softmax.default",)
    passed = [
        Attempt(candidate=c, evaluation=Passed(candidate=c.id, task="t", device="d", speed=None))
        for c in (*first[:1], *drafter.propose(context, operator="sample", count=6, rng=Random(1)))
    ]
    family = context.replace(parents=tuple(passed), history=tuple(passed))
    known = {a.candidate.id for a in passed}
    for operator in ("mutate", "cross"):
        children = drafter.propose(family, operator=operator, count=5, rng=Random(2))
        assert children
        assert not {c.id for c in children} & known
        assert all(c.origin.operator == operator and set(c.origin.parents) <= known for c in children)
    for child in drafter.propose(family, operator="mutate", count=5, rng=Random(2)):
        parent = next(a.candidate for a in passed if a.candidate.id in child.origin.parents)
        changed = [k for k, v in child.parameters.items() if parent.parameters[k] != v]
        assert 1 <= len(changed) <= 2


def test_uncovered_operation_stays_with_the_library(device: Device, bench) -> None:
    case = bench(lambda x, w: F.relu(F.conv2d(x * 2, w)) + 1, ["float32[B, 3, 12, 12]", "float32[4, 3, 3, 3]"], device)
    candidate = case.candidate()
    assert any("convolution" in text for text in candidate.origin.left_to_library)
    assert [s.kind for s in candidate.plan.steps] == ["kernel", "library", "kernel"]
    case.check(case.compiled(candidate), case.inputs({"B": 3}))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.lists(st.integers(1, 6), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_unflatten_inverts_flatten(shape: list[int], split: list[int]) -> None:
    """Reshaping through index expressions is what row-major arithmetic says, whatever was simplified."""
    symbols = [size(f"S{i}") for i in range(len(shape))]
    index = [variable(f"d{i}", s) for i, s in enumerate(symbols)]
    assert list(unflatten(flatten(index, symbols), symbols)) == index
    total = 1
    for s in shape:
        total *= s
    numbers: list[Expr] = [as_expr(s) for s in shape]
    places = [variable(f"d{i}", s) for i, s in enumerate(numbers)]
    rest = total
    target: list[Expr] = []
    for factor in split:
        if rest % factor == 0:
            target.append(as_expr(factor))
            rest //= factor
    target.append(as_expr(rest))
    back = flatten(unflatten(flatten(places, numbers), target), target)
    strides, step = [], 1
    for s in reversed(shape):
        strides.insert(0, step)
        step *= s
    for sample in range(total):
        position = [sample // t % s for t, s in zip(strides, shape, strict=True)]
        text = render(back, lambda a: a.name, floor="//")
        assert evaluate_dim(text, {f"d{i}": p for i, p in enumerate(position)}) == sample


def test_two_programs_with_equal_names_do_not_meet(device: Device, bench) -> None:
    """What is remembered about index expressions of one program must not reach another."""
    for _ in range(2):
        case = bench(F.cross_entropy, ["float32[B, 9]", "int64[B]"], device)
        for template in case.templates():
            template.render(template.space.defaults())
