"""Speedup over evaluations: every attempt, the best so far, and the second measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, lower_speedup
from kernelwright.interfaces.report.figures import count, interval, one_line, times
from kernelwright.interfaces.report.kinds import Kind, kind_of
from kernelwright.interfaces.report.plotting import Scale, element, label, log_domain, marker, path, picture
from kernelwright.judge.evaluation import Evaluation, Passed, Speed

LANE = 22
"""Height of the strip for attempts without a speedup, pixels."""


@dataclass(frozen=True)
class _Frame:
    x: Scale
    y: Scale
    again: Scale | None
    """Where second measurements stand, right of the attempts."""
    lane: float | None
    """Height of the strip below the plot."""
    bottom: float


def progress_chart(
    attempts: Sequence[LedgerAttempt], finalists: Sequence[LedgerFinalist], *, width: int, height: int, identity: str
) -> Markup:
    """The chart, `width` x `height` pixels. `identity` is unique in the page."""
    frame = _frame(attempts, finalists, width, height)
    best = _best_so_far(attempts)
    room = (frame.x.end - frame.x.start) / (frame.x.high - frame.x.low)
    size = min(max(room * 0.42, 2.0), 4.4)
    parts = [
        _axes(frame, attempts, width),
        *(_interval(frame.x(a.index), speed, frame) for a in attempts if (speed := speed_of(a.evaluation))),
        _best_line(frame, best, attempts),
        *(_attempt(frame, a, size) for a in attempts),
        *_finalists(frame, finalists, {a.evaluation.candidate: a.index for a in attempts}),
    ]
    return picture(identity, width, height, "Speedup over evaluations", _describe(attempts, best), *parts)


def speed_of(evaluation: Evaluation) -> Speed | None:
    """The speed of a verdict that has a usable one."""
    speed = evaluation.speed if isinstance(evaluation, Passed) else None
    return speed if speed and math.isfinite(speed.speedup) and speed.speedup > 0 else None


def _frame(attempts: Sequence[LedgerAttempt], finalists: Sequence[LedgerFinalist], width: int, height: int) -> _Frame:
    evaluations = [*(a.evaluation for a in attempts), *(f.evaluation for f in finalists)]
    speeds = [s for evaluation in evaluations if (s := speed_of(evaluation))]
    # An interval may reach far beyond its point; only the points decide the range, with room for usual intervals.
    low, high = log_domain([s.speedup for s in speeds], around=(0.8, 1.25))
    wide = [bound for s in speeds for bound in s.speedup_ci if low / 1.6 <= bound <= high * 1.6]
    low, high = log_domain([*wide, low, high], margin=0.0)
    shown = [f for f in finalists if speed_of(f.evaluation)]
    room = 22.0 * len(shown) + 18 if shown else 0.0
    left, right, bottom = 46.0, width - 12.0 - room, height - 38.0
    strip = any(speed_of(a.evaluation) is None for a in attempts)
    last = max((a.index for a in attempts), default=1)
    return _Frame(
        x=Scale(0.5, last + 0.5, left, right),
        y=Scale(low, high, bottom - (LANE + 6 if strip else 0), 30.0, log=True),
        again=Scale(-0.5, len(shown) - 0.5, right + 18, width - 12.0) if shown else None,
        lane=bottom - LANE / 2 if strip else None,
        bottom=bottom,
    )


def _axes(frame: _Frame, attempts: Sequence[LedgerAttempt], width: int) -> Markup:
    left, right, base = frame.x.start, width - 12.0, frame.bottom
    parts = [label("speedup, log scale", 4.0, 14.0, class_="axis-name")]
    for tick in frame.y.ticks(5):
        if abs(tick - 1) > 1e-9:
            parts.append(element("line", x1=left, x2=right, y1=frame.y(tick), y2=frame.y(tick), class_="grid"))
            parts.append(label(f"{tick:g}×", left - 8, frame.y(tick) + 4, anchor="end"))
    parts += [
        element("line", x1=left, x2=right, y1=frame.y(1.0), y2=frame.y(1.0), class_="baseline"),
        label("1×", left - 8, frame.y(1.0) + 4, anchor="end", class_="label strong"),
        element("line", x1=left, x2=right, y1=base, y2=base, class_="axis"),
        label("evaluation", (frame.x.start + frame.x.end) / 2, base + 33, anchor="middle", class_="axis-name"),
    ]
    if frame.lane is not None:
        parts.append(element("rect", x=left, y=base - LANE, width=right - left, height=float(LANE), class_="lane"))
        parts.append(label("none", left - 8, frame.lane + 4, anchor="end"))
    for tick in frame.x.ticks(8 if width > 500 else 5) if attempts else []:
        if tick >= 1 and float(tick).is_integer():
            parts.append(element("line", x1=frame.x(tick), x2=frame.x(tick), y1=base, y2=base + 4, class_="axis"))
            parts.append(label(f"{tick:.0f}", frame.x(tick), base + 17, anchor="middle"))
    if frame.again is not None:
        edge = frame.x.end + 9
        middle = (frame.again.start + frame.again.end) / 2
        parts.append(element("line", x1=edge, x2=edge, y1=30.0, y2=base, class_="divider"))
        parts.append(label("again", middle, base + 17, anchor="middle"))
    return element("g", Markup("").join(parts))


def _interval(x: float, speed: Speed, frame: _Frame) -> Markup:
    low, high = (frame.y(bound) for bound in speed.speedup_ci)
    return element("line", x1=x, x2=x, y1=low, y2=high, class_="interval")


def _attempt(frame: _Frame, attempt: LedgerAttempt, size: float) -> Markup:
    kind, speed = kind_of(attempt.evaluation), speed_of(attempt.evaluation)
    height = frame.y(speed.speedup) if speed else frame.lane
    assert height is not None
    return marker(kind.shape, frame.x(attempt.index), height, size, kind.tone, title=_tooltip(attempt, kind, speed))


def _tooltip(attempt: LedgerAttempt, kind: Kind, speed: Speed | None) -> str:
    origin = attempt.candidate.origin
    made = " ".join(filter(None, (origin.proposer, origin.operator)))
    came = f"{times(speed.speedup)} ({interval(speed.speedup_ci)})" if speed else ""
    return one_line(f"#{attempt.index} {made}: {kind.words} {came}", 160)


def _finalists(frame: _Frame, finalists: Sequence[LedgerFinalist], numbers: dict[str, int]) -> list[Markup]:
    parts: list[Markup] = []
    shown = [(f, speed) for f in finalists if (speed := speed_of(f.evaluation))]
    for place, (finalist, speed) in enumerate(shown):
        assert frame.again is not None
        x = frame.again(place)
        number = numbers.get(finalist.candidate, "?")
        title = f"#{number} measured again: {times(speed.speedup)} ({interval(speed.speedup_ci)})"
        parts.append(_interval(x, speed, frame))
        parts.append(marker("star", x, frame.y(speed.speedup), 4.4, kind_of(finalist.evaluation).tone, title=title))
    return parts


def _best_so_far(attempts: Sequence[LedgerAttempt]) -> list[tuple[int, float]]:
    """(evaluation, speedup) wherever a new best came: as the search decides, by the lower end of the interval."""
    steps: list[tuple[int, float]] = []
    highest = 0.0
    for attempt in attempts:
        speed, low = speed_of(attempt.evaluation), lower_speedup(attempt.evaluation)
        if speed and low is not None and low > highest:
            highest = low
            steps.append((attempt.index, speed.speedup))
    return steps


def _best_line(frame: _Frame, best: list[tuple[int, float]], attempts: Sequence[LedgerAttempt]) -> Markup:
    if not best:
        return Markup("")
    points: list[tuple[float, float]] = []
    for index, speedup in best:
        if points:
            points.append((frame.x(index), points[-1][1]))
        points.append((frame.x(index), frame.y(speedup)))
    points.append((frame.x(attempts[-1].index + 0.5), points[-1][1]))
    return path(points, class_="best-line")


def _describe(attempts: Sequence[LedgerAttempt], best: list[tuple[int, float]]) -> str:
    if not attempts:
        return "Nothing was judged."
    right = sum(speed_of(a.evaluation) is not None for a in attempts)
    said = f"{count(len(attempts), 'evaluation')}, {right} of them right and timed."
    if best:
        said += f" The best by the lower end of its interval came at evaluation {best[-1][0]}: {times(best[-1][1])}."
    return said
