"""Whatever the data are, everything that the charts draw is finite and inside the picture."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from synthetic_run import DEVICE, RUN, attempt, candidate, failures, passed, speed

from kernelwright.archive.records import LedgerFinalist
from kernelwright.core.dtypes import DType
from kernelwright.interfaces.report.kinds import KINDS
from kernelwright.interfaces.report.plotting import Scale, linear_ticks, log_domain, log_ticks, marker
from kernelwright.interfaces.report.progress_chart import progress_chart
from kernelwright.interfaces.report.roofline_chart import Point, best_points, roofline_chart

MADE = candidate()
FAILED = failures("why")
ANY = st.floats(allow_nan=True, allow_infinity=True)
RATIO = st.one_of(st.floats(1e-3, 1e3), st.floats(min_value=0.0, allow_infinity=True), st.just(math.nan))
POSITIVE = st.floats(min_value=1e-300, max_value=1e300)
SIZE = st.sampled_from([(960, 340), (350, 330)])


def coordinates(svg):
    """(x or None, y or None) of every point of every element."""
    root = ElementTree.fromstring(svg)
    points = []
    for node in root.iter():
        for x, y in (("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")):
            if x in node.attrib:
                points.append((float(node.attrib[x]), float(node.attrib[y])))
        if node.tag == "rect":
            points.append((points[-1][0] + float(node.attrib["width"]), points[-1][1] + float(node.attrib["height"])))
        if "d" in node.attrib:
            numbers = [float(n) for n in re.findall(r"[^MLZ\s]+", node.attrib["d"])]
            points += list(zip(numbers[::2], numbers[1::2], strict=True))
    return points


def assert_inside(svg, width, height):
    points = coordinates(svg)
    assert points
    for x, y in points:
        assert math.isfinite(x) and math.isfinite(y)
        assert -0.01 <= x <= width + 0.01 and -0.01 <= y <= height + 0.01


@st.composite
def verdicts(draw):
    made, verdict = draw(st.sampled_from(FAILED))
    if draw(st.booleans()):
        ratio, low, high = draw(RATIO), draw(ANY), draw(ANY)
        timed = speed(1.5).replace(speedup=ratio, speedup_ci=(low, high))
        return MADE, passed(MADE, 1.0, speed=timed)
    return made, verdict


@settings(max_examples=80, deadline=None)
@given(st.lists(verdicts(), max_size=12), st.lists(RATIO, max_size=6), SIZE)
def test_progress_is_inside_its_picture(judged, again, size):
    attempts = [attempt(n, *pair) for n, pair in enumerate(judged, start=1)]
    finalists = [
        LedgerFinalist(
            run=RUN,
            rank=n,
            candidate=MADE.id,
            elapsed_seconds=1.0,
            evaluation=passed(MADE, 1.0, speed=speed(1.5).replace(speedup=ratio)),
        )
        for n, ratio in enumerate(again)
    ]
    assert_inside(progress_chart(attempts, finalists, width=size[0], height=size[1], identity="p"), *size)


POINT = st.builds(Point, POSITIVE, POSITIVE, st.just("a point"))


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(POINT, POINT), max_size=5),
    st.lists(POINT, max_size=5),
    st.floats(1e-6, 1e9),
    st.floats(1e-6, 1e9),
    st.one_of(st.none(), st.floats(1e-6, 1e9)),
    SIZE,
)
def test_roofline_is_inside_its_picture(pairs, others, memory, caches, peak, size):
    ceilings = DEVICE.ceilings.replace(
        copy_gbytes_per_s=memory,
        cache_copy_gbytes_per_s=caches,
        fma_gflops={} if peak is None else {DType.FLOAT32: peak},
    )
    svg = roofline_chart(
        ceilings,
        "float32",
        [a for a, _ in pairs],
        [b for _, b in pairs],
        others,
        width=size[0],
        height=size[1],
        identity="r",
    )
    assert_inside(svg, *size)


def test_points_are_operations_over_time_and_bytes():
    timed = speed(2.0)
    baselines, kernels = best_points(timed)
    first = timed.workloads[0]
    middle = sorted(first.candidate_us)[len(first.candidate_us) // 2]
    assert kernels[0].gflops == pytest.approx(first.operations / (middle * 1e-6) / 1e9)
    assert kernels[0].intensity == pytest.approx(first.operations / first.moved_bytes)
    assert kernels[0].gflops == pytest.approx(2 * baselines[0].gflops)


def test_outcomes_differ_by_shape():
    shapes = [kind.shape for kind in KINDS.values()]
    assert len(set(shapes)) == len(shapes)
    drawn = {
        shape: str(marker(shape, 10.0, 10.0, 4.0, "quiet")).split(">", 1)[1] for shape in shapes if shape != "ring"
    }
    assert len(set(drawn.values())) == len(drawn)


def test_better_stands_higher_and_failures_lowest():
    judged = [(MADE, passed(MADE, ratio)) for ratio in (1.2, 2.4, 0.7)] + [FAILED[0]]
    attempts = [attempt(n, *pair) for n, pair in enumerate(judged, start=1)]
    root = ElementTree.fromstring(progress_chart(attempts, [], width=960, height=340, identity="p"))
    marks = [g for g in root.iter("g") if g.attrib.get("class", "").startswith("mark")]
    heights = [coordinates(ElementTree.tostring(g))[0][1] for g in marks]
    assert heights[1] < heights[0] < heights[2] < heights[3]
    assert len({g.attrib["class"] for g in marks}) == 3, "outcomes differ by class, hence by shape and colour"
    baseline = next(n for n in root.iter("line") if n.attrib.get("class") == "baseline")
    assert heights[0] < float(baseline.attrib["y1"]) < heights[2]


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(2, 10))
def test_linear_ticks_are_few_round_and_inside(low, span, about):
    high = low + span
    if high - low < abs(low) * 1e-9:
        return
    ticks = linear_ticks(low, high, about)
    assert len(ticks) <= 2 * about + 2
    assert all(low - span * 1e-6 <= t <= high + span * 1e-6 for t in ticks)


@given(st.floats(1e-200, 1e200), st.floats(1.01, 1e50), st.integers(3, 8))
def test_log_ticks_are_few_and_inside(low, ratio, about):
    ticks = log_ticks(low, low * ratio, about)
    assert len(ticks) <= 2 * about + 3
    assert all(low * 0.999999 <= t <= low * ratio * 1.000001 for t in ticks)


@given(st.lists(ANY), st.lists(ANY, max_size=3))
@example([], [1.6e307])
@example([5e-324], [])
@example([4.6958287927927016e16, math.inf], [8.501429668492435e-89])
def test_a_domain_holds_every_usable_value(values, around):
    low, high = log_domain(values, around=around)
    assert 0 < low < high < math.inf
    usable = [v for v in (*values, *around) if math.isfinite(v) and 1e-280 < v < 1e280]
    assert all(low <= v <= high for v in usable)
    scale = Scale(low, high, 10.0, 90.0, log=True)
    assert all(10.0 <= scale(v) <= 90.0 for v in values)
