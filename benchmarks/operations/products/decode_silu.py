"""One decoding step of a feed-forward layer: eight rows against a 134 MB weight, then SiLU."""

import torch
import torch.nn.functional as F

from kernelwright.tasks import operation


@operation(x="float32[B, K]", weight="float32[N, K]", workloads=[{"B": 8, "K": 4096, "N": 8192}])
def decode_silu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ weight.T)
