"""The reference as core ATen operations: torch.export with the task's axes as dynamic dimensions."""

from __future__ import annotations

import base64
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelwright.core.dimensions import Dim, axis_names, evaluate_dim
from kernelwright.core.dtypes import DType
from kernelwright.core.errors import TaskError
from kernelwright.core.text import trimmed
from kernelwright.tasks.arrays import dtype_of, from_torch
from kernelwright.tasks.expressions import NotExpressible, dim_expression
from kernelwright.tasks.graph import Arg, Constant, DimRef, Graph, ListArg, LiteralArg, Node, ValueRef, ValueSpec
from kernelwright.tasks.model import Axis, Task
from kernelwright.tasks.reference import Reference

if TYPE_CHECKING:
    import torch

_LARGEST_CONSTANT = 1 << 20
"""Bytes."""
KEPT_WHOLE = frozenset(
    {
        "_softmax.default",
        "_log_softmax.default",
        "native_layer_norm.default",
        "native_group_norm.default",
        "scaled_dot_product_attention.default",
        "nll_loss_forward.default",
        "mse_loss.default",
        "gelu.default",
        "softplus.default",
        "leaky_relu.default",
        "cumsum.default",
        "cumprod.default",
    }
)
"""ATen overloads that are not decomposed further: kernels are written for them as they are."""


class Untraceable(Exception):
    """Why a reference cannot become a `Graph`."""


def trace(task: Task, reference: Reference) -> Graph | str:
    """The reference as a graph over the task's axes, or the reason why not.

    Axes at which the trace had to be specialised are fixed at their default size and listed in `static_axes`. Inputs
    that the user's code writes to are handled as if it had worked on copies.
    """
    free = [a for a in task.axes if a.varies]
    fixed = [a for a in task.axes if not a.varies]
    reason = "it cannot be exported"
    while True:
        try:
            return _trace_with(task, reference, free, fixed)
        except _Specialised as error:
            names = error.names & {a.name for a in free} or {a.name for a in free}
            reason = f"its sizes {', '.join(sorted(names))} are fixed in the trace"
        except Untraceable as error:
            names, reason = {a.name for a in free}, str(error)
        except Exception as error:  # noqa: BLE001 - export raises whatever user code or its own passes raise
            names = {a.name for a in free}
            reason = trimmed(f"torch.export: {type(error).__name__}: {error}", limit=600)
        if not free:
            return reason
        fixed += [a for a in free if a.name in names]
        free = [a for a in free if a.name not in names]


