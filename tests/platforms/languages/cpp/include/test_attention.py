"""Attention against float64: head layouts, shared heads, causal and biased scores, schedules."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.library import (
    ATTENTION_INCLUDES,
    attention_parameters,
    attention_schedule,
    attention_workspace,
)

Compile = Callable[..., ctypes.CDLL]

SOURCE = (
    "".join(f'#include "{name}"\n' for name in ATTENTION_INCLUDES)
    + """
typedef SCHEDULE S;
typedef kw::vec<float, S::W> V;
extern "C" int64_t workspace(int threads, const kw::attention_shape* shape) { return WORKSPACE; }
struct added {
    const float* bias;
    int64_t queries, keys;
    KW_INLINE V operator()(V score, int64_t, int64_t, int64_t row, int64_t key, int lanes) const {
        return score + kw::load_partial<S::W>(bias + row * keys + key, lanes);
    }
};
extern "C" void attend(int threads, const kw::attention_shape* s, const ELEMENT* q, const int64_t* a, const ELEMENT* k,
                       const int64_t* b, const ELEMENT* v, const int64_t* c, float scale, int causal, const float* bias,
                       float* out, void* scratch) {
    auto epilogue = [=](V value, int64_t batch, int64_t head, int64_t row, int64_t column, int lanes) {
        kw::store_partial(out + ((batch * s->heads + head) * s->queries + row) * s->value_depth + column, value, lanes);
    };
    kw::heads_of<ELEMENT> qs{q, a[0], a[1], a[2], a[3]}, ks{k, b[0], b[1], b[2], b[3]}, vs{v, c[0], c[1], c[2], c[3]};
    if (bias) kw::attention<S>(threads, *s, qs, ks, vs, scale, causal, added{bias, s->queries, s->keys}, epilogue, scratch);
    else kw::attention<S>(threads, *s, qs, ks, vs, scale, causal, kw::no_bias(), epilogue, scratch);
}
"""
)


def _compile(compile_library: Compile, schedule: str, element: str = "float") -> ctypes.CDLL:
    workspace = attention_workspace(schedule, shape="*shape")
    return compile_library(
        SOURCE.replace("SCHEDULE", schedule, 1).replace("WORKSPACE", workspace).replace("ELEMENT", element)
    )


def _attend(
    library: ctypes.CDLL,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    bias: torch.Tensor | None,
    threads: int,
) -> torch.Tensor:
    (batch, heads, queries, depth), long, pointer = q.shape, ctypes.c_int64, ctypes.c_void_p
    shape = (long * 7)(batch, heads, k.shape[1], queries, k.shape[2], depth, v.shape[3])
    library.workspace.restype = long
    needed = library.workspace(threads, shape)
    scratch = torch.full((needed + 128,), 0x5A, dtype=torch.uint8)
    start = -scratch.data_ptr() % 64
    out = torch.full((batch, heads, queries, v.shape[3]), float("nan"))
    strides = [(long * 4)(*t.stride()) for t in (q, k, v)]
    library.attend(
        threads, shape, pointer(q.data_ptr()), strides[0], pointer(k.data_ptr()), strides[1], pointer(v.data_ptr()), strides[2],
        ctypes.c_float(1 / math.sqrt(depth)), int(causal), pointer(None if bias is None else bias.data_ptr()),
        pointer(out.data_ptr()), pointer(scratch.data_ptr() + start),
    )  # fmt: skip
    assert bool((scratch[start + needed :] == 0x5A).all())
    return out


def _check(library: ctypes.CDLL, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: object) -> None:
    causal, bias = bool(options["causal"]), options["bias"]
    got = _attend(library, q, k, v, **options)  # type: ignore[arg-type]
    group = q.shape[1] // k.shape[1]
    keys, values = (t.double().repeat_interleave(group, 1) for t in (k, v))
    scores = q.double() @ keys.transpose(-1, -2) / math.sqrt(q.shape[3])
    if isinstance(bias, torch.Tensor):
        scores = scores + bias.double()
    if causal:
        scores = scores.masked_fill(~torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(), -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -1), 0.0)
    true = weights @ values
    # A score's rounding moves its weight by as much; sums add the usual square root.
    size = scores.masked_fill(scores.isinf(), 0).abs().amax() + q.shape[3] ** 0.5 + 8
    allowed = torch.finfo(torch.float32).eps * size * (weights @ values.abs()) + 1e-30
    assert bool(((got.double() - true).abs() <= allowed).all())
    assert torch.equal(got, _attend(library, q, k, v, **options))  # type: ignore[arg-type]


def _heads(
    batch: int, heads: int, rows: int, depth: int, layout: str, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    if layout == "rows first":
        return torch.randn(batch, rows, heads, depth).to(dtype).transpose(1, 2)
    if layout == "depth first":
        return torch.randn(batch, heads, depth, rows).to(dtype).transpose(2, 3)
    return torch.randn(batch, heads, rows, depth).to(dtype)


@pytest.fixture(scope="module")
def default_attention(compile_library: Compile) -> ctypes.CDLL:
    return _compile(compile_library, "kw::attention_schedule<64>")


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 2), kv_heads=st.integers(1, 3), group=st.integers(1, 3),
    queries=st.one_of(st.integers(1, 40), st.integers(1, 200)), keys=st.one_of(st.integers(1, 40), st.integers(1, 700)),
    depth=st.integers(1, 64), value_depth=st.integers(1, 64), causal=st.booleans(), biased=st.booleans(),
    threads=st.integers(1, 3), layout=st.sampled_from(("dense", "rows first", "depth first")), seed=st.integers(0, 99),
)  # fmt: skip
def test_attention_of_any_shape_and_layout(
    default_attention: ctypes.CDLL, batch: int, kv_heads: int, group: int, queries: int, keys: int, depth: int, value_depth: int,
    causal: bool, biased: bool, threads: int, layout: str, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    q = _heads(batch, kv_heads * group, queries, depth, layout) * 2
    k, v = _heads(batch, kv_heads, keys, depth, layout), _heads(batch, kv_heads, keys, value_depth, layout)
    bias = torch.randn(queries, keys) if biased else None
    if bias is not None:
        bias[torch.rand(queries, keys) < 0.3] = -math.inf
        bias[queries // 2] = -math.inf
    _check(default_attention, q, k, v, causal=causal, bias=bias, threads=threads)


def test_agrees_with_torch_on_its_own_call(default_attention: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 300, 64) for _ in range(3))
    for causal in (False, True):
        expected = nnf.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(_attend(default_attention, q, k, v, causal=causal, bias=None, threads=2), expected)


def test_nan_stays_in_its_row_and_huge_scores_do_not_overflow(default_attention: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 100, 32) for _ in range(3))
    q[0, 0, 7, 3] = math.nan
    q[0, 0, 9] *= 1e18
    out = _attend(default_attention, q, k, v, causal=False, bias=None, threads=1)
    assert bool(out[0, 0, 7].isnan().all())
    assert bool(torch.cat([out[0, 0, :7], out[0, 0, 8:]]).isfinite().all())


def test_16_bit_floats(compile_library: Compile) -> None:
    torch.manual_seed(1)
    for element, dtype in (("kw_bfloat16", torch.bfloat16), ("kw_float16", torch.float16)):
        library = _compile(compile_library, "kw::attention_schedule<32>", element)
        q, k, v = (_heads(1, 2, rows, 32, "rows first", dtype) for rows in (50, 300, 300))
        _check(library, q, k, v, causal=False, bias=None, threads=2)


def _check_schedules(compile_library: Compile, device: Device, count: int) -> None:
    rng = random.Random(5)
    torch.manual_seed(2)
    for _ in range(count):
        depth = rng.choice((8, 40, 64, 128))
        parameters = attention_parameters(device, depth)
        schedule = attention_schedule({p.name: rng.choice(p.values) for p in parameters}, parameters, depth)
        library = _compile(compile_library, schedule)
        for queries, keys in ((1, 1), (130, 257), (300, 90)):
            q, k, v = (_heads(1, 2, rows, depth, "dense") for rows in (queries, keys, keys))
            for causal in (False, True):
                _check(library, q, k, v, causal=causal, bias=None, threads=2)


def test_a_few_sampled_schedules(compile_library: Compile, device: Device) -> None:
    _check_schedules(compile_library, device, 3)


@pytest.mark.slow
def test_many_sampled_schedules(compile_library: Compile, device: Device) -> None:
    _check_schedules(compile_library, device, 16)
