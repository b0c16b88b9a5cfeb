"""Attention weights: softmax(scores * scale + mask), the mask shared by the heads. 138 MB moved."""

import torch

from kernelwright.tasks import operation


@operation(
    scores="float32[H, L, L]",
    mask="float32[L, L]",
    workloads=[{"H": 16, "L": 1024}],
)
def masked_softmax(scores: torch.Tensor, mask: torch.Tensor, scale: float = 0.125) -> torch.Tensor:
    return torch.softmax(scores * scale + mask, dim=-1)
