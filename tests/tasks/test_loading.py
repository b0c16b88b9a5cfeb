"""Every way of writing a task, and what is read from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from kernelwright.tasks.axes import ShapeProbe
from kernelwright.tasks.loading import describe, instantiate
from kernelwright.tasks.model import ScalarSpec, Task
from kernelwright.tasks.request import TaskRequest

FILES = Path(__file__).parent / "files"


def imported(name):
    spec = importlib.util.spec_from_file_location(f"plain_{name}", FILES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dims(task):
    return {s.name: s.dims for s in (*task.kernel_inputs, *task.outputs)}


def test_every_task_survives_json_and_keeps_its_identity(every_task):
    task, _ = every_task
    assert Task.from_json(task.to_json()) == task
    moved = task.replace(source=task.source.replace(path="/elsewhere.py"), notes=("other",))
    assert moved.id == task.id
    assert task.replace(special_values=not task.special_values).id != task.id


def test_every_task_has_three_shapes_one_odd_and_right_output_shapes(every_task):
    task, reference = every_task
    assert len(task.workloads) >= 3
    assert task.workloads[0].timed
    assert any(all(size % 2 for size in w.axes.values()) for w in task.workloads)
    for workload in task.workloads:
        inputs = reference.own_inputs(workload.axes)
        assert [tuple(t.shape) for t in inputs] == [s.shape(workload.axes) for s in task.kernel_inputs]
        outputs = reference.call(inputs)
        assert [tuple(t.shape) for t in outputs] == [s.shape(workload.axes) for s in task.outputs]
        assert [str(t.dtype) for t in outputs] == [f"torch.{s.dtype}" for s in task.outputs]


def test_own_inputs_repeat_and_change_with_the_seed(every_task):
    task, reference = every_task
    axes = task.workloads[0].axes
    once, again, other = (reference.own_inputs(axes, seed=s) for s in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    if reference.program.source.attribute != "rms_norm":  # its generator seeds itself
        assert not all(torch.equal(a, b) for a, b in zip(once, other, strict=True))


def test_module_with_parameters_scalars_and_keywords(task_named):
    task, reference = task_named("mlp_scalars")
    assert dims(task) == {
        "x": ("M", 48), "up.weight": (80, 48), "up.bias": (80,), "down.weight": (48, 80), "out": ("M", 48),
    }  # fmt: skip
    assert task.arguments[1] == ScalarSpec(name="scale", value=0.5)
    assert [s.role for s in task.state] == ["parameter"] * 3
    assert any("evaluation mode" in note for note in task.notes)
    x, up, up_bias, down = reference.own_inputs({"M": 5})
    expected = torch.relu(x @ up.T + up_bias) @ down.T * 0.5
    torch.testing.assert_close(reference.call((x, up, up_bias, down))[0], expected)
    torch.testing.assert_close(
        reference.eager_callable((x, 2 * up, up_bias, down))(x), reference.call((x, 2 * up, up_bias, down))[0]
    )
    torch.testing.assert_close(reference.as_module()(x, up, up_bias, down), expected)
    assert reference.positional([x]) == [x, 0.5]


def test_state_given_to_a_call_does_not_stick(task_named):
    _, reference = task_named("batchnorm")
    inputs = reference.own_inputs({"B": 2, "H": 9, "W": 8})
    before = reference.call(inputs)[0]
    reference.call([t * 2 + 1 for t in inputs])
    assert torch.equal(reference.call(inputs)[0], before)


def test_running_statistics_are_inputs(task_named):
    task, _ = task_named("batchnorm")
    assert [(s.name, s.role) for s in task.state if s.role == "buffer"] == [
        ("norm.running_mean", "buffer"),
        ("norm.running_var", "buffer"),
    ]
    assert dims(task)["out"] == ("B", 8, "H - 2", "W - 2")


def test_decorated_function(task_named):
    task, reference = task_named("declared")
    assert task.source.kind == "function"
    assert [w.axes for w in task.timed_workloads] == [{"B": 24, "N": 512}, {"B": 8, "N": 1000}]
    assert [a.name for a in task.arguments] == ["x", "w", "keep", "alpha"]
    assert [a.origin for a in task.axes] == ["declared", "declared"]
    x, w, keep = reference.own_inputs({"B": 3, "N": 17})
    assert x.min() >= -4
    assert x.max() < 4
    torch.testing.assert_close(reference.call((x, w, keep))[0], (x * w * 2.0 * keep).sum(-1))


def test_plain_function_with_a_neighbour_and_a_generator(task_named):
    task, reference = task_named("plain_function")
    assert dims(task) == {"x": ("M", "N"), "weight": ("N",), "out": ("M", "N")}
    module = imported_with_neighbour()
    own = list(module.get_inputs())
    torch.testing.assert_close(reference.call(own)[0], module.rms_norm(*own))


def imported_with_neighbour():
    import sys

    sys.path.insert(0, str(FILES))
    try:
        return imported("plain_function")
    finally:
        sys.path.remove(str(FILES))


def test_outermost_class_inputs_by_name_and_two_outputs(task_named):
    task, reference = task_named("other_name")
    assert task.name == "GatedMaximum"
    assert [a.name for a in task.arguments] == ["x", "y"]
    assert task.returns_tuple
    assert [(o.name, o.dtype, o.dims) for o in task.outputs] == [("out0", "float32", ("M",)), ("out1", "int64", ("M",))]
    assert reference.module is not None


def test_the_function_that_uses_the_others_is_the_reference(task_named):
    task, _ = task_named("calls_others")
    assert task.source.attribute == "apply_rotary"
    assert [a.name for a in task.arguments] == ["query", "cosine", "sine"]


def test_instance_is_put_into_evaluation_mode(task_named):
    task, reference = task_named("instance")
    assert task.source.attribute == "net"
    inputs = reference.own_inputs({"M": 4})
    assert torch.equal(reference.call(inputs)[0], reference.call(inputs)[0])


def test_annotations_declare_inputs(task_named):
    task, _ = task_named("annotated")
    assert task.source.kind == "callable"
    assert dims(task)["x"] == ("B", "N")
    assert task.arguments[1] == ScalarSpec(name="dim", value=1)


def test_expressions_of_output_sizes(task_named):
    task, _ = task_named("shapes")
    assert dims(task)["out0"] == ("B", "M + K", 16)
    assert task.outputs[1].shape({"B": 2, "M": 3, "K": 5}) == (2, 8 * 64)


def test_sizes_stop_where_the_reference_does(task_named):
    embedding, _ = task_named("embedding")
    assert {a.name: a.maximum for a in embedding.axes} == {"M": None, "N": 48}
    attention, _ = task_named("attention")
    assert next(a.maximum for a in attention.axes if a.name == "M") == 64


def test_writing_to_inputs_is_noted_and_harmless(task_named):
    task, reference = task_named("writes_in_place")
    assert any("writes to its inputs" in n for n in task.notes)
    assert next(s.structure for s in task.kernel_inputs if s.name == "lower") == "lower_triangular"
    x, lower = reference.own_inputs({"M": 4, "N": 3})
    kept = x.clone()
    torch.testing.assert_close(reference.call((x, lower))[0], lower @ (2 * kept))
    assert torch.equal(x, kept)


def test_library_callable_with_declared_inputs():
    request = TaskRequest(target="torch.nn.functional:layer_norm", inputs=("input=float32[B,96]", "weight=float32[96]"))
    task = describe(
        TaskRequest(
            target="torch.nn.functional:softmax", inputs=("input=bf16[B,N]", "dim=-1"), workloads=("B=4,N=300",)
        )
    )
    assert request.target.endswith("layer_norm")
    assert (task.name, task.outputs[0].dtype, task.outputs[0].dims) == ("softmax", "bfloat16", ("B", "N"))
    x = instantiate(task).own_inputs({"B": 2, "N": 5})
    assert torch.equal(instantiate(task).call(x)[0], torch.softmax(x[0], -1))


def test_concrete_sizes_on_the_command_line_become_axes():
    task = describe(TaskRequest(target="torch:softmax", inputs=("x=float32[64,128]", "dim=1")))
    assert dims(task) == {"x": ("M", "N"), "out": ("M", "N")}
    assert task.timed_workloads[0].axes == {"M": 64, "N": 128}
    again = instantiate(task)
    assert again.own_inputs({"M": 3, "N": 4})[0].shape == (3, 4)


def test_named_function_out_of_several(task_of, tmp_path):
    text = "def one(x):\n    return x + 1\ndef two(x):\n    return x * 3\ndef get_inputs():\n    return [torch.randn(9, 11)]\n"
    path = tmp_path / "many.py"
    path.write_text("import torch\n" + text)
    task = describe(TaskRequest(target=f"{path}:two"))
    x = torch.randn(2, 2)
    assert torch.equal(instantiate(task).call([x])[0], x * 3)


def test_relative_imports_inside_a_package(tmp_path):
    package = tmp_path / "ops_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "constants.py").write_text("SHIFT = 3.0\n")
    (package / "shift.py").write_text(
        "import torch\nfrom .constants import SHIFT\ndef shift(x):\n    return x * SHIFT\n"
        "def get_inputs():\n    return [torch.randn(8, 16)]\n"
    )
    task = describe(TaskRequest(target=str(package / "shift.py")))
    assert task.name == "shift"
    (package / "shift.py").write_text("raise SystemExit('edited later')")
    assert instantiate(task).call([torch.ones(1)])[0].item() == 3.0


def test_the_text_that_was_read_is_what_runs(task_of, tmp_path):
    task, _ = task_of("def f(x):\n    return x - 1\ndef get_inputs():\n    return [torch.randn(8, 16)]\n")
    (tmp_path / "op.py").write_text("broken(")
    assert instantiate(task).call([torch.ones(1)])[0].item() == 0.0


def test_a_divisor_of_the_size_is_found(task_of):
    task, _ = task_of(
        "def f(x):\n    return x.view(x.shape[0], 12, -1).sum(2)\ndef get_inputs():\n    return [torch.randn(6, 240)]\n"
    )
    axis = next(a for a in task.axes if a.default == 240)
    assert axis.multiple == 12
    assert task.outputs[0].dims == ("M", 12)
    assert all(w.axes["N"] % 12 == 0 for w in task.workloads)


def test_equal_sizes_stay_tied_where_they_must(task_of):
    square, _ = task_of(
        "def f(a, b):\n    return a @ b\ndef get_inputs():\n    return [torch.randn(64, 64), torch.randn(64, 64)]\n"
    )
    assert [s.dims for s in square.kernel_inputs] == [("M", "M")] * 2
    softmax, _ = task_of(
        "def f(x):\n    return x.softmax(1)\ndef get_inputs():\n    return [torch.randn(64, 64)]\n", name="s.py"
    )
    assert softmax.kernel_inputs[0].dims == ("M", "N")


def test_sizes_that_cannot_vary_are_said(task_of):
    task, _ = task_of(
        "def f(x):\n    assert x.shape == (6, 32)\n    return x * 2\ndef get_inputs():\n    return [torch.randn(6, 32)]\n"
    )
    assert task.axes == ()
    assert len(task.workloads) == 1
    assert any("no size" in note for note in task.notes)


def test_values_are_looked_at_with_real_runs(task_of):
    task, _ = task_of(
        "def f(x):\n    if x.sum().item() > 1e9:\n        return x\n    return x * 2\n"
        "def get_inputs():\n    return [torch.randn(6, 32)]\n"
    )
    assert task.kernel_inputs[0].dims == ("M", "N")


def test_a_domain_that_drawn_values_leave_is_verified_on_its_own_inputs(task_of):
    task, reference = task_of(
        "def f(a):\n    return torch.linalg.cholesky(a)\n"
        "def get_inputs():\n    b = torch.randn(24, 24)\n    return [b @ b.T + 24 * torch.eye(24)]\n"
    )
    (spec,) = task.kernel_inputs
    assert (spec.structure, spec.dims) == ("symmetric", ("M", "M"))
    assert task.axes[0].maximum == 24
    assert reference.call(reference.own_inputs({"M": 7}))[0].shape == (7, 7)


def test_indices_stay_legal_at_smaller_sizes(task_of):
    task, reference = task_of(
        "def f(x, i):\n    return x.gather(1, i)\n"
        "def get_inputs():\n    return [torch.randn(16, 100), torch.randint(0, 100, (16, 30))]\n"
    )
    assert dims(task) == {"x": ("M", "N"), "i": ("M", "K"), "out": ("M", "K")}
    x, index = reference.own_inputs({"M": 3, "N": 7, "K": 50})
    assert index.max() < 7
    assert torch.equal(reference.call((x, index))[0], x.gather(1, index))


def test_lengths_up_to_an_axis_stay_legal(task_of):
    _, reference = task_of(
        "def f(x, n):\n    return (x * (torch.arange(x.shape[1]) < n[:, None])).sum(1)\n"
        "def get_inputs():\n    n = torch.randint(1, 65, (8,))\n    n[0] = 64\n    return [torch.randn(8, 64), n]\n"
    )
    assert reference.own_inputs({"M": 8, "N": 9})[1].max() == 9


def test_a_machine_under_load_never_makes_an_output_look_constant(task_of, monkeypatch):
    real = ShapeProbe.at
    spent = []

    def slow(self, shapes, changed=()):
        spent.append(1)
        if len(spent) == 12:
            self._deadline = 0.0
        return real(self, shapes, changed)

    monkeypatch.setattr(ShapeProbe, "at", slow)
    for _ in range(2):
        task, reference = task_of(
            "def f(x, w):\n    return torch.relu(x @ w)\n"
            "def get_inputs():\n    return [torch.randn(24, 40), torch.randn(40, 56)]\n"
        )
        for workload in task.workloads:
            result = reference.call(reference.own_inputs(workload.axes))[0]
            assert tuple(result.shape) == task.outputs[0].shape(workload.axes)
        assert not [n for n in task.notes if "output shapes" in n]
        spent.clear()
        monkeypatch.setattr(ShapeProbe, "grant", lambda self, seconds: None)
