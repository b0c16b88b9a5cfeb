"""The descriptors of the header templates."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.library import (
    ATTENTION_INCLUDES,
    INCLUDE_DIR,
    TemplateParameter,
    attention_parameters,
    attention_schedule,
    matmul_footprint,
    matmul_parameters,
    matmul_schedule,
    native_lanes,
    register_count,
    register_tiles,
    vector_parameters,
)

SIMD = {"avx512": 512, "avx2": 256, "sse": 128, "neon": 128}


def make_device(simd: str = "avx512", l1: int = 48 << 10, l2: int = 2 << 20) -> Device:
    return Device.model_validate(
        {
            "name": "made up",
            "architecture": "aarch64" if simd == "neon" else "x86_64",
            "cores": 4,
            "simd": simd,
            "simd_bits": SIMD[simd],
            "features": (),
            "l1d_bytes": l1,
            "l2_bytes": l2,
            "last_level_bytes": 1 << 25,
            "memory_bytes": 1 << 33,
            "compilers": (),
        }
    )


def _all_parameters(device: Device) -> list[TemplateParameter]:
    return [
        *vector_parameters(device),
        *itertools.chain.from_iterable(
            matmul_parameters(device, dtype) for dtype in (DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16)
        ),
        *attention_parameters(device, 64),
    ]


@given(
    simd=st.sampled_from(sorted(SIMD)),
    l1=st.sampled_from([0, 16 << 10, 32 << 10, 48 << 10, 128 << 10]),
    l2=st.sampled_from([0, 256 << 10, 1 << 20, 2 << 20, 16 << 20]),
)
def test_defaults_are_legal_and_values_differ(simd: str, l1: int, l2: int) -> None:
    for parameter in _all_parameters(make_device(simd, l1, l2)):
        assert parameter.default in parameter.values
        assert len(set(parameter.values)) == len(parameter.values)
        assert parameter.meaning.endswith(".")


@pytest.mark.parametrize("simd", SIMD)
def test_register_tiles_fit_the_registers(simd: str) -> None:
    device = make_device(simd)
    assert len(register_tiles(device)) >= 3
    for tile in register_tiles(device):
        rows, vectors = map(int, tile.split("x"))
        assert rows * vectors + vectors + 1 <= register_count(device)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16])
@pytest.mark.parametrize("simd", SIMD)
def test_default_matmul_schedule_fits_the_caches(simd: str, dtype: DType) -> None:
    device = make_device(simd)
    values = {p.name: p.default for p in matmul_parameters(device, dtype)}
    footprint = matmul_footprint(device, values, dtype)
    assert footprint.registers <= register_count(device)
    assert footprint.first_level_bytes <= device.l1d_bytes
    assert footprint.second_level_bytes <= device.l2_bytes


def test_streaming_is_offered_where_rows_or_columns_are_few() -> None:
    device = make_device()
    offered = {
        (rows, columns): {p.name: p for p in matmul_parameters(device, rows=rows, columns=columns)}["streaming"].values
        for rows in (None, 1, 1000)
        for columns in (None, 8, 1000)
    }
    assert offered[1, 1000] == (0, 1)
    assert offered[1000, 8] == (0, 2)
    assert offered[1, 8] == offered[None, None] == (0, 3)
    assert offered[1000, 1000] == (0,)


def test_schedules_are_named_and_illegal_values_refused() -> None:
    device = make_device()
    parameters = matmul_parameters(device)
    values = {p.name: p.default for p in parameters} | {
        "tile": "12x2",
        "depth_block": 256,
        "row_block": 512,
        "streaming": 0,
    }
    assert matmul_schedule(values, parameters) == "kw::matmul_schedule<float, 12, 2, 256, 512, 2048, 2, 0>"
    assert matmul_schedule(values, parameters, DType.FLOAT64).startswith("kw::matmul_schedule<double, ")
    with pytest.raises(ValueError, match="depth_block must be one of"):
        matmul_schedule(values | {"depth_block": 7}, parameters)
    with pytest.raises(ValueError, match="tile must be one of"):
        matmul_schedule({}, parameters)
    heads = attention_parameters(device, 80)
    assert attention_schedule({p.name: p.default for p in heads}, heads, 80).startswith("kw::attention_schedule<80, ")


def test_lanes_follow_the_register_and_the_compute_type() -> None:
    device = make_device()
    assert [native_lanes(device, d) for d in (DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.UINT8)] == [
        16,
        8,
        16,
        64,
    ]


def test_the_headers_named_exist() -> None:
    assert all((INCLUDE_DIR / name).is_file() for name in ATTENTION_INCLUDES)
