"""Column sums of a product, as in the gradient of a scale. 134 MB read."""

import torch

from kernelwright.tasks import operation


@operation(x="float32[M, N]", y="float32[M, N]", workloads=[{"M": 8192, "N": 2048}])
def column_sum_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(dim=0)
