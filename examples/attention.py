"""Causal attention over several heads.

kernelwright optimize examples/attention.py --evaluations 20
"""

import torch
from torch.nn import functional

from kernelwright.tasks import operation


@operation(
    query="float32[B, H, L, D]",
    key="float32[B, H, L, D]",
    value="float32[B, H, L, D]",
    workloads=[{"B": 1, "H": 8, "L": 1024, "D": 64}],
)
def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
