"""Decides for each call whether the verified kernel or the reference runs, and runs it."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class KernelFallbackWarning(UserWarning):
    """The reference runs instead of the kernel. Given once for each kind of reason."""


class Decision(NamedTuple):
    """Whether the kernel runs, and if not, why."""

    kernel: bool
    reason: str = ""
    kind: str = ""
    """A stable word: `build`, `type`, `device`, `dtype`, `shape`, `gradient`, `scalar`, `training`, `constructor`,
    `unsupported`."""


KERNEL = Decision(True)


class Operation:
    """The exported operation.

    Args:
        folder: Where the export lies.
        load: Gives another file of the folder as a module.
    """

    def __init__(self, folder: Path, load: Callable[[str], ModuleType]) -> None:
        self.record: dict[str, Any] = json.loads((folder / "operation.json").read_text("utf-8"))
        self._folder, self._load = folder, load
        self._arguments: list[dict[str, Any]] = self.record["arguments"]
        self._state: list[dict[str, Any]] = self.record["state"]
        self._specs = [a for a in self._arguments if a["kind"] == "tensor"] + self._state
        self._places = [i for i, a in enumerate(self._arguments) if a["kind"] == "tensor"]
        self._scalars = [(i, a["name"], a["value"]) for i, a in enumerate(self._arguments) if a["kind"] == "scalar"]
        self._count = len(self._arguments) + len(self._state)
        self.strict_shapes: bool = self.record["strict_shapes"]
        self._decided: dict[Any, Decision] = {}
        self._warned: set[str] = set()
        self._reference: Any = None
        self._kernel, self._no_kernel = self._made()

    @property
    def has_module(self) -> bool:
        """Whether the reference is a module."""
        return bool(self.record["reference"]["is_module"])

    @property
    def reference(self) -> Any:
        """The user's own operation."""
        if self._reference is None:
            self._reference = self._load("original").Reference(self._folder, self.record)
        return self._reference

    def model_class(self) -> Any:
        """`ModelNew`."""
        return self._load("original").model_class(self, self.reference)

    def signature(self) -> inspect.Signature:
        """The reference's arguments, then its parameters and buffers."""
        names = [a["name"] for a in self._arguments] + [s["name"].replace(".", "_") for s in self._state]
        defaults = {name: value for _, name, value in self._scalars}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        try:
            return inspect.Signature(
                [inspect.Parameter(n, kind, default=defaults.get(n, inspect.Parameter.empty)) for n in names]
            )
        except ValueError:
            return inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)])

    def __call__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The result for the arguments of a call."""
        values = self.bound(arguments, keywords)
        decision = self.decide(values)
        return self.run(values) if decision.kernel else self.fall_back(values, decision)

    def explain(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Decision:
        """What a call would do."""
        return self.decide(self.bound(arguments, keywords))

    def bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any], state: bool = True) -> Sequence[Any]:
        """One value for each argument, then (with `state`) for each parameter and buffer.

        Raises:
            TypeError: one is missing or there are too many.
        """
        count = self._count if state else len(self._arguments)
        if not keywords and len(arguments) == count:
            return arguments
        names = [a["name"] for a in self._arguments] + [s["name"].replace(".", "_") for s in self._state]
        values = dict(zip(names[:count], arguments, strict=False))
        unknown = [n for n in keywords if n not in names[:count] or n in values]
        if len(arguments) > count or unknown:
            what = f"`{unknown[0]}`" if unknown else f"argument {count + 1}"
            raise TypeError(f"optimized() got an unexpected {what}; it takes {', '.join(names[:count])}")
        values |= keywords
        values = {name: value for _, name, value in self._scalars} | values
        missing = [n for n in names[:count] if n not in values]
        if missing:
            raise TypeError(f"optimized() lacks `{missing[0]}`; it takes {', '.join(names[:count])}")
        return [values[n] for n in names[:count]]

    def decide(self, values: Sequence[Any]) -> Decision:
        """Whether the kernel may run for these values."""
        if self._kernel is None:
            return self._no_kernel
        for index, name, value in self._scalars:
            given = values[index]
            if type(given) is not type(value) or given != value:
                return Decision(False, f"`{name}` is {given!r}; {value!r} was verified", "scalar")
        tensors = self._tensors(values)
        gradients = torch.is_grad_enabled()
        for tensor in tensors:
            if type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
                return Decision(False, f"a {_words(tensor)} where a plain dense tensor was verified", "type")
            if tensor.device.type != "cpu":
                return Decision(False, f"a tensor on {tensor.device}; the kernel is for the CPU", "device")
            if gradients and tensor.requires_grad:
                return Decision(False, "an input needs gradients, which the kernel does not compute", "gradient")
        key = (self.strict_shapes, *((t.dtype, t.shape) for t in tensors))
        decision = self._decided.get(key)
        if decision is None:
            decision = self._decided[key] = self._fits(tensors)
        return decision

    def run(self, values: Sequence[Any]) -> Any:
        """The kernel's result; the reference's, where the kernel says that it does not support these sizes."""
        tensors = self._tensors(values)
        assert self._kernel is not None
        try:
            outputs = self._kernel(tensors)
        except self._load("host").Unsupported as error:
            decision = Decision(False, f"the kernel does not support this: {error}", "unsupported")
            self._decided[(self.strict_shapes, *((t.dtype, t.shape) for t in tensors))] = decision
            return self.fall_back(values, decision)
        return tuple(outputs) if self.record["returns_tuple"] else outputs[0]

    def fall_back(self, values: Sequence[Any], decision: Decision) -> Any:
        """The reference's result, with a warning the first time."""
        self.warn(decision)
        count = len(self._arguments)
        return self.reference(values[:count], values[count:])

    def warn(self, decision: Decision) -> None:
        """Say once for each kind of reason that the reference runs."""
        if decision.kind not in self._warned:
            self._warned.add(decision.kind)
            text = f"{self.record['name']}: the reference runs instead of the kernel: {decision.reason}"
            warnings.warn(text, KernelFallbackWarning, stacklevel=4)

    def _tensors(self, values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in self._places] + list(values[len(self._arguments) :])

    def _fits(self, tensors: Sequence[torch.Tensor]) -> Decision:
        for tensor, spec in zip(tensors, self._specs, strict=True):
            if str(tensor.dtype) != f"torch.{spec['dtype']}":
                given = str(tensor.dtype).removeprefix("torch.")
                return Decision(False, f"`{spec['name']}` is {given}; {spec['dtype']} was verified", "dtype")
        host = self._load("host")
        try:
            axes = host.bind_axes([s["dims"] for s in self._specs], [tuple(t.shape) for t in tensors])
        except host.Unsupported as error:
            return Decision(False, f"other shapes than the verified ones: {error}", "shape")
        if any(all(axes.get(n) == size for n, size in known.items()) for known in self.record["verified"]):
            return KERNEL
        if self.strict_shapes or not self.record["other_sizes"]:
            return Decision(False, f"{axes} is none of the verified sizes", "shape")
        for axis in self.record["axes"]:
            size, high = axes[axis["name"]], axis["maximum"]
            if size < axis["minimum"] or size % axis["multiple"] or (high is not None and size > high):
                return Decision(False, f"{axis['name']}={size} is outside of what the reference accepts", "shape")
            if not axis["varies"] and size != axis["default"]:
                return Decision(False, f"{axis['name']}={size}; only {axis['default']} was verified", "shape")
        return KERNEL

    def _made(self) -> tuple[Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] | None, Decision]:
        """The kernel ready to run, or the reason why there is none."""
        try:
            if self.record["language"] != "cpp":
                return self._load("python_kernel").PythonKernel(
                    self._folder, self.record, lambda: self.reference
                ), KERNEL
            return self._compiled(), KERNEL
        except Exception as error:  # noqa: BLE001 - a kernel that cannot be made must not break the program that uses it
            decision = Decision(False, f"the kernel could not be made ready: {error}", "build")
            self.warn(decision)
            return None, decision

    def _compiled(self) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        library = self._load("building").built(self._folder, self.record)
        limit = self.record["threads"]
        plan = self._load("host").CompiledPlan(
            str(library), self.record["plan"], self._specs, self.record["outputs"], limit or torch.get_num_threads()
        )

        def run(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            available = torch.get_num_threads()
            plan.threads = min(limit, available) if limit else available
            result: Sequence[torch.Tensor] = plan(*tensors)
            return result

        return run


def _words(value: Any) -> str:
    return f"{value.layout} tensor" if type(value) in _PLAIN else type(value).__qualname__
