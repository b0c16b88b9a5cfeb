"""A reference that hangs, crashes, asks for a GPU or eats memory is a typed fault of the task, and the judge goes on."""

from __future__ import annotations

import pytest

from kernelwright.core.errors import TaskError
from kernelwright.judge.local import LocalJudge
from kernelwright.judge.protocol import Limits
from kernelwright.tasks.request import TaskRequest

MODEL = "import torch, os, time\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {}\n"
INPUTS = "def get_inputs():\n    return [torch.randn(16, 16)]\n"


@pytest.fixture(scope="module")
def impatient(device):
    with LocalJudge(device, limits=Limits(memory_bytes=1 << 30), describe_seconds=5.0) as judge:
        yield judge


def described(judge, tmp_path, body, inputs=INPUTS):
    path = tmp_path / "task.py"
    path.write_text(MODEL.format(body) + inputs)
    return judge.describe(TaskRequest(target=str(path)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while True: time.sleep(1)", "reference_hangs"),
        ("os.kill(os.getpid(), 11)", "reference_crashes"),
        ("os._exit(3)", "reference_crashes"),
        ("raise ValueError('not today')", "reference_raises"),
        ("return x.cuda() * 2", "needs_gpu"),
        ("return x.new_zeros(1 << 50) + x.sum()", "out_of_memory"),
    ],
)
def test_faults_are_typed(impatient, tmp_path, body, reason):
    with pytest.raises(TaskError) as error:
        described(impatient, tmp_path, body)
    assert error.value.reason == reason
    assert described(impatient, tmp_path, "return torch.exp(x) + 1").outputs[0].name


def test_a_missing_file_is_said_by_name(impatient, tmp_path):
    with pytest.raises(TaskError, match=r"nowhere\.py") as error:
        impatient.describe(TaskRequest(target=str(tmp_path / "nowhere.py")))
    assert error.value.reason == "missing_file"
