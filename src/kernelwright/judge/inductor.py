"""What torch.compile generates on a CPU, lifted into candidates of their own.

Runs in a sandboxed child that has torch: `lift` calls the reference, which is the user's code.
"""

from __future__ import annotations

import base64
import re
import types
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Protocol

from kernelwright.judge.inductor_source import (
    NotLiftable,
    StateTensor,
    Surroundings,
    Variant,
    take_apart,
    with_shared_constants,
    write_module,
)
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.tasks.model import TensorSpec

LARGEST_CONSTANT_BYTES = 1 << 20
"""Tensors that the reference keeps outside its parameters and buffers are written into the text up to this size."""

_ARGUMENT = re.compile(r"^L\['tensors'\]\[(\d+)\]$")
_SIZE = re.compile(r"^L\['tensors'\]\[(\d+)\]\.size\(\)\[(\d+)\]$")


class HasState(Protocol):
    """The part of `Task` that is read."""

    @property
    def state(self) -> tuple[TensorSpec, ...]:
        """Parameters and buffers, the last ones among the kernel inputs."""
        ...


class LiftableReference(Protocol):
    """A reference beside its task."""

    @property
    def task(self) -> HasState: ...

    def as_module(self) -> Any:
        """A callable of the kernel inputs (arguments' tensors, then state)."""
        ...


@dataclass
class _Capture:
    """What one compilation left behind."""

    sources: list[str] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    shape_env: Any = None
    returned: Any = None


@dataclass(frozen=True)
class _Lifted:
    """One call sequence, the constants that it names, and what its compilation returned."""

    variant: Variant
    constants: dict[str, str]
    outputs: tuple[Any, ...]
    returns_tuple: bool


def lift(
    reference: LiftableReference, workloads: Sequence[Sequence[Any]], *, tune: bool = True
) -> list[Candidate] | str:
    """Candidates out of Inductor's output for the timed workloads, or the reason why there are none.

    Args:
        reference: The instantiated reference.
        workloads: For each timed workload its kernel inputs (CPU tensors, arguments first, then state).
        tune: Whether to try max-autotune too, which may take tens of seconds for matrix products.

    Returns:
        At most three `python` candidates: the default mode (a call sequence for each workload, then one with symbolic
        sizes for all other shapes), the one with symbolic sizes alone, and max-autotune where its code differs.
        Each was run here on each workload and gave what the compiled reference gave.
    """
    try:
        default = [_lifted(reference, tensors, mode="default") for tensors in workloads]
    except NotLiftable as reason:
        return str(reason)
    expected = [item.outputs for item in default]
    symbolic: list[_Lifted] = []
    remark = ""
    try:
        symbolic = [_lifted(reference, workloads[0], mode="default", dynamic=True)]
        _candidate("symbolic", "", symbolic, state=reference.task.state, workloads=workloads[:1], expected=expected[:1])
    except NotLiftable as reason:
        symbolic, remark = [], f" Without symbolic sizes: {reason}."
    wanted = [("default", [*default, *symbolic], f"torch.compile's own code, static sizes first.{remark}")]
    if symbolic:
        wanted.append(("symbolic", symbolic, "torch.compile's own code with symbolic sizes."))
    try:
        tuned = [_lifted(reference, tensors, mode="max-autotune") for tensors in workloads] if tune else default
    except NotLiftable:
        tuned = default
    if [item.variant.generated for item in tuned] != [item.variant.generated for item in default]:
        wanted.append(("max-autotune", [*tuned, *symbolic], "torch.compile's own code, max-autotune."))
    candidates: list[Candidate] = []
    reasons: list[str] = []
    for kind, items, plan in wanted:
        try:
            candidates.append(
                _candidate(kind, plan, items, state=reference.task.state, workloads=workloads, expected=expected)
            )
        except NotLiftable as reason:
            reasons.append(str(reason))
    return candidates or reasons[0]


def _lifted(reference: LiftableReference, tensors: Sequence[Any], *, mode: str, dynamic: bool = False) -> _Lifted:
    capture = _compile(reference, tensors, mode=mode, dynamic=dynamic)
    if len(capture.sources) != 1:
        raise NotLiftable(f"torch.compile made {len(capture.sources)} graphs, one is needed")
    generated = take_apart(capture.sources[0])
    expressions: list[str] = []
    constants: dict[str, str] = {}
    for source, value in zip(capture.placeholders, capture.received, strict=True):
        if found := _ARGUMENT.match(source):
            expressions.append(f"tensors[{found[1]}]")
        elif found := _SIZE.match(source):
            expressions.append(f"tensors[{found[1]}].shape[{found[2]}]")
        else:
            expressions.append(_named_constant(source, value, constants))
    for name, value in capture.constants.items():
        constants[name] = _constant(name, value)
    shapes = ", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors)
    label = "any size (symbolic)" if dynamic else f"sizes {shapes}"
    conditions = _conditions(capture.shape_env, generated.symbols) if dynamic else ()
    several = isinstance(capture.returned, tuple | list)
    return _Lifted(
        variant=Variant(label, generated, tuple(expressions), conditions),
        constants=constants,
        outputs=tuple(capture.returned) if several else (capture.returned,),
        returns_tuple=several,
    )


