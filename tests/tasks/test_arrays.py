"""Numpy storage against torch's own conversions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import TaskError
from kernelwright.tasks import arrays

FLOATS = [d for d in DType if d.is_floating]
SINGLES = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=8), elements=st.floats(width=32))


@given(SINGLES)
def test_bfloat16_rounds_as_torch_does(values):
    ours = arrays.from_float64(values.astype(np.float64), DType.BFLOAT16)
    theirs = torch.from_numpy(values).to(torch.bfloat16)
    nan = np.isnan(values)
    assert ours.dtype == np.uint16
    assert np.array_equal(ours[~nan], theirs.view(torch.int16).numpy().view(np.uint16)[~nan])
    assert np.isnan(arrays.to_float64(ours, DType.BFLOAT16)[nan]).all()


@given(SINGLES, st.sampled_from(FLOATS))
def test_widening_and_narrowing_again_changes_nothing(values, dtype):
    stored = arrays.from_float64(values.astype(np.float64), dtype)
    again = arrays.from_float64(arrays.to_float64(stored, dtype), dtype)
    assert np.array_equal(stored, again) or np.array_equal(
        arrays.to_float64(stored, dtype), arrays.to_float64(again, dtype), equal_nan=True
    )


@settings(max_examples=30)
@given(SINGLES, st.sampled_from(list(DType)))
def test_torch_and_back_shares_memory(values, dtype):
    clean = np.nan_to_num(values, nan=0, posinf=1, neginf=0).clip(0, 1)
    stored = arrays.from_float64(clean.astype(np.float64), dtype)
    tensor = arrays.to_torch(stored, dtype)
    back = arrays.from_torch(tensor)
    assert arrays.dtype_of(tensor, "x") is dtype
    assert tensor.dtype is arrays.torch_dtype(dtype)
    assert np.array_equal(back, stored)
    assert np.shares_memory(back, stored)
    assert np.array_equal(arrays.to_float64(back, dtype), tensor.double().numpy())


def test_sizes_and_codes_agree_with_torch():
    for code, dtype in enumerate(DType):
        assert arrays.torch_dtype(dtype).itemsize == dtype.itemsize == arrays.storage_dtype(dtype).itemsize
        assert dtype.code == code
        if dtype.is_floating:
            assert torch.finfo(arrays.torch_dtype(dtype)).eps == dtype.epsilon


def test_read_only_and_strided_arrays_are_copied():
    source = np.arange(12.0).reshape(3, 4)
    source.flags.writeable = False
    assert arrays.to_torch(source.T, DType.FLOAT64).tolist() == source.T.tolist()


def test_complex_is_refused_by_name():
    with pytest.raises(TaskError, match="`freqs` has element type complex64") as caught:
        arrays.dtype_of(torch.zeros(2, dtype=torch.complex64), "freqs")
    assert caught.value.reason == "unsupported_dtype"
