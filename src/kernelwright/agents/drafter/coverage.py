"""What of a graph the drafter has to leave to the library."""

from __future__ import annotations

from kernelwright.agents.drafter.lowering.walk import lower
from kernelwright.tasks.graph import Graph


def uncovered(graph: Graph) -> tuple[str, ...]:
    """ATen operations without a kernel of ours, such as `aten.convolution.default`, each once; empty where all are covered."""
    return tuple(dict.fromkeys(entry.split(":", 1)[0] for entry in lower(graph).left))
