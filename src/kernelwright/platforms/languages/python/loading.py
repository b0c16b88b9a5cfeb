"""A Python candidate as a callable of the kernel inputs: `ModelNew`, or a function, loaded from its sources.

Only the task's own constructor arguments, inputs and state are used, whatever else the file defines.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelwright.core.errors import CandidateError
from kernelwright.tasks.model import ScalarSpec, Task, TensorSpec
from kernelwright.tasks.programs import seeded

if TYPE_CHECKING:
    import torch
    from torch import nn

CLASS = "ModelNew"
FUNCTIONS = ("optimized", "forward", "kernel_function", "solution", "solve", "run")
TASK_NAMES = ("get_inputs", "get_init_inputs", "Model")
"""What belongs to the task's file; a candidate's own versions are never used."""


@dataclass
class PythonKernel:
    """A loaded candidate."""

    module: ModuleType
    task: Task
    make: Callable[[], nn.Module] | None
    """Makes a fresh module; None for a function."""
    function: Callable[..., Any] | None
    redefined: tuple[str, ...] = ()
    """Names of the task's own that the file defines as well."""
    instance: nn.Module | None = None
    state: list[torch.Tensor] = field(default_factory=list)

    def hold(self, state: Sequence[torch.Tensor]) -> None:
        """Take these parameters and buffers (the task's order); a fresh module where they differ from those held."""
        import torch

        same = len(state) == len(self.state) and all(torch.equal(a, b) for a, b in zip(state, self.state, strict=True))
        if self.make is None or (self.instance is not None and same):
            return
        with seeded(0):
            module = self.make()
        module.eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        load_state(module, dict(zip((s.name for s in self.task.state), state, strict=True)))
        self.instance = module
        self.state = [t.clone() for t in state]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """What the candidate is called with, out of the kernel inputs."""
        left = iter(tensors)
        given = [a.value if isinstance(a, ScalarSpec) else next(left) for a in self.task.arguments]
        return [*given, *left] if self.make is None else given

    @property
    def call(self) -> Callable[..., Any]:
        """What is called (the module that `hold` made, or the function)."""
        found = self.function if self.make is None else self.instance
        assert found is not None
        return found


def load(
    sources: Mapping[str, str], entry: str, folder: Path, task: Task, init: tuple[list[Any], dict[str, Any]]
) -> PythonKernel:
    """Write the sources into `folder`, import the entry, find what to call.

    Args:
        init: the task's own constructor arguments.

    Raises:
        CandidateError: nothing to call is defined. Whatever the candidate's file raises passes through.
    """
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
    sys.path.insert(0, str((folder / entry).parent))
    spec = importlib.util.spec_from_file_location("candidate", folder / entry)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    redefined = tuple(name for name in TASK_NAMES if name in vars(module))
    made = getattr(module, CLASS, None)
    if made is not None:
        return PythonKernel(module, task, lambda: _made(made, init), None, redefined)
    for name in (task.source.attribute, *FUNCTIONS):
        found = getattr(module, name, None)
        if callable(found) and not isinstance(found, type):
            return PythonKernel(module, task, None, found, redefined)
    raise CandidateError(
        f"nothing to call: the file defines neither class {CLASS} nor a function {task.source.attribute} or {FUNCTIONS[0]}"
    )


def _made(made: Any, init: tuple[list[Any], dict[str, Any]]) -> nn.Module:
    return made(*init[0], **init[1]) if isinstance(made, type) else made


def load_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Copy the reference's parameters and buffers into a candidate's: by name and shape, then by a shape that is unique.

    Raises:
        CandidateError: the candidate holds a parameter of which nobody can say what it should be.
    """
    import torch

    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    pairs = {name: name for name, value in state.items() if name in held and held[name].shape == value.shape}
    left = [name for name in state if name not in pairs]
    free = [name for name in held if name not in pairs.values()]
    for name in left:
        fitting = [f for f in free if held[f].shape == state[name].shape]
        rivals = [n for n in left if state[n].shape == state[name].shape]
        suffix = [f for f in fitting if f.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]]
        chosen = fitting if len(fitting) == len(rivals) == 1 else suffix if len(suffix) == 1 else []
        if chosen:
            pairs[name] = chosen[0]
            free.remove(chosen[0])
    parameters = dict(module.named_parameters())
    unknown = [name for name in free if name in parameters]
    missing = [name for name in state if name not in pairs]
    if unknown and missing:
        raise CandidateError(
            f"parameters are not comparable: {CLASS} holds {', '.join(unknown)}, the reference has {', '.join(missing)}",
            hint="give parameters the reference's names and shapes",
        )
    with torch.no_grad():
        for name, target in pairs.items():
            held[target].copy_(state[name])


def tensor_arguments(task: Task) -> int:
    """How many of the kernel inputs are arguments; the others are state."""
    return sum(isinstance(a, TensorSpec) for a in task.arguments)
