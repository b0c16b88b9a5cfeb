"""Undecorated functions, one of which uses the others; tables as inputs."""

import torch


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary(query, cosine, sine):
    return query * cosine + rotate_half(query) * sine


def get_inputs():
    angles = torch.outer(torch.arange(24).float(), 1.0 / (10000 ** (torch.arange(0, 16, 2).float() / 16)))
    both = torch.cat((angles, angles), dim=-1)
    return [torch.randn(2, 3, 24, 16), both.cos(), both.sin()]
