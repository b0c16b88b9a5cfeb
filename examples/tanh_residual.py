"""A gated residual connection, as a plain function with declared inputs: what `make demo` makes faster.

    kernelwright optimize examples/tanh_residual.py

The sizes in brackets are axes. The workload binds them for timing; the judge tries other sizes of its own.
"""

import torch

from kernelwright.tasks import operation


@operation(
    x="float32[B, C]",
    y="float32[B, C]",
    gain="float32[C]",
    workloads=[{"B": 2048, "C": 4096}],
)
def tanh_residual(x: torch.Tensor, y: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x + torch.tanh(y * gain)
