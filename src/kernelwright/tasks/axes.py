"""Which sizes may vary: found by running the reference at other sizes, on shapes alone where torch can do that."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.core.dimensions import evaluate_shape
from kernelwright.core.errors import TaskError
from kernelwright.tasks.model import Argument, Axis, TensorSpec
from kernelwright.tasks.reference import Reference, Shape, as_outputs

if TYPE_CHECKING:
    import torch

_SMALLEST_INNER = 8
"""Inner dimensions below this are left fixed: they are components (x, y, z; red, green, blue) rather than sizes."""
_MINIMA = (2, 3, 5, 9, 17, 33, 65, 129)
_DIVISORS_TRIED = 12
_LETTERS = {1: "N", 2: "MN", 3: "BMN", 4: "BCHW", 5: "BCDHW"}


class ShapeProbe:
    """Runs the reference at given shapes of its tensor arguments, and stops for good after its time is spent."""

    def __init__(
        self, reference: Reference, own: Sequence[torch.Tensor], *, seconds: float, real_call_seconds: float
    ) -> None:
        self._reference = reference
        self._arguments = own[: len(reference.tensor_arguments)]
        self._state = own[len(reference.tensor_arguments) :]
        self._deadline = time.monotonic() + seconds
        self._real_is_cheap = real_call_seconds < seconds / 20
        self._fake: Any = None
        self.exhausted = False
        self.exhausted = not (self._start_fake() or self._real_is_cheap)

    @property
    def on_shapes_alone(self) -> bool:
        """Whether nothing was computed: values were never looked at."""
        return self._fake is not None

    def grant(self, seconds: float) -> None:
        """More time, for questions that must be answered; `exhausted` keeps saying that earlier ones were not."""
        self._deadline = max(self._deadline, time.monotonic() + seconds)

    def really_at(self, shapes: Sequence[Shape], changed: Sequence[tuple[int, int]]) -> bool:
        """Whether the reference runs there with real tensors; where that would take too long, True unseen."""
        if not self._real_is_cheap or time.monotonic() > self._deadline:
            return True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                as_outputs(self._run_real(shapes, changed))
        except Exception:  # noqa: BLE001 - whatever user code raises at a size means that this size is not for it
            return False
        return True

    def at(self, shapes: Sequence[Shape], changed: Sequence[tuple[int, int]] = ()) -> tuple[Shape, ...] | None:
        """Output shapes, or None where the reference refuses these inputs (or the time is over)."""
        if time.monotonic() > self._deadline:
            self.exhausted = True
        if time.monotonic() > self._deadline or not (self._fake is not None or self._real_is_cheap):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("error", message="An output with one or more elements was resized")
                result = self._run_fake(shapes) if self._fake is not None else self._run_real(shapes, changed)
            return tuple(tuple(int(s) for s in t.shape) for t in as_outputs(result))
        except Exception:  # noqa: BLE001 - whatever user code raises at a size means that this size is not for it
            return None

    def _start_fake(self) -> bool:
        from torch._subclasses.fake_tensor import FakeTensorMode

        # Every refused size would otherwise print a traceback there.
        logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            self._fake_state = [self._fake.from_tensor(t) for t in self._state]
            self._run_fake([tuple(t.shape) for t in self._arguments])
        except Exception:  # noqa: BLE001 - code that looks at values cannot run on shapes alone
            self._fake = None
        return self._fake is not None

    def _run_fake(self, shapes: Sequence[Shape]) -> Any:
        import torch

        with self._fake:
            fakes = [torch.empty(s, dtype=t.dtype) for s, t in zip(shapes, self._arguments, strict=True)]
            return self._reference.raw_call([*fakes, *self._fake_state])

    def _run_real(self, shapes: Sequence[Shape], changed: Sequence[tuple[int, int]]) -> Any:
        from kernelwright.tasks.reference import resized

        tensors = [resized(t, s, changed) for t, s in zip(self._arguments, shapes, strict=True)]
        return self._reference.raw_call([*tensors, *self._state])


@dataclass(frozen=True)
class Slot:
    """One dimension of one tensor argument."""

    tensor: int
    dim: int


def derive_axes(reference: Reference, probe: ShapeProbe) -> tuple[tuple[Argument, ...], tuple[Axis, ...]]:
    """Arguments with named sizes where the reference works at other sizes too.

    Equal sizes are one axis, unless each of them can change alone: then those in the same dimension are. Where they
    cannot change together, those in the same dimension are tried together, then each alone.
    """
    specs = reference.tensor_arguments
    base = [tuple(int(d) for d in s.dims) for s in specs]
    groups: dict[int, list[Slot]] = {}
    for tensor, shape in enumerate(base):
        for dim, size in enumerate(shape):
            if size >= (2 if dim == 0 and len(shape) > 1 else _SMALLEST_INNER):
                groups.setdefault(size, []).append(Slot(tensor, dim))

    def works(slots: Iterable[Slot], old: int) -> Callable[[int], bool]:
        chosen = tuple(slots)
        return lambda size: probe.at(_with(base, chosen, size), [(old, size)]) is not None

    found: list[tuple[list[Slot], Axis]] = []
    for size, slots in sorted(groups.items(), key=lambda item: (item[1][0].dim, item[1][0].tensor)):
        for tied in _partition(slots, size, works):
            limits = size_limits(works(tied, size), size)
            if limits is not None:
                name = _axis_name(tied[0], len(base[tied[0].tensor]), {a.name for _, a in found}, reference.arguments)
                found.append((tied, Axis(name=name, origin="derived", default=size, **limits)))
    return _named(reference, base, found), tuple(axis for _, axis in found)


def _partition(
    slots: list[Slot], size: int, works: Callable[[Iterable[Slot], int], Callable[[int], bool]]
) -> list[list[Slot]]:
    def can_change(some: list[Slot]) -> bool:
        attempt = works(some, size)
        return any(attempt(other) for other in _other_sizes(size))

    alone = {slot: can_change([slot]) for slot in slots} if len(slots) > 1 else {}
    if len(slots) == 1:
        return [slots]
    if all(alone.values()) and len({slot.dim for slot in slots}) > 1:
        return [[slot for slot in slots if slot.dim == dim] for dim in sorted({slot.dim for slot in slots})]
    if can_change(slots):
        return [slots]
    parts: list[list[Slot]] = []
    for dim in sorted({slot.dim for slot in slots}):
        same = [slot for slot in slots if slot.dim == dim]
        parts.extend([same] if len(same) > 1 and can_change(same) else [[slot] for slot in same if alone.get(slot)])
    return parts


def _other_sizes(size: int) -> tuple[int, ...]:
    halves = (size // 2,) if size >= 4 else ()
    return (size + 1, *halves, size * 2, *((size - 1,) if size > 2 else ()))


def size_limits(works: Callable[[int], bool], default: int) -> dict[str, Any] | None:
    """`multiple`, `minimum` and `maximum` of an axis; None where no other size than the default works."""
    divisors = [m for m in range(2, default // 2 + 1) if default % m == 0][:_DIVISORS_TRIED]
    for multiple in (1, *divisors, default):
        below, above = default - multiple, default + multiple
        works_above = works(above)
        if not works_above and not (below >= 2 and works(below)):
            continue
        minimum = next((multiple * k for k in _MINIMA if multiple * k < default and works(multiple * k)), default)
        largest = _largest(works, above if works_above else default, 2 * default, multiple)
        return {"multiple": multiple, "minimum": minimum, "maximum": largest}
    return None


def _largest(works: Callable[[int], bool], known: int, double: int, multiple: int) -> int | None:
    """The largest size between a known one and twice the default, by bisection; None where twice the default works."""
    if works(double):
        return None
    low, high = known // multiple, double // multiple
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle * multiple) else (low, middle)
    return low * multiple


def confirmed(axis: Axis, works: Callable[[int], bool]) -> Axis | None:
    """The axis with its bounds narrowed to what really runs; None where it runs at the default size only.

    Running on shapes alone does not see that an index leaves its table, for example.
    """
    default, step = axis.default, axis.multiple
    top = axis.maximum
    if top is None and not works(2 * default):
        top = _largest(works, default, 2 * default, step)
    elif top is not None and top > default and not works(top):
        top = _largest(works, default, top, step) or default
    low = axis.minimum
    if low < default and not works(low):
        low = next((s for s in (default // 2 // step * step, default - step) if s >= 2 and works(s)), default)
    if low == default == top:
        return None
    return axis.replace(minimum=low, maximum=top)


def declared_axes(
    specs: Sequence[TensorSpec], names: Sequence[str], bindings: Sequence[Mapping[str, int]], probe: ShapeProbe
) -> tuple[Axis, ...]:
    """Axes of a declaration, with the bounds that the reference shows; defaults are those of the first workload."""
    default = dict(bindings[0]) if bindings else {}
    found = []
    for name in names:

        def works(size: int, name: str = name) -> bool:
            try:
                shapes = [evaluate_shape(s.dims, {**default, name: size}) for s in specs]
            except ZeroDivisionError:
                return False
            return all(min(s, default=1) >= 1 for s in shapes) and probe.at(shapes, [(default[name], size)]) is not None

        limits = size_limits(works, default[name])
        sizes = {b[name] for b in bindings}
        if limits is None:
            found.append(Axis(name=name, origin="declared", default=default[name], varies=len(sizes) > 1,
                              minimum=min(sizes), maximum=max(sizes)))  # fmt: skip
        else:
            found.append(Axis(name=name, origin="declared", default=default[name], **limits))
    return tuple(found)


def _with(base: Sequence[Shape], slots: Iterable[Slot], size: int) -> list[Shape]:
    shapes = [list(shape) for shape in base]
    for slot in slots:
        shapes[slot.tensor][slot.dim] = size
    return [tuple(shape) for shape in shapes]


def _axis_name(slot: Slot, rank: int, taken: set[str], arguments: Sequence[Argument]) -> str:
    letter: str = _LETTERS.get(rank, "")[slot.dim : slot.dim + 1] or f"D{slot.dim}"
    names = [letter, *"KLPQRTUV", *(f"{letter}{i}" for i in range(2, 99))]
    reserved = taken | {a.name for a in arguments}
    free: list[str] = [name for name in names if name not in reserved]
    return free[0]


def _named(
    reference: Reference, base: Sequence[Shape], found: Sequence[tuple[list[Slot], Axis]]
) -> tuple[Argument, ...]:
    dims: list[list[int | str]] = [list(shape) for shape in base]
    for slots, axis in found:
        for slot in slots:
            dims[slot.tensor][slot.dim] = axis.name
    left = iter(dims)
    return tuple(a.replace(dims=tuple(next(left))) if isinstance(a, TensorSpec) else a for a in reference.arguments)


def memory_needed(specs: Iterable[TensorSpec], axes: Mapping[str, int]) -> int:
    """Bytes of the tensors under a binding of the axes."""
    total = 0
    for spec in specs:
        count = spec.dtype.itemsize
        for size in spec.shape(dict(axes)):
            count *= size
        total += count
    return total


def refuse_if_too_large(specs: Iterable[TensorSpec], axes: Mapping[str, int]) -> None:
    """Refuse declared inputs that cannot fit into memory, before anything is allocated.

    Raises:
        TaskError: `out_of_memory`.
    """
    import os

    needed = memory_needed(specs, axes)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > 0.5 * available:
        raise TaskError(
            "out_of_memory",
            f"the declared inputs take {needed / 2**30:.1f} GiB; this machine has {available / 2**30:.1f} GiB, and the "
            "float64 oracle needs at least as much again",
            hint="declare smaller workloads",
        )
