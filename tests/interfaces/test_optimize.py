"""A whole search through the command: summary, folder, export, Ctrl-C and resume."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from command_line import START, answer, command, environment

TASK = """
import torch
from kernelwright.tasks import operation

@operation(x="float32[B, N]", w="float32[N]", workloads=[{"B": 512, "N": 1024}])
def gated(x, w):
    return x + torch.tanh(x * w)
"""
SHORT = ("--evaluations", "3", "--wall", "120s", "--finalists", "1", "--serial")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "gated.py").write_text(TASK)
    return tmp_path


@pytest.mark.slow
def test_a_search_is_answered_by_one_object_and_its_winner_is_used(place: Path) -> None:
    done = command("optimize", "gated.py", "--run-dir", "run", *SHORT, "--json", folder=place)
    found = answer(done)
    assert found["outcome"] in ("improved", "baseline_kept"), done.stderr
    assert done.returncode == (0 if found["outcome"] == "improved" else 1)
    assert found["evaluations"] == 3
    assert found["seconds"] > 0
    assert found["run"]
    assert Path(found["report"]).read_text().startswith("<!")
    assert "searching: evolve" in done.stderr
    exported = command("export", "run", "--out", "mine", "--json", folder=place)
    assert exported.returncode == 0, exported.stderr
    script = (
        "import torch; from mine import optimized; x, w = torch.randn(33, 70), torch.randn(70)\n"
        "torch.testing.assert_close(optimized(x, w), x + torch.tanh(x * w)); print(optimized.explain(x, w).kernel)"
    )
    used = subprocess.run([sys.executable, "-c", script], cwd=place, capture_output=True, text=True, check=False)
    assert (used.returncode, used.stdout) == (0, "True\n"), used.stderr
    again = command("optimize", "--run-dir", "run", "--resume", "--json", folder=place)
    assert answer(again)["speedup"] == found["speedup"]
    assert answer(again)["evaluations"] == 3
    other = command("optimize", "gated.py", "--run-dir", "run", "--resume", "--seed", "5", "--json", folder=place)
    assert other.returncode == 2
    assert "seed: 0 then, 5 now" in answer(other)["error"]["message"]
    listed = answer(command("archive", "list", "--json", folder=place))["runs"]
    assert [r["task_name"] for r in listed if r["run"] == found["run"]] == ["gated"]
    shown = answer(command("archive", "show", found["run"], "--json", folder=place))
    assert [a["index"] for a in shown["attempts"]] == [1, 2, 3]
    source = command("archive", "show", shown["attempts"][0]["candidate"][:16], folder=place)
    assert "kernelwright.h" in source.stdout or "import" in source.stdout


@pytest.mark.slow
def test_ctrl_c_keeps_everything_and_the_printed_line_continues(place: Path) -> None:
    words = ["optimize", "gated.py", "--run-dir", "run", "--evaluations", "4", "--wall", "none", "--finalists", "1"]
    running = subprocess.Popen(
        [*START, *words],
        cwd=place,
        env=environment(Path(os.environ["KERNELWRIGHT_HOME"])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    attempts = place / "run" / "attempts.jsonl"
    deadline = time.monotonic() + 200
    while not (attempts.exists() and attempts.read_text().count("\n")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "Traceback" not in said
    line = re.search(r"kernelwright (optimize --resume --run-dir \S+)", said)
    assert line is not None, said
    before = attempts.read_text().splitlines()
    resumed = command(*line[1].split(), "--json", folder=place)
    assert answer(resumed)["evaluations"] == 4, resumed.stderr
    assert attempts.read_text().splitlines()[: len(before)] == before
    indices = [json.loads(text)["index"] for text in attempts.read_text().splitlines()]
    assert indices == [1, 2, 3, 4]


@pytest.mark.slow
def test_on_a_terminal_the_table_is_drawn_and_the_summary_follows(place: Path) -> None:
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    variables = environment(Path(os.environ["KERNELWRIGHT_HOME"]), TERM="xterm", LINES="24")
    del variables["NO_COLOR"]
    running = subprocess.Popen(
        [*START, "optimize", "gated.py", "--run-dir", "run", "--fresh", "--no-archive", *SHORT],
        cwd=place,
        env=variables,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    while True:
        try:
            piece = os.read(controller, 1 << 16)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert running.wait(timeout=30) in (0, 1)
    text = seen.decode()
    assert "\x1b[" in text
    assert "of 3 evaluations" in text
    assert "evaluations in" in text
    assert "report" in text
