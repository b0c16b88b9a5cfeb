"""A language model as proposer, behind an OpenAI-compatible endpoint. Importing this loads no SDK."""

from kernelwright.agents.model.proposer import ModelProposer
from kernelwright.agents.model.usage import ModelCall, ModelUsage

__all__ = ["ModelCall", "ModelProposer", "ModelUsage"]
