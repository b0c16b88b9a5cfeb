"""The gate of a gated feed-forward layer: silu(gate) * up. 101 MB moved."""

import torch
import torch.nn.functional as F

from kernelwright.tasks import operation


@operation(gate="float32[B, N]", up="float32[B, N]", workloads=[{"B": 2048, "N": 4096}])
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up
