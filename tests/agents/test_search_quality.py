"""Does the search search? `evolve` against the random arm at equal evaluations, over many seeds."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import pytest
from synthetic_landscape import DEVICE, Recorder, SyntheticJudge, SyntheticSession, synthetic_proposers, true_speedup

from kernelwright.agents.loop import run_search
from kernelwright.agents.run import Budget, RunConfig
from kernelwright.archive.ledger import Archive
from kernelwright.tasks.request import TaskRequest

MEMORY = Path("/dev/shm")


def true_best(preset, seed, evaluations):
    """The noiseless speedup of what the run calls its best; 1.0 (the baseline) where it has none."""
    config = RunConfig(
        request=TaskRequest(target="synthetic.py"),
        preset=preset,
        seed=seed,
        serial=True,
        budget=Budget(evaluations=evaluations, wall_seconds=None),
    )
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name, Archive.open(Path(name) / "archive.sqlite") as archive:
        result = run_search(
            config,
            SyntheticJudge(SyntheticSession(noise=0.05, noise_seed=seed)),
            device=DEVICE,
            archive=archive,
            folder=Path(name) / "run",
            observer=Recorder(),
            proposers=synthetic_proposers(),
        )
        best = archive.candidate(result.best) if result.best else None
        return true_speedup(best) if best else 1.0


def compare(seeds, evaluations):
    """Median ratio of evolve to random, and the chance of so many wins among the seeds that are no tie (sign test)."""
    pairs = [(true_best("evolve", s, evaluations), true_best("random", s, evaluations)) for s in range(seeds)]
    ratios = [evolved / drawn for evolved, drawn in pairs]
    wins, losses = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return statistics.median(ratios), binomial_tail(wins, wins + losses)


def binomial_tail(successes, trials):
    """Chance of at least so many heads from a fair coin."""
    from math import comb

    return sum(comb(trials, k) for k in range(successes, trials + 1)) / 2**trials


def test_evolve_beats_random_at_sixty_evaluations():
    median, chance = compare(seeds=24, evaluations=60)
    assert median > 1.1
    assert chance < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [30, 60, 120])
def test_evolve_beats_random_over_many_seeds(evaluations):
    median, chance = compare(seeds=60, evaluations=evaluations)
    assert median > 1.05
    assert chance < 0.001
