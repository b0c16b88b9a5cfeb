"""The task audit: would a candidate that does no work pass, and is the reference fit to be a reference at all?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernelwright.core.errors import TaskError
from kernelwright.tasks.arrays import Array, from_float64, from_torch, to_float64, to_torch
from kernelwright.tasks.comparison import compare
from kernelwright.tasks.inputs import distributions_for, draw
from kernelwright.tasks.model import Distribution, Task, Workload
from kernelwright.tasks.oracle import Illegal, OracleArrays, compute, double_call
from kernelwright.tasks.reference import Reference

if TYPE_CHECKING:
    import torch

_DETERMINISM = 1e-3
"""Two runs on equal inputs may differ by this share of the output's root mean square (order of parallel sums)."""


def trivial_candidates(
    task: Task, inputs: Sequence[Array], expected: Sequence[Array], previous: Sequence[Array] = ()
) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """Outputs, in storage form, of candidates that do no work: `(name, outputs)`.

    Args:
        inputs: storage of the kernel inputs.
        expected: the oracle's values; only their shape and mean are used.
        previous: the oracle's values for other inputs of the same shapes, which a reused buffer would still hold.
    """
    # The mean of a single number is the answer itself, so it is tried on larger outputs only.
    dtypes = [spec.dtype for spec in task.outputs]

    def filled(value: float) -> tuple[Array, ...]:
        return tuple(from_float64(np.full(e.shape, value), d) for e, d in zip(expected, dtypes, strict=True))

    yield "zeros", filled(0.0)
    yield "ones", filled(1.0)
    if any(e.size > 1 for e in expected):
        yield "mean", tuple(from_float64(np.full(e.shape, _mean(e)), d) for e, d in zip(expected, dtypes, strict=True))
    generator = np.random.default_rng(0)
    yield (
        "uninitialised memory",
        tuple(from_float64(generator.standard_normal(e.shape) * 1e3, d) for e, d in zip(expected, dtypes, strict=True)),
    )
    if len(previous) == len(expected):
        yield "previous output", tuple(from_float64(p, d) for p, d in zip(previous, dtypes, strict=True))
    for spec, array in zip(task.kernel_inputs, inputs, strict=True):
        if spec.role == "input" and array.size and all(array.size == e.size for e in expected):
            values = to_float64(array, spec.dtype)
            yield (
                f"copy of {spec.name}",
                tuple(from_float64(values.reshape(e.shape), d) for e, d in zip(expected, dtypes, strict=True)),
            )


def _mean(values: Array) -> float:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return float(np.mean(finite)) if finite.size else 0.0


def findings(task: Task, reference: Reference) -> tuple[str, ...]:
    """Notes for the user on a task that may be used.

    Raises:
        TaskError: `non_deterministic`, `unstable_shapes`, `input_independent`, or `trivial_candidate_passes` where a
            candidate that does no work would pass on every distribution; the message names it and the tolerance.
    """
    workload = min(task.workloads, key=lambda w: task.compulsory_bytes(w.axes))
    own = reference.own_inputs(workload.axes)
    _check_deterministic(reference, own, task)
    drawn = [(d.family, _drawn(task, workload, d, own, seed=index)) for index, d in enumerate(distributions_for(task))]
    others = [tensors for family, tensors in drawn if family != "own"]
    _check_depends_on_inputs(task, reference, [own, reference.own_inputs(workload.axes, seed=1), *others])
    return _trivial_findings(task, reference, drawn)


def _drawn(
    task: Task, workload: Workload, distribution: Distribution, own: Sequence[torch.Tensor], *, seed: int
) -> tuple[torch.Tensor, ...]:
    generator = np.random.default_rng([20, seed])
    return tuple(
        to_torch(draw(s, s.shape(workload.axes), distribution, generator, from_torch(t)), s.dtype)
        for s, t in zip(task.kernel_inputs, own, strict=True)
    )


