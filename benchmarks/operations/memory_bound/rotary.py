"""Rotary position embedding on two halves of a head. 68 MB moved."""

import torch

from kernelwright.tasks import operation


@operation(
    x="float32[B, T, H, 2*D]",
    cos="float32[T, D]",
    sin="float32[T, D]",
    workloads=[{"B": 4, "T": 1024, "H": 16, "D": 64}],
    distributions={"cos": "uniform(-1, 1)", "sin": "uniform(-1, 1)"},
)
def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
