"""Mean Huber loss of a regression. 67 MB read, one number out."""

import torch
import torch.nn.functional as F

from kernelwright.tasks import operation


@operation(prediction="float32[B, N]", target="float32[B, N]", workloads=[{"B": 4096, "N": 2048}])
def huber_loss(prediction: torch.Tensor, target: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    return F.huber_loss(prediction, target, delta=delta)
