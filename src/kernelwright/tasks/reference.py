"""`Reference`: the user's operation as a function of the kernel's input tensors, in any floating precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.core.dimensions import axis_names, evaluate_shape
from kernelwright.core.errors import TaskError
from kernelwright.tasks.arrays import dtype_of, from_torch, to_torch
from kernelwright.tasks.inputs import draw_declared
from kernelwright.tasks.model import Argument, ScalarSpec, Task, TensorSpec
from kernelwright.tasks.programs import Program, open_program

if TYPE_CHECKING:
    import torch
    from torch import nn

Shape = tuple[int, ...]


class Reference:
    """Calls the user's code. Everything runs on the CPU, without gradients, modules in evaluation mode.

    "Kernel inputs" are the tensors in the order of `Task.kernel_inputs`: tensor arguments, then state.
    """

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Argument],
        state: Sequence[TensorSpec],
        default_axes: Mapping[str, int],
    ) -> None:
        self.program = program
        self.module = program.module
        self.arguments = tuple(arguments)
        self.state = tuple(state)
        self.default_axes = dict(default_axes)
        self.lengths: dict[tuple[Shape, ...], float] = {}
        """Measured lengths of reductions by input shapes, kept by the oracle."""
        self._writes_to_inputs: bool | None = None
        self._double: nn.Module | None = None
        self._own_nan: bool | None = None

    @property
    def tensor_arguments(self) -> tuple[TensorSpec, ...]:
        """The arguments that are tensors."""
        return tuple(a for a in self.arguments if isinstance(a, TensorSpec))

    @property
    def kernel_inputs(self) -> tuple[TensorSpec, ...]:
        """As `Task.kernel_inputs`."""
        return self.tensor_arguments + self.state

    def positional(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Arguments of the raw call: the tensor arguments among `tensors` with the scalars in their places."""
        left = iter(tensors)
        return [a.value if isinstance(a, ScalarSpec) else next(left) for a in self.arguments]

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs for kernel inputs; inputs keep their values even where the user's code writes to them."""
        return as_outputs(self.raw_call(tensors))

    def call_in_double(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """As `call`, for tensors whose floating ones are float64; tensors that the module merely holds are widened too."""
        import torch

        if self.module is not None and self._double is None:
            self._double = _widened(self.module)
        with torch.no_grad():
            return as_outputs(self._invoke(self._double, [t.clone() if self._writes_to_inputs else t for t in tensors]))

    def raw_call(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What the user's code returns, untouched."""
        import torch

        ready = list(tensors) if self._writes_to_inputs is False else [t.clone() for t in tensors]
        with torch.no_grad():
            before = [t._version for t in ready]
            result = self._invoke(self.module, ready)
        if self._writes_to_inputs is None and not _is_fake(tensors):
            self._writes_to_inputs = before != [t._version for t in ready]
        return result

    @property
    def writes_to_inputs(self) -> bool:
        """Whether the user's code was seen to modify its inputs in place."""
        return bool(self._writes_to_inputs)

    def _invoke(self, module: nn.Module | None, tensors: Sequence[torch.Tensor]) -> Any:
        import torch

        count = len(self.tensor_arguments)
        arguments = self.positional(tensors[:count])
        if module is None:
            return self.program.callable(*arguments)
        state = dict(zip((s.name for s in self.state), tensors[count:], strict=True))
        return torch.func.functional_call(module, state, tuple(arguments))

    def own_gives_nan(self) -> bool:
        """Whether the task's own inputs already lead to NaN (fully masked rows, say). Asked once."""
        if self._own_nan is None:
            try:
                outputs = self.call(self.own_inputs(self.default_axes))
                self._own_nan = any(bool(t.isnan().any()) for t in outputs if t.is_floating_point())
            except Exception:  # noqa: BLE001 - user code may raise anything
                self._own_nan = False
        return self._own_nan

    def as_module(self) -> nn.Module:
        """A module whose `forward` takes the kernel inputs and returns what the user's code returns."""
        import torch

        reference = self

        class KernelInputs(torch.nn.Module):  # type: ignore[misc]
            def forward(self, *tensors: torch.Tensor) -> Any:
                return reference._invoke(reference.module, tensors)

        return KernelInputs().eval()

    def eager_callable(self, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """The natural way to call it: the module holding the given state (or the function), called with tensor arguments."""
        import torch

        if self.module is None:
            function: Callable[..., Any] = self.program.callable
        else:
            module = copy.deepcopy(self.module)
            targets = dict(module.named_parameters()) | dict(module.named_buffers())
            with torch.no_grad():
                for spec, value in zip(self.state, tensors[len(self.tensor_arguments) :], strict=True):
                    targets[spec.name].copy_(value)
            function = module
        if all(isinstance(a, TensorSpec) for a in self.arguments):
            return function
        return lambda *given: function(*self.positional(given))

    def own_inputs(self, axes: Mapping[str, int], *, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """The task's own inputs under a binding of the axes, contiguous, in the order of the kernel inputs.

        A generator's tensors are cropped, or repeated cyclically, to sizes that it does not make itself; integers that
        could index an axis which became shorter are folded into it.
        """
        if self.program.generator is None:
            return (*self._declared_inputs(dict(axes), seed), *self.state_tensors())
        shapes = [evaluate_shape(a.dims, axes) for a in self.tensor_arguments]
        changed = [(self.default_axes[n], size) for n, size in axes.items() if self.default_axes.get(n, size) != size]
        return (*self.generated(shapes, changed, seed=seed), *self.state_tensors())

    def generated(
        self, shapes: Sequence[Shape], changed: Sequence[tuple[int, int]], *, seed: int = 0
    ) -> tuple[torch.Tensor, ...]:
        """The generator's tensors brought to `shapes`; `changed` lists (old size, new size) of what varies."""
        made = self.program.generate(seed)
        tensors = [v for v, a in zip(made, self.arguments, strict=True) if isinstance(a, TensorSpec)]
        return tuple(resized(t, shape, changed) for t, shape in zip(tensors, shapes, strict=True))

    def state_tensors(self) -> tuple[torch.Tensor, ...]:
        """The module's parameters and buffers, in the order of the task's state."""
        if self.module is None:
            return ()
        held = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        return tuple(held[s.name].detach().contiguous() for s in self.state)

    def _declared_inputs(self, axes: dict[str, int], seed: int) -> tuple[torch.Tensor, ...]:
        specs = self.tensor_arguments
        shapes = [s.shape({**self.default_axes, **axes}) for s in specs]
        sizes = [size for s, shape in zip(specs, shapes, strict=True) for size in shape if s.dtype.is_floating]
        generator = np.random.default_rng(seed)
        limit = min((size for size in sizes if size > 1), default=8)
        drawn = [draw_declared(s, shape, axes, generator, limit) for s, shape in zip(specs, shapes, strict=True)]
        return tuple(to_torch(a, s.dtype) for a, s in zip(drawn, specs, strict=True))


def instantiate(task: Task) -> Reference:
    """Load a task's reference again, from the text that the task keeps.

    Raises:
        TaskError: as `describe` does.
    """
    declared = {a.name for a in task.axes if a.origin == "declared"}
    bindings = [w.axes for w in task.timed_workloads] if declared else []
    program = open_program("", (), bindings, source=task.source)
    return Reference(program, task.arguments, task.state, {a.name: a.default for a in task.axes})


def concrete_arguments(program: Program, values: Sequence[Any]) -> tuple[Argument, ...]:
    """Specifications of generated arguments, with the sizes they have.

    Raises:
        TaskError: an argument is neither a dense real tensor nor a plain scalar.
    """
    import torch

    from kernelwright.tasks.programs import parameter_names

    found: list[Argument] = []
    for name, value in zip(parameter_names(program.callable, len(values)), values, strict=False):
        if isinstance(value, torch.Tensor):
            found.append(tensor_spec_of(name, value))
        elif value is None or isinstance(value, bool | int | float | str):
            found.append(ScalarSpec(name=name, value=value))
        else:
            raise TaskError(
                "unsupported_input",
                f"the argument `{name}` is a {type(value).__name__}; kernels take tensors and plain numbers",
                hint="give tensors as arguments of their own, and keep other settings in get_init_inputs()",
            )
    return tuple(found)


def tensor_spec_of(name: str, tensor: torch.Tensor, role: Any = "input") -> TensorSpec:
    """Specification of a tensor with the sizes it has.

    Raises:
        TaskError: sparse, quantized, complex, or on a GPU.
    """
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise TaskError("unsupported_input", f"`{name}` is not a dense tensor ({tensor.layout})")
    if tensor.device.type != "cpu":
        raise TaskError("needs_gpu", f"`{name}` lives on {tensor.device}", hint="make the inputs on the CPU")
    dims = tuple(int(s) for s in tensor.shape)
    return TensorSpec(name=name, dtype=dtype_of(tensor, name), dims=dims, role=role)


def as_outputs(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that a reference returned.

    Raises:
        TaskError: it returned something else (`unsupported_output`).
    """
    import torch

    if isinstance(result, torch.Tensor):
        return (result,)
    if isinstance(result, list | tuple) and result and all(isinstance(r, torch.Tensor) for r in result):
        return tuple(result)
    what = f"a {type(result).__name__}"
    if isinstance(result, list | tuple):
        what += f" of {', '.join(type(r).__name__ for r in result) or 'nothing'}"
    raise TaskError(
        "unsupported_output",
        f"the reference returned {what}",
        hint="return one tensor, or a tuple of tensors",
    )


def resized(tensor: torch.Tensor, shape: Shape, changed: Sequence[tuple[int, int]]) -> torch.Tensor:
    """`tensor` cropped, or repeated cyclically, to `shape`; indices stay legal for axes that became shorter."""
    array = from_torch(tensor)
    dtype = dtype_of(tensor, "input")
    for dim, size in enumerate(shape):
        if array.shape[dim] != size:
            array = np.take(array, np.arange(size) % array.shape[dim], axis=dim)
    if array.dtype.kind in "iu" and not dtype.is_floating and array.size:
        top = int(from_torch(tensor).max())
        for old, new in changed:
            if new < old and top < old:
                array = np.where(array >= 0, array % new, array).astype(array.dtype)
            elif new < old and top == old:
                array = np.minimum(array, new).astype(array.dtype)
    return to_torch(array, dtype)


def varies(spec: TensorSpec) -> bool:
    """Whether the shape of a tensor depends on an axis."""
    return any(axis_names(dim) for dim in spec.dims)


def _widened(module: nn.Module) -> nn.Module:
    import torch

    wide = copy.deepcopy(module).double()
    for part in wide.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(part, name, value.double())
    return wide


def _is_fake(tensors: Sequence[torch.Tensor]) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return any(isinstance(t, FakeTensor) for t in tensors)
