"""What the library computed during a call, as torch's profiler saw it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelwright.platforms.languages.python.library_record import not_allowed, recorded


def chains_of(call) -> list[str]:
    with recorded() as chains, torch.no_grad():
        call()
    return chains


def test_views_copies_and_allocation_compute_nothing():
    x = torch.randn(4, 6)
    assert chains_of(lambda: x.t().contiguous().view(-1).to(torch.float64).clone().expand(2, 24)) == []


def test_an_operation_is_named_with_what_it_computes_through():
    layer = nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 8, 8)
    chains = chains_of(lambda: layer(x))
    assert chains
    assert all("aten.convolution" in chain.split(">") for chain in chains)


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ((), ("aten.conv2d", "aten.relu")),
        (("aten.convolution.default",), ("aten.relu",)),
        (("aten.convolution", "aten.relu"), ()),
        (("aten.relu_",), ("aten.conv2d", "aten.relu")),
    ],
)
def test_what_is_left_to_the_library_is_allowed_however_it_is_reached(allowed, refused):
    layer = nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 8, 8)
    chains = chains_of(lambda: torch.relu(layer(x)))
    assert not_allowed(tuple(chains), allowed) == refused
