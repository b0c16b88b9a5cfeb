"""Every guard, fired by a real candidate; and honest candidates that look like a cheat and must pass."""

from __future__ import annotations

import pytest
from judge_kernels import cpp_kernel

from kernelwright.judge import landlock
from kernelwright.judge.evaluation import Guard, Rule, WorkloadTiming
from kernelwright.judge.questions import Stopped
from kernelwright.judge.timing import _check_floor

HEAD = "import torch\n"
CHEATS = {
    Guard.INPUT_MODIFIED: HEAD + "def forward(x):\n    y = torch.tanh(x) * 2\n    x.zero_()\n    return y",
    Guard.OUTPUT_ALIASES_INPUT: None,
    Guard.OUTPUT_REUSED: HEAD + "kept = {}\ndef forward(x):\n    y = kept.setdefault(x.shape, torch.empty_like(x))\n"
    "    y.copy_(torch.tanh(x) * 2)\n    return y",
    Guard.WRONG_OUTPUT_TYPE: HEAD
    + "class Lazy(torch.Tensor): pass\ndef forward(x):\n    return (torch.tanh(x) * 2).as_subclass(Lazy)",
    Guard.EARLY_EXIT: "import os\ndef forward(x):\n    os._exit(0)",
    Guard.LEFT_BEHIND: HEAD + "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "def forward(x):\n    return torch.tanh(x) * 2",
}
CLAMP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, -1, 1)
def get_inputs():
    return [torch.rand(40, 50)]