def _check_deterministic(reference: Reference, own: Sequence[torch.Tensor], task: Task) -> None:
    runs = [reference.call(own) for _ in range(3)]
    if any([r.shape for r in run] != [r.shape for r in runs[0]] for run in runs):
        raise TaskError("unstable_shapes", "the reference returns other shapes on each call with the same inputs")
    for run in runs[1:]:
        for spec, one, other in zip(task.outputs, runs[0], run, strict=True):
            a, b = to_float64(from_torch(one), spec.dtype), to_float64(from_torch(other), spec.dtype)
            both = np.isfinite(a) & np.isfinite(b)
            rms = float(np.sqrt(np.mean(np.square(a[both])))) if both.any() else 0.0
            apart = float(np.max(np.abs(a[both] - b[both]), initial=0.0))
            limit = _DETERMINISM * rms if spec.dtype.is_floating else 0.0
            if apart > limit or bool((np.isnan(a) != np.isnan(b)).any()):
                raise TaskError(
                    "non_deterministic",
                    f"the reference is not deterministic: `{spec.name}` differs by {apart:.3g} between two runs on equal inputs",
                    hint="take random numbers and uninitialised memory out of forward(), or pass them in as inputs",
                )


def _check_depends_on_inputs(task: Task, reference: Reference, draws: Sequence[Sequence[torch.Tensor]]) -> None:
    results = [(tensors, r) for tensors in draws if (r := _values(reference, tensors, task)) is not None]
    first_inputs, first = results[0] if results else ((), [])
    others = [r for tensors, r in results[1:] if not _equal(tensors, first_inputs)]
    if not others or any(_apart(one, other) for r in others for one, other in zip(first, r, strict=True)):
        return
    raise TaskError(
        "input_independent",
        f"the output does not depend on the inputs: {len(others) + 1} different sets of inputs gave the same result",
        hint="a constant would be a right candidate; check the reference",
    )


def _equal(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> bool:
    return all(np.array_equal(from_torch(a), from_torch(b)) for a, b in zip(these, those, strict=True))


def _apart(one: Array, other: Array) -> bool:
    both = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return True
    scale = float(np.max(np.abs(one[both]), initial=0.0))
    return float(np.max(np.abs(one[both] - other[both]), initial=0.0)) > 1e-12 + 1e-9 * scale


def _values(reference: Reference, tensors: Sequence[torch.Tensor], task: Task) -> list[Array] | None:
    try:
        wide = double_call(reference, tensors)
        if wide is None:
            wide = [
                to_float64(from_torch(t), s.dtype) for t, s in zip(reference.call(tensors), task.outputs, strict=True)
            ]
        return [w.astype(np.float64) for w in wide]
    except Exception:  # noqa: BLE001 - a distribution outside the domain may raise anything
        return None


def _trivial_findings(
    task: Task, reference: Reference, drawn: Sequence[tuple[str, Sequence[torch.Tensor]]]
) -> tuple[str, ...]:
    legal: list[str] = []
    outside: list[str] = []
    passing: dict[str, list[str]] = {}
    previous: list[Array] = []
    for family, tensors in drawn:
        oracle = compute(reference, tensors, task)
        if isinstance(oracle, Illegal):
            outside.append(f"{family} ({oracle.reason})")
            continue
        legal.append(family)
        arrays, expected = [from_torch(t) for t in tensors], [o.expected for o in oracle.outputs]
        for name, outputs in trivial_candidates(task, arrays, expected, previous):
            if passes(oracle, outputs):
                passing.setdefault(name, []).append(family)
        previous = expected
    notes = [f"outside the operation's domain: {words}" for words in outside]
    for name, families in passing.items():
        if len(families) >= len(legal) - (name == "previous output"):
            raise _trivial(task, name, legal)
        notes.append(
            f"a trivial candidate ({name}) would pass on the inputs {', '.join(families)}; the others refuse it"
        )
    return tuple(notes)


def passes(oracle: OracleArrays, outputs: Sequence[Array]) -> bool:
    """Whether outputs, in storage form, are right."""
    return all(
        compare(o.name, o.expected, o.allowed, o.stable, got, o.dtype).passed
        for o, got in zip(oracle.outputs, outputs, strict=True)
    )


def _trivial(task: Task, name: str, legal: Sequence[str]) -> TaskError:
    limits = [f"{k}={v}" for k, v in (("rtol", task.tolerance.rtol), ("atol", task.tolerance.atol)) if v is not None]
    cause = f"the tolerance {', '.join(limits)}" if limits else "the operation"
    hint = "tighten the tolerance" if limits else "give inputs on which the operation does some work"
    return TaskError(
        "trivial_candidate_passes",
        f"{cause} lets a candidate that does no work pass: {name}, on every distribution tried ({', '.join(legal)})",
        hint=hint,
    )
