"""What candidates are verified on: inputs of several shapes and distributions, with the oracle's answers.

Held by the trusted process alone. Drawn from a secret seed, computed once for a session, shared by all candidates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernelwright.core.errors import TaskError
from kernelwright.judge.evaluation import Check, TensorError
from kernelwright.judge.reference_side import inputs_layout, oracle_layout
from kernelwright.judge.regions import Region
from kernelwright.tasks.arrays import Array
from kernelwright.tasks.comparison import compare
from kernelwright.tasks.hidden import hidden_workloads
from kernelwright.tasks.inputs import OWN, distributions_for, draw
from kernelwright.tasks.model import Distribution, Task, TensorSpec, Workload

if TYPE_CHECKING:
    from kernelwright.judge.references import ReferenceProcess

_TINY_BYTES = 1 << 20
"""Workloads of at most this many input and output bytes are verified on every distribution."""
_SMALL_BYTES = 16 << 20
"""Up to here on some; larger ones on their own inputs, where the axes offer smaller sizes for the rest."""
_SOME = 4
_COPIED_BYTES = 4 << 20
"""Oracles up to this size are copied out of shared memory: each mapping holds a descriptor."""
_MODEST_BYTES = 64 << 20
_FEW = 3
_SPECIAL = Distribution(family="special")


@dataclass(frozen=True)
class OracleOutput:
    """One output's oracle, over the region that the reference's process wrote it to."""

    expected: Array
    allowed: Array
    stable: Array | None


@dataclass
class Case:
    """One check to make."""

    workload: Workload
    distribution: Distribution
    inputs: list[Array]
    oracle: list[OracleOutput]
    binding: bool = True
    """False where a failure is only told to the user: special values in a task that does not ask for them."""

    def judged(self, task: Task, outputs: list[Array]) -> Check:
        """Compare a candidate's outputs with the oracle."""
        errors = []
        for spec, oracle, got in zip(task.outputs, self.oracle, outputs, strict=True):
            found = compare(spec.name, oracle.expected, oracle.allowed, oracle.stable, got, spec.dtype)
            errors.append(TensorError(**vars(found)))
        failed = next((e for e in errors if e.mismatched), None)
        return self.check(passed=failed is None, detail=_words(failed) if failed else "", errors=tuple(errors))

    def check(self, *, passed: bool, detail: str, errors: tuple[TensorError, ...] = ()) -> Check:
        """The record of this case; a hidden workload keeps its sizes to itself."""
        return Check(
            workload=self.workload.name,
            axes={} if self.workload.hidden else self.workload.axes,
            distribution=self.distribution.family,
            hidden=self.workload.hidden,
            passed=passed,
            detail=detail,
            errors=errors,
        )


def own_seed(secret: int) -> int:
    """Seed of the own inputs that are verified on, and of the first set that is timed on."""
    return int(np.random.default_rng([secret, 2]).integers(1 << 30))


