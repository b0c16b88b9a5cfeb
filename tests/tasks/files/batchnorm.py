"""Convolution, batch normalisation with running statistics, activation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, out_channels, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        return nn.functional.gelu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.rand(4, 3, 20, 24)]


def get_init_inputs():
    return [3, 8, 3]