"""


@pytest.mark.parametrize("guard", [g for g, source in CHEATS.items() if source])
def test_a_cheat_is_rejected_by_the_guard_of_its_name(verdict_on, guard):
    verdict = verdict_on(CHEATS[guard])
    assert (verdict.outcome, getattr(verdict, "guard", None)) == ("rejected", guard), verdict


def test_a_system_exit_is_an_early_exit(verdict_on):
    verdict = verdict_on("import sys\ndef forward(x):\n    sys.exit(0)")
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.EARLY_EXIT)


def test_a_view_of_an_input_is_not_a_result(verdict_on):
    verdict = verdict_on("def forward(x):\n    return x.view(x.shape)", task=CLAMP)
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.OUTPUT_ALIASES_INPUT), verdict


@pytest.mark.parametrize(
    "stray",
    ["y[n] = 0.f;", "y[-1] = 0.f;", "x[n + 3] = 0.f;", "*((char*)work + 64) = 1;"],
    ids=["past the output", "before the output", "past the input", "past the workspace"],
)
def test_stray_writes_are_seen(verdict_on, stray):
    source = cpp_kernel(f"for (int64_t i = 0; i < n; ++i) y[i] = 2.f * std::tanh(x[i]); {stray}") + (
        'extern "C" int64_t kernelwright_run_workspace_bytes'
        "(const kw_tensor*, int32_t, const kw_tensor*, int32_t, int32_t) { return 64; }\n"
    )
    verdict = verdict_on(source)
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.OUT_OF_BOUNDS_WRITE), verdict


def test_a_result_that_depends_on_what_memory_held_is_not_deterministic(verdict_on):
    """Right whenever its scratch memory happens to be positive, so right in one allocator state only."""
    verdict = verdict_on(
        HEAD + "def forward(x):\n    scratch = torch.empty(1 << 16)\n"
        "    return torch.tanh(x) * (2 if scratch[4096] > 0 else 3)"
    )
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.NON_DETERMINISTIC), verdict


def test_work_skipped_while_the_clock_runs_is_found(verdict_on):
    verdict = verdict_on(
        HEAD + "import sys\ndef forward(x):\n    frame = sys._getframe()\n"
        "    while frame:\n        if frame.f_code.co_name == 'sample': return x * 0\n        frame = frame.f_back\n"
        "    return torch.tanh(x) * 2"
    )
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.TIMED_OUTPUT_WRONG), verdict


def test_a_patched_clock_is_found(verdict_on):
    verdict = verdict_on(
        HEAD + "import time, itertools\nimport kernelwright.judge.timed_calls as calls\n"
        "calls.perf_counter_ns = itertools.count(1).__next__\n"
        "def forward(x):\n    time.sleep(0.003)\n    return torch.tanh(x) * 2"
    )
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.CLOCK_MISMATCH), verdict


def test_a_background_thread_does_not_pass_as_speed(verdict_on):
    verdict = verdict_on(
        HEAD + "import threading, time\ndef forward(x):\n    y = torch.empty_like(x)\n    def work():\n"
        "        time.sleep(0.002); y.copy_(torch.tanh(x) * 2)\n    threading.Thread(target=work).start()\n    return y"
    )
    assert verdict.outcome in ("incorrect", "rejected"), verdict


def test_a_result_kept_under_a_fingerprint_goes_stale(verdict_on):
    verdict = verdict_on(
        HEAD + "kept = {}\ndef forward(x):\n    flat = x.reshape(-1)\n"
        "    key = (x.shape, float(flat[0]), float(flat[len(flat) // 2]), float(flat[-1]))\n"
        "    if key not in kept:\n        kept[key] = torch.tanh(x) * 2\n    return kept[key].clone()"
    )
    assert verdict.outcome == "incorrect", verdict


def test_library_operations_are_rejected_under_own_kernel_and_fine_under_any_code(verdict_on):
    source = HEAD + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.tanh(x) * 2"
    verdict = verdict_on(source, rule=Rule.OWN_KERNEL)
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.LIBRARY_FALLBACK)
    assert "aten.tanh" in verdict.reason
    assert verdict_on(source, rule=Rule.ANY_CODE).outcome == "passed"


def test_a_swallowed_error_that_falls_back_to_the_library_is_rejected(verdict_on):
    source = HEAD + (
        "def forward(x):\n    try:\n        return no_such_kernel(x)\n    except NameError:\n        return torch.tanh(x) * 2"
    )
    verdict = verdict_on(source, rule=Rule.OWN_KERNEL)
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.LIBRARY_FALLBACK)


def test_a_time_below_what_writing_the_output_takes_is_an_error_report(open_task, device):
    task = open_task(CLAMP).task

    def timed(us: float) -> WorkloadTiming:
        return WorkloadTiming(
            workload="big",
            axes={axis.name: 4096 for axis in task.axes},
            baseline="eager",
            candidate_us=(us, us),
            baseline_us=(9.0, 9.0),
            speedup=1.0,
            speedup_ci=(1.0, 1.0),
            roofline_us=1.0,
            roofline_fraction=1.0,
            bound="memory",
            moved_bytes=1,
            operations=1,
        )

    with pytest.raises(Stopped) as stopped:
        _check_floor(task, device, timed(1.0))
    assert stopped.value.fields["guard"] is Guard.FASTER_THAN_ROOFLINE
    bytes_written = 4096 * 4096 * 4
    _check_floor(task, device, timed(bytes_written / (device.ceilings.cache_copy_gbytes_per_s * 1e3)))


LINEAR = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = torch.nn.Linear(n_in, n_out)
    def forward(self, x):
        return torch.relu(self.fc(x))
def get_inputs():
    return [torch.randn(33, 24)]
def get_init_inputs():
    return [24, 17]
"""
OTHER_ORDER = """
import torch
class Holder(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(n_out))
        self.weight = torch.nn.Parameter(torch.randn(n_out, n_in))
class ModelNew(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = Holder(n_in, n_out)
    def forward(self, x):
        return torch.addmm(self.fc.bias, x, self.fc.weight.t()).clamp(min=0)
"""


@pytest.mark.parametrize(
    "source",
    [
        OTHER_ORDER,
        OTHER_ORDER.replace("self.fc = Holder", "self.inner = Holder").replace("self.fc.", "self.inner."),
        LINEAR + "\nclass ModelNew(Model):\n    pass\n",
        "# torch.matmul is not called, os._exit neither\n" + LINEAR.replace("class Model(", "class ModelNew("),
    ],
    ids=["another order", "other names", "repeats the reference's text", "suspicious words"],
)
def test_honest_modules_pass(verdict_on, source):
    verdict = verdict_on(source, task=LINEAR)
    assert verdict.outcome == "passed", verdict


