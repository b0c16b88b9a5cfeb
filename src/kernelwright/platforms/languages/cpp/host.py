"""Calls a compiled kernel: binds sizes, allocates outputs and buffers, runs the steps of a plan.

This file stands alone (torch and the standard library). The judge runs it, and an export ships a copy of it, so that
what was judged is what is used.
"""

from __future__ import annotations

import ast
import base64
import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

OK = 0
UNSUPPORTED = 1
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Element types in the order of their codes in `kernelwright.h`."""

Allocate = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""Makes an uninitialised, contiguous, 64-byte aligned tensor."""


class Unsupported(Exception):
    """These inputs (shape, element type) are none that the kernel was written for; nothing was computed."""


class KernelFailed(RuntimeError):
    """An entry point returned an error code that the interface does not know."""


class Tensor(ctypes.Structure):
    """`kw_tensor` of `kernelwright.h`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


@dataclass(frozen=True)
class _Entry:
    """One C entry point and, where it has one, its question for scratch memory."""

    name: str
    run: Any
    workspace_bytes: Any


@dataclass(frozen=True)
class _Call:
    """A kernel step whose sizes are known: descriptors that lack only the addresses."""

    entry: _Entry
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_template: ctypes.Array[Tensor]
    output_template: ctypes.Array[Tensor]
    kept_alive: tuple[Any, ...]


@dataclass(frozen=True)
class _Bound:
    """A plan under one set of input shapes."""

    axes: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    calls: dict[int, _Call]


class CompiledPlan:
    """A compiled kernel as a callable: `outputs = plan(*tensors)`.

    Args:
        library_path: The shared object.
        plan: `buffers`, `constants`, `steps` as in a candidate's record; no steps means one call of `kernelwright_run`
            with all inputs and all outputs.
        inputs: `{"name", "dtype", "dims"}` of each tensor, in order; a size is an integer or an expression over axes.
        outputs: The same for the results.
        threads: Threads that the kernel is called with.
        allocate: Where outputs, buffers and scratch memory come from; `torch.empty` if None.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: it lacks an entry point that the plan names.
    """

    def __init__(  # noqa: PLR0917 - called by position from exported modules
        self,
        library_path: str,
        plan: Mapping[str, Any],
        inputs: Sequence[Mapping[str, Any]],
        outputs: Sequence[Mapping[str, Any]],
        threads: int,
        allocate: Allocate | None = None,
    ) -> None:
        self.inputs = [dict(spec) for spec in inputs]
        self.outputs = [dict(spec) for spec in outputs]
        self.threads = int(threads)
        self.allocate: Allocate = allocate or _empty
        self._library = ctypes.CDLL(library_path)
        whole = {
            "kind": "kernel",
            "entry": "kernelwright_run",
            "inputs": [spec["name"] for spec in inputs],
            "outputs": [spec["name"] for spec in outputs],
        }
        self._steps: list[Mapping[str, Any]] = list(plan.get("steps") or [whole])
        self._constants = {c["spec"]["name"]: _constant(c) for c in plan.get("constants") or ()}
        self._specs: dict[str, Mapping[str, Any]] = {}
        for spec in (*(plan.get("buffers") or ()), *self.outputs, *self.inputs):
            self._specs[spec["name"]] = spec
        entries = {step["entry"] for step in self._steps if step["kind"] == "kernel"}
        self._entries = {name: _entry(self._library, name) for name in entries}
        self._operations = {step["op"]: _operation(step["op"]) for step in self._steps if step["kind"] == "library"}
        self._input_dtypes = [getattr(torch, spec["dtype"]) for spec in self.inputs]
        self._last_use = _last_use(self._steps, keep={spec["name"] for spec in self.outputs})
        self._bound: dict[tuple[torch.Size, ...], _Bound] = {}

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for contiguous or strided inputs on the CPU.

        Raises:
            Unsupported: another number of inputs, other element types or shapes than the kernel was written for.
            KernelFailed: an entry point returned an error.
        """
        if [t.dtype for t in tensors] != self._input_dtypes:
            raise Unsupported(f"expected {len(self.inputs)} tensors of {', '.join(s['dtype'] for s in self.inputs)}")
        key = tuple(t.shape for t in tensors)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind([tuple(shape) for shape in key])
        values: dict[str, Any] = dict(self._constants)
        for spec, tensor in zip(self.inputs, tensors, strict=True):
            values[spec["name"]] = tensor
        for index, step in enumerate(self._steps):
            if step["kind"] == "kernel":
                self._run_kernel(bound, bound.calls[index], values)
            else:
                self._run_library(bound, step, values)
            for name in self._last_use[index]:
                del values[name]
        return tuple(self._result(values[spec["name"]], tensors) for spec in self.outputs)

    def _run_kernel(self, bound: _Bound, call: _Call, values: dict[str, Any]) -> None:
        for name in call.outputs:
            values[name] = self.allocate(bound.shapes[name], getattr(torch, self._specs[name]["dtype"]))
        inputs = type(call.input_template).from_buffer_copy(call.input_template)
        outputs = type(call.output_template).from_buffer_copy(call.output_template)
        dense = [values[name].contiguous() for name in call.inputs]
        for descriptor, tensor in zip(inputs, dense, strict=True):
            descriptor.data = tensor.data_ptr()
        for descriptor, name in zip(outputs, call.outputs, strict=True):
            descriptor.data = values[name].data_ptr()
        workspace, address = None, None
        if call.entry.workspace_bytes is not None:
            size = int(call.entry.workspace_bytes(inputs, len(inputs), outputs, len(outputs), self.threads))
            if size < 0:
                raise KernelFailed(f"{call.entry.name}_workspace_bytes returned {size}")
            workspace = self.allocate((size,), torch.uint8)
            address = workspace.data_ptr()
        code = call.entry.run(inputs, len(inputs), outputs, len(outputs), address, self.threads)
        if code == UNSUPPORTED:
            raise Unsupported(f"{call.entry.name} does not support the sizes {bound.axes}")
        if code != OK:
            raise KernelFailed(f"{call.entry.name} returned {code}")

    def _run_library(self, bound: _Bound, step: Mapping[str, Any], values: dict[str, Any]) -> None:
        arguments = [_argument(item, values, bound.axes) for item in step["args"]]
        keywords = {name: _argument(item, values, bound.axes) for name, item in (step.get("kwargs") or {}).items()}
        with torch.no_grad():
            result = self._operations[step["op"]](*arguments, **keywords)
        results = result if isinstance(result, tuple | list) else (result,)
        values.update(zip(step["outputs"], results, strict=False))

    def _result(self, value: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """A dense tensor of its own memory, whatever a library step returned."""
        address = value.untyped_storage().data_ptr()
        if any(address == t.untyped_storage().data_ptr() for t in inputs) and value.numel():
            return value.clone(memory_format=torch.contiguous_format)
        return value.contiguous()

    def _bind(self, shapes: Sequence[tuple[int, ...]]) -> _Bound:
        axes = bind_axes([spec["dims"] for spec in self.inputs], shapes)
        known = {name: evaluate_dims(spec["dims"], axes) for name, spec in self._specs.items()}
        known |= {name: tuple(tensor.shape) for name, tensor in self._constants.items()}
        dtypes = {name: spec["dtype"] for name, spec in self._specs.items()}
        dtypes |= {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in self._constants.items()}
        calls = {
            index: self._prepared(step, known, dtypes)
            for index, step in enumerate(self._steps)
            if step["kind"] == "kernel"
        }
        return _Bound(axes=axes, shapes=known, calls=calls)

    def _prepared(
        self, step: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]
    ) -> _Call:
        inputs, outputs = tuple(step["inputs"]), tuple(step["outputs"])
        kept: list[Any] = []
        templates = []
        for names in (inputs, outputs):
            descriptors = (Tensor * len(names))()
            for descriptor, name in zip(descriptors, names, strict=True):
                shape = (ctypes.c_int64 * max(1, len(shapes[name])))(*shapes[name])
                strides = (ctypes.c_int64 * max(1, len(shapes[name])))(*dense_strides(shapes[name]))
                kept += [shape, strides]
                descriptor.shape, descriptor.strides = shape, strides
                descriptor.ndim, descriptor.dtype = len(shapes[name]), DTYPES.index(dtypes[name])
            templates.append(descriptors)
        return _Call(self._entries[step["entry"]], inputs, outputs, templates[0], templates[1], tuple(kept))


