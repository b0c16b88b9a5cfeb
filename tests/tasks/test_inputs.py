"""Drawn inputs: right type and shape, the family's character, and nothing outside what the task promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.tasks.arrays import from_float64, storage_dtype, to_float64
from kernelwright.tasks.inputs import distributions_for, draw, draw_declared, structure_of
from kernelwright.tasks.model import Distribution, TensorSpec

FAMILIES = ["normal", "uniform", "large", "tiny", "ties", "positive", "zeros", "special"]


def spec(dtype=DType.FLOAT32, **fields):
    return TensorSpec(name="x", dtype=dtype, dims=(), **fields)


def values(family, dtype=DType.FLOAT32, shape=(64, 64), own=None, seed=0, **fields):
    array = draw(spec(dtype, **fields), shape, Distribution(family=family), np.random.default_rng(seed), own)
    assert array.shape == shape
    assert array.dtype == storage_dtype(dtype)
    return to_float64(array, dtype)


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_floating])
def test_families_have_their_character(dtype):
    assert abs(values("normal", dtype).mean()) < 0.1
    assert 0.9 < values("normal", dtype).std() < 1.1
    assert (values("uniform", dtype) >= 0).all()
    assert values("large", dtype).std() >= 25
    assert np.isfinite(values("large", dtype)).all()
    assert 0 < np.abs(values("tiny", dtype)).max() < 0.01
    assert len(np.unique(values("ties", dtype))) == 5
    assert values("positive", dtype).min() > 0
    assert not values("zeros", dtype).any()
    special = values("special", dtype)
    assert np.isnan(special).any()
    assert np.isposinf(special).any()
    assert np.isneginf(special).any()
    assert (np.signbit(special) & (special == 0)).any()


@settings(max_examples=40)
@given(
    st.sampled_from(FAMILIES), st.integers(0, 9), st.sampled_from(["symmetric", "lower_triangular", "upper_triangular"])
)
def test_structure_is_kept_by_every_family(family, seed, structure):
    drawn = values(family, shape=(2, 7, 7), seed=seed, structure=structure)
    transposed = np.swapaxes(drawn, -1, -2)
    if structure == "symmetric":
        assert np.array_equal(drawn, transposed, equal_nan=True)
    else:
        side = np.triu(drawn, 1) if structure == "lower_triangular" else np.tril(drawn, -1)
        assert not side.any()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.INT64])
def test_sorted_stays_sorted(dtype):
    own = from_float64(np.arange(40.0).reshape(2, 20), dtype)
    drawn = values("normal", dtype, shape=(2, 20), own=own, structure="sorted")
    assert (np.diff(drawn, axis=1) >= 0).all()


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.sampled_from(["normal", "large", "integers"]))
def test_integers_stay_inside_the_range_of_the_own_ones(low, span, family):
    own = np.array([low, low + span], np.int64).repeat(50)
    drawn = draw(spec(DType.INT64), (100,), Distribution(family=family), np.random.default_rng(1), own)
    assert low <= drawn.min()
    assert drawn.max() <= low + span


def test_flags_follow_the_own_share():
    own = np.zeros((100, 100), np.bool_)
    assert not values("normal", DType.BOOL, (100, 100), own).any()
    own[:25] = True
    assert 0.2 < values("normal", DType.BOOL, (100, 100), own).mean() < 0.3


def test_own_is_the_own_array():
    own = np.random.default_rng(0).random((3, 4), np.float32)
    assert np.array_equal(draw(spec(), (3, 4), Distribution(family="own"), np.random.default_rng(0), own), own)


def test_fresh_parameters_become_telling_ones():
    ones = np.ones(500, np.float32)
    scale = values("normal", shape=(500,), own=ones, role="parameter")
    assert 0.2 < scale.std() < 0.7
    shift = values("normal", shape=(500,), own=np.zeros(500, np.float32), role="parameter")
    assert shift.std() > 0.1
    variance = values("large", shape=(500,), own=ones, role="buffer")
    assert variance.min() > 0
    assert variance.std() > 0.1


def test_tables_and_masks_in_buffers_are_left_alone():
    table = np.cos(np.arange(32.0, dtype=np.float32))
    assert np.array_equal(values("normal", shape=(32,), own=table, role="buffer"), table)
    mask = np.tril(np.ones((6, 6), np.bool_))
    assert np.array_equal(values("normal", DType.BOOL, (6, 6), mask, role="buffer"), mask)
    low = np.where(mask, 0, -np.inf).astype(np.float32)
    assert np.array_equal(values("normal", shape=(6, 6), own=low, role="parameter"), low)


@pytest.mark.parametrize("family", ["normal", "large", "tiny", "ties", "positive", "special"])
def test_a_declared_range_is_never_left(family):
    drawn = values(family, distribution=Distribution(family="uniform", low=0.5, high=2.5))
    assert drawn.min() >= 0.5
    assert drawn.max() <= 2.5
    assert np.isfinite(drawn).all()


def test_declared_integers_reach_up_to_their_axis():
    ids = spec(DType.INT64, distribution=Distribution(family="integers", low=2, high_axis="V"))
    drawn = draw_declared(ids, (5000,), {"V": 30}, np.random.default_rng(0), 8)
    assert (drawn.min(), drawn.max()) == (2, 29)
    free = draw_declared(spec(DType.INT32), (5000,), {}, np.random.default_rng(0), 8)
    assert (free.min(), free.max()) == (0, 7)


def test_same_seed_same_values():
    assert np.array_equal(values("special", seed=4), values("special", seed=4), equal_nan=True)


@pytest.mark.parametrize(
    ("array", "structure"),
    [
        (np.tril(np.random.default_rng(0).random((9, 9))), "lower_triangular"),
        (np.triu(np.random.default_rng(0).random((2, 9, 9))), "upper_triangular"),
        (np.cov(np.random.default_rng(0).random((9, 40))), "symmetric"),
        (np.sort(np.random.default_rng(0).random((3, 50)), axis=1), "sorted"),
        (np.random.default_rng(0).random((9, 9)), "general"),
        (np.ones((9, 9)), "general"),
        (np.random.default_rng(0).random((40, 1)).repeat(50, 1), "general"),
        (np.array(3.0), "general"),
        (np.zeros((0, 4)), "general"),
    ],
)
def test_structure_is_recognised(array, structure):
    assert structure_of(array, DType.FLOAT64) == structure


def test_at_least_three_families_for_floating_inputs(every_task):
    task, _ = every_task
    families = [d.family for d in distributions_for(task)]
    assert families[0] == "own"
    assert len(families) >= 3
    assert ("special" in families) == task.special_values
