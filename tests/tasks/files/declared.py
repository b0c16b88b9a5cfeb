"""The decorator: symbolic sizes, a scalar, two workloads, a distribution."""

import torch

from kernelwright.tasks import operation


@operation(
    x="float32[B, N]",
    w="float32[N]",
    keep="bool[B, N]",
    workloads=[{"B": 24, "N": 512}, {"B": 8, "N": 1000}],
    distributions={"x": "uniform(-4, 4)"},
    special_values=False,
)
def masked_scaled_sum(x, w, keep, alpha=2.0):
    return torch.where(keep, x * w * alpha, torch.zeros_like(x)).sum(-1)
