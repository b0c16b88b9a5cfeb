"""Screens and spending: small decisions, each against its definition."""

from __future__ import annotations

import pytest

from kernelwright.agents.run import Budget
from kernelwright.agents.screens import Screens, normalised_id
from kernelwright.agents.spending import Clock, Spending
from kernelwright.platforms.candidates import Candidate


def cpp(text):
    return Candidate(language="cpp", sources={"kernel.cpp": text})


def python(text):
    return Candidate(language="python", sources={"kernel.py": text}, entry="kernel.py")


BASE = '#define N 4\nint f(int a) { return a + N; } // adds\nconst char* s = "a // b";\n'


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace(" // adds", ""),
        BASE.replace("// adds", "/* adds\n N */"),
        BASE.replace("int f", "\n\n   int  f"),
        BASE.replace("{ return", "{\treturn"),
    ],
)
def test_comments_and_blanks_do_not_make_another_candidate(text):
    assert cpp(text).id != cpp(BASE).id
    assert normalised_id(cpp(text)) == normalised_id(cpp(BASE))


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("a + N", "a - N"),
        BASE.replace('"a // b"', '"a // c"'),
        BASE.replace("4\nint", "4 int"),
        BASE.replace("int f", "intf"),
    ],
)
def test_other_code_is_another_candidate(text):
    assert normalised_id(cpp(text)) != normalised_id(cpp(BASE))


def test_python_is_compared_by_its_tokens():
    base = "def f(x):\n    # why\n    return x + 1\n"
    same = "def f(x):\n        return x  +  1  # because\n"
    assert normalised_id(python(same)) == normalised_id(python(base))
    assert normalised_id(python(base.replace("+ 1", "+ 2"))) != normalised_id(python(base))
    assert normalised_id(python("s = '# no comment'\n")) != normalised_id(python("s = ''\n"))
    nested = "if a:\n    b()\n    c()\n"
    assert normalised_id(python(nested)) != normalised_id(python("if a:\n    b()\nc()\n"))
    assert normalised_id(python("def broken(:\n  '''")) != normalised_id(python("def broken(:"))


def test_what_decides_the_behaviour_counts_too():
    assert normalised_id(cpp(BASE)) != normalised_id(cpp(BASE).replace(threads=1))
    assert normalised_id(cpp(BASE)) == normalised_id(cpp(BASE).replace(parameters={"unroll": 4}))


def test_each_screen_has_its_name():
    broken = cpp("int broken;")
    screens = Screens(frozenset({broken.id}))
    kept, out = screens.sift([cpp("int a;"), cpp("int a;"), cpp("int  a; // again"), broken, cpp("int b;")])
    assert [c.sources["kernel.cpp"] for c in kept] == ["int a;", "int b;"]
    assert out == {
        cpp("int a;").id: "duplicate",
        cpp("int  a; // again").id: "same_source",
        broken.id: "known_failing_build",
    }
    screens.admit([cpp("int c;")])
    assert screens.verdict(cpp("int c;")) == "duplicate"


NONE = Budget(evaluations=None, wall_seconds=None)


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (NONE, {"evaluations": 10**6, "tokens": 10**9, "cost_usd": 1e9}, None),
        (NONE.replace(evaluations=5), {"evaluations": 4}, None),
        (NONE.replace(evaluations=5), {"evaluations": 5}, "evaluations"),
        (NONE.replace(evaluations=0), {}, "evaluations"),
        (NONE.replace(tokens=10), {"tokens": 10}, "tokens"),
        (NONE.replace(cost_usd=0.5), {"cost_usd": 0.6}, "cost"),
        (NONE.replace(cost_usd=0.5), {"cost_usd": 0.4}, None),
        (NONE.replace(wall_seconds=0.0), {}, "wall_seconds"),
    ],
)
def test_the_first_limit_that_is_reached_is_named(budget, spent, reason):
    assert Spending(budget, 3, **spent).exhausted() == reason


def test_time_for_the_finalists_is_kept_back_but_never_most_of_it():
    def ends_at(evaluation_seconds):
        spending = Spending(NONE.replace(wall_seconds=100.0), finalists=3, evaluations=10)
        spending.evaluation_seconds = 10 * evaluation_seconds
        for second in range(1000):
            spending.clock.resume_at(second / 5)
            if spending.exhausted():
                return spending.clock.elapsed()
        return None

    assert ends_at(0.0) == pytest.approx(100.0, abs=0.5)
    assert ends_at(1.0) == pytest.approx(92.5, abs=0.5)
    assert ends_at(60.0) == pytest.approx(80.0, abs=0.5)


def test_a_clock_goes_on_where_an_earlier_start_stopped():
    clock = Clock()
    clock.resume_at(50.0)
    assert 50.0 <= clock.elapsed() < 51.0
    clock.resume_at(10.0)
    assert 50.0 <= clock.elapsed() < 51.0


def test_a_serial_run_looks_at_no_clock_while_it_counts_evaluations():
    spending = Spending(Budget(evaluations=10, wall_seconds=10.0), 3, evaluations=2)
    spending.clock.resume_at(9.0)
    assert spending.progress(serial=True) == 0.2
    assert spending.progress(serial=False) == pytest.approx(0.9, abs=0.05)
    only_time = Spending(Budget(evaluations=None, wall_seconds=10.0), 3)
    only_time.clock.resume_at(5.0)
    assert only_time.progress(serial=True) == pytest.approx(0.5, abs=0.05)
