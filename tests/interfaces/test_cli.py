"""Exit codes, purity of standard output, and errors, through the real command."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright import __version__

sys.path.insert(0, str(Path(__file__).parent))
from command_line import QUIET_FUNCTION, RIGHT, START, WRONG, answer, command, environment

HEAVY = ("torch", "openai", "numpy", "sqlalchemy", "jinja2")


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "doubled.py").write_text(QUIET_FUNCTION)
    (tmp_path / "right.cpp").write_text(RIGHT)
    (tmp_path / "wrong.cpp").write_text(WRONG)
    return tmp_path / "doubled.py"


def test_help_loads_nothing_heavy_and_fits_80_columns(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom kernelwright.interfaces.cli import run\nassert run(['optimize', '--help']) == 0\n"
        f"assert not [m for m in {HEAVY!r} if m in sys.modules], sys.modules.keys() & set({HEAVY!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(tmp_path), check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--evaluations" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_version_and_bare_call(tmp_path: Path) -> None:
    done = command("--version", folder=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"kernelwright {__version__}")
    bare = command(folder=tmp_path)
    assert bare.returncode == 2
    assert bare.stdout == ""
    assert "optimize" in bare.stderr


@pytest.mark.parametrize(
    ("words", "key", "said"),
    [
        (["--help"], "help", "optimize"),
        (["optimize", "--help"], "help", "--evaluations"),
        (["archive", "show", "-h"], "help", "RUN|CANDIDATE"),
        (["--version"], "version", __version__),
    ],
)
def test_help_and_version_are_one_object_too(tmp_path: Path, words: list[str], key: str, said: str) -> None:
    done = command(*words, "--json", folder=tmp_path)
    assert done.returncode == 0
    assert said in answer(done)[key]


@pytest.mark.parametrize("words", [["archive", "list"], ["--version"], ["optimize"]])
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_full_or_closed_standard_output_is_said_in_a_line(tmp_path: Path, words: list[str], flag: list[str]) -> None:
    call = [*START, *words, *flag]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            call, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path, check=False
        )
    fails_anyway = words == ["optimize"]
    assert done.returncode == (2 if fails_anyway else 3)
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    shell = " ".join(map(shlex.quote, call))
    for closing in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {closing}"],
            capture_output=True,
            text=True,
            env=environment(tmp_path),
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == (2 if fails_anyway else 0), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_verdict_is_one_object_and_leaves_nothing_running(task: Path, number: signal.Signals) -> None:
    (task.parent / "endless.cpp").write_text(
        RIGHT.replace("const float* x", 'for (;;) asm volatile(""); const float* x')
    )
    words = ["evaluate", "endless.cpp", "--task", "doubled.py", "--no-timing", "--json"]
    running = subprocess.Popen(
        [*START, *words],
        cwd=task.parent,
        env=environment(task.parent / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    time.sleep(6)
    family = _descendants(running.pid)
    assert family
    running.send_signal(number)
    said, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(said)["error"]["code"] == "interrupted"
    until = time.monotonic() + 5
    while (left := [pid for pid in family if _alive(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def _descendants(root: int) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("words", "code", "reason", "said"),
    [
        (["optimize", "missing.py"], 2, "missing_file", "no such file"),
        (["optimize"], 2, "usage", "no task"),
        (["optimize", "doubled.py", "--nonsense"], 2, "usage", "--nonsense"),
        (["optimize", "doubled.py", "--wall", "soon"], 2, "usage", "not a time"),
        (["optimize", "doubled.py", "--rule", "none"], 2, "usage", "own-kernel"),
        (["optimize", "doubled.py", "--replay", "a.jsonl"], 2, "usage", "--model"),
        (["optimize", "doubled.py", "--model", "m", "--replay", "a.jsonl"], 2, "usage", "no recording a.jsonl"),
        (["optimize", "doubled.py", "--json=yes"], 2, "usage", "does not take a value"),
        (["optimize", "no.such.module:f"], 2, "missing_file", "give the file itself"),
        (["nonsense"], 2, "usage", "No such command"),
        (["archive", "nonsense"], 2, "usage", "No such command"),
        (["optimize", "doubled.py", "--device", "cuda"], 3, "environment", "not supported"),
        (["optimize", "--resume", "--run-dir", "nowhere"], 2, "resume", "no run"),
        (["evaluate", "missing.cpp", "--task", "doubled.py"], 2, "candidate", "no such file"),
        (["evaluate", "right.cpp"], 2, "usage", "--task"),
        (["report", "nowhere"], 2, "resume", "no run"),
        (["export"], 2, "resume", "no run"),
        (["archive", "show", "20000101"], 2, "usage", "archive list"),
    ],
)
def test_what_cannot_be_done_is_one_object_with_a_hint(
    task: Path, words: list[str], code: int, reason: str, said: str
) -> None:
    done = command(*words, "--json", folder=task.parent)
    assert done.returncode == code, done.stderr
    error = answer(done)["error"]
    assert error["reason"] == reason
    assert said in error["message"] + error["hint"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "syntax_error"),
        ("x = 1\n", "no_reference"),
        ("import nothing_of_this_name\n", "import_failed"),
    ],
)
def test_a_task_that_cannot_be_read_names_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "task.py").write_text(text)
    (tmp_path / "right.cpp").write_text(RIGHT)
    done = command("evaluate", "right.cpp", "--task", "task.py", "--json", folder=tmp_path)
    assert (done.returncode, answer(done)["error"]["reason"]) == (2, reason)
    assert answer(done)["error"]["code"] == "task"


def test_people_get_message_and_hint_on_standard_error(tmp_path: Path) -> None:
    done = command("report", "nowhere", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no run in nowhere\n  hint: ")


def test_evaluate_answers_with_the_promised_keys_and_nothing_else_on_standard_output(task: Path) -> None:
    right = command("evaluate", "right.cpp", "--task", "doubled.py", "--no-timing", "--json", folder=task.parent)
    assert right.returncode == 0, right.stderr
    found = answer(right)
    promised = "outcome guard stage reason speed speedup speedup_ci baseline roofline_fraction workloads seconds device"
    assert set(promised.split()) <= found.keys()
    assert (found["outcome"], found["guard"], found["stage"], found["speed"]) == ("passed", None, "verify", None)
    assert found["seconds"]["verify"] > 0
    wrong = command("evaluate", "wrong.cpp", "--task", "doubled.py", "--no-timing", "--json", folder=task.parent)
    assert (wrong.returncode, answer(wrong)["outcome"], answer(wrong)["stage"]) == (1, "incorrect", "verify")
    assert answer(wrong)["checks"]["failed"][0]["detail"]


def test_evaluate_says_it_in_words_within_80_columns_and_without_escapes(task: Path) -> None:
    done = command("evaluate", "wrong.cpp", "--task", "doubled.py", "--no-timing", folder=task.parent)
    assert done.returncode == 1
    assert done.stdout.startswith("wrong.cpp: incorrect")
    assert "\x1b" not in done.stdout
    assert "chatter" not in done.stdout


def test_a_home_that_cannot_be_written_is_named(task: Path) -> None:
    (task.parent / "file").write_text("not a folder")
    done = command("optimize", "doubled.py", "--json", folder=task.parent, home=str(task.parent / "file" / "home"))
    assert done.returncode == 3, done.stderr
    assert "KERNELWRIGHT_HOME" in answer(done)["error"]["hint"]


def test_a_folder_that_holds_something_is_not_touched(task: Path) -> None:
    run = task.parent / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    held = answer(command("optimize", "doubled.py", "--run-dir", "run", "--json", folder=task.parent))["error"]
    assert "--resume" in held["hint"]
    assert "--fresh" in held["hint"]
    other = task.parent / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    for words in ([], ["--fresh"]):
        done = command("optimize", "doubled.py", "--run-dir", "other", *words, "--json", folder=task.parent)
        assert (done.returncode, "thesis.txt" in answer(done)["error"]["message"]) == (2, True)
    assert (other / "thesis.txt").read_text() == "years of work"


def test_doctor_lists_what_is_there_and_how_to_get_what_is_not(tmp_path: Path) -> None:
    secret = "sk-very-secret"
    done = command(
        "doctor",
        "--json",
        folder=tmp_path,
        OPENAI_API_KEY=secret,
        OPENAI_BASE_URL=f"http://user:{secret}@localhost:1/v1",
    )
    assert secret not in done.stdout + done.stderr
    found = answer(done)["capabilities"]
    assert {"python", "torch", "c++_compiler", "openmp", "simd", "sandbox", "measured_ceilings", "gpu"} <= found.keys()
    for name, capability in found.items():
        assert {"available", "version", "why_not", "how_to_get"} <= capability.keys()
        assert capability["available"] or (capability["why_not"] and capability["how_to_get"]), name
    assert found["gpu"]["available"] is False
    assert (done.returncode == 0) == answer(done)["ready"]
    words = command("doctor", folder=tmp_path)
    assert max(map(len, words.stdout.splitlines())) <= 80


def test_doctor_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    done = command("doctor", "--json", folder=tmp_path, PATH=str(tmp_path), CXX="")
    compiler = answer(done)["capabilities"]["c++_compiler"]
    assert (done.returncode, compiler["available"]) == (3, False)
    assert "g++" in compiler["how_to_get"]


def test_an_empty_archive_is_no_error(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    done = command("archive", "list", "--json", folder=tmp_path, home=home)
    assert (done.returncode, answer(done)["runs"]) == (0, [])
    assert command("archive", "list", folder=tmp_path, home=home).stdout.startswith("no runs")


def test_our_own_fault_leaves_a_traceback_in_a_file(tmp_path: Path) -> None:
    code = (
        "import kernelwright.interfaces.commands.doctor as d, kernelwright.interfaces.cli as cli, sys\n"
        "def broken(*a, **k): raise ZeroDivisionError('by us')\n"
        "d.doctor = broken\nsys.argv = ['kernelwright', 'doctor', '--json']\ncli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(tmp_path, TMPDIR=str(tmp_path)),
        check=False,
    )
    assert done.returncode == 4
    error = answer(done)["error"]
    path = Path(error["hint"].split()[-1])
    assert error["reason"] == "internal"
    assert "ZeroDivisionError: by us" in path.read_text()
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*START, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    said = running.stderr.read()
    assert running.wait() in (0, 3)
    assert said == ""