def bind_axes(dims: Sequence[Sequence[int | str]], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Sizes of the axes that make `dims` agree with `shapes`.

    Raises:
        Unsupported: there are none.
    """
    pairs = [pair for d, s in zip(dims, shapes, strict=True) for pair in zip(d, s, strict=False)]
    if [len(d) for d in dims] != [len(s) for s in shapes]:
        raise Unsupported(f"expected tensors of {[len(d) for d in dims]} dimensions, got {[len(s) for s in shapes]}")
    axes = {dim: size for dim, size in reversed(pairs) if isinstance(dim, str) and dim.isidentifier()}
    for dim, size in pairs:
        unknown = sorted(_names(dim) - axes.keys())
        if len(unknown) == 1:
            fitting = (v for v in range(size + 2) if _fits(dim, {**axes, unknown[0]: v}, size))
            axes[unknown[0]] = next(fitting, -1)
    for dim, size in pairs:
        if not _fits(dim, axes, size):
            raise Unsupported(f"a size of {size} where {dim} was expected, with {axes}")
    return axes


def _fits(dim: int | str, axes: Mapping[str, int], size: int) -> bool:
    try:
        return evaluate_dim(dim, axes) == size
    except (KeyError, ZeroDivisionError):
        return False


def evaluate_dims(dims: Sequence[int | str], axes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that `dims` has under a binding of the axes."""
    return tuple(evaluate_dim(dim, axes) for dim in dims)


def evaluate_dim(dim: int | str, axes: Mapping[str, int]) -> int:
    """One size: an integer, or an expression of `+ - * // % **`, `max`, `min`, integers and axes."""
    return dim if isinstance(dim, int) else _evaluate(ast.parse(dim, mode="eval").body, axes)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min}


