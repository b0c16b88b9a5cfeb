"""What a run looks like on a terminal and in a pipe: widths, escapes, and what untrusted text may do."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kernelwright.agents.events import (
    AttemptJudged,
    BaselinesMeasured,
    Event,
    Note,
    PhaseStarted,
    RunFinished,
    RunStarted,
)
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import RunConfig, RunResult
from kernelwright.interfaces.live import LiveObserver
from kernelwright.interfaces.output import Output, folded, wants_color
from kernelwright.interfaces.watching import PlainObserver, attempt_line
from kernelwright.interfaces.wording import aligned, microseconds, one_line
from kernelwright.judge.evaluation import (
    BaselineTiming,
    BuildFailed,
    Guard,
    Passed,
    Rejected,
    Speed,
    Stage,
    WorkloadTiming,
)
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.platforms.detect import detect_device
from kernelwright.tasks.model import Task, TaskSource, TensorSpec, Workload
from kernelwright.tasks.request import TaskRequest

DEVICE = detect_device(measure=False)
EVIL = "\x1b[2J\x1b]0;title\x07[bold red]not markup[/bold red]\r\nsecond line"
ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def timed(candidate: Candidate, speedup: float) -> Passed:
    interval = (speedup * 0.9, speedup * 1.1)
    timing = WorkloadTiming(
        workload="w",
        axes={},
        baseline="compile",
        candidate_us=(10.0,),
        baseline_us=(10.0 * speedup,),
        speedup=speedup,
        speedup_ci=interval,
        roofline_us=5.0,
        roofline_fraction=0.5,
        bound="memory",
        moved_bytes=1,
        operations=1,
    )
    speed = Speed(
        verdict="faster", speedup=speedup, speedup_ci=interval, roofline_fraction=0.5, workloads=(timing,), clock="c"
    )
    return Passed(candidate=candidate.id, task="t", device="d", speed=speed)


def candidate(number: int, plan: str, *parents: str, **parameters: int) -> Candidate:
    origin = Origin(proposer="mutate", operator="mutate", parents=parents, plan=plan, template="rows")
    return Candidate(language="cpp", sources={"kernel.cpp": f"// {number}"}, parameters=parameters, origin=origin)


def run(plan: str = "unroll more", attempts: int = 30) -> list[Event]:
    task = Task(
        name=f"softmax {plan}",
        source=TaskSource(kind="function", path="softmax.py", attribute="softmax", text=""),
        arguments=(TensorSpec(name="x", dtype="float32", dims=(8,)),),
        outputs=(TensorSpec(name="out", dtype="float32", dims=(8,), role="output"),),
        workloads=(Workload(name="w", axes={}, timed=True),),
        notes=(f"a note: {plan}",),
    )
    config = RunConfig(request=TaskRequest(target="softmax.py"))
    modes = (
        BaselineTiming(mode="eager", workload="w", median_us=812.0),
        BaselineTiming(mode="compile", workload="w", median_us=None, failure=plan),
    )
    events: list[Event] = [
        PhaseStarted(phase="audit", detail=plan),
        RunStarted(run="r", folder="runs/r", config=config, task=task, device=DEVICE),
        BaselinesMeasured(baselines=modes),
        PhaseStarted(phase="search", detail="evolve"),
    ]
    first = candidate(0, plan, unroll=1)
    best = Attempt(candidate=first, evaluation=timed(first, 1.5))
    events.append(AttemptJudged(index=1, attempt=best, best=best, elapsed_seconds=2.0))
    common = {"task": "t", "device": "d"}
    for index in range(2, attempts):
        made = candidate(index, plan, first.id, unroll=index)
        verdicts = [
            timed(made, 1.2),
            BuildFailed(candidate=made.id, reason=f"error: {plan}", **common),
            Rejected(candidate=made.id, stage=Stage.GUARD, guard=Guard.OUT_OF_BOUNDS_WRITE, reason=plan, **common),
        ]
        attempt = Attempt(candidate=made, evaluation=verdicts[index % 3])
        events.append(AttemptJudged(index=index, attempt=attempt, best=best, elapsed_seconds=float(index)))
    result = RunResult(
        run="r",
        outcome="improved",
        reason="faster",
        stop_reason="evaluations",
        task="t",
        device="d",
        best=first.id,
        evaluations=attempts,
        seconds=30.0,
    )
    return [*events, Note(text=plan), RunFinished(result=result)]


def plain(events: list[Event], capsys: pytest.CaptureFixture[str]) -> str:
    observer = PlainObserver(Output())
    for event in events:
        observer.on_event(event)
    return capsys.readouterr().out


def drawn(events: list[Event], width: int, height: int = 24) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=True, color_system=None)
    observer = LiveObserver(console)
    for event in events:
        observer._watched.take(event)
    console.print(observer.drawn())
    return stream.getvalue()


def test_a_pipe_gets_plain_lines_of_at_most_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    text = plain(run(), capsys)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "baseline eager PyTorch: 812 us" in lines
    assert any(line.split()[:4] == ["1", "faster", "1.50x", "1.35-1.65"] for line in lines)
    assert any("unroll=3" in line for line in lines)
    assert any("out of bounds" in line for line in lines)
    assert not ESCAPE.search(text.replace("\n", ""))


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_live_table_fits_terminal_and_shows_the_best(width: int) -> None:
    text = drawn(run()[:-1], width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    assert "1.50x (95% CI 1.35-1.65)" in text
    assert "29 of 60 evaluations, 29 of 150 s" in text
    assert sum("95% CI" in line for line in lines) == (2 if width >= 96 else 1)
    assert "out of bounds" in text


@pytest.mark.parametrize("width", [80, 120])
def test_untrusted_text_moves_no_cursor_and_is_no_markup(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    live = drawn(run(EVIL)[:-1], width)
    piped = plain(run(EVIL), capsys)
    for text in (live, piped):
        assert not ESCAPE.search(text.replace("\n", ""))
        assert "title" not in text
        assert "[bold" in text
    assert len(live.splitlines()) <= 24


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_plan_keeps_its_line(plan: str) -> None:
    made = candidate(1, plan)
    event = AttemptJudged(
        index=1, attempt=Attempt(candidate=made, evaluation=timed(made, 2.0)), best=None, elapsed_seconds=1.0
    )
    line = attempt_line(event, one_line(plan))
    assert len(line) <= 80
    assert len(line.splitlines()) == 1
    assert not ESCAPE.search(line)


def test_json_keeps_standard_output_free_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    observer = PlainObserver(Output(as_json=True))
    for event in run():
        observer.on_event(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "searching: evolve" in captured.err


def test_colour_is_for_terminals_where_nobody_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_color(Terminal())
    assert not wants_color(io.StringIO())
    assert not wants_color(Terminal(), allowed=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_color(Terminal())


def test_standard_output_of_libraries_and_children_goes_to_standard_error(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import os, sys\nfrom kernelwright.interfaces.output import Output\n"
        "output = Output(as_json=True)\n"
        "with output.guarded():\n"
        "    print('from python'); os.write(1, b'from a library\\n'); os.system('echo from a child')\n"
        "    output.answer({'value': 1})\n"
        "print('after')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == '{\n "schema_version": 1,\n "value": 1\n}\nafter\n'
    assert {"from python", "from a library", "from a child"} <= set(done.stderr.splitlines())


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.5, "0.50 us"), (8.25, "8.25 us"), (20800.0, "20.8 ms"), (812.4, "812 us"), (1.2e6, "1.20 s")],
)
def test_times_have_three_digits_and_a_unit(value: float, words: str) -> None:
    assert microseconds(value) == words


@given(st.lists(st.text(alphabet="abc /", max_size=120), max_size=5))
def test_folded_prose_loses_no_word(words: list[str]) -> None:
    text = " ".join(words)
    assert " ".join(folded(text)).split() == text.split()


def test_columns_line_up() -> None:
    assert aligned([["a", "bb"], ["ccc", "d"]], right=frozenset({1})) == ["a    bb", "ccc   d"]
