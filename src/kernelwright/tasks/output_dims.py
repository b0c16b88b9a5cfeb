"""Sizes of outputs as expressions over the axes, fitted to what the reference returned and checked on a binding held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from kernelwright.core.dimensions import Dim, evaluate_dim
from kernelwright.tasks.model import Axis

Shape = tuple[int, ...]
Outputs = tuple[Shape, ...]
_LARGEST_DIVISOR = 64


def fit_output_dims(
    axes: Sequence[Axis], run: Callable[[Mapping[str, int]], Outputs | None]
) -> tuple[tuple[Dim, ...], ...] | None:
    """Dimensions of each output; None where no expression fits, the number of dimensions changes, or an axis that varies
    was never seen at another size (a machine under load: a size that merely looks constant would be wrong).

    Args:
        run: output shapes under a binding, None where it fails.
    """
    default = {a.name: a.default for a in axes}
    bindings = [default]
    for axis in axes:
        bindings += [{**default, axis.name: size} for size in (*_sizes(axis), *_beyond(axis, axes))]
    together = [{a.name: _sizes(a)[k % len(_sizes(a))] for k, a in enumerate(axes, start)} for start in (0, 1, 3)]
    together += [{**together[0], a.name: size} for a in axes for size in _beyond(a, axes)]
    observed = [(b, shapes) for b in (*bindings, *together) if (shapes := run(b)) is not None]
    if not observed or observed[0][0] != default:
        return None
    if any(a.varies and all(b[a.name] == a.default for b, _ in observed) for a in axes):
        return None
    base = observed[0][1]
    if any([len(s) for s in shapes] != [len(s) for s in base] for _, shapes in observed):
        return None
    outputs = []
    for index, shape in enumerate(base):
        dims = [fit_dim(axes, [(b, shapes[index][dim]) for b, shapes in observed]) for dim in range(len(shape))]
        known = [d for d in dims if d is not None]
        if len(known) < len(dims):
            return None
        outputs.append(tuple(known))
    return tuple(outputs)


def fit_dim(axes: Sequence[Axis], observed: Sequence[tuple[Mapping[str, int], int]]) -> Dim | None:
    """The simplest expression that gives each observed size; None where none does."""
    default, base = observed[0]
    single: dict[str, list[tuple[int, int]]] = {}
    for axis in axes:
        points = [
            (b[axis.name], size) for b, size in observed if all(b[k] == v for k, v in default.items() if k != axis.name)
        ]
        if any(size != base for _, size in points):
            single[axis.name] = points
    if not single:
        return _if_fits(base, observed)
    if len(single) == 1:
        name, points = next(iter(single.items()))
        pairs = [f"{word}({name}, {other.name})" for other in axes if other.name != name for word in ("max", "min")]
        return next((e for e in (*_of_one(name, points), *pairs) if _if_fits(e, observed) is not None), None)
    return next((e for e in _of_several(single, default, base) if _if_fits(e, observed) is not None), None)


def _sizes(axis: Axis) -> list[int]:
    m, high = axis.multiple, axis.maximum
    wanted = [
        axis.default + m,
        axis.default - m,
        2 * axis.default,
        axis.default + 3 * m,
        axis.default + 2 * m,
        axis.minimum,
    ]
    wanted += [axis.default - k * m for k in range(2, 8)] + [axis.default + k * m for k in range(4, 8)]
    low = max(axis.minimum, 2)
    legal = [s for s in dict.fromkeys(wanted) if s >= low and (high is None or s <= high) and s != axis.default]
    return legal or [axis.default]


def _beyond(axis: Axis, axes: Sequence[Axis]) -> list[int]:
    """A size above all other axes, where `max` and `min` change sides."""
    if len(axes) == 1:
        return []
    size = (max(a.default for a in axes) // axis.multiple + 1) * axis.multiple
    return [] if axis.maximum is not None and size > axis.maximum else [size]


def _of_one(name: str, points: Sequence[tuple[int, int]]) -> list[Dim]:
    (n0, f0), (n1, f1) = points[0], max(points[1:], key=lambda p: abs(p[0] - points[0][0]))
    guesses: list[Dim] = []
    rise, run = f1 - f0, n1 - n0
    if run and rise % run == 0 and rise:
        slope = rise // run
        guesses.append(_linear([(slope, name)], f0 - slope * n0))
    ratio = abs(run / rise) if rise else 0.0
    for divisor in range(2, _LARGEST_DIVISOR):
        if not 0.4 * divisor <= ratio <= 2.5 * divisor:
            continue
        for shift in range(-divisor + 1, divisor):
            inner = name if shift == 0 else f"({name} {'+' if shift > 0 else '-'} {abs(shift)})"
            offset = f0 - (n0 + shift) // divisor
            guesses.append(f"{inner}//{divisor}" + (f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""))
    if rise and run:
        guesses.append(f"max({name}, {min(f for _, f in points)})")
        guesses.append(f"min({name}, {max(f for _, f in points)})")
        guesses.append(f"{name}*{name}")
    return guesses


def _of_several(single: Mapping[str, Sequence[tuple[int, int]]], default: Mapping[str, int], base: int) -> list[Dim]:
    names = list(single)
    guesses: list[Dim] = []
    slopes = []
    for name, points in single.items():
        far = max(points, key=lambda p: abs(p[0] - default[name]))
        slopes.append(((far[1] - base) // (far[0] - default[name]) if far[0] != default[name] else 0, name))
    guesses.append(_linear(slopes, base - sum(s * default[n] for s, n in slopes)))
    product = 1
    for name in names:
        product *= default[name]
    text = "*".join(names)
    if base % product == 0:
        guesses.append(text if base == product else f"{base // product}*{text}")
    elif product % base == 0:
        guesses.append(f"{text}//{product // base}")
    for one, other in combinations(names, 2):
        guesses += [f"max({one}, {other})", f"min({one}, {other})"]
    inner: dict[str, list[Dim]] = {name: _scaled(name, points) for name, points in single.items()}
    if len(names) == 2:
        guesses += [f"({a})*({b})" for a in inner[names[0]] for b in inner[names[1]]]
        guesses += [f"{base // k}*({a})*({b})" for a in inner[names[0]] for b in inner[names[1]]
                    if (k := _value(a, default) * _value(b, default)) and base % k == 0]  # fmt: skip
    return guesses


def _scaled(name: str, points: Sequence[tuple[int, int]]) -> list[Dim]:
    """Factors that depend on one axis alone, up to a constant: the axis itself, and windows over it."""
    found: list[Dim] = [name]
    for divisor in (1, 2, 3, 4, 8):
        for shift in (-4, -3, -2, -1, 1, 2, 3, 4):
            found.append(f"({name} {'+' if shift > 0 else '-'} {abs(shift)})//{divisor}")
            found.append(f"({name} {'+' if shift > 0 else '-'} {abs(shift)})//{divisor} + 1")
        if divisor > 1:
            found.append(f"{name}//{divisor}")
    base = points[0]
    return [
        e for e in found
        if all(_value(e, {name: n}) * base[1] == f * _value(e, {name: base[0]}) for n, f in points)
    ]  # fmt: skip


def _value(expression: Dim, axes: Mapping[str, int]) -> int:
    return evaluate_dim(expression, axes)


def _linear(terms: Sequence[tuple[int, str]], constant: int) -> str:
    words = " + ".join(name if slope == 1 else f"{slope}*{name}" for slope, name in terms if slope)
    if not words:
        return str(constant)
    if constant:
        words += f" {'+' if constant > 0 else '-'} {abs(constant)}"
    return words


def _if_fits(expression: Dim, observed: Sequence[tuple[Mapping[str, int], int]]) -> Dim | None:
    return expression if all(evaluate_dim(expression, b) == size for b, size in observed) else None
