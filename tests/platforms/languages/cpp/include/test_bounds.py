"""Products and attention under AddressSanitizer, with every buffer exactly as large as it has to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelwright.platforms.languages.cpp.library import ATTENTION_INCLUDES, INCLUDE_DIR

SOURCE = (
    "".join(f'#include "{name}"\n' for name in ATTENTION_INCLUDES)
    + """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
static uint32_t state = 1;
static float draw() { state = state * 1664525u + 1013904223u; return float(int32_t(state)) * 0x1p-31f; }
static std::vector<float> drawn(int64_t n) { std::vector<float> v(n); for (auto& x : v) x = draw(); v.shrink_to_fit(); return v; }
static void* scratch(int64_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static int product(int64_t m, int64_t n, int64_t k, bool left_turned, bool right_turned, int threads) {
    typedef kw::matmul_schedule<float, 6, 2, 128, 64, 256, 2, 3> S;
    auto a = drawn(m * k), b = drawn(k * n), c = drawn(m * n);
    void* space = scratch(kw::matmul_workspace_bytes<S>(threads, {1, m, n, k}));
    float* out = c.data();
    kw::operand<float> left{a.data(), left_turned ? 1 : k, left_turned ? m : 1, 0};
    kw::operand<float> right{b.data(), right_turned ? 1 : n, right_turned ? k : 1, 0};
    kw::matmul<S>(threads, {1, m, n, k}, left, right, kw::as_stored(), kw::as_stored(),
                  [=](kw::vec<float, S::W> v, int64_t row, int64_t column, int lanes) {
                      kw::store_partial(out + row * n + column, v, lanes);
                  }, space);
    free(space);
    int wrong = 0;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l)
                sum += double(a[i * left.row_stride + l * left.column_stride]) *
                       b[l * right.row_stride + j * right.column_stride];
            wrong += !(std::fabs(sum - out[i * n + j]) < 1e-3);
        }
    return wrong;
}

static int attend(int64_t queries, int64_t keys, int64_t depth, bool causal) {
    typedef kw::attention_schedule<32, 64, 2, 6, 2, 2> S;
    kw::attention_shape shape{1, 2, 1, queries, keys, depth, depth};
    auto q = drawn(2 * queries * depth), k = drawn(keys * depth), v = drawn(keys * depth), c = drawn(2 * queries * depth);
    void* space = scratch(kw::attention_workspace_bytes<S>(2, shape));
    float* out = c.data();
    kw::attention<S>(2, shape, kw::heads_of<float>{q.data(), 0, queries * depth, depth, 1},
                     kw::heads_of<float>{k.data(), 0, 0, depth, 1},
                     kw::heads_of<float>{v.data(), 0, 0, depth, 1}, 0.3f, causal, kw::no_bias(),
                     [=](kw::vec<float, S::W> x, int64_t, int64_t head, int64_t row, int64_t column, int lanes) {
                         kw::store_partial(out + (head * queries + row) * depth + column, x, lanes);
                     }, space);
    free(space);
    int wrong = 0;
    for (float x : c) wrong += !(std::fabs(x) <= 1.0001f);
    return wrong;
}

int main() {
    int wrong = 0;
    for (int64_t m : {1, 3, 7, 33, 100})
        for (int64_t n : {1, 8, 17, 70, 300})
            for (int64_t k : {1, 15, 130, 1100})
                for (int turn = 0; turn < 4; ++turn) wrong += product(m, n, k, turn & 1, turn & 2, 1 + turn % 3);
    for (int64_t queries : {1, 5, 40})
        for (int64_t keys : {1, 30, 65, 150})
            for (int64_t depth : {1, 7, 32}) wrong += attend(queries, keys, depth, false) + attend(queries, keys, depth, true);
    std::printf("%d wrong\\n", wrong);
    return wrong != 0;
}
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_nothing_reads_or_writes_outside_its_buffers(tmp_path: Path, march: str) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ on PATH")
    source, program = tmp_path / "sweep.cpp", tmp_path / "sweep"
    source.write_text(SOURCE)
    flags = [
        "-O1",
        "-g1",
        "-std=c++17",
        "-fopenmp",
        f"-march={march}",
        "-Wno-psabi",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    built = subprocess.run(
        [compiler, *flags, "-I", str(INCLUDE_DIR), str(source), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr and "asan" in built.stderr:
        pytest.skip("this compiler has no AddressSanitizer runtime")
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:4000]
    assert ran.stdout == "0 wrong\n"
