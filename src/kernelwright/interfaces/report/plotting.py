"""Scales, ticks, axes and markers as SVG. Coordinates are finite and inside the picture whatever the data are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

_EXTREME = 290.0
"""Decimal exponents are kept within this, so that a margin around them stays a float."""


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`; values outside land on the edge."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value. A value that is not a number lands at the start."""
        if math.isnan(value):
            return self.start
        inside = min(max(value, self.low), self.high)
        if self.log:
            a, b, v = math.log10(self.low), math.log10(self.high), math.log10(inside)
        else:
            a, b, v = self.low, self.high, inside
        share = min(max((v - a) / (b - a), 0.0), 1.0)
        return self.end if share == 1.0 else self.start + (self.end - self.start) * share

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the scale, about as many as asked for."""
        return log_ticks(self.low, self.high, about) if self.log else linear_ticks(self.low, self.high, about)


def linear_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Powers of ten; 1, 2, 5 between them where there is room; evenly spaced values within half a decade."""
    decades = math.log10(high) - math.log10(low)
    if decades < 0.5:
        return linear_ticks(low, high, about)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if decades <= about / 2:
        steps = (1, 2, 5) if decades * 3 <= about + 3 else (1, 3)
        candidates = [m * 10.0**e for e in range(first, last + 1) for m in steps]
    else:
        stride = max(1, math.ceil(decades / about))
        candidates = [10.0**e for e in range(first, last + 1) if e % stride == 0]
    return [tick for tick in candidates if low <= tick <= high]


def log_domain(values: Iterable[float], *, around: Iterable[float] = (), margin: float = 0.06) -> tuple[float, float]:
    """The range of a logarithmic axis: all positive finite values, and `around`, with some air."""
    usable = [v for v in (*values, *around) if math.isfinite(v) and v > 0] or [1.0]
    low, high = (min(max(math.log10(end), -_EXTREME), _EXTREME) for end in (min(usable), max(usable)))
    air = min(max((high - low) * margin, 0.06), 5.0)
    return 10.0 ** (low - air), 10.0 ** (high + air)


def element(name: str, content: str | Markup = "", /, **attributes: object) -> Markup:
    """One SVG element. Attributes and plain text are escaped; `stroke_width` stands for `stroke-width`."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), number(value)) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, content)


def number(value: object) -> str:
    """A coordinate with two digits after the point; anything else as text."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path(points: Iterable[tuple[float, float]], *, close: bool = False, **attributes: object) -> Markup:
    """A line through points."""
    line = "L".join(f"{number(float(x))} {number(float(y))}" for x, y in points)
    return element("path", d=f"M{line}{'Z' if close else ''}", **attributes)


def label(text: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """Text at a point."""
    return element("text", escape(text), x=x, y=y, text_anchor=anchor, class_=class_)


def picture(identity: str, width: int, height: int, title: str, description: str, *parts: Markup) -> Markup:
    """The whole SVG, named and described for those who do not see it."""
    head = element("title", title, id=f"{identity}-title") + element("desc", description, id=f"{identity}-desc")
    return Markup(
        '<svg viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-labelledby="{i}-title {i}-desc">{body}</svg>'
    ).format(w=width, h=height, i=identity, body=head + Markup("").join(parts))


_POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "triangle": ((0, 1.15), (1.15, -0.85), (-1.15, -0.85)),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "hourglass": ((-0.9, -1.0), (0.9, -1.0), (-0.9, 1.0), (0.9, 1.0)),
}
_STROKES: dict[str, tuple[tuple[tuple[float, float], tuple[float, float]], ...]] = {
    "cross": (((-0.9, -0.9), (0.9, 0.9)), ((-0.9, 0.9), (0.9, -0.9))),
    "plus": (((0, -1.1), (0, 1.1)), ((-1.1, 0), (1.1, 0))),
    "bar": (((-1.0, 0), (1.0, 0)),),
    "asterisk": (((0, -1.1), (0, 1.1)), ((-0.95, -0.55), (0.95, 0.55)), ((-0.95, 0.55), (0.95, -0.55))),
    "barred": (((-0.7, 0.7), (0.7, -0.7)),),
}
_STAR = tuple((r * math.sin(math.pi * n / 5), -r * math.cos(math.pi * n / 5)) for n, r in enumerate((1.6, 0.7) * 5))


def marker(shape: str, x: float, y: float, size: float, class_: str, *, title: str = "") -> Markup:
    """A mark of about `size` pixels around a point, with a tooltip."""

    def placed(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(x + size * dx, y + size * dy) for dx, dy in points]

    parts = [element("title", title)] if title else []
    if shape in ("circle", "ring", "barred"):
        parts.append(element("circle", cx=x, cy=y, r=float(size)))
    if shape == "star":
        parts.append(path(placed(_STAR), close=True))
    if shape in _POLYGONS:
        parts.append(path(placed(_POLYGONS[shape]), close=True))
    parts += [path(placed(stroke)) for stroke in _STROKES.get(shape, ())]
    return element("g", Markup("").join(parts), class_=f"mark {shape} {class_}")
