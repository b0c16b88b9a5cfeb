"""Batched products, scaled, added to a residual: 32 products of 512 x 512 matrices, 134 MB moved."""

import torch

from kernelwright.tasks import operation


@operation(
    a="float32[B, M, K]",
    b="float32[B, K, N]",
    residual="float32[B, M, N]",
    workloads=[{"B": 32, "M": 512, "K": 512, "N": 512}],
)
def batched_residual(a: torch.Tensor, b: torch.Tensor, residual: torch.Tensor, scale: float = 0.0625) -> torch.Tensor:
    return residual + scale * torch.bmm(a, b)
