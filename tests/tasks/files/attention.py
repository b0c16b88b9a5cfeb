"""Causal attention with a mask buffer, and a head count that must divide the width."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, c))


def get_inputs():
    return [torch.randn(2, 40, 32)]


def get_init_inputs():
    return [32, 4, 64]
