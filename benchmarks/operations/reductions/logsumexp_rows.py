"""Log-sum-exp of rows, the normaliser of a router. 67 MB read."""

import torch

from kernelwright.tasks import operation


@operation(x="float32[B, N]", workloads=[{"B": 2048, "N": 8192}])
def logsumexp_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, dim=-1)