class _Specialised(Exception):
    def __init__(self, names: set[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


def _trace_with(task: Task, reference: Reference, free: Sequence[Axis], fixed: Sequence[Axis]) -> Graph:
    import torch

    binding = {**{a.name: a.default for a in fixed}, **_distinct(free)}
    tensors = _examples(task, reference, binding)
    dynamic = torch.export.Dim.AUTO
    names = {a.name for a in free}
    shapes = tuple(
        {i: dynamic for i, dim in enumerate(spec.dims) if axis_names(dim) & names} for spec in task.kernel_inputs
    )
    with _quiet(), torch.no_grad():
        exported = torch.export.export(reference.as_module(), tensors, dynamic_shapes=(shapes,), strict=False)
        program = exported.run_decompositions(_decompositions())
    return _Conversion(task, program, binding, names).graph([a.name for a in fixed])


def _distinct(free: Sequence[Axis]) -> dict[str, int]:
    """Sizes that differ from each other and from 1, so that no two axes are taken for one."""
    sizes: dict[str, int] = {}
    for axis in free:
        size = max(axis.default, axis.multiple * 2)
        while size in sizes.values():
            size += axis.multiple
        if axis.maximum is not None and size > axis.maximum:
            size = axis.default
        sizes[axis.name] = size
    return sizes


def _examples(task: Task, reference: Reference, binding: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    return tuple(t.clone() for t in reference.own_inputs(binding))


def _decompositions() -> Any:
    import torch

    table = torch.export.default_decompositions()
    for overload in list(table):
        if getattr(overload, "namespace", "") == "aten" and str(overload).removeprefix("aten.") in KEPT_WHOLE:
            table.pop(overload)
    return table


@contextmanager
def _quiet() -> Iterator[None]:
    root = logging.getLogger("torch")
    before = root.level
    root.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(before)


class _Conversion:
    """One exported program on its way to a `Graph`."""

    def __init__(self, task: Task, program: Any, binding: Mapping[str, int], free: set[str]) -> None:
        self._task, self._program, self._binding, self._free = task, program, binding, free
        self._symbols: dict[Any, str] = {}
        self._names: dict[str, str] = {}
        self._several: dict[str, tuple[str, ...]] = {}
        self._taken = {spec.name for spec in task.kernel_inputs}
        self._constants: list[Constant] = []

    def graph(self, static_axes: Sequence[str]) -> Graph:
        """The graph; raises `_Specialised` where sizes of free axes turned out fixed."""
        nodes: list[Node] = []
        placeholders = [n for n in self._program.graph.nodes if n.op == "placeholder"]
        self._bind_inputs(placeholders)
        for node in self._program.graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                self._names[node.name] = self._several[node.args[0].name][node.args[1]]
            elif node.op == "call_function" and not self._is_scalar(node):
                nodes.append(self._node(node))
            elif node.op == "get_attr":
                raise Untraceable(f"it holds a nested graph ({node.target})")
        inputs = tuple(
            ValueSpec(name=s.name, dtype=s.dtype, dims=self._with_fixed(s.dims)) for s in self._task.kernel_inputs
        )
        return Graph(
            inputs=inputs,
            constants=tuple(self._constants),
            nodes=tuple(nodes),
            outputs=self._outputs(),
            static_axes=tuple(static_axes),
        )

    def _with_fixed(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(d if axis_names(d) <= self._free else evaluate_dim(d, self._binding) for d in dims)

    def _bind_inputs(self, placeholders: Sequence[Any]) -> None:
        kinds = {spec.arg.name: spec for spec in self._program.graph_signature.input_specs}
        specs = iter(self._task.kernel_inputs)
        for node in placeholders:
            kind = kinds[node.name].kind.name
            if kind == "USER_INPUT":
                spec = next(specs)
                self._names[node.name] = spec.name
                self._bind_symbols(node.meta["val"], spec.dims)
            elif kind in {"CONSTANT_TENSOR", "BUFFER", "PARAMETER"}:
                self._add_constant(node, kinds[node.name].target)
            else:
                raise Untraceable(f"it takes an input of kind {kind.lower()}")

    def _bind_symbols(self, value: Any, dims: Sequence[Dim]) -> None:
        """Learn which symbol stands for which axis; a size that is fixed, or tied to another one, is no free axis."""
        for size, dim in zip(value.shape, dims, strict=True):
            names = set(axis_names(dim))
            if not names & self._free:
                continue
            expression = None if isinstance(size, int) else size.node.expr
            if expression is None or expression.is_number:
                raise _Specialised(names)
            word = str(dim) if str(dim).isidentifier() else f"({dim})"
            if expression.is_Symbol and expression not in self._symbols:
                self._symbols[expression] = word
            elif not self._same(expression, dim):
                raise _Specialised(names)

    def _same(self, expression: Any, dim: Dim) -> bool:
        try:
            ours = dim_expression(expression, self._symbols)
        except NotExpressible:
            return False
        others = [{n: size + k * (i + 1) for i, (n, size) in enumerate(self._binding.items())} for k in (0, 2, 5)]
        return all(evaluate_dim(ours, b) == evaluate_dim(dim, b) for b in others)

    def _add_constant(self, node: Any, target: str) -> None:
        held = {**self._program.state_dict, **self._program.constants}
        tensor = held[target].detach().cpu().contiguous()
        size = tensor.numel() * tensor.element_size()
        if size > _LARGEST_CONSTANT:
            raise Untraceable(f"it holds a constant tensor of {size} bytes; at most {_LARGEST_CONSTANT} are carried")
        name = self._fresh(node.name)
        self._names[node.name] = name
        spec = ValueSpec(name=name, dtype=_dtype(tensor, name), dims=tuple(int(s) for s in tensor.shape))
        data = base64.b64encode(from_torch(tensor).tobytes()).decode("ascii")
        self._constants.append(Constant(spec=spec, data_base64=data))

    def _fresh(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _is_scalar(self, node: Any) -> bool:
        import torch

        value = node.meta.get("val")
        return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool) or value is None

    def _node(self, node: Any) -> Node:
        value = node.meta["val"]
        if isinstance(value, list | tuple):
            names = tuple(self._fresh(f"{node.name}_{i}") for i in range(len(value)))
            self._several[node.name] = names
            used = {n.args[1] for n in node.users if n.target is operator.getitem}
            outputs = tuple(self._result(n, v, i in used) for i, (n, v) in enumerate(zip(names, value, strict=True)))
        else:
            name = self._fresh(node.name)
            self._names[node.name] = name
            outputs = (self._result(name, value, True),)
        return Node(
            op=str(node.target),
            args=tuple(self._arg(a) for a in node.args),
            kwargs={k: self._arg(a) for k, a in node.kwargs.items()},
            outputs=outputs,
        )

    def _result(self, name: str, value: Any, used: bool) -> ValueSpec:
        if not used and (value is None or str(getattr(value, "dtype", "")).removeprefix("torch.") not in set(DType)):
            return ValueSpec(name=name, dtype=DType.UINT8, dims=(0,))
        return ValueSpec(name=name, dtype=_dtype(value, name), dims=tuple(self._dim(s) for s in value.shape))

    def _dim(self, size: Any) -> Dim:
        if isinstance(size, int):
            return size
        try:
            return dim_expression(size.node.expr, self._symbols)
        except NotExpressible as error:
            raise Untraceable(f"a size depends on the data: {error}") from error

    def _arg(self, arg: Any) -> Arg:
        import torch

        match arg:
            case torch.fx.Node():
                return self._reference_to(arg)
            case list() | tuple() | torch.Size():
                return ListArg(items=tuple(self._arg(a) for a in arg))
            case torch.dtype() | torch.layout() | torch.memory_format():
                return LiteralArg(value=str(arg).removeprefix("torch."))
            case torch.device():
                return LiteralArg(value=str(arg))
            case None | bool() | int() | float() | str():
                return LiteralArg(value=arg)
        raise Untraceable(f"an argument of type {type(arg).__name__}")

    def _reference_to(self, node: Any) -> Arg:
        import torch

        value = node.meta.get("val")
        match value:
            case bool() | int() | float():
                return LiteralArg(value=value)
            case torch.SymInt():
                return DimRef(expression=self._dim(value))
            case torch.SymFloat() | torch.SymBool():
                raise Untraceable(f"it computes with sizes as real numbers ({value})")
        if node.name not in self._names:
            raise Untraceable(f"it uses a tuple as a whole ({node.name})")
        return ValueRef(name=self._names[node.name])

    def _outputs(self) -> tuple[str, ...]:
        names = []
        for spec in self._program.graph_signature.output_specs:
            if spec.kind.name == "USER_OUTPUT":
                name = getattr(spec.arg, "name", None)
                if name not in self._names:
                    raise Untraceable("it returns something else than tensors")
                names.append(self._names[name])
        if len(names) != len(self._task.outputs):
            raise Untraceable(f"the trace returns {len(names)} tensors instead of {len(self._task.outputs)}")
        return tuple(names)


def _dtype(value: Any, name: str) -> DType:
    try:
        return dtype_of(value, name)
    except TaskError as error:
        raise Untraceable(f"a value inside has a type that kernels here do not know: {error.message}") from error
