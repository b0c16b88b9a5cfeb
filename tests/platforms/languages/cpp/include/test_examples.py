"""The calls shown at the top of the headers compile as they stand, and compute what they say."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
import torch.nn.functional as nnf

from kernelwright.platforms.languages.cpp.library import ATTENTION_INCLUDES, INCLUDE_DIR

Compile = Callable[..., ctypes.CDLL]


def _example(header: str, first: str) -> str:
    lines = (INCLUDE_DIR / header).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines) if i > start and "}, workspace);" in line)
    return "\n".join(line.removeprefix("//") for line in lines[start : end + 1])


def _scratch(library: ctypes.CDLL, *arguments: object) -> tuple[torch.Tensor, ctypes.c_void_p]:
    library.workspace_bytes.restype = ctypes.c_int64
    scratch = torch.empty(library.workspace_bytes(*arguments) + 64, dtype=torch.uint8)
    return scratch, ctypes.c_void_p(scratch.data_ptr() + -scratch.data_ptr() % 64)


def test_the_matmul_example(compile_library: Compile) -> None:
    library = compile_library(
        "".join(f'#include "{name}"\n' for name in ATTENTION_INCLUDES)
        + f"""
extern "C" int64_t workspace_bytes(int threads, int64_t m, int64_t n, int64_t k) {{
    return kw::matmul_workspace_bytes<kw::matmul_schedule<float>>(threads, {{1, m, n, k}});
}}
extern "C" void run(int threads, int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, float* out,
                    void* workspace) {{
{_example("kw_matmul.h", "typedef kw::matmul_schedule<float> S;")}
}}"""
    )
    torch.manual_seed(0)
    m, n, k = 37, 75, 410
    x, w, bias, out = torch.randn(m, k) / 20, torch.randn(n, k), torch.randn(n), torch.empty(m, n)
    sizes = [ctypes.c_int64(size) for size in (m, n, k)]
    keep, space = _scratch(library, 2, *sizes)
    library.run(2, *sizes, *(ctypes.c_void_p(t.data_ptr()) for t in (x, w, bias, out)), space)
    torch.testing.assert_close(out, nnf.gelu(nnf.linear(x, w, bias)))
    assert keep.numel() > 0


def test_the_attention_example(compile_library: Compile) -> None:
    library = compile_library(
        "".join(f'#include "{name}"\n' for name in ATTENTION_INCLUDES)
        + f"""
extern "C" int64_t workspace_bytes(int threads, const kw::attention_shape* shape) {{
    return kw::attention_workspace_bytes<kw::attention_schedule<64>>(threads, *shape);
}}
extern "C" void run(int threads, const kw::attention_shape* s, float scale, int causal, const float* q, const float* k,
                    const float* v, float* out, void* workspace) {{
    int64_t batch = s->batch, heads = s->heads, kv_heads = s->kv_heads, queries = s->queries, keys = s->keys, depth = s->depth,
            value_depth = s->value_depth;
{_example("kw_attention.h", "typedef kw::attention_schedule<64> S;")}
}}"""
    )
    torch.manual_seed(0)
    q, k, v, out = (
        torch.randn(2, 4, 90, 48),
        torch.randn(2, 2, 130, 48),
        torch.randn(2, 2, 130, 33),
        torch.empty(2, 4, 90, 33),
    )
    shape = (ctypes.c_int64 * 7)(2, 4, 2, 90, 130, 48, 33)
    keep, space = _scratch(library, 2, shape)
    library.run(2, shape, ctypes.c_float(0.2), 1, *(ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, out)), space)
    expected = nnf.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2, enable_gqa=True)
    torch.testing.assert_close(out, expected)
    assert keep.numel() > 0
