"""The constructor arguments of a task's own module, for a candidate that is constructed alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.tasks.model import Task
from kernelwright.tasks.programs import initial_arguments, seeded
from kernelwright.tasks.source_files import load_module


def constructor_arguments(task: Task) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments and keywords, from the text that the task keeps; none for a function.

    Raises:
        TaskError: the task's file no longer loads.
    """
    if task.source.kind != "kernelbench":
        return [], {}
    module = load_module(Path(task.source.path), task.source.text)
    with seeded(0):
        return initial_arguments(module)
