"""A module in the style of KernelBench: `Model`, `get_inputs`, `get_init_inputs`.

    kernelwright optimize examples/layer_norm_module.py

The module's parameters become inputs of the kernel; the batch size is found to be free by trying others.
"""

import torch
from torch import nn


class Model(nn.Module):
    """Layer norm, then SiLU."""

    def __init__(self, features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(8192, 1024)]


def get_init_inputs():
    return [1024]
