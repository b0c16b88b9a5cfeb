"""From a committed recording, with no model at hand: a wrong draft, its repair in two turns, an improvement.

The kernels are built by a real compiler and compared with numpy in double precision.
"""

from __future__ import annotations

from random import Random

import numpy

from kernelwright.agents.model import ModelProposer
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import ModelConfig


def scaled_rows(x, weight):
    x = x.astype("float64")
    return x / numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def is_right(run_kernel, candidate) -> bool:
    generator = numpy.random.default_rng(11)
    x = generator.standard_normal((37, 1031)).astype("float32")
    weight = generator.standard_normal(1031).astype("float32")
    got = run_kernel(candidate, [x, weight], x.shape)
    return numpy.allclose(got, scaled_rows(x, weight), rtol=1e-5, atol=1e-6)


def test_the_recorded_run_ends_in_a_right_kernel(context, failed, passed, files, run_kernel, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = ModelProposer(ModelConfig(name="recorded", replay=str(files / "scaled_rows.jsonl")))

    (draft,) = model.propose(context, operator="draft", count=1, rng=Random(0))
    assert not is_right(run_kernel, draft)

    wrong = Attempt(candidate=draft, evaluation=failed.evaluation)
    (repaired,) = model.propose(context.replace(parents=(wrong,)), operator="repair", count=1, rng=Random(0))
    assert repaired.origin.parents == (draft.id,)
    assert is_right(run_kernel, repaired)

    right = Attempt(candidate=repaired, evaluation=passed.evaluation)
    (improved,) = model.propose(context.replace(best=right), operator="improve", count=1, rng=Random(0))
    assert improved.id != repaired.id
    assert is_right(run_kernel, improved)

    assert [(c.role, c.turn, c.outcome) for c in model.take_calls()] == [
        ("draft", 1, "candidate"),
        ("repair", 1, "several_blocks"),
        ("repair", 2, "candidate"),
        ("improve", 1, "candidate"),
    ]
    assert model.usage().tokens == 4 * 1500
    assert model.propose(context, operator="draft", count=1, rng=Random(0)) == ()
    assert model.take_calls()[0].outcome == "not_recorded"
