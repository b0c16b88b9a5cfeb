"""The outermost of two classes, inputs by name, two outputs."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.full((n,), 0.5))

    def forward(self, x):
        return torch.sigmoid(x * self.scale)


class GatedMaximum(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate(64)
        self.shift = torch.linspace(-1, 1, 64)

    def forward(self, x, y):
        z = self.gate(x) * y + self.shift
        values, indices = z.max(dim=1)
        return values, indices


def get_inputs():
    return {"y": torch.randn(40, 64), "x": torch.randn(40, 64)}
