"""The roofline: how fast each workload ran, and how fast the measured ceilings let it run.

Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009: attainable = min(peak, bandwidth x intensity), with
intensity = operations / compulsory bytes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.interfaces.report.figures import count, digits, one_line, percent
from kernelwright.interfaces.report.plotting import Scale, element, label, log_domain, marker, path, picture
from kernelwright.judge.evaluation import Speed, WorkloadTiming
from kernelwright.platforms.device import Ceilings


@dataclass(frozen=True)
class Point:
    """One timed workload under one implementation."""

    intensity: float
    """Operations per byte."""
    gflops: float
    """10**9 operations per second."""
    words: str


def best_points(speed: Speed) -> tuple[list[Point], list[Point]]:
    """The baseline's points and the kernel's, for the workloads in which arithmetic was counted."""
    baselines, kernels = [], []
    for w in speed.workloads:
        kernel, baseline = _point(w, w.candidate_us, "this kernel"), _point(w, w.baseline_us, w.baseline)
        if kernel and baseline:
            kernels.append(kernel)
            baselines.append(baseline)
    return baselines, kernels


def attempt_points(speeds: Sequence[Speed]) -> list[Point]:
    """Where the other attempts ran."""
    points = (_point(w, w.candidate_us, "an attempt") for speed in speeds for w in speed.workloads)
    return [point for point in points if point]


def _point(timing: WorkloadTiming, samples_us: Sequence[float], who: str) -> Point | None:
    microseconds = statistics.median(samples_us) if samples_us else 0.0
    if timing.operations <= 0 or timing.moved_bytes <= 0 or not (math.isfinite(microseconds) and microseconds > 0):
        return None
    gflops = timing.operations / microseconds / 1e3
    fraction = timing.roofline_us / microseconds
    words = f"{who} on {one_line(timing.workload, 60)}: {digits(gflops)} GFLOP/s, {percent(fraction)} of the roofline"
    return Point(timing.operations / timing.moved_bytes, gflops, words)


def roofline_chart(
    ceilings: Ceilings,
    dtype: str,
    baselines: Sequence[Point],
    kernels: Sequence[Point],
    others: Sequence[Point],
    *,
    width: int,
    height: int,
    identity: str,
) -> Markup:
    """The chart, `width` x `height` pixels, with the peak of `dtype`. `identity` is unique in the page."""
    peak = next((v for k, v in ceilings.fma_gflops.items() if str(k) == dtype), None)
    x, y = _scales(ceilings, peak, [*baselines, *kernels, *others], width, height)
    roofs = [(ceilings.copy_gbytes_per_s, "memory", "roof"), (ceilings.cache_copy_gbytes_per_s, "caches", "roof cache")]
    parts = [
        _axes(x, y, width),
        *(_roof(x, y, bandwidth, peak, class_) for bandwidth, _, class_ in roofs),
        *(_roof_name(x, y, bandwidth, words) for bandwidth, words, _ in roofs),
        _peak_name(x, y, peak, dtype),
        *(marker("circle", x(p.intensity), y(p.gflops), 2.4, "faint", title=p.words) for p in others),
        *(_lift(x, y, a, b) for a, b in zip(baselines, kernels, strict=True)),
        *(marker("square", x(p.intensity), y(p.gflops), 4.6, "even", title=p.words) for p in baselines),
        *(marker("star", x(p.intensity), y(p.gflops), 5.2, "good", title=p.words) for p in kernels),
    ]
    said = (
        f"Measured ceilings: {digits(ceilings.copy_gbytes_per_s)} GB/s from memory,"
        f" {digits(ceilings.cache_copy_gbytes_per_s)} GB/s from the caches, {digits(peak)} GFLOP/s in {dtype}."
        f" {count(len(kernels), 'workload')}: " + "; ".join(p.words for p in (*kernels[:4], *baselines[:4])) + "."
    )
    return picture(identity, width, height, "Roofline of the kernel and the baseline", said, *parts)


def _scales(
    ceilings: Ceilings, peak: float | None, points: Sequence[Point], width: int, height: int
) -> tuple[Scale, Scale]:
    bandwidth = ceilings.copy_gbytes_per_s
    ridge = peak / bandwidth if peak and bandwidth > 0 else 10.0
    low, high = log_domain([p.intensity for p in points], around=(ridge * 2, ridge / 30))
    x = Scale(low, high, 54.0, width - 14.0, log=True)
    roofs = [peak or bandwidth * high, bandwidth * max(low * 4, 1e-280)]
    bottom, top = log_domain([p.gflops for p in points], around=roofs)
    return x, Scale(bottom, top, height - 40.0, 28.0, log=True)


def _axes(x: Scale, y: Scale, width: int) -> Markup:
    parts = [
        label("GFLOP/s, log scale", 4.0, 14.0, class_="axis-name"),
        label(
            "operations per byte moved, log scale",
            (x.start + x.end) / 2,
            y.start + 34,
            anchor="middle",
            class_="axis-name",
        ),
    ]
    for tick in y.ticks(5):
        parts.append(element("line", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(label(digits(tick, 1), x.start - 8, y(tick) + 4, anchor="end"))
    for tick in x.ticks(6 if width > 500 else 4):
        parts.append(element("line", x1=x(tick), x2=x(tick), y1=y.start, y2=y.end, class_="grid"))
        parts.append(label(digits(tick, 1), x(tick), y.start + 17, anchor="middle"))
    parts.append(element("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    return element("g", Markup("").join(parts))


def _visible_slope(x: Scale, y: Scale, bandwidth: float, peak: float | None) -> tuple[float, float]:
    """First and last intensity at which bandwidth x intensity is in the picture and below the peak."""
    first = max(x.low, y.low / bandwidth)
    return first, max(first, min(x.high, min(peak or math.inf, y.high) / bandwidth))


def _roof(x: Scale, y: Scale, bandwidth: float, peak: float | None, class_: str) -> Markup:
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        return Markup("")
    first, ridge = _visible_slope(x, y, bandwidth, peak)
    points = [(x(first), y(bandwidth * first)), (x(ridge), y(bandwidth * ridge))]
    if peak:
        points.append((x.end, y(peak)))
    return path(points, class_=class_)


def _roof_name(x: Scale, y: Scale, bandwidth: float, words: str) -> Markup:
    """Right below the slope, where it has left the edge: the line rises away from the text."""
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        return Markup("")
    first, ridge = _visible_slope(x, y, bandwidth, None)
    place = first * min((ridge / first) ** 0.25, 6.0)
    return label(words, x(place) + 12, y(bandwidth * place) + 12, class_="label roof-name")


def _peak_name(x: Scale, y: Scale, peak: float | None, dtype: str) -> Markup:
    if not peak:
        return Markup("")
    return label(f"{dtype} peak {digits(peak)} GFLOP/s", x.end, y(peak) - 7, anchor="end", class_="label roof-name")


def _lift(x: Scale, y: Scale, baseline: Point, kernel: Point) -> Markup:
    return path([(x(baseline.intensity), y(baseline.gflops)), (x(kernel.intensity), y(kernel.gflops))], class_="lift")
