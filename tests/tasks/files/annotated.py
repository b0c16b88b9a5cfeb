"""Shapes in the annotations; sizes from the command line."""

import torch


def cumulative(x: "float32[B, N]", dim: int = 1):  # noqa: F821
    return torch.cumsum(x, dim)