def _names(dim: int | str) -> set[str]:
    if isinstance(dim, int):
        return set()
    return {n.id for n in ast.walk(ast.parse(dim, mode="eval")) if isinstance(n, ast.Name)} - _FUNCTIONS.keys()


def _evaluate(node: ast.expr, axes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return axes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, axes)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
            return _BINARY[type(kind)](_evaluate(left, axes), _evaluate(right, axes))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(arg, axes) for arg in args))
    raise ValueError(f"not a size: {ast.unparse(node)}")


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _constant(item: Mapping[str, Any]) -> torch.Tensor:
    spec = item["spec"]
    data = bytearray(base64.b64decode(item["data_base64"]))
    shape = tuple(int(size) for size in spec["dims"])
    if not data:
        return torch.empty(shape, dtype=getattr(torch, spec["dtype"]))
    return torch.frombuffer(data, dtype=getattr(torch, spec["dtype"])).reshape(shape).clone()


def _entry(library: ctypes.CDLL, name: str) -> _Entry:
    tensors = ctypes.POINTER(Tensor)
    try:
        run = getattr(library, name)
    except AttributeError:
        raise AttributeError(
            f'the library has no entry `{name}`; a kernel is extern "C" int32_t {name}(const kw_tensor*, int32_t, '
            "kw_tensor*, int32_t, void*, int32_t), see kernelwright.h"
        ) from None
    run.restype = ctypes.c_int32
    run.argtypes = [tensors, ctypes.c_int32, tensors, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]
    try:
        question = getattr(library, f"{name}_workspace_bytes")
    except AttributeError:
        return _Entry(name, run, None)
    question.restype = ctypes.c_int64
    question.argtypes = [tensors, ctypes.c_int32, tensors, ctypes.c_int32, ctypes.c_int32]
    return _Entry(name, run, question)


def _operation(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _argument(item: Mapping[str, Any], values: Mapping[str, Any], axes: Mapping[str, int]) -> Any:
    match item["kind"]:
        case "value":
            return values[item["name"]]
        case "dim":
            return evaluate_dim(item["expression"], axes)
        case "list":
            return [_argument(part, values, axes) for part in item["items"]]
    return _literal(item["value"])


_TYPED = (torch.dtype, torch.memory_format, torch.layout)


def _literal(value: Any) -> Any:
    """Strings that name a torch type, layout or memory format stand for it."""
    if isinstance(value, str):
        named = getattr(torch, value.removeprefix("torch."), None)
        if isinstance(named, _TYPED):
            return named
    return value


def _used(item: Mapping[str, Any]) -> set[str]:
    if item["kind"] == "list":
        return {name for part in item["items"] for name in _used(part)}
    return {item["name"]} if item["kind"] == "value" else set()


def _last_use(steps: Sequence[Mapping[str, Any]], keep: set[str]) -> list[list[str]]:
    """For each step, the values made by steps that nothing needs afterwards: their memory serves the next one."""
    uses: list[set[str]] = []
    for step in steps:
        if step["kind"] == "kernel":
            uses.append({*step["inputs"], *step["outputs"]})
        else:
            items = [*step["args"], *(step.get("kwargs") or {}).values()]
            uses.append({*step["outputs"], *(name for item in items for name in _used(item))})
    made = {name for step in steps for name in step["outputs"]} - keep
    last = {name: index for index, used in enumerate(uses) for name in used & made}
    return [[name for name, at in last.items() if at == index] for index in range(len(steps))]
