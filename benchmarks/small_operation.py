"""A small operation for measuring the judge itself: relu(x) * y + x on 256 KiB tensors."""

import torch

from kernelwright.tasks import operation


@operation(x="float32[B, N]", y="float32[B, N]", workloads=[{"B": 256, "N": 256}])
def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * y + x
