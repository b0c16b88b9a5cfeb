"""Texts of tasks and kernels that several test files use."""

from __future__ import annotations

SCALE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2
def get_inputs():
    return [torch.randn(64, 96)]
"""


def cpp_kernel(body: str, includes: str = "") -> str:
    """A C++ kernel over `n` elements of `x` into `y`."""
    return (
        f'#include "kernelwright.h"\n#include <cmath>\n#include <cstdlib>\n{includes}\n'
        'extern "C" int32_t kernelwright_run(const kw_tensor* in, int32_t, kw_tensor* out, int32_t,\n'
        "                                    void* work, int32_t threads) {\n"
        "  int64_t n = 1; for (int32_t d = 0; d < in[0].ndim; ++d) n *= in[0].shape[d];\n"
        "  float* x = (float*)in[0].data; float* y = (float*)out[0].data;\n"
        f"  {body}\n  return KW_OK;\n}}\n"
    )
