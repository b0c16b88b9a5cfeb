"""What cannot be a task is refused by name, with the place and the next step."""

from __future__ import annotations

import pytest

from kernelwright.core.errors import TaskError
from kernelwright.tasks.loading import describe
from kernelwright.tasks.request import TaskRequest

INPUTS = "\ndef get_inputs():\n    return [torch.randn(8, 16)]\n"


@pytest.fixture
def refused(tmp_path):
    def check(text: str, reason: str, *, inputs=(), workloads=(), target=None) -> TaskError:
        path = tmp_path / "op.py"
        path.write_text(text)
        with pytest.raises(TaskError) as caught:
            describe(TaskRequest(target=target or str(path), inputs=inputs, workloads=workloads))
        assert caught.value.reason == reason, caught.value
        return caught.value

    return check


TORCH = "import torch\nfrom torch import nn\n"
SAME = TORCH + "def f(x):\n    return x\n"
MODULE = TORCH + "class Model(nn.Module):\n    def __init__(self, n):\n        super().__init__()"
LAZY = (
    MODULE.replace("(self, n)", "(self)")
    + "; self.inner = nn.LazyLinear(3)\n    def forward(self, x): return self.inner(x)"
)
FACTORY = (
    TORCH
    + "def make(n):\n    return nn.Linear(n, 3)\nModel = make"
    + INPUTS
    + "def get_init_inputs():\n    return [16]"
)
COUNTING = TORCH + "n = 0\ndef f(x):\n    global n\n    n += 1\n    return x[: 1 + n % 2]"


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("def f(:\n  pass", "syntax_error", "op.py:1: "),
        ("import not_a_module_at_all", "import_failed", "op.py:1: while importing it: ModuleNotFoundError"),
        ("raise SystemExit(3)", "import_failed", "SystemExit"),
        ("x = 1", "no_reference", "no class or function of its own"),
        ("import torch\nclass Box:\n    pass\ndef helper(a, b):\n    return a", "no_reference", "it defines helper"),
        (TORCH + "class A(nn.Module):\n    pass\nclass B(nn.Module):\n    pass" + INPUTS, "no_reference", "A, B"),
        (TORCH + "def f(x):\n    raise ValueError('not today')" + INPUTS, "reference_raises", "op.py:4: running"),
        (SAME + "def get_inputs():\n    raise OSError('gone')", "reference_raises", "get_inputs()"),
        (MODULE + INPUTS, "reference_raises", "making"),
        (FACTORY, "no_reference", "a function that makes a module"),
        (LAZY + INPUTS, "unsupported_input", "`inner.weight` has no shape"),
        (SAME + "def get_inputs():\n    return {'y': torch.ones(3)}", "bad_declaration", "the reference takes x"),
        (TORCH + "def f(x):\n    return x.cuda()" + INPUTS, "needs_gpu", "op.py:4"),
        (TORCH + "def f(x):\n    return x * torch.ones(1, device='cuda')" + INPUTS, "needs_gpu", "CUDA"),
        (SAME + "def get_inputs():\n    return [torch.randn(2, 2, device='cuda')]", "needs_gpu", "CUDA"),
        (TORCH + "def f(x):\n    return x + torch.rand_like(x)" + INPUTS, "non_deterministic", "differs by"),
        (TORCH + "def f(x):\n    return x * 0 + 1" + INPUTS, "input_independent", "does not depend"),
        (TORCH + "def f():\n    return torch.ones(3)\ndef get_inputs():\n    return []", "input_independent", "no tensor"),
        (COUNTING + INPUTS, "unstable_shapes", "other shapes"),
        (TORCH + "def f(x):\n    return x[x > 0]" + INPUTS, "unsupported_output", "depends on the data"),
        (TORCH + "def f(x):\n    return x.sum().item()" + INPUTS, "unsupported_output", "a float"),
        (TORCH + "def f(x):\n    return {'y': x}" + INPUTS, "unsupported_output", "a dict"),
        (TORCH + "def f(x):\n    return torch.fft.fft(x)" + INPUTS, "unsupported_dtype", "complex64"),
        (SAME + "def get_inputs():\n    return [[torch.ones(2)]]", "unsupported_input", "a list"),
        (SAME + "def get_inputs():\n    return [torch.eye(9).to_sparse()]", "unsupported_input", "dense"),
        (TORCH + "def f(x):\n    return x * 1" + INPUTS, "trivial_candidate_passes", "copy of x"),
        (SAME + "def get_inputs():\n    return torch.empty(1 << 45)", "out_of_memory", "get_inputs"),
    ],
)  # fmt: skip
def test_refused_with_the_reason(refused, text, reason, words):
    error = refused(text, reason)
    assert words in str(error)
    assert error.hint or reason in {"unsupported_dtype", "unsupported_input"}


