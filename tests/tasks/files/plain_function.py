"""Neither a class nor a decorator: one function, a generator with keywords, and a neighbour."""

import torch
from neighbour import EPSILON

device = "cpu"


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def get_inputs(rows=48, device=device):
    generator = torch.Generator(device=device).manual_seed(3)
    yield torch.randn(rows, 256, generator=generator, device=device)
    yield torch.rand(256, generator=generator, device=device)
