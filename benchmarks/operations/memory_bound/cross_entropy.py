"""Cross-entropy of a language model's logits. 66 MB read, one number out."""

import torch
from torch import nn

BATCH = 512
VOCABULARY = 32000


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, target)


def get_inputs():
    return [torch.randn(BATCH, VOCABULARY), torch.randint(0, VOCABULARY, (BATCH,))]


def get_init_inputs():
    return []
