"""Presets are data: what they may say, and what the schedule and the population make of it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_landscape import DEVICE, TASK, TEMPLATES, Recorder, SyntheticJudge, SyntheticSession, synthetic_proposers

from kernelwright.agents.loop import run_search
from kernelwright.agents.population import members, select_parents
from kernelwright.agents.preset import Population, StepSpec, load_preset, preset_names
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import Budget, RunConfig
from kernelwright.agents.scheduling import next_step
from kernelwright.agents.state import SearchState, StepRecord, fitness
from kernelwright.archive.ledger import Archive
from kernelwright.core.errors import UsageError
from kernelwright.judge.evaluation import Incorrect, Passed, Speed
from kernelwright.tasks.request import TaskRequest

TABLE = """
name = "refine"
description = "Draft once, then follow the last outcome."
[steps.draft]
proposer = "drafter"
operator = "draft"
[steps.vary]
proposer = "mutate"
operator = "mutate"
select = "best"
parents = 1
[steps.fresh]
proposer = "random"
operator = "random"
[schedule]
kind = "table"
rows = [
    { after = ["start"], step = "draft" },
    { after = ["passed"], step = "vary", at_most = 3 },
    { after = ["any"], step = "fresh" },
]
"""
ISLANDS = """
name = "archipelago"
description = "Two islands."
[steps.fresh]
proposer = "random"
operator = "random"
count = 2
[steps.vary]
proposer = "mutate"
operator = "mutate"
select = "tournament"
parents = 1
[population]
kind = "islands"
size = 3
islands = 2
migrate_every = 8
[schedule]
kind = "generations"
phases = [
    { name = "fill", order = "mixed", until = 0.3, steps = { fresh = 1 } },
    { name = "vary", order = "mixed", steps = { vary = 5, fresh = 1 } },
]
"""


def run_preset(tmp_path, text, evaluations=40):
    (tmp_path / "mine.toml").write_text(text)
    config = RunConfig(
        request=TaskRequest(target="synthetic.py"),
        preset=str(tmp_path / "mine.toml"),
        serial=True,
        budget=Budget(evaluations=evaluations, wall_seconds=None),
    )
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        result = run_search(
            config,
            SyntheticJudge(SyntheticSession()),
            device=DEVICE,
            archive=archive,
            folder=tmp_path / "run",
            observer=Recorder(),
            proposers=synthetic_proposers(),
        )
        return result, archive.attempts(result.run)


def candidate(number, template=0):
    space = TEMPLATES[template].space
    values = {p.name: p.values[number % len(p.values)] for p in space.parameters if p.name != "unroll"}
    return TEMPLATES[template].render({**values, "unroll": 1})


def passed(made, low):
    speed = Speed(
        verdict="faster", speedup=low + 0.1, speedup_ci=(low, low + 0.2), roofline_fraction=0.1, workloads=(), clock=""
    )
    return Attempt(candidate=made, evaluation=Passed(candidate=made.id, task=TASK.id, device=DEVICE.id, speed=speed))


def failed(made):
    return Attempt(
        candidate=made, evaluation=Incorrect(candidate=made.id, task=TASK.id, device=DEVICE.id, reason="wrong")
    )


def state_of(*attempts):
    state = SearchState()
    for attempt in attempts:
        state.add_attempt(attempt)
    return state


def test_every_shipped_preset_loads_and_names_itself():
    assert preset_names() == ("best-of-n", "evolve", "random")
    for name in preset_names():
        assert load_preset(name).name == name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[schedule]", "[shedule]"), "shedule"),
        (('operator = "random"', 'operatr = "random"'), "steps.fresh.operatr"),
        (('select = "best"', 'select = "bestest"'), "steps.vary.select"),
        (('step = "fresh"', 'step = "frsh"'), "unknown steps: frsh"),
        (('kind = "table"', 'kind = "tabel"'), "tabel"),
        (("parents = 1", "parents = -1"), "steps.vary.parents"),
        (("[steps.draft]", "[steps.draft"), "not TOML"),
    ],
)
def test_a_wrong_preset_names_the_key(tmp_path, change, message):
    text = TABLE.replace(*change)
    assert text != TABLE
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_preset(str(path))
    assert message in str(caught.value)


def test_a_misspelt_preset_gets_a_suggestion(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'evolve'"):
        load_preset("evolv")
    with pytest.raises(UsageError, match="cannot read"):
        load_preset(str(tmp_path / "none.toml"))


def test_a_table_follows_the_last_outcome(tmp_path):
    _, attempts = run_preset(tmp_path, TABLE)
    operators = [a.candidate.origin.operator for a in attempts]
    assert operators[0] == "draft"
    for before, operator in zip(attempts, operators[1:], strict=False):
        if before.evaluation.outcome != "passed":
            assert operator == "random"
    longest = max(len(part) for part in " ".join(operators).replace("random", "|").replace("draft", "|").split("|"))
    assert longest <= len(" mutate mutate mutate ")


def test_islands_take_parents_at_home_except_at_a_migration(tmp_path):
    result, attempts = run_preset(tmp_path, ISLANDS)
    assert result.outcome == "improved"
    home = {}
    abroad = 0
    for attempt in attempts:
        home.setdefault(attempt.candidate.id, attempt.step % 2)
        for parent in attempt.candidate.origin.parents:
            if home[parent] != attempt.step % 2:
                abroad += 1
                assert attempt.step % 8 == 7
    assert any(a.candidate.origin.operator == "mutate" for a in attempts)


def test_a_phase_without_its_proposers_is_left_out():
    preset = load_preset("evolve").only(frozenset({"drafter", "mutate"}))
    assert [list(p.steps) for p in preset.schedule.phases] == [["draft"], ["mutate"], ["mutate"]]
    assert load_preset("evolve").only(frozenset({"nobody"})) is None
    assert list(load_preset("evolve").only(frozenset({"model"})).steps) == ["model_draft", "repair", "improve"]


def test_failures_have_no_fitness_and_untimed_is_below_every_timed_one():
    made = candidate(1)
    assert fitness(failed(made).evaluation) is None
    assert fitness(passed(made, 0.2).evaluation) == 0.2
    untimed = Passed(candidate=made.id, task="t", device="d", speed=None, untimed="interpreted")
    assert fitness(untimed) == 0.0
    state = state_of(Attempt(candidate=made, evaluation=untimed), passed(candidate(2), 0.1), failed(candidate(3)))
    assert state.best == state.attempts[1]


def test_the_best_is_the_lower_end_and_not_the_lucky_point():
    wide = passed(candidate(1), 1.2)
    lucky = wide.evaluation.replace(speed=wide.evaluation.speed.replace(speedup=5.0, speedup_ci=(0.9, 9.0)))
    state = state_of(wide, Attempt(candidate=candidate(2), evaluation=lucky))
    assert state.best is wide


@given(lows=st.lists(st.floats(0.1, 5.0), min_size=1, max_size=20), size=st.integers(1, 6), cap=st.integers(1, 3))
def test_an_elite_is_the_best_within_its_caps(lows, size, cap):
    attempts = [passed(candidate(i, i % 2), low) for i, low in enumerate(lows)]
    found = members(Population(kind="elite", size=size, per_template=cap), attempts)
    scores = [fitness(a.evaluation) for a in found]
    assert scores == sorted(scores, reverse=True)
    assert len(found) <= size
    assert len({a.candidate.id for a in found}) == len(found)
    assert all(sum(a.candidate.origin.template == t.key for a in found) <= cap for t in TEMPLATES)
    assert scores[0] == max(lows)
    assert members(Population(), attempts) == found[:1]


def test_a_tournament_prefers_the_better_and_never_pairs_a_parent_with_itself():
    attempts = [passed(candidate(i), 1 + i / 10) for i in range(6)]
    state = state_of(*attempts)
    spec = StepSpec(proposer="cross", operator="cross", select="tournament", parents=2)
    population = Population(kind="elite", size=6, tournament=3)
    firsts = []
    for seed in range(400):
        first, second = select_parents(population, spec, state, Random(seed))
        assert first.candidate.id != second.candidate.id
        firsts.append(state.attempts.index(first))
    assert firsts.count(5) > 150
    assert firsts.count(5) > 3 * firsts.count(1)


def test_a_repair_takes_the_newest_failure_once():
    first, second = failed(candidate(1)), failed(candidate(2))
    state = state_of(first, passed(candidate(3), 1.0), second)
    spec = StepSpec(proposer="model", operator="repair", select="unrepaired", parents=1)
    assert select_parents(Population(), spec, state, Random(0)) == (second,)
    used = StepRecord(step=0, name="r", proposer="model", operator="repair", seen=3, parents=(second.candidate.id,))
    state.steps.append(used)
    assert select_parents(Population(), spec, state, Random(0)) == (first,)
    state.steps.append(used.replace(step=1, parents=(first.candidate.id,)))
    assert select_parents(Population(), spec, state, Random(0)) is None
    other = spec.replace(proposed_by=("model",))
    assert select_parents(Population(), other, state_of(first), Random(0)) is None


def test_no_parents_is_not_the_same_as_too_few():
    needs = StepSpec(proposer="mutate", operator="mutate", select="best", parents=1)
    assert select_parents(Population(), needs, state_of(failed(candidate(1))), Random(0)) is None
    free = StepSpec(proposer="drafter", operator="draft")
    assert select_parents(Population(), free, state_of(), Random(0)) == ()


def test_a_phase_ends_with_its_part_of_the_budget_or_when_it_is_dry():
    preset = load_preset("evolve").only(frozenset({"mutate", "neighbour"}))
    empty = StepRecord(step=0, name="mutate", phase=0, proposer="mutate", operator="mutate", seen=0)

    def following(*steps, progress=0.1, queue=()):
        state = SearchState(steps=list(steps), queue=list(queue))
        return next_step(preset, state, progress=progress, rng=Random(1))

    assert following()[1] == 0
    assert following(progress=0.8)[1] == 1
    dry = [empty] * 3 + [empty.replace(name="neighbour")] * 3
    assert following(*dry) is None
    assert following(*dry[:-1])[0] == "neighbour"
    assert following(*dry, queue=[candidate(1)]) is None
