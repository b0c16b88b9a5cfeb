"""One warm judge for all tests of this folder, and small tasks written where they are used."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernelwright.judge.evaluation import Evaluation, Rule
from kernelwright.judge.local import LocalJudge
from kernelwright.judge.protocol import Limits, TimingPlan
from kernelwright.judge.session import LocalSession
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.detect import detect_device
from kernelwright.tasks.request import TaskRequest

sys.path.insert(0, str(Path(__file__).parent))
from judge_kernels import SCALE

QUICK = TimingPlan(pairs=5, minimum_pairs=3, seconds=0.5, ring_bytes=1 << 20)


@pytest.fixture(scope="session")
def device():
    return detect_device()


@pytest.fixture(scope="session")
def judge(device) -> Iterator[LocalJudge]:
    limits = Limits(call_seconds=4.0, load_seconds=30.0, memory_bytes=1 << 30, output_bytes=1 << 16)
    with LocalJudge(device, limits=limits, secret_seed=7, describe_seconds=30.0, baseline_modes=("eager",)) as made:
        yield made


@pytest.fixture(scope="session")
def open_task(judge, tmp_path_factory) -> Iterator[Callable[[str], LocalSession]]:
    """The session of a task given as the text of a file; one for each text."""
    known: dict[str, LocalSession] = {}
    with ExitStack() as stack:

        def opened(text: str) -> LocalSession:
            if text not in known:
                path = tmp_path_factory.mktemp("task") / "task.py"
                path.write_text(textwrap.dedent(text))
                known[text] = stack.enter_context(judge.open(judge.describe(TaskRequest(target=str(path)))))
            return known[text]

        yield opened


@pytest.fixture
def verdict_on(open_task) -> Callable[..., Evaluation]:
    """Evaluates a C++ or Python text on a task (tanh(x) * 2 unless another is given)."""

    def evaluate(source: str, *, task: str = SCALE, rule: Rule = Rule.ANY_CODE, language: str = "") -> Evaluation:
        text = textwrap.dedent(source)
        kind = language or ("cpp" if "kw_tensor" in text or "#include" in text.splitlines()[0] else "python")
        if kind == "cpp":
            candidate = Candidate(language="cpp", sources={"kernel.cpp": text})
        else:
            candidate = Candidate(language=kind, sources={"kernel.py": text}, entry="kernel.py")
        return open_task(task).evaluate(candidate, rule=rule, timing=QUICK)

    return evaluate
