"""From what the user named to a `Task`, and back from a task to its reference. Runs user code: only inside the sandbox."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.core.dimensions import Dim, evaluate_shape
from kernelwright.core.errors import TaskError
from kernelwright.tasks import audit
from kernelwright.tasks.arrays import from_torch
from kernelwright.tasks.axes import ShapeProbe, confirmed, declared_axes, derive_axes, refuse_if_too_large
from kernelwright.tasks.declaration import axes_of, workload_binding
from kernelwright.tasks.failures import task_error
from kernelwright.tasks.hidden import verification_workloads
from kernelwright.tasks.inputs import structure_of
from kernelwright.tasks.model import Argument, Axis, Task, TensorSpec, Tolerance, Workload
from kernelwright.tasks.output_dims import fit_output_dims
from kernelwright.tasks.programs import Program, open_program
from kernelwright.tasks.reference import Reference, Shape, as_outputs, concrete_arguments, instantiate, tensor_spec_of
from kernelwright.tasks.request import TaskRequest

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Reference", "describe", "instantiate"]

_PROBE_SECONDS = 8.0
_UNUSED_STATE = ("num_batches_tracked",)
"""Buffers that evaluation mode never reads."""


def describe(request: TaskRequest) -> Task:
    """Read a task: load the file, run the reference, find its axes, audit it.

    Raises:
        TaskError: the file, its declaration or the reference is unusable; `.reason` says in a word, why.
    """
    bindings = [workload_binding(words) for words in request.workloads]
    program = open_program(request.target, request.inputs, bindings)
    reading = _Reading(program, bindings)
    task = reading.task()
    return task.replace(notes=(*task.notes, *audit.findings(task, reading.final_reference(task))))


class _Reading:
    """One pass over a program; what was learnt is kept for the next step."""

    def __init__(self, program: Program, bindings: Sequence[Mapping[str, int]]) -> None:
        self.program = program
        self.notes: list[str] = []
        self.state = _state_specs(program.module)
        declaration = program.declaration
        self.bindings = [dict(b) for b in bindings] or [dict(b) for b in (declaration.workloads if declaration else ())]
        if declaration is not None:
            for binding in self.bindings or [{}]:
                refuse_if_too_large(declaration.tensors.values(), binding)
            arguments = program.arguments
        else:
            arguments = concrete_arguments(program, program.generate(0))
        self.default = self.bindings[0] if self.bindings else {}
        self.reference = Reference(program, arguments, self.state, self.default)
        if not self.reference.kernel_inputs:
            raise TaskError(
                "input_independent",
                f"{self._path}: the reference takes no tensor",
                hint="return its input tensors from get_inputs(), or declare them",
            )
        self.own, self.outputs, self.returns_tuple, self.seconds = self._first_run()

    @property
    def _path(self) -> str:
        return self.program.source.path

    def _first_run(self) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], bool, float]:
        import torch

        try:
            own = self.reference.own_inputs(self.default)
            first = as_outputs(self.reference.raw_call(own))
            start = time.perf_counter()
            result = self.reference.raw_call(own)
            seconds = time.perf_counter() - start
            shapes, again = [tuple(t.shape) for t in first], [tuple(t.shape) for t in as_outputs(result)]
        except (Exception, SystemExit) as error:
            raise task_error(
                error, path=self._path, doing="running the reference on its own inputs", otherwise="reference_raises"
            ) from error
        if shapes != again:
            raise TaskError(
                "unstable_shapes",
                f"{self._path}: the reference returns other shapes on each call with the same inputs: {shapes}, then {again}",
                hint="a reference keeps no state between calls",
            )
        return own, as_outputs(result), not isinstance(result, torch.Tensor), seconds

    def task(self) -> Task:
        """The task, not audited yet."""
        arguments, axes, dims = self._axes()
        names = _output_names(len(self.outputs), [a.name for a in (*arguments, *self.state)])
        outputs = tuple(
            tensor_spec_of(name, tensor, "output").replace(dims=d)
            for name, tensor, d in zip(names, self.outputs, dims, strict=True)
        )
        self._check_outputs(outputs)
        arguments, state = self._with_structure(arguments), self.state
        declaration = self.program.declaration
        if self.reference.writes_to_inputs:
            self.notes.append("the reference writes to its inputs; only what it returns is judged")
        self._note_layouts()
        self._note_mode()
        task = Task(
            name=_task_name(self.program),
            source=self.program.source,
            arguments=arguments,
            state=state,
            outputs=outputs,
            returns_tuple=self.returns_tuple,
            axes=axes,
            workloads=self._timed(axes),
            tolerance=declaration.tolerance if declaration else Tolerance(),
            special_values=declaration.special_values if declaration else False,
            allowed_library=declaration.allowed_library if declaration else (),
            notes=tuple(self.notes),
        )
        return task.replace(workloads=(*task.workloads, *self._verified(task)), notes=tuple(self.notes))

    def final_reference(self, task: Task) -> Reference:
        """The reference under the task's final arguments and axes."""
        return Reference(self.program, task.arguments, task.state, {a.name: a.default for a in task.axes})

    def _axes(self) -> tuple[tuple[Argument, ...], tuple[Axis, ...], tuple[tuple[Dim, ...], ...]]:
        probe = ShapeProbe(self.reference, self.own, seconds=_PROBE_SECONDS, real_call_seconds=self.seconds)
        concrete = tuple(tuple(int(s) for s in t.shape) for t in self.outputs)
        declared = axes_of(self.reference.tensor_arguments)
        if declared:
            specs = self.reference.tensor_arguments
            axes = declared_axes(specs, declared, self.bindings, probe)
            arguments = self.reference.arguments
        else:
            arguments, axes = derive_axes(self.reference, probe)
        arguments, axes = self._confirmed(arguments, axes, probe)
        probe.grant(_PROBE_SECONDS)
        while axes:
            dims = fit_output_dims(axes, self._output_run(arguments, axes, probe))
            if dims is not None:
                self._say_fixed(axes, probe)
                return arguments, axes, dims
            if declared:
                raise TaskError(
                    "unsupported_output",
                    f"{self._path}: the output's shape {concrete} is no expression over the axes, or depends on the data",
                    hint="declare fixed sizes, or return outputs whose shape follows from the inputs' shapes",
                )
            arguments, axes = _without(arguments, axes[-1]), axes[:-1]
        self._say_fixed(axes, probe)
        return arguments, axes, concrete

    def _confirmed(
        self, arguments: tuple[Argument, ...], axes: tuple[Axis, ...], probe: ShapeProbe
    ) -> tuple[tuple[Argument, ...], tuple[Axis, ...]]:
        """The axes after real runs at their bounds."""
        if not probe.on_shapes_alone:
            return arguments, axes
        default = {a.name: a.default for a in axes}
        kept: list[Axis] = []
        for axis in axes:

            def works(size: int, axis: Axis = axis, arguments: tuple[Argument, ...] = arguments) -> bool:
                specs = [a for a in arguments if isinstance(a, TensorSpec)]
                shapes = [evaluate_shape(s.dims, {**default, axis.name: size}) for s in specs]
                return probe.really_at(shapes, [(axis.default, size)])

            narrowed = confirmed(axis, works) if axis.varies else axis
            if narrowed is not None:
                kept.append(narrowed)
            elif axis.origin == "declared":
                kept.append(axis.replace(varies=False, minimum=axis.default, maximum=axis.default))
            else:
                arguments = _without(arguments, axis)
        return arguments, tuple(kept)

    def _output_run(self, arguments: Sequence[Argument], axes: Sequence[Axis], probe: ShapeProbe) -> Any:
        specs = [a for a in arguments if isinstance(a, TensorSpec)]
        default = {a.name: a.default for a in axes}

        def run(binding: Mapping[str, int]) -> tuple[Shape, ...] | None:
            changed = [(default[n], size) for n, size in binding.items() if default[n] != size]
            if not changed:
                return tuple(tuple(int(s) for s in t.shape) for t in self.outputs)
            return probe.at([evaluate_shape(s.dims, binding) for s in specs], changed)

        return run

    def _say_fixed(self, axes: Sequence[Axis], probe: ShapeProbe) -> None:
        if probe.exhausted:
            self.notes.append("the reference is slow and cannot run on shapes alone: not every axis was tried")
        fixed = [a.name for a in axes if not a.varies]
        if not axes:
            self.notes.append("no size of the inputs can vary: the result is verified at the task's own shape only")
        elif fixed:
            self.notes.append(f"the reference works at no other size of {', '.join(fixed)}")

    def _check_outputs(self, outputs: Sequence[TensorSpec]) -> None:
        """Outputs must have the declared shape for other values too, and be of known element types."""
        again = self.reference.own_inputs(self.default, seed=1)
        try:
            shapes = [tuple(t.shape) for t in self.reference.call(again)]
        except (Exception, SystemExit) as error:
            raise task_error(
                error, path=self._path, doing="running it a second time", otherwise="reference_raises"
            ) from error
        first = [tuple(t.shape) for t in self.outputs]
        if shapes != first:
            raise TaskError(
                "unsupported_output",
                f"{self._path}: the output's shape depends on the data: {first}, then {shapes} for other values",
                hint="kernels need output shapes that follow from input shapes",
            )

    def _with_structure(self, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        left = iter(self.own)
        found: list[Argument] = []
        for argument in arguments:
            if not isinstance(argument, TensorSpec):
                found.append(argument)
                continue
            structure = structure_of(from_torch(next(left)), argument.dtype)
            if structure != "general":
                self.notes.append(
                    f"`{argument.name}` is {structure.replace('_', ' ')} in the task's own inputs; kept so"
                )
            found.append(argument.replace(structure=structure))
        return tuple(found)

    def _note_layouts(self) -> None:
        if self.program.generator is None:
            return
        import torch

        made = [v for v in self.program.generate(0) if isinstance(v, torch.Tensor)]
        for spec, value in zip(self.reference.tensor_arguments, made, strict=False):
            if not value.is_contiguous():
                self.notes.append(f"`{spec.name}` is not contiguous in get_inputs(); kernels receive it contiguous")

    def _note_mode(self) -> None:
        from torch import nn

        parts = self.program.module.modules() if self.program.module else ()
        norms = nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd
        if any(isinstance(part, norms) for part in parts):
            self.notes.append("judged in evaluation mode: dropout does nothing, batch norm uses its running statistics")

    def _timed(self, axes: Sequence[Axis]) -> tuple[Workload, ...]:
        if not any(self.bindings):
            return (Workload(name="default", axes={a.name: a.default for a in axes}, timed=True),)
        names = ["_".join(f"{k}{v}" for k, v in b.items()) for b in self.bindings]
        unique = dict(zip(names, self.bindings, strict=True))
        return tuple(Workload(name=n or "default", axes=b, timed=True) for n, b in unique.items())

    def _verified(self, task: Task) -> tuple[Workload, ...]:
        """Smaller workloads at which the reference really runs."""
        reference = self.final_reference(task)
        timed = [w.axes for w in task.workloads]
        kept = []
        for workload in verification_workloads(task.axes, (*task.kernel_inputs, *task.outputs)):
            if workload.axes in timed:
                continue
            reason = _fails_at(reference, task, workload)
            if reason:
                self.notes.append(f"not verified at {workload.axes}: {reason}")
            else:
                kept.append(workload)
        return tuple(kept)


def _fails_at(reference: Reference, task: Task, workload: Workload) -> str:
    try:
        shapes = [tuple(t.shape) for t in reference.call(reference.own_inputs(workload.axes))]
    except Exception as error:  # noqa: BLE001 - user code may raise anything at a size that is not for it
        return f"{type(error).__name__}: {str(error)[:200]}"
    expected = [spec.shape(workload.axes) for spec in task.outputs]
    return "" if shapes == expected else f"output shapes {shapes} instead of {expected}"


def _state_specs(module: nn.Module | None) -> tuple[TensorSpec, ...]:
    if module is None:
        return ()
    found = []
    for role, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            if name.rpartition(".")[2] in _UNUSED_STATE:
                continue
            try:
                found.append(tensor_spec_of(name, tensor, role))
            except TaskError as error:
                if error.reason != "unsupported_dtype" or role == "parameter":
                    raise
    return tuple(found)


def _without(arguments: Sequence[Argument], axis: Axis) -> tuple[Argument, ...]:
    return tuple(
        a.replace(dims=tuple(axis.default if d == axis.name else d for d in a.dims)) if isinstance(a, TensorSpec) else a
        for a in arguments
    )


def _output_names(count: int, taken: Sequence[str]) -> list[str]:
    names = ["out"] if count == 1 else [f"out{i}" for i in range(count)]
    while set(names) & set(taken):
        names = [f"{name}_" for name in names]
    return names


def _task_name(program: Program) -> str:
    attribute, stem = program.source.attribute, Path(program.source.path).stem
    generic = attribute in {"Model", "model", "reference", "forward", "fn"}
    return f"{stem}" if generic else attribute.rpartition(".")[2]