def _compile(reference: LiftableReference, tensors: Sequence[Any], *, mode: str, dynamic: bool) -> _Capture:
    import torch
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config
    import torch.fx.experimental._config
    from torch._guards import TracingContext
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    capture = _Capture()
    module = reference.as_module()

    def entry(*tensors: Any) -> Any:
        return module(*tensors)

    def inner(graph: Any, examples: Any, **options: Any) -> Any:
        compiled = compile_fx_inner(graph, examples, **options)
        capture.sources.append(compiled.source_code)
        capture.constants.update(compiled.constants or {})
        if compiled.mutated_inputs:
            raise NotLiftable("the compiled code changes its inputs in place")
        return compiled

    def backend(graph: Any, examples: Any) -> Any:
        # A restarted analysis comes here again; only its last graph counts.
        capture.sources, capture.constants = [], {}
        capture.placeholders = [
            str(getattr(getattr(node, "_dynamo_source", None), "name", node.name))
            for node in graph.graph.find_nodes(op="placeholder")
        ]
        patches = {k: v for k, v in torch._inductor.list_mode_options(mode).items() if "cudagraphs" not in k}
        compiled = compile_fx(graph, examples, inner_compile=inner, config_patches=patches)
        fake_mode = TracingContext.get().fake_mode
        capture.shape_env = fake_mode.shape_env if fake_mode else None

        def run(*received: Any) -> Any:
            capture.received = list(received)
            return compiled(*received)

        return run

    # Compile workers would outlive this call as child processes, and a cache hit would not pass through `inner`.
    with (
        torch.no_grad(),
        torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False, fx_graph_remote_cache=False),
        torch._dynamo.config.patch(specialize_float=True),
        # Sizes that happen to be equal in these inputs may differ in others.
        torch.fx.experimental._config.patch(use_duck_shape=False),
        # Autotuning reports its choices on the standard streams.
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        torch._dynamo.reset()
        try:
            capture.returned = torch.compile(entry, backend=backend, fullgraph=True, dynamic=dynamic)(*tensors)
        except Exception as error:
            cause = getattr(error, "inner_exception", error)
            if isinstance(cause, NotLiftable):
                raise cause from error
            raise NotLiftable(f"torch.compile ({mode}): {_first_line(cause)}") from error
        finally:
            torch._dynamo.reset()
    return capture


def _conditions(shape_env: Any, bound: frozenset[str]) -> tuple[str, ...]:
    """Assumptions of the compiler about the symbols that the call sequence binds, as Python expressions."""
    from torch.utils._sympy.printers import PythonPrinter

    if shape_env is None:
        return ()
    conditions: list[str] = []
    for symbol, span in shape_env.var_to_range.items():
        if str(symbol) in bound:
            conditions.append(f"{symbol} >= {span.lower}")
            if span.upper.is_Integer:
                conditions.append(f"{symbol} <= {span.upper}")
    for guard in shape_env.guards:
        names = {str(symbol) for symbol in guard.expr.free_symbols}
        if names and names <= bound:
            conditions.append(PythonPrinter().doprint(guard.expr))
    return tuple(dict.fromkeys(conditions))


def _named_constant(source: str, value: Any, constants: dict[str, str]) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        raise NotLiftable(f"the compiled code takes {source}, which is neither a tensor nor a size of one")
    name = f"constant_{len(constants)}"
    constants[name] = _constant(source, value)
    return name


def _constant(source: str, value: Any) -> str:
    import torch

    size = value.numel() * value.element_size()
    if size > LARGEST_CONSTANT_BYTES:
        raise NotLiftable(f"the reference keeps a tensor of {size} bytes outside its parameters and buffers ({source})")
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    encoded = base64.b64encode(raw).decode()
    return f'constant("{encoded}", {value.dtype}, {tuple(value.shape)}, {tuple(value.stride())})'


def _candidate(
    kind: str,
    plan: str,
    items: Sequence[_Lifted],
    *,
    state: Sequence[TensorSpec],
    workloads: Sequence[Sequence[Any]],
    expected: Sequence[tuple[Any, ...]],
) -> Candidate:
    import torch

    constants: dict[str, str] = {}
    variants = [with_shared_constants(item.variant, item.constants, constants) for item in items]
    tensors = workloads[0]
    held = tuple(
        StateTensor(spec.name, tuple(value.shape), str(value.dtype), spec.role == "parameter")
        for spec, value in zip(state, tensors[len(tensors) - len(state) :], strict=True)
    )
    text = write_module(
        variants,
        Surroundings(
            title=f"The kernels that torch {torch.__version__} (Inductor, {kind}) generates for the reference.",
            cpu_capability=torch.backends.cpu.get_cpu_capability(),
            dtypes=tuple(str(t.dtype) for t in tensors),
            argument_count=len(tensors) - len(state),
            state=held,
            constants=constants,
            returns_tuple=items[0].returns_tuple,
        ),
    )
    _confirm(text, workloads, expected, [spec.name for spec in state])
    calls = dict.fromkeys(name for variant in variants for name in variant.generated.library_calls)
    return Candidate(
        language="python",
        sources={"model_new.py": text},
        entry="model_new.py",
        origin=Origin(
            proposer="inductor",
            operator="lift",
            plan=plan,
            template=f"inductor/{kind}",
            left_to_library=tuple(f"{name}: torch.compile calls the library for it" for name in calls),
        ),
    )


def _confirm(
    text: str, workloads: Sequence[Sequence[Any]], expected: Sequence[tuple[Any, ...]], state: Sequence[str]
) -> None:
    """Run the module on each workload; it must return what the compiled reference returned.

    Raises:
        NotLiftable: it raises, or returns something else (an output that is a view of an input, for example).
    """
    import torch

    written = types.ModuleType("lifted")
    try:
        exec(compile(text, "model_new.py", "exec"), written.__dict__)
        for tensors, outputs in zip(workloads, expected, strict=True):
            model = written.ModelNew()
            arguments = tensors[: len(tensors) - len(state)]
            model.load_state_dict(dict(zip(state, tensors[len(arguments) :], strict=True)))
            got = model(*arguments)
            torch.testing.assert_close(got if isinstance(got, tuple) else (got,), outputs, equal_nan=True)
    except Exception as error:
        raise NotLiftable(f"the lifted code does not do what the compiled one does: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
