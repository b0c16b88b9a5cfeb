"""From interleaved samples to a verdict: ratios of pairs, an interval that needs no distribution, a rule that is cautious."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["faster", "slower", "inconclusive"]
Interval = tuple[float, float]

CONFIDENCE = 0.95
MINIMUM_EFFECT = 0.01
"""A difference below this is never called one, however sure it is: layout and code placement alone move times so much."""
_RESAMPLES = 2000


def paired_speedup(
    baseline_us: Sequence[float], candidate_us: Sequence[float], *, seed: int = 0
) -> tuple[float, Interval]:
    """Median over pairs of baseline / candidate, and its 95 % interval.

    The interval is the wider one, at each end, of a percentile bootstrap (seeded) and of order statistics (exact for
    any distribution, from the binomial law): the bootstrap alone covers too little with few pairs.

    Raises:
        ValueError: no pairs, or not as many of one as of the other.
    """
    ratios = np.sort(np.asarray(baseline_us, float) / np.asarray(candidate_us, float))
    if ratios.ndim != 1 or ratios.size == 0:
        raise ValueError("no pairs of samples")
    low, high = _bootstrap(ratios, seed)
    exact_low, exact_high = _order_statistics(ratios)
    return float(np.median(ratios)), (min(low, exact_low), max(high, exact_high))


def combined(speedups: Sequence[float], intervals: Sequence[Interval]) -> tuple[float, Interval]:
    """Geometric mean over workloads; the distances to the ends add in quadrature on the logarithmic scale."""
    count = len(speedups)
    logs = [math.log(s) for s in speedups]
    below = math.sqrt(sum((c - math.log(i[0])) ** 2 for c, i in zip(logs, intervals, strict=True))) / count
    above = math.sqrt(sum((math.log(i[1]) - c) ** 2 for c, i in zip(logs, intervals, strict=True))) / count
    mean = sum(logs) / count
    return math.exp(mean), (math.exp(mean - below), math.exp(mean + above))


def verdict(speedup: float, interval: Interval) -> Verdict:
    """Faster or slower where the whole interval says so and the effect is at least `MINIMUM_EFFECT`."""
    if interval[0] > 1 and speedup >= 1 + MINIMUM_EFFECT:
        return "faster"
    if interval[1] < 1 and speedup <= 1 / (1 + MINIMUM_EFFECT):
        return "slower"
    return "inconclusive"


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values; 0 where one of them is."""
    if any(v <= 0 for v in values):
        return 0.0
    return math.exp(sum(math.log(v) for v in values) / len(values))


def _bootstrap(ratios: NDArray[np.float64], seed: int) -> Interval:
    generator = np.random.default_rng(seed)
    medians = np.median(ratios[generator.integers(0, ratios.size, (_RESAMPLES, ratios.size))], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _order_statistics(ratios: NDArray[np.float64]) -> Interval:
    """The narrowest pair of order statistics, symmetric, that holds the median with at least the confidence."""
    n = ratios.size
    below, rank = 0.0, 0
    while rank < (n - 1) // 2 and 2 * (below + math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        below += math.comb(n, rank) / 2**n
        rank += 1
    outside = max(0, rank - 1)
    return float(ratios[outside]), float(ratios[n - 1 - outside])
