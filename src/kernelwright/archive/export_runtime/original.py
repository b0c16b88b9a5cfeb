"""The reference: the user's own file, run when something needs it, and `ModelNew` made from the user's own class."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


class ReferenceUnavailable(RuntimeError):
    """The user's file does not run here, so that nothing can stand in for the kernel."""


class Reference:
    """The user's operation as a callable of arguments and state.

    Raises:
        ReferenceUnavailable: the file does not run here.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self._record = record
        self.attribute: str = record["reference"]["attribute"]
        self._file = _module_of(folder, record["reference"]["module"])
        found: Any = self._file
        for part in self.attribute.split("."):
            found = getattr(found, part)
        self.found: Any = found
        """The function, module class or module that the file defines."""
        kind = found if isinstance(found, type) else type(found)
        self.is_module = issubclass(kind, torch.nn.Module)
        self._instance: Any = None

    def __call__(self, arguments: Sequence[Any], state: Sequence[torch.Tensor]) -> Any:
        """What the reference returns for these arguments, parameters and buffers."""
        if not self.is_module:
            return self.found(*arguments, *state)
        held = {spec["name"]: value for spec, value in zip(self._record["state"], state, strict=True)}
        return torch.func.functional_call(self.instance, held, tuple(arguments))

    @property
    def instance(self) -> Any:
        """The module, constructed as in the task, in evaluation mode."""
        if self._instance is None:
            made = self.found
            if isinstance(made, type):
                arguments, keywords = self.initial()
                made = made(*arguments, **keywords)
            self._instance = made.eval()
        return self._instance

    def initial(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The task's own constructor arguments."""
        make = getattr(self._file, "get_init_inputs", None)
        made = make() if callable(make) else []
        if isinstance(made, Mapping):
            return [], dict(made)
        if not isinstance(made, list | tuple):
            return [made], {}
        if len(made) == 2 and isinstance(made[0], list | tuple) and isinstance(made[1], Mapping):
            return list(made[0]), dict(made[1])
        return list(made), {}


def model_class(operation: Any, reference: Reference) -> Any:
    """The user's module class with the kernel as its `forward`: same constructor, same parameters under the same names.

    It starts in evaluation mode with gradients off, because that is what was verified. In training mode, with other
    constructor arguments than the task's, or where gradients are wanted, the user's own `forward` runs.
    """
    base = reference.found if isinstance(reference.found, type) else type(reference.found)
    state = [attrgetter(spec["name"]) for spec in operation.record["state"]]

    class ModelNew(base):  # type: ignore[misc,valid-type]
        __doc__ = base.__doc__

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            initial = reference.initial()
            if not arguments and not keywords:
                arguments, keywords = tuple(initial[0]), dict(initial[1])
            super().__init__(*arguments, **keywords)
            self._as_verified = _same((list(arguments), keywords), (list(initial[0]), dict(initial[1])))
            self.eval()
            self.requires_grad_(False)

        def forward(self, *arguments: Any, **keywords: Any) -> Any:
            decision = self.explain(*arguments, **keywords)
            if not decision.kernel:
                operation.warn(decision)
                return super().forward(*arguments, **keywords)
            values = operation.bound(arguments, keywords, state=False)
            return operation.run([*values, *(get(self) for get in state)])

        def explain(self, *arguments: Any, **keywords: Any) -> Any:
            """Whether the kernel would run for these arguments, and if not, why."""
            if self.training:
                return _no("the module is in training mode; evaluation mode was verified", "training")
            if not self._as_verified:
                return _no("constructed with other arguments than the task's", "constructor")
            values = operation.bound(arguments, keywords, state=False)
            return operation.decide([*values, *(get(self) for get in state)])

        forward._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _no(reason: str, kind: str) -> Any:
        return sys.modules[type(operation).__module__].Decision(False, reason, kind)

    ModelNew.__qualname__ = "ModelNew"
    if isinstance(reference.found, type):
        return ModelNew

    def make() -> Any:
        """A copy of the user's module with the kernel as its `forward`."""
        made = copy.deepcopy(reference.found).eval().requires_grad_(False)
        made.__class__ = ModelNew
        made._as_verified = True
        return made

    return make


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    return bool(one == other)


def _module_of(folder: Path, importable: str) -> ModuleType:
    """The module that the reference came from: an installed one by its name, else the text beside this file."""
    if importable:
        try:
            return importlib.import_module(importable)
        except ImportError:
            pass
    path = folder / "reference.py"
    name = "_kernelwright_reference_" + hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _decorator_at_hand():
            spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ReferenceUnavailable(f"{path} does not run here: {type(error).__name__}: {error}") from error
    return module


@contextlib.contextmanager
def _decorator_at_hand() -> Iterator[None]:
    """The file may declare its inputs with `kernelwright.tasks.operation`, which need not be installed here."""
    if importlib.util.find_spec("kernelwright") is not None:
        yield
        return

    def operation(*found: Any, **_: Any) -> Any:
        return found[0] if len(found) == 1 and callable(found[0]) else lambda function: function

    package, tasks = ModuleType("kernelwright"), ModuleType("kernelwright.tasks")
    package.__path__ = []
    package.tasks = tasks  # type: ignore[attr-defined]
    tasks.operation = operation  # type: ignore[attr-defined]
    sys.modules["kernelwright"], sys.modules["kernelwright.tasks"] = package, tasks
    try:
        yield
    finally:
        sys.modules.pop("kernelwright", None)
        sys.modules.pop("kernelwright.tasks", None)
