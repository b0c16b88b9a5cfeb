"""Two measurements of a finalist become one verdict that neither of them alone could give."""

from __future__ import annotations

import pytest

from kernelwright.agents.finalists import confirmed, decide
from kernelwright.judge.evaluation import Incorrect, Passed, Speed, WorkloadTiming


def passed(speedup: float, low: float, high: float) -> Passed:
    verdict = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    timing = WorkloadTiming(
        workload="w",
        axes={},
        baseline="compile",
        candidate_us=(1.0, 1.0),
        baseline_us=(speedup, speedup),
        speedup=speedup,
        speedup_ci=(low, high),
        roofline_us=0.5,
        roofline_fraction=0.5,
        bound="memory",
        moved_bytes=1,
        operations=1,
    )
    speed = Speed(
        verdict=verdict,
        speedup=speedup,
        speedup_ci=(low, high),
        roofline_fraction=0.5,
        workloads=(timing,),
        clock="perf_counter",
    )
    return Passed(candidate="c", task="t", device="d", speed=speed, seconds={"time": 1.0})


def test_both_must_say_faster():
    whole = confirmed(passed(2.0, 1.8, 2.2), passed(1.5, 1.4, 1.6))
    assert whole.speed.verdict == "faster"
    assert whole.speed.speedup == pytest.approx(3.0**0.5)
    assert whole.speed.speedup_ci == (1.4, 2.2)
    assert len(whole.speed.workloads[0].candidate_us) == 4
    assert whole.seconds == {"time": 2.0}


@pytest.mark.parametrize("second", [(0.5, 0.4, 0.6), (1.0, 0.9, 1.1)])
def test_a_win_that_does_not_repeat_is_inconclusive_in_either_order(second):
    for pair in ((passed(2.2, 1.1, 3.4), passed(*second)), (passed(*second), passed(2.2, 1.1, 3.4))):
        whole = confirmed(*pair)
        assert whole.speed.verdict == "inconclusive"
        assert whole.speed.speedup_ci[0] < 1 < whole.speed.speedup_ci[1]


def test_a_wrong_result_in_either_measurement_is_the_verdict():
    wrong = Incorrect(candidate="c", task="t", device="d", reason="row 3")
    assert confirmed(wrong, passed(2.0, 1.8, 2.2)) is wrong
    assert confirmed(passed(2.0, 1.8, 2.2), wrong) is wrong


def test_a_run_without_a_verdict_says_whether_time_or_ideas_ran_out():
    assert "--wall" in decide(None, [], 0, "", stop="wall_seconds").reason
    assert decide(None, [], 0, "it has a loop", stop="exhausted").reason.endswith("it has a loop")
