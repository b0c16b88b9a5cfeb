"""How an operation is declared: `@operation(x="float32[B, N]", workloads=[...])`, or the same words on a command line.

Free of torch, so that importing the decorator costs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernelwright.core.dimensions import Dim, axis_names, evaluate_dim
from kernelwright.core.dtypes import DType
from kernelwright.core.errors import TaskError
from kernelwright.tasks.model import Distribution, ScalarSpec, TensorSpec, Tolerance

DECLARATION_ATTRIBUTE = "__kernelwright_operation__"

_TENSOR = re.compile(r"^\s*([A-Za-z]\w*)\s*\[(.*)\]\s*$", re.DOTALL)
_FAMILY = re.compile(r"^\s*([a-z]+)\s*(?:\((.*)\))?\s*$", re.DOTALL)
_ALIASES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "half": "float16", "float": "float32",
    "double": "float64", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "long": "int64",
    "int": "int32",
}  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declaration:
    """What the decorator was told, checked."""

    tensors: dict[str, TensorSpec]
    workloads: tuple[dict[str, int], ...]
    tolerance: Tolerance
    special_values: bool
    allowed_library: tuple[str, ...] = ()
    scalars: dict[str, ScalarSpec] = field(default_factory=dict)


def operation(
    *,
    workloads: Sequence[Mapping[str, int]] = (),
    distributions: Mapping[str, Distribution | str] | None = None,
    tolerance: Tolerance | Mapping[str, float] | None = None,
    special_values: bool = False,
    allowed_library: Sequence[str] = (),
    **tensors: str,
) -> Callable[[F], F]:
    """Declare a PyTorch function as a task.

        @operation(x="float32[B, N]", w="float32[N]", workloads=[dict(B=64, N=4096)])
        def scaled_softmax(x, w, scale=2.0):
            return torch.softmax(x * scale, -1) * w

    Args:
        workloads: bindings of the axes, each of them timed. May be empty where all sizes are numbers.
        distributions: how to draw an input, by its name: `"normal"`, `"uniform(0, 1)"`, `"positive"`,
            `"integers(0, V)"` (the upper end may name an axis), `"booleans"`, or a `Distribution`.
            A range given here is the input's domain: no test leaves it.
        tolerance: `Tolerance(...)` or `{"rtol": ..., "atol": ...}`; it can only widen the rule of `Tolerance`.
        special_values: NaN and infinities must travel through the operation as in the reference.
        allowed_library: ATen operations that a candidate may leave to the library.
        **tensors: `"dtype[dims]"` for each tensor argument; a dimension is a size or an expression over axes.

    Arguments without a declaration are scalars and keep their default. The function itself is returned unchanged.

    Raises:
        TaskError: a declaration cannot be read (`bad_declaration`).
    """
    drawn = {name: distribution(name, words) for name, words in (distributions or {}).items()}
    unknown = sorted(drawn.keys() - tensors.keys())
    if unknown:
        raise _bad(f"distributions for `{', '.join(unknown)}`, which is no declared tensor", _names_hint(tensors))
    specs = {name: tensor_spec(name, words).replace(distribution=drawn.get(name)) for name, words in tensors.items()}
    declaration = Declaration(
        tensors=specs,
        workloads=tuple(_binding(w) for w in workloads),
        tolerance=_tolerance(tolerance),
        special_values=special_values,
        allowed_library=tuple(allowed_library),
    )
    check_bindings(specs.values(), declaration.workloads)

    def mark(function: F) -> F:
        setattr(function, DECLARATION_ATTRIBUTE, declaration)
        return function

    return mark


def declared_argument(words: str) -> TensorSpec | ScalarSpec:
    """Read `x=float32[B, 4096]` or, for a plain argument, `alpha=0.5`.

    Raises:
        TaskError: neither of the two (`bad_declaration`).
    """
    name, equals, value = words.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name.isidentifier():
        raise _bad(f"`{words}` is not NAME=DTYPE[DIMS]", "for example x=float32[64,4096]")
    if "[" in value and not value.startswith(("[", "'", '"')):
        return tensor_spec(name, value)
    try:
        scalar = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        scalar = value
    if scalar is not None and not isinstance(scalar, bool | int | float | str):
        raise _bad(f"`{words}`: a plain argument is a number, a flag, a string or None", "for example alpha=0.5")
    return ScalarSpec(name=name, value=scalar)


def tensor_spec(name: str, words: str) -> TensorSpec:
    """Read `float32[B, 2*N]`; a scalar tensor is `float32[]`.

    Raises:
        TaskError: not of this form, or an element type that kernels here do not know.
    """
    match = _TENSOR.match(words) if isinstance(words, str) else None
    if match is None:
        raise _bad(f'`{name}`: expected "dtype[dims]", got {words!r}', 'for example x="float32[B, N]"')
    word = match.group(1).lower()
    try:
        dtype = DType(_ALIASES.get(word, word))
    except ValueError:
        raise TaskError(
            "unsupported_dtype", f"`{name}`: element type {match.group(1)!r}; supported are {', '.join(DType)}"
        ) from None
    dims = tuple(_dim(name, part) for part in _split(match.group(2)))
    return TensorSpec(name=name, dtype=dtype, dims=dims)


def distribution(name: str, words: Distribution | str) -> Distribution:
    """Read `"uniform(0, 1)"`.

    Raises:
        TaskError: an unknown family or wrong bounds (`bad_declaration`).
    """
    if isinstance(words, Distribution):
        return words
    match = _FAMILY.match(words)
    bounds = _split(match.group(2) or "") if match else []
    try:
        if match is None or len(bounds) not in {0, 2}:
            raise ValueError("expected a family, with no bounds or two")
        if not bounds:
            return Distribution.model_validate({"family": match.group(1)})
        last = bounds[1]
        ends: dict[str, Any] = {"high_axis": last} if last.isidentifier() else {"high": float(last)}
        return Distribution.model_validate({"family": match.group(1), "low": float(bounds[0]), **ends})
    except ValueError as error:
        raise _bad(
            f"distribution of `{name}`: cannot read {words!r}",
            'for example "normal", "uniform(0, 1)" or "integers(0, V)"',
        ) from error


def workload_binding(words: str) -> dict[str, int]:
    """Read `B=32,N=4096`.

    Raises:
        TaskError: not of this form (`bad_declaration`).
    """
    try:
        pairs = [part.split("=") for part in words.split(",") if part.strip()]
        return _binding({name.strip(): int(value) for name, value in pairs})
    except ValueError as error:
        raise _bad(f"`{words}` is not AXIS=SIZE,…", "for example B=32,N=4096") from error


def check_bindings(specs: Any, workloads: Sequence[Mapping[str, int]]) -> None:
    """Every axis is bound, in every workload, and every size is at least one.

    Raises:
        TaskError: which axis, which workload (`bad_declaration`).
    """
    needed = axes_of(specs)
    if needed and not workloads:
        raise _bad(f"no workload binds the axes {', '.join(needed)}", "add workloads, such as B=32,N=4096")
    for binding in workloads:
        missing = [axis for axis in needed if axis not in binding]
        surplus = [axis for axis in binding if axis not in needed]
        if missing or surplus:
            what = (
                f"does not bind {', '.join(missing)}" if missing else f"binds {', '.join(surplus)}, which no input has"
            )
            raise _bad(f"the workload {dict(binding)} {what}", f"axes are: {', '.join(needed) or 'none'}")
        for spec in specs:
            for dim in spec.dims:
                try:
                    size = evaluate_dim(dim, binding)
                except ZeroDivisionError:
                    size = 0
                if size < 1:
                    raise _bad(f"`{spec.name}` has a dimension {dim} = {size} in the workload {dict(binding)}", "")


def axes_of(specs: Any) -> tuple[str, ...]:
    """The axes that the tensors name, in the order of their first appearance."""
    seen: dict[str, None] = {}
    for spec in specs:
        for dim in spec.dims:
            seen.update(dict.fromkeys(sorted(axis_names(dim))))
    return tuple(seen)


def _split(words: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(words):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(words[start:index].strip())
            start = index + 1
    tail = words[start:].strip()
    return [*parts, tail] if tail else parts


def _dim(name: str, word: str) -> Dim:
    try:
        if word.lstrip("-").isdigit():
            size = int(word)
            if size < 1:
                raise ValueError(word)
            return size
        evaluate_dim(word, dict.fromkeys(axis_names(word), 64))
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise _bad(
            f"`{name}`: {word!r} is no dimension", "a size, an axis name, or an expression such as 2*N"
        ) from error
    return word


def _binding(mapping: Mapping[str, int]) -> dict[str, int]:
    for name, size in mapping.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise _bad(f"axis {name} = {size!r} is not a positive integer", "")
    return dict(mapping)


def _tolerance(words: Tolerance | Mapping[str, float] | None) -> Tolerance:
    if words is None or isinstance(words, Tolerance):
        return words or Tolerance()
    try:
        return Tolerance.model_validate(dict(words))
    except ValueError as error:
        raise _bad(f"tolerance: cannot read {dict(words)!r}", 'for example {"rtol": 1e-3, "atol": 1e-5}') from error


def _names_hint(tensors: Mapping[str, str]) -> str:
    return f"declared tensors: {', '.join(tensors) or 'none'}"


def _bad(message: str, hint: str) -> TaskError:
    return TaskError("bad_declaration", message, hint=hint)
