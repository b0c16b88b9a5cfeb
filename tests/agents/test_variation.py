"""Moves over named parameters, against the definition of each move."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_landscape import DEVICE, GRAPH, SPACE, TASK, TEMPLATES, SyntheticDrafter

from kernelwright.agents.contract import ProposerContract, TemplateContract
from kernelwright.agents.drafter import Drafter
from kernelwright.agents.drafter import templates as drafter_templates
from kernelwright.agents.inductor import InductorProposer
from kernelwright.agents.proposing import Attempt, Context
from kernelwright.agents.variation import TemplateCatalog, Variation
from kernelwright.judge.evaluation import Passed
from kernelwright.platforms.candidates import Candidate


def attempt(values, template=0):
    made = TEMPLATES[template].render(values)
    return Attempt(candidate=made, evaluation=Passed(candidate=made.id, task=TASK.id, device=DEVICE.id, speed=None))


def context(*parents, history=(), pending=(), graph=GRAPH):
    return Context(
        task=TASK, graph=graph, device=DEVICE, parents=parents, history=(*parents, *history), pending=pending
    )


def variation(name):
    return Variation(name, TemplateCatalog([lambda task, graph, device: TEMPLATES]))


def propose(name, around, count=8, seed=0):
    return variation(name).propose(around, operator=name, count=count, rng=Random(seed))


points = st.fixed_dictionaries({n: st.sampled_from(v) for n, v in SPACE.items()}).filter(
    lambda v: v["unroll"] * v["lanes"] <= 64
)


@given(values=points, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_every_move_gives_legal_new_points(values, seed):
    parents = (attempt(values), attempt({n: v[0] for n, v in SPACE.items()}, template=1))
    known = {p.candidate.id for p in parents}
    for name in ("random", "mutate", "cross", "neighbour"):
        for made in propose(name, context(*parents), seed=seed):
            assert made.id not in known
            assert all(made.parameters[n] in v for n, v in SPACE.items())
            assert (made.origin.proposer, made.origin.operator) == (name, name)
            assert set(made.origin.parents) <= known


@given(values=points)
@settings(max_examples=40, deadline=None)
def test_neighbours_are_exactly_the_points_one_step_away(values):
    parent = attempt(values)
    found = propose("neighbour", context(parent), count=100)
    expected = set()
    for name, choices in SPACE.items():
        place = choices.index(values[name])
        near = choices if isinstance(values[name], str) else choices[max(place - 1, 0) : place + 2]
        for value in near:
            moved = {**values, name: value}
            if value != values[name] and moved["unroll"] * moved["lanes"] <= 64:
                expected.add(TEMPLATES[0].render(moved).id)
    assert {c.id for c in found} == expected
    pending = tuple(found[:3])
    rest = propose("neighbour", context(parent, pending=pending), count=100)
    assert {c.id for c in rest} == expected - {c.id for c in pending}


def test_neighbours_of_the_first_parent_come_first():
    first, second = attempt({n: v[0] for n, v in SPACE.items()}), attempt({n: v[1] for n, v in SPACE.items()})
    found = propose("neighbour", context(first, second), count=100)
    order = [c.origin.parents[0] for c in found]
    assert order == sorted(order, key=[first.candidate.id, second.candidate.id].index)


@given(values=points, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_mutation_changes_few_parameters_and_says_which(values, seed):
    for made in propose("mutate", context(attempt(values)), seed=seed):
        changed = [n for n in SPACE if made.parameters[n] != values[n]]
        assert changed
        assert all(n in made.origin.plan for n in changed)


@given(first=points, second=points, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_cross_takes_every_value_from_a_parent(first, second, seed):
    for made in propose("cross", context(attempt(first), attempt(second, template=1)), seed=seed):
        assert len(made.origin.parents) == 2
        assert all(made.parameters[n] in (first[n], second[n]) for n in SPACE)


def test_random_draws_reach_every_template_and_value():
    found = propose("random", context(), count=200)
    assert {c.origin.template for c in found} == {"wide", "narrow"}
    for name, choices in SPACE.items():
        assert {c.parameters[name] for c in found} == set(choices)


def test_nothing_to_move_is_nothing_to_propose():
    stranger = Candidate(language="python", sources={"m.py": "class ModelNew: ..."}, entry="m.py")
    verdict = Passed(candidate=stranger.id, task=TASK.id, device=DEVICE.id, speed=None)
    lifted = Attempt(candidate=stranger, evaluation=verdict)
    for name in ("mutate", "cross", "neighbour"):
        assert propose(name, context()) == []
        assert propose(name, context(lifted)) == []
    assert not propose("random", context(graph=None))


@pytest.mark.parametrize("sources", ["there is no torch", "list"])
def test_inductor_offers_its_kernels_once_or_says_why_not(sources):
    lifted = [Candidate(language="python", sources={"k.py": f"# {i}\n"}, entry="k.py") for i in range(3)]
    calls = []

    def lift():
        calls.append(1)
        return lifted if sources == "list" else sources

    proposer = InductorProposer(lift)
    first = proposer.propose(context(), operator="draft", count=2, rng=Random(0))
    second = proposer.propose(context(pending=tuple(first)), operator="draft", count=2, rng=Random(0))
    assert len(calls) == 1
    if sources == "list":
        assert [c.id for c in (*first, *second)] == [c.id for c in lifted]
        assert {c.origin.proposer for c in first} == {"inductor"}
        assert proposer.take_notes() == ()
    else:
        assert (first, second) == ([], [])
        assert proposer.take_notes() == ("no starting point from torch.compile: there is no torch",)
        assert proposer.take_notes() == ()


class VariationContract(ProposerContract):
    move = ""

    @property
    def operators(self):
        return (self.move,)

    def make_proposer(self):
        return variation(self.move)

    def make_context(self):
        return context(attempt({n: v[0] for n, v in SPACE.items()}), attempt({n: v[1] for n, v in SPACE.items()}))


class TestRandom(VariationContract):
    move = "random"


class TestMutate(VariationContract):
    move = "mutate"


class TestCross(VariationContract):
    move = "cross"


class TestNeighbour(VariationContract):
    move = "neighbour"


class TestInductor(ProposerContract):
    operators = ("draft",)

    def make_proposer(self):
        return InductorProposer(lambda: [Candidate(language="python", sources={"k.py": "#"}, entry="k.py")])

    def make_context(self):
        return context()


class TestDrafter(ProposerContract):
    operators = ("draft",)

    def make_proposer(self):
        return Drafter()

    def make_context(self):
        return context()


class TestDrafterTemplate(TemplateContract):
    def make_template(self):
        return drafter_templates(TASK, GRAPH, DEVICE)[0]


def test_the_contract_catches_a_proposer_that_breaks_it():
    class Greedy(SyntheticDrafter):
        def propose(self, context, *, operator, count, rng):
            return [t.render(t.space.defaults()) for t in TEMPLATES]

    class Checked(ProposerContract):
        operators = ("draft",)

        def make_proposer(self):
            return Greedy()

        def make_context(self):
            return context()

    with pytest.raises(AssertionError):
        Checked().test_never_more_than_asked()
    with pytest.raises(AssertionError):
        Checked().test_an_unknown_operator_gets_nothing()
