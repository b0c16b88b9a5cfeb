"""Proposers by name, also those of other packages, installed for real as entry points."""

from __future__ import annotations

import subprocess
import sys

import pytest
from synthetic_landscape import DEVICE, GRAPH, TASK

from kernelwright.agents.proposing import Context
from kernelwright.agents.registry import BUILT_IN, make_proposers
from kernelwright.agents.run import Budget, ModelConfig, RunConfig
from kernelwright.core.errors import EnvironmentProblem, UsageError
from kernelwright.tasks.request import TaskRequest

CONFIG = RunConfig(request=TaskRequest(target="synthetic.py"))


def make(*names, config=CONFIG):
    return make_proposers(config, frozenset(names), budget=Budget(), sources=lambda: "no torch")


@pytest.fixture
def add_on(tmp_path, monkeypatch):
    """A package on the path that offers three proposers, of which two are broken."""
    (tmp_path / "add_on.py").write_text(
        "class Mine:\n    name = 'mine'\n    def propose(self, context, *, operator, count, rng):\n        return ()\n"
        "def broken():\n    raise OSError('no licence')\n"
    )
    meta = tmp_path / "add_on-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: add-on\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(
        "[kernelwright.proposers]\nmine = add_on:Mine\nbroken = add_on:broken\nmissing = no_such_module:Thing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_built_in_proposers_have_their_names():
    made = make(*BUILT_IN)
    assert sorted(made.by_name) == sorted(set(BUILT_IN) - {"model"})
    assert all(proposer.name == name for name, proposer in made.by_name.items())
    assert made.notes == ()


def test_extensions_are_found_and_broken_ones_are_notes(add_on):
    made = make("mine", "broken", "missing", "drafter")
    assert sorted(made.by_name) == ["drafter", "mine"]
    assert any("broken" in note and "no licence" in note for note in made.notes)
    assert any("missing" in note and "no_such_module" in note for note in made.notes)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'drafter'"):
        make("draftr")


def test_a_model_alone_leaves_the_others_out(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    recording = tmp_path / "calls.jsonl"
    recording.write_text("")
    model = ModelConfig(name="m", replay=str(recording))
    assert sorted(make("model", "drafter", config=CONFIG.replace(model=model)).by_name) == ["drafter", "model"]
    alone = CONFIG.replace(model=model.replace(only=True))
    assert sorted(make("model", "drafter", "random", config=alone).by_name) == ["model"]


def test_a_model_that_cannot_be_reached_is_an_error_and_no_note(tmp_path, monkeypatch):
    model = ModelConfig(name="m", replay=str(tmp_path / "nothing.jsonl"))
    with pytest.raises((UsageError, EnvironmentProblem)):
        make("model", config=CONFIG.replace(model=model))


def test_variations_move_in_the_drafters_spaces():
    from random import Random

    proposer = make("random").by_name["random"]
    context = Context(task=TASK, graph=GRAPH, device=DEVICE)
    made = proposer.propose(context, operator="random", count=3, rng=Random(0))
    assert len({c.id for c in made}) == 3
    assert all(c.language == "cpp" and c.origin.template for c in made)


def test_importing_the_loop_loads_neither_torch_nor_a_model_client_nor_alembic():
    program = (
        "import sys, kernelwright.agents.loop, kernelwright.archive.ledger\n"
        "print([m for m in ('torch', 'openai', 'alembic', 'kernelwright.agents.drafter') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
