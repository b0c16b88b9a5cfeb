"""Each row over its root mean square, times a weight."""

import torch

from kernelwright.tasks import operation


@operation(x="float32[B, N]", weight="float32[N]", workloads=[{"B": 256, "N": 4096}])
def scaled_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
