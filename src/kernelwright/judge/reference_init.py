"""The constructor arguments of a task's own module, for a candidate that is constructed alike."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.tasks.model import Task
from kernelwright.tasks.programs import seeded
from kernelwright.tasks.source_files import load_module


def constructor_arguments(task: Task) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments and keywords, from the text that the task keeps; none for a function.

    Raises:
        TaskError: the task's file no longer loads.
    """
    if task.source.kind != "kernelbench":
        return [], {}
    module = load_module(Path(task.source.path), task.source.text)
    make = getattr(module, "get_init_inputs", None)
    if not callable(make):
        return [], {}
    with seeded(0):
        made = make()
    if isinstance(made, Mapping):
        return [], dict(made)
    if not isinstance(made, list | tuple):
        return [made], {}
    if len(made) == 2 and isinstance(made[0], list | tuple) and isinstance(made[1], Mapping):
        return list(made[0]), dict(made[1])
    return copy.copy(list(made)), {}
