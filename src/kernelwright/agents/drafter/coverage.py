"""What of a graph the drafter has to leave to the library."""

from __future__ import annotations

from kernelwright.agents.drafter.lowering.walk import lower
from kernelwright.agents.drafter.templates import drafted
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task


def uncovered(graph: Graph) -> tuple[str, ...]:
    """ATen operations without a kernel of ours, such as `aten.convolution.default`, each once; empty where all are covered."""
    return tuple(dict.fromkeys(entry.split(":", 1)[0] for entry in lower(graph).left))


def undrafted(task: Task, graph: Graph, device: Device) -> tuple[str, ...]:
    """Why templates of the drafter had to be dropped for this graph; empty where none was."""
    return drafted(task, graph, device)[1]
