"""Calls a kernel that is written in Python or Triton: a module class `ModelNew`, or a function."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

_FUNCTIONS = ("optimized", "forward", "kernel_function", "solution", "solve", "run")


class PythonKernel:
    """`outputs = kernel(tensors)` with the tensor arguments, then parameters and buffers.

    Args:
        folder: Where the export lies.
        record: `operation.json`.
        reference: Gives the reference, whose constructor arguments a module kernel is made with.

    Raises:
        AttributeError: the sources define nothing to call.
    """

    def __init__(self, folder: Path, record: dict[str, Any], reference: Callable[[], Any]) -> None:
        self._record, self._reference = record, reference
        self._module = _imported(folder / "sources" / record["entry"])
        self._held: list[tuple[int, int]] = []
        self._instance: Any = None
        names = (record["reference"]["attribute"], *_FUNCTIONS)
        self._class = getattr(self._module, "ModelNew", None)
        found = [getattr(self._module, n) for n in names if callable(getattr(self._module, n, None))]
        if self._class is None and not found:
            raise AttributeError(f"{record['entry']} defines neither ModelNew nor {names[0]}")
        self._function = found[0] if found else None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        left = iter(t.contiguous() for t in tensors)
        given = [a["value"] if a["kind"] == "scalar" else next(left) for a in self._record["arguments"]]
        state = list(left)
        with torch.no_grad():
            if self._class is None:
                assert self._function is not None
                result = self._function(*given, *state)
            else:
                result = self._with(state)(*given)
        return result if isinstance(result, tuple | list) else (result,)

    def _with(self, state: Sequence[torch.Tensor]) -> Any:
        """A module that holds this state; copied again only when the tensors changed."""
        identity = [(t.data_ptr(), t._version) for t in state]
        if self._instance is None or identity != self._held:
            if self._instance is None:
                self._instance = self._made()
            held = {**dict(self._instance.named_parameters()), **dict(self._instance.named_buffers())}
            for spec, value in zip(self._record["state"], state, strict=True):
                target = held.get(spec["name"])
                if target is None:
                    fitting = [n for n, t in held.items() if n.rsplit(".", 1)[-1] == spec["name"].rsplit(".", 1)[-1]]
                    target = held[fitting[0]] if len(fitting) == 1 else None
                if target is not None:
                    target.copy_(value)
            self._held = identity
        return self._instance

    def _made(self) -> Any:
        if not isinstance(self._class, type):
            return self._class
        is_module = self._record["reference"]["is_module"]
        arguments, keywords = self._reference().initial() if is_module else ((), {})
        return self._class(*arguments, **keywords).eval().requires_grad_(False)


def _imported(path: Path) -> Any:
    """The main source as a module; its neighbours can be imported by name."""
    name = "_kernelwright_kernel_" + hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