class Cases:
    """The cases of a task, made on first use, cheapest first."""

    def __init__(self, task: Task, reference: ReferenceProcess, seed: int) -> None:
        self._task = task
        self._reference = reference
        self._seed = seed
        self._own_seed = own_seed(seed)
        generator = np.random.default_rng([seed, 1])
        self.workloads = (*task.workloads, *hidden_workloads(task, generator))
        self._made: list[Case] | None = None
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Case]:
        return iter(self.all())

    def all(self) -> list[Case]:
        """Every case.

        Raises:
            TaskError: no case could be made: the reference fails on its own inputs.
        """
        if self._made is None:
            # The unbinding case comes last: it must not hide what the binding ones would have said.
            order = sorted(self.workloads, key=lambda w: self._task.compulsory_bytes(w.axes))
            made = [case for workload in order for case in self._cases(workload)]
            self._made = sorted(made, key=lambda case: not case.binding)
        return self._made

    def own_case(self, workload: Workload) -> Case | None:
        """The case on the task's own inputs of a timed workload; the first set of inputs that it is timed on."""
        return next((c for c in self.all() if c.workload is workload and c.distribution is OWN), None)

    def _cases(self, workload: Workload) -> Iterator[Case]:
        own = [np.array(array) for array in self._reference.own_inputs(workload.axes, [self._own_seed])[0]]
        distributions = self._distributions(workload)
        if workload is self.workloads[-1] and not self._task.special_values:
            distributions.append(_SPECIAL)
        for number, distribution in enumerate(distributions):
            generator = np.random.default_rng([self._seed, number, *workload.axes.values()])
            inputs = [
                draw(spec, spec.shape(workload.axes), distribution, generator, array)
                for spec, array in zip(self._task.kernel_inputs, own, strict=True)
            ]
            oracle = oracle_of(self._task, self._reference, workload.axes, inputs, seed=number)
            if isinstance(oracle, str):
                if distribution.family == "own" and workload.timed:
                    raise TaskError("reference_raises", f"the reference fails on its own inputs: {oracle}")
                continue
            yield Case(workload, distribution, inputs, oracle, binding=distribution is not _SPECIAL)
            if distribution.family == "normal" and self._task.compulsory_bytes(workload.axes) <= _SMALL_BYTES:
                yield from self._nearby(workload, distribution, inputs, generator)

    def _nearby(
        self, workload: Workload, distribution: Distribution, inputs: list[Array], generator: np.random.Generator
    ) -> Iterator[Case]:
        """The same inputs but for a few elements in the middle: a result kept under a fingerprint of them goes stale."""
        changed = [
            _partly_redrawn(array, spec, distribution, generator)
            for spec, array in zip(self._task.kernel_inputs, inputs, strict=True)
        ]
        oracle = oracle_of(self._task, self._reference, workload.axes, changed, seed=len(inputs))
        if not isinstance(oracle, str):
            yield Case(workload, distribution, changed, oracle)

    def _distributions(self, workload: Workload) -> list[Distribution]:
        every = list(distributions_for(self._task))
        size = self._task.compulsory_bytes(workload.axes)
        several_shapes = any(axis.varies for axis in self._task.axes)
        if size <= _TINY_BYTES or (size <= _SMALL_BYTES and not several_shapes):
            return every
        if size <= _SMALL_BYTES and not workload.timed:
            return every[:_SOME]
        if several_shapes or size > _MODEST_BYTES * 4:
            return [OWN] if workload.timed else every[:2]
        return every[:_FEW]


def _partly_redrawn(
    array: Array, spec: TensorSpec, distribution: Distribution, generator: np.random.Generator
) -> Array:
    """A copy with a random eighth of the elements drawn again; tensors with a structure stay as they are."""
    if spec.structure != "general" or not spec.dtype.is_floating or spec.role != "input" or array.size < 16:
        return array
    fresh = draw(spec, array.shape, distribution, generator, array).reshape(-1)
    changed = np.array(array).reshape(-1)
    begin = int(generator.integers(1, array.size - array.size // 8 - 1))
    span = slice(begin, begin + array.size // 8)
    kept = changed[[0, array.size // 2, -1]]
    changed[span] = fresh[span]
    changed[[0, array.size // 2, -1]] = kept
    return changed.reshape(array.shape)


def oracle_of(
    task: Task, reference: ReferenceProcess, axes: dict[str, int], inputs: list[Array], *, seed: int
) -> list[OracleOutput] | str:
    """The oracle on these inputs, or why they are outside the operation's domain."""
    given = Region(inputs_layout(task, axes))
    for place, array in zip(given.arrays(), inputs, strict=True):
        place[...] = array
    answer = Region(oracle_layout(task, axes))
    said = reference.ask({"do": "oracle", "axes": axes, "seed": seed}, [given.descriptor, answer.descriptor])
    given.close()
    os.close(answer.descriptor)
    if "illegal" in said:
        return str(said["illegal"])
    arrays = answer.arrays()
    if answer.layout.size <= _COPIED_BYTES:
        arrays = [np.array(a) for a in arrays]
    return [
        OracleOutput(arrays[3 * i], arrays[3 * i + 1], None if spec.dtype.is_floating else arrays[3 * i + 2])
        for i, spec in enumerate(task.outputs)
    ]


def _words(error: TensorError) -> str:
    index = ", ".join(str(i) for i in error.worst_index)
    return (
        f"`{error.output}`: {error.mismatched} of {error.elements} elements are off; worst at [{index}]: "
        f"expected {error.expected:.8g}, got {error.got:.8g} ({error.worst_ratio:.3g} times what is allowed)"
    )
