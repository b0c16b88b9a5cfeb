"""From a graph of core ATen operations to tensor expressions; one small module per family of operations."""

from kernelwright.agents.drafter.lowering.walk import Unsupported, lower

__all__ = ["Unsupported", "lower"]
