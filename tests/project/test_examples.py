"""The examples, driven as their own comments say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMMAND = Path(sys.executable).with_name("kernelwright")
pytestmark = pytest.mark.timeout(900)


def _kernelwright(home: Path, *arguments: str) -> tuple[int, dict]:
    done = subprocess.run(
        [COMMAND, *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "KERNELWRIGHT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def _evaluate(home: Path, name: str) -> tuple[int, dict]:
    candidate = f"examples/hand_written/{name}.cpp"
    return _kernelwright(home, "evaluate", candidate, "--task", "examples/tanh_residual.py")


@pytest.mark.slow
def test_the_kernel_written_by_hand_passes(home: Path) -> None:
    code, verdict = _evaluate(home, "tanh_residual")
    assert (code, verdict["outcome"]) == (0, "passed")
    assert verdict["baseline"] in ("eager", "compile", "compile-max-autotune")


@pytest.mark.slow
def test_the_wrong_kernel_is_found_out(home: Path) -> None:
    code, verdict = _evaluate(home, "wrong_tanh_residual")
    assert (code, verdict["outcome"], verdict["stage"]) == (1, "incorrect", "verify")
    assert verdict["speedup"] is None and verdict["reason"]


@pytest.mark.slow
def test_a_search_and_the_use_of_its_winner(home: Path, tmp_path: Path) -> None:
    code, result = _kernelwright(
        home, "optimize", "examples/tanh_residual.py", "--run-dir", str(tmp_path / "run"), "--evaluations", "4"
    )
    assert result["outcome"] in ("improved", "baseline_kept") and code in (0, 1)
    if result["outcome"] == "improved":
        script = [sys.executable, str(EXAMPLES / "use_exported.py"), result["best"]]
        done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "kernelwright loaded: False" in done.stdout
        assert float(done.stdout.split("float64: ")[1].split()[0]) < 1e-5


@pytest.mark.parametrize("name", ["layer_norm_module", "attention", "tanh_residual"])
def test_examples_are_readable_tasks(name: str) -> None:
    pytest.importorskip("torch")
    from kernelwright.tasks.loading import describe
    from kernelwright.tasks.request import TaskRequest

    task = describe(TaskRequest(target=str(EXAMPLES / f"{name}.py")))
    assert task.timed_workloads and task.axes
    assert task.compulsory_bytes(task.timed_workloads[0].axes) > 1e6
