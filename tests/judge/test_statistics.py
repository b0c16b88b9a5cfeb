"""The verdict on speed: coverage and error rates by simulation, and properties of the interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.statistics import combined, geometric_mean, paired_speedup, verdict

SAMPLES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40)


def _paired(generator, pairs: int, noise: float, speedup: float = 1.0):
    """Times of two sides with a drift that both share, occasional outliers, and noise of each side's own."""
    drift = np.exp(np.cumsum(generator.normal(0, noise / 3, pairs)))
    outliers = np.where(generator.random((2, pairs)) < 0.05, generator.uniform(1, 3, (2, pairs)), 1.0)
    own = np.exp(generator.normal(0, noise, (2, pairs)))
    return 100 * speedup * drift * own[0] * outliers[0], 100 * drift * own[1] * outliers[1]


@pytest.mark.parametrize("pairs", [7, 25])
@pytest.mark.parametrize("noise", [0.002, 0.02, 0.1])
def test_a_kernel_against_itself_is_inconclusive(pairs, noise):
    generator = np.random.default_rng(pairs)
    runs = [paired_speedup(*_paired(generator, pairs, noise), seed=n) for n in range(300)]
    inconclusive = sum(verdict(*run) == "inconclusive" for run in runs)
    assert inconclusive >= 0.95 * len(runs) - 3, inconclusive / len(runs)


@pytest.mark.parametrize("pairs", [7, 25])
def test_the_interval_covers_the_truth(pairs):
    generator = np.random.default_rng(5)
    runs = [paired_speedup(*_paired(generator, pairs, 0.05, speedup=1.3), seed=n)[1] for n in range(300)]
    assert sum(low <= 1.3 <= high for low, high in runs) >= 0.93 * len(runs)


def test_a_clear_difference_is_called():
    generator = np.random.default_rng(2)
    for speedup, expected in ((1.2, "faster"), (0.8, "slower")):
        verdicts = [verdict(*paired_speedup(*_paired(generator, 25, 0.03, speedup), seed=n)) for n in range(100)]
        assert verdicts.count(expected) >= 99


def test_an_effect_below_one_percent_is_none_however_sure():
    assert verdict(1.005, (1.004, 1.006)) == "inconclusive"
    assert verdict(1.02, (1.01, 1.03)) == "faster"
    assert verdict(0.97, (0.96, 0.98)) == "slower"


@given(SAMPLES, st.integers(0, 5))
def test_the_interval_holds_the_median_and_stays_within_the_samples(samples, seed):
    baseline = np.array(samples)
    candidate = np.ones_like(baseline)
    speedup, (low, high) = paired_speedup(baseline, candidate, seed=seed)
    assert low <= speedup <= high
    assert min(samples) <= low
    assert high <= max(samples)
    assert paired_speedup(baseline, candidate, seed=seed) == (speedup, (low, high))


@given(SAMPLES)
def test_swapping_the_sides_inverts_the_speedup(samples):
    ones = np.ones(len(samples))
    forward, _ = paired_speedup(samples, ones)
    backward, _ = paired_speedup(ones, samples)
    if len(samples) % 2:
        assert forward * backward == pytest.approx(1.0)


def test_several_workloads_combine_to_the_geometric_mean_with_a_narrower_interval():
    speedup, (low, high) = combined([2.0, 0.5], [(1.8, 2.2), (0.45, 0.55)])
    assert speedup == pytest.approx(1.0)
    assert 0.9 < low < 1 < high < 1.1
    assert combined([1.5], [(1.4, 1.6)]) == (pytest.approx(1.5), (pytest.approx(1.4), pytest.approx(1.6)))
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([2.0, 0.0]) == 0.0


def test_no_pairs_are_an_error():
    with pytest.raises(ValueError, match="no pairs"):
        paired_speedup([], [])