def test_parameters_that_nobody_can_match_are_said_so(verdict_on):
    source = OTHER_ORDER.replace("torch.randn(n_out, n_in)", "torch.randn(n_out, n_in + 1)").replace(
        "self.fc.weight.t()", "self.fc.weight.t()[1:]"
    )
    verdict = verdict_on(source, task=LINEAR)
    assert verdict.outcome == "invalid"
    assert "not comparable" in verdict.reason


def test_own_inputs_of_a_candidate_are_never_used(verdict_on):
    shrunk = (
        "import torch\ndef get_inputs():\n    return [torch.zeros(1, 1)]\ndef get_init_inputs():\n    return []\n"
        "def forward(x):\n    return torch.tanh(x) * 2 if x.numel() > 1 else x"
    )
    verdict = verdict_on(shrunk)
    assert verdict.outcome == "passed"
    assert any("get_inputs" in note for note in verdict.notes)


def test_an_operation_that_writes_to_its_argument_may_be_done_alike(verdict_on):
    task = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x, out):
            torch.mul(x, 2.0, out=out)
            return out
    def get_inputs():
        return [torch.randn(1003), torch.zeros(1003)]
    """
    verdict = verdict_on("import torch\ndef forward(x, out):\n    out.copy_(x + x)\n    return out", task=task)
    assert verdict.outcome == "passed", verdict


def test_triton_is_judged_by_its_interpreter_and_not_timed(verdict_on):
    pytest.importorskip("triton")
    source = """
    import torch, triton
    import triton.language as tl
    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n)
        tl.store(y + at, 2 * (2 / (1 + tl.exp(-2 * v)) - 1), mask=at < n)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            y = torch.empty_like(x)
            kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
            return y
    """
    task = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            return 2 * (2 / (1 + torch.exp(-2 * x)) - 1)
    def get_inputs():
        return [torch.randn(20, 31)]
    """
    verdict = verdict_on(source, task=task, language="triton", rule=Rule.OWN_KERNEL)
    assert verdict.outcome == "passed", verdict
    assert verdict.speed is None
    assert "interpreter" in verdict.untimed


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    "attempt",
    [
        "open({outside!r}, 'w')",
        "os.unlink({inside!r})",
        "os.mkdir({outside!r})",
        pytest.param(
            "os.kill(os.getppid(), 9)",
            marks=pytest.mark.skipif(landlock.version() < 6, reason="signals are scoped from version 6 on"),
        ),
    ],
    ids=["write", "remove", "make a folder", "kill the server"],
)
def test_a_candidate_cannot_touch_what_is_outside(verdict_on, judge, tmp_path, attempt):
    inside, outside = tmp_path / "mine", tmp_path / "new"
    inside.write_text("kept")
    server = judge.server.get().pid
    tried = attempt.format(inside=str(inside), outside=str(outside))
    verdict = verdict_on(
        HEAD + f"import os\ndef forward(x):\n    try:\n        {tried}\n    except PermissionError:\n"
        "        return torch.tanh(x) * 2\n    return x"
    )
    assert verdict.outcome == "passed", verdict
    assert inside.read_text() == "kept"
    assert not outside.exists()
    assert judge.server.get().pid == server
    assert verdict.sandbox.startswith("landlock")


def test_processes_left_by_one_call_are_refused_before_the_next_call_adds_to_them(verdict_on):
    verdict = verdict_on(
        HEAD + "import subprocess\n"
        "def forward(x):\n    for _ in range(20):\n        subprocess.Popen(['sleep', '60'])\n    return torch.tanh(x) * 2"
    )
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.LEFT_BEHIND)
    assert verdict.reason.startswith("20 processes")
