"""Numbers as a reader wants them, and text from untrusted places made harmless."""

from __future__ import annotations

import math
import re

from kernelwright.core.text import strip_escapes, trimmed

NOTHING = "–"
"""Shown where there is no number."""

_DIRECTION = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: object, limit: int = 4000) -> str:
    """`text` without escapes, its head and tail where it is long. Invisible and direction-changing characters, with
    which a source can look like another one, are spelled out."""
    visible = strip_escapes(trimmed(str(text), limit=limit))
    return _DIRECTION.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", visible)


def one_line(text: object, limit: int = 300) -> str:
    """`clean`, without line breaks."""
    flat = " ".join(clean(text, 4 * limit).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def digits(value: float | None, places: int = 3) -> str:
    """`value` with about `places` significant digits, never in a shape such as `1e+03`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= 7:
        mantissa, exponent = f"{value:.{places - 1}e}".split("e")
        return f"{mantissa}·10{_superscript(int(exponent))}"
    return f"{value:,.{max(places - 1 - size, 0)}f}"


def _superscript(value: int) -> str:
    return str(value).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def times(value: float | None) -> str:
    """A ratio: `4.03×`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.2f}×" if 0.1 <= abs(value) < 1e6 else f"{digits(value)}×"


def interval(bounds: tuple[float, float] | None) -> str:
    """`3.06 – 4.60`."""
    if bounds is None:
        return NOTHING
    return " – ".join(times(bound).rstrip("×") for bound in bounds)


def percent(fraction: float | None) -> str:
    """`15 %`."""
    if fraction is None or not math.isfinite(fraction):
        return NOTHING
    return f"{digits(100 * fraction, 2 if abs(fraction) < 0.995 else 3)} %"


def microseconds(value: float | None) -> str:
    """Three digits and a unit: `812 µs`, `20.8 ms`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if value >= scale:
            return f"{digits(value / scale)} {unit}"
    return f"{digits(value)} µs"


def duration(seconds: float | None) -> str:
    """`54.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 60:
        return f"{digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def byte_count(value: int) -> str:
    """`96.0 MiB`."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{digits(size) if unit != 'B' else value} {unit}"
        size /= 1024
    return f"{digits(size)} TiB"


def count(number: int, one: str, many: str = "") -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
