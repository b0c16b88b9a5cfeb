"""The page of a run against its records, read by an HTML parser."""

from __future__ import annotations

import ast
import inspect
import re
import statistics

import pytest
from reading_pages import Page
from synthetic_run import (
    CHECKS,
    DEVICE,
    KERNEL,
    REFERENCE,
    TASK,
    attempt,
    candidate,
    evolution,
    failures,
    full_run,
    header,
    passed,
    result,
    speed,
    write,
)

from kernelwright.agents.drafter import spaces
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import EnvironmentProblem, ResumeError
from kernelwright.interfaces.report.page import write_page
from kernelwright.interfaces.report.parameters import known_parameters
from kernelwright.judge.evaluation import Guard

HOSTILE = (
    "<script>document.title='owned'</script></pre></style></svg><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    " \x1b[31mred\x1b[0m \u202eflipped\u202c {{ 7 * 7 }} {% raw %} " + "W" * 5000
)


def page_of(folder, destination=None):
    destination = destination or folder.parent / "report.html"
    assert write_page(folder, destination) == destination
    return Page(destination.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full") / "run"
    full_run(folder)
    return folder


@pytest.fixture(scope="module")
def page(full):
    return page_of(full)


def test_is_well_formed_and_has_every_section(page):
    assert not page.broken and not page.open
    assert set(page.sections) >= {"outcome", "progress", "workloads", "sources", "origin", "checks", "tried", "method"}
    identities = [a["id"] for _, a in page.tags if "id" in a]
    assert len(identities) == len(set(identities))
    targets = [a["href"] for a in page.named("a")]
    assert targets and {t.removeprefix("#") for t in targets} <= set(identities)


def assert_self_contained(page, text):
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "form", "base", "use", "image"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action", "style", "xlink:href"}
            assert name != "href" or (value or "").startswith("#")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]


def test_loads_nothing(page, full):
    assert_self_contained(page, (full.parent / "report.html").read_text(encoding="utf-8"))
    policy = next(a for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "")


def test_the_head_shows_the_second_measurement(page, full):
    outcome = page.section("outcome")
    again = RunFolder(full).finalists()[0].evaluation.speed
    low, high = again.speedup_ci
    assert "Improved" in outcome
    assert f"{again.speedup:.2f}×" in outcome
    assert f"{low:.2f} – {high:.2f}" in outcome
    assert "torch.compile" in outcome and "measured again" in outcome
    assert f"{100 * again.roofline_fraction:.0f} %" in outcome
    assert f"Evaluations {len(RunFolder(full).attempts())}" in outcome
    assert "2 min 34 s" in outcome and "6,180 tokens" in outcome


def test_the_workload_table_shows_the_records(page, full):
    again = RunFolder(full).finalists()[0].evaluation.speed
    for timing in again.workloads:
        row = next(r for r in page.rows if r and r[0].startswith(timing.workload) and "memory" in r)
        assert _microseconds(row[2]) == pytest.approx(statistics.median(timing.baseline_us), rel=6e-3)
        assert _microseconds(row[3]) == pytest.approx(statistics.median(timing.candidate_us), rel=6e-3)
        assert row[4] == f"{timing.speedup:.2f}×"
        assert row[5] == f"{timing.speedup_ci[0]:.2f} – {timing.speedup_ci[1]:.2f}"
        assert row[9] == str(len(timing.candidate_us))
    assert "128 MiB" in page.section("workloads")


def _microseconds(text):
    number, unit = text.split()
    return float(number.replace(",", "")) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit]


def test_the_second_measurements_stand_beside_the_first(page, full):
    first = {a.candidate.id: a for a in RunFolder(full).attempts()}
    rows = [r for r in page.rows if r and r[0].startswith("#") and len(r) == 6]
    again = RunFolder(full).finalists()
    assert len(rows) == len(again) == 2
    for row, finalist in zip(rows, again, strict=True):
        attempt = first[finalist.candidate]
        assert row[0].split()[0] == f"#{attempt.index}"
        assert row[2] == f"{attempt.evaluation.speed.speedup:.2f}×"
        assert row[3] == f"{finalist.evaluation.speed.speedup:.2f}×"
    assert "the best" in rows[0][0] and "the best" not in rows[1][0]


def test_a_specialised_kernel_is_no_general_one(tmp_path):
    made = candidate()
    verdict = passed(made, 1.5).replace(specialised=True, checks=(CHECKS[0],))
    page = page_of(write(tmp_path / "run", [attempt(1, made, verdict)]))
    assert "only for the task's own sizes" in page.section("outcome")
    assert "none of them on a shape hidden from proposers" in page.section("checks")


def test_the_baselines_say_which_modes_failed(page):
    section = page.section("workloads")
    for words in ("eager PyTorch", "torch.compile", "torch.compile max-autotune", "no template fits", "not measured"):
        assert words in section
    row = next(r for r in page.rows if r and r[0] == "tall" and len(r) == 4)
    assert row[1].startswith("952 µs") and row[2] == "612 µsfastest"


def test_the_sources_are_shown_whole(page):
    shown = "".join(page.sections["sources"])
    assert REFERENCE.rstrip("\n") in shown
    assert KERNEL.rstrip("\n") in shown
    assert "Generated by torch.compile" in shown and "class ModelNew(torch.nn.Module):" in shown
    assert "library call aten.convolution.default" in shown
    assert "aten.convolution.default: no kernel covers it" in page.section("sources")


def test_the_lineage_goes_from_the_first_draft_to_the_best(page, full):
    attempts = {a.candidate.id: a for a in RunFolder(full).attempts()}
    best = attempts[RunFolder(full).result()["best"]]
    section = page.section("origin")
    ancestor, chain = best, [best.index]
    while ancestor.candidate.origin.parents:
        ancestor = attempts[ancestor.candidate.origin.parents[0]]
        chain.append(ancestor.index)
    places = [section.index(f"#{index} ") for index in reversed(chain)]
    assert places == sorted(places) and len(chain) >= 4
    assert "store stream → normal" in section
    assert "elements that one vector statement works on" in section
    assert "the best" in section


def test_failures_are_grouped_and_counted(page):
    section = page.section("tried")
    for words in ("wrong result", "does not build", "crashed", "over a limit", "not a candidate", "judge failed"):
        assert f"{words} 1 #" in section
    for guard in Guard:
        assert f"rejected by a guard: {str(guard).replace('_', ' ')} 1" in section
    assert "right, not timed 1" in section
    assert "seen before: 1" in section and "Proposers that broke" in section
    assert "expected ';'" in section


def test_equal_reasons_are_shown_once(tmp_path):
    made = [pair for _ in range(3) for pair in failures("the same") if pair[1].outcome == "crashed"]
    folder = write(tmp_path / "run", [attempt(n, *pair) for n, pair in enumerate(made, start=1)])
    section = page_of(folder).section("tried")
    assert "crashed 3" in section and section.count("the same") == 1


def test_the_checks_count_the_hidden_ones(page):
    section = page.section("checks")
    assert "20 comparisons with the fp64 oracle over 4 shapes and 5 distributions" in section
    assert "10 of them on 2 shapes that no proposer ever saw" in section
    assert "All passed" in section and "0.45 of what is allowed" in section


def test_model_and_method_are_told(page):
    section = page.section("method")
    for words in (
        "a-model",
        "4,800 in, 1,380 out",
        "$0.0375, and 1 call without a known price",
        "no_code 1",
        "draft 3",
    ):
        assert words in section
    for words in ("a steady clock around each call", "51.7 GB/s", "529 in float32", "torch 2.13.0", "gcc 13.2.0"):
        assert words in section
    assert "zeros would pass under the distribution tiny" in section


def test_pictures_are_named_for_those_who_do_not_see_them(page):
    pictures = [a for a in page.named("svg") if a.get("role") == "img"]
    assert len(pictures) == 4
    identities = {a.get("id") for _, a in page.tags}
    for picture in pictures:
        names = (picture["aria-labelledby"] or "").split()
        assert len(names) == 2 and set(names) <= identities
    others = [a for a in page.named("svg") if a.get("role") != "img"]
    assert all(a.get("aria-hidden") == "true" for a in others)


def test_every_named_parameter_of_the_templates_has_its_meaning():
    calls = [n for n in ast.walk(ast.parse(inspect.getsource(spaces))) if isinstance(n, ast.Call)]
    named = {
        word.value.value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Parameter"
        for word in call.keywords
        if word.arg == "name" and isinstance(word.value, ast.Constant)
    }
    known = known_parameters(DEVICE)
    assert named and named <= set(known)
    assert all(p.meaning and p.values for p in known.values())


def test_hostile_text_is_text(tmp_path):
    folder = full_run(tmp_path / "run", HOSTILE + "log line <b>&\n" * 80_000)
    hostile_task = TASK.replace(name=HOSTILE, notes=(HOSTILE,), source=TASK.source.replace(text=HOSTILE, path=HOSTILE))
    head = header(task=hostile_task, device=DEVICE.replace(name=HOSTILE))
    (folder / "run.json").write_text(head.to_json(), encoding="utf-8")
    page = page_of(folder)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not page.broken and not page.open
    assert_self_contained(page, text)
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "<script>document.title='owned'</script>" in page.text
    assert "red ⟨U+202E⟩flipped" in page.text and "{{ 7 * 7 }}" in page.text
    assert len(text) < 1_500_000


def test_a_run_that_never_ended_says_so(tmp_path):
    attempts = evolution()
    page = page_of(write(tmp_path / "run", attempts))
    outcome = page.section("outcome")
    assert "Unfinished" in outcome and "no result yet" in outcome and "measured once" in outcome
    assert "2.62×" in outcome and f"Evaluations {len(attempts)}" in outcome


def test_a_torn_last_line_is_told_and_the_rest_is_shown(tmp_path):
    folder = write(tmp_path / "run", evolution())
    lines = folder / "attempts.jsonl"
    lines.write_bytes(lines.read_bytes()[:-60])
    outcome = page_of(folder).section("outcome")
    assert "The last line of attempts.jsonl was cut off" in outcome and "Evaluations 9" in outcome


def test_damaged_files_are_told(tmp_path):
    folder = write(tmp_path / "run", evolution(), outcome=result(None, outcome="failed"))
    lines = (folder / "attempts.jsonl").read_bytes().split(b"\n")
    lines[2] = b'{"half": '
    (folder / "attempts.jsonl").write_bytes(b"\n".join(lines))
    (folder / "result.json").write_text("{}")
    outcome = page_of(folder).section("outcome")
    assert "Line 3 of attempts.jsonl is damaged" in outcome and "result.json is damaged" in outcome


def test_the_second_measurement_survives_a_damaged_attempt(tmp_path):
    folder = full_run(tmp_path / "run")
    lines = (folder / "attempts.jsonl").read_bytes().splitlines()
    (folder / "attempts.jsonl").write_bytes(b"\n".join([*lines[:-1], b"{}", b""]))
    page = page_of(folder)
    assert "2.60×" in page.section("outcome") and "is damaged" in page.section("outcome")
    assert "The line of the best candidate is damaged" in page.section("origin")


def test_an_interrupted_run_says_so(tmp_path):
    made = evolution()
    folder = write(
        tmp_path / "run", made, outcome=result(made[-1].candidate.id, stop_reason="interrupted", evaluations=10)
    )
    assert "This run was interrupted" in page_of(folder).section("outcome")


def test_an_empty_run_has_a_page(tmp_path):
    page = page_of(write(tmp_path / "run"))
    assert not page.broken and "Nothing has been judged" in page.text
    assert "No candidate was right and timed so far" in page.section("outcome")
    assert REFERENCE.rstrip("\n") in "".join(page.sections["sources"])


def test_a_run_in_which_all_failed_has_a_page(tmp_path):
    attempts = [attempt(n, *pair) for n, pair in enumerate(failures("no"), start=1)]
    page = page_of(write(tmp_path / "run", attempts, outcome=result(None, outcome="failed", evaluations=len(attempts))))
    assert "Failed" in page.section("outcome") and "nothing right was timed" in page.section("outcome")
    assert "There is no best candidate" in page.section("origin")


def test_a_kept_baseline_shows_what_was_right(tmp_path):
    made = candidate()
    folder = write(
        tmp_path / "run",
        [attempt(1, made, passed(made, 1.01))],
        outcome=result(made.id, outcome="baseline_kept", reason="the best candidate is inconclusive"),
    )
    outcome = page_of(folder).section("outcome")
    assert "Baseline kept" in outcome and "1.01×" in outcome and "The best candidate is inconclusive." in outcome


def test_no_roofline_without_arithmetic_or_ceilings(tmp_path):
    made = candidate()
    still = passed(made, 1.5, speed=speed(1.5, operations=0))
    section = page_of(write(tmp_path / "still", [attempt(1, made, still)])).section("workloads")
    assert "there is no roofline to draw" in section and "1.50×" in section
    head = header(device=DEVICE.replace(ceilings=None))
    section = page_of(write(tmp_path / "bare", [attempt(1, made, passed(made, 1.5))], head=head)).section("workloads")
    assert "GFLOP/s" not in section and "1.50×" in section


def test_the_same_folder_gives_the_same_page(full, tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    write_page(full, first)
    write_page(full, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_long_run_stays_a_readable_page(tmp_path):
    made = candidate()
    verdict = passed(made, 1.2)
    attempts = [attempt(n, made, verdict) for n in range(1, 1301)]
    folder = write(tmp_path / "run")
    (folder / "attempts.jsonl").write_text("".join(a.to_json() + "\n" for a in attempts))
    page = page_of(folder)
    assert "The first 1000 are listed" in page.text
    assert (tmp_path / "report.html").stat().st_size < 5_000_000


def test_errors_are_typed(tmp_path):
    with pytest.raises(ResumeError):
        write_page(tmp_path / "nowhere", tmp_path / "report.html")
    folder = write(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem):
        write_page(folder, tmp_path / "file" / "report.html")
    assert not list(tmp_path.glob("*.html"))


def test_an_old_page_survives_a_failed_write(tmp_path):
    folder = write(tmp_path / "run")
    target = tmp_path / "report.html"
    target.mkdir()
    with pytest.raises(EnvironmentProblem):
        write_page(folder, target)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