def test_a_name_without_inputs(refused, tmp_path):
    text = "def f(x):\n    return x * 2\n"
    error = refused(text, "bad_declaration", target=f"{tmp_path / 'op.py'}:f")
    assert "nothing says which inputs `f` takes" in str(error)
    assert "--input x=float32[64,4096]" in error.hint


def test_a_long_file_is_not_listed_whole(refused):
    names = "\n".join(f"def part{i}(x):\n    return x" for i in range(99))
    said = str(refused(f"{TORCH}{names}\n", "no_reference"))
    assert "part3" in said
    assert "and 87 more" in said


def test_missing_things(refused, tmp_path):
    assert "no such file" in str(refused("", "missing_file", target=str(tmp_path / "absent.py")))
    assert "is a folder" in str(refused("", "missing_file", target=f"{tmp_path}/"))
    assert "cannot find the module" in str(refused("", "missing_file", target="no.such.module:f"))
    assert "neither a file nor" in str(refused("", "missing_file", target="torch"))
    error = refused("def f(x):\n    return x", "no_reference", target=f"{tmp_path / 'op.py'}:g")
    assert "`g` is not in the file; it defines f" in str(error)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in str(refused("", "syntax_error", target=str(tmp_path / "binary.py")))


DECLARED = "import torch\nfrom kernelwright.tasks import operation\n@operation({})\ndef f(x):\n    return x.sum(-1)\n"


@pytest.mark.parametrize(
    ("declaration", "reason", "words"),
    [
        ("x='float32[B, N'", "bad_declaration", 'expected "dtype[dims]"'),
        ("x='float99[B]'", "unsupported_dtype", "float99"),
        ("x='complex64[4]'", "unsupported_dtype", "supported are float64"),
        ("x='float32[B, N]'", "bad_declaration", "no workload binds the axes B, N"),
        ("x='float32[B]', workloads=[dict(B=4, N=3)]", "bad_declaration", "binds N, which no input has"),
        ("x='float32[B, N]', workloads=[dict(B=4)]", "bad_declaration", "does not bind N"),
        ("x='float32[B - 5]', workloads=[dict(B=4)]", "bad_declaration", "has a dimension B - 5 = -1"),
        ("x='float32[B]', workloads=[dict(B=-4)]", "bad_declaration", "not a positive integer"),
        ("x='float32[f(B)]', workloads=[dict(B=4)]", "bad_declaration", "no dimension"),
        (
            "x='float32[B]', workloads=[dict(B=4)], distributions={'x': 'gaussian'}",
            "bad_declaration",
            "distribution of `x`",
        ),
        (
            "x='float32[B]', workloads=[dict(B=4)], distributions={'y': 'normal'}",
            "bad_declaration",
            "no declared tensor",
        ),
        ("y='float32[B]', workloads=[dict(B=4)]", "bad_declaration", "`y` is none of them"),
        ("x='float32[B]', workloads=[dict(B=4)], tolerance={'rtoll': 1}", "bad_declaration", "tolerance"),
        ("x='float32[B]', workloads=[dict(B=1 << 40)]", "out_of_memory", "4096.0 GiB"),
    ],
)
def test_bad_declarations(refused, declaration, reason, words):
    assert words in str(refused(DECLARED.format(declaration), reason))


def test_bad_words_on_the_command_line(refused):
    text = "import torch\ndef f(x, n):\n    return x.sum(-1) * n\n"
    assert "is not NAME=DTYPE[DIMS]" in str(refused(text, "bad_declaration", inputs=("float32[3]",)))
    assert "neither declaration nor default" in str(refused(text, "bad_declaration", inputs=("x=float32[3,4]",)))
    assert "is not AXIS=SIZE" in str(
        refused(text, "bad_declaration", inputs=("x=float32[B]", "n=2"), workloads=("B:3",))
    )


def test_a_tolerance_that_lets_zeros_pass_is_refused_by_name(refused):
    text = (
        "import torch\nfrom kernelwright.tasks import operation\n"
        "@operation(x='float32[B, N]', workloads=[dict(B=8, N=4096)], tolerance={'atol': 1.0})\n"
        "def f(x):\n    return torch.softmax(x, -1)\n"
    )
    error = refused(text, "trivial_candidate_passes")
    assert "the tolerance atol=1.0" in str(error)
    assert "zeros" in str(error)


def test_a_declared_domain_on_which_nothing_happens_is_refused(refused):
    text = (
        "import torch\nfrom kernelwright.tasks import operation\n"
        "@operation(x='float32[B, N]', workloads=[dict(B=8, N=64)], distributions={'x': 'uniform(0, 1)'})\n"
        "def f(x):\n    return torch.relu(x)\n"
    )
    assert "copy of x" in str(refused(text, "trivial_candidate_passes"))


def test_positive_inputs_of_a_relu_are_a_note_only(task_of):
    task, _ = task_of("def f(x):\n    return torch.relu(x)\ndef get_inputs():\n    return [torch.rand(8, 64)]\n")
    assert any("copy of x" in note and "own" in note for note in task.notes)
