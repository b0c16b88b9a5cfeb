"""A module with parameters, a scalar argument and keyword settings."""

import torch
from torch import nn

BATCH, FEATURES = 32, 48


class Model(nn.Module):
    def __init__(self, features, hidden=64, dropout=0.1):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, scale):
        return self.down(self.dropout(torch.relu(self.up(x)))) * scale


def get_inputs():
    return (torch.randn(BATCH, FEATURES), 0.5)


def get_init_inputs():
    return [[FEATURES], {"hidden": 80}]
