"""An exported folder in a fresh interpreter that has torch but not kernelwright."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from kernelwright.archive.export import VERIFICATION, export_candidate
from kernelwright.core.errors import UsageError
from kernelwright.judge.evaluation import Incorrect
from kernelwright.platforms.detect import detect_device

sys.path.insert(0, str(Path(__file__).parent))
import export_records as records

DEVICE = detect_device(measure=False)
# -S keeps an editable install of kernelwright off the path; torch's folder is put on it by hand.
PREAMBLE = f"""
import importlib.util, sys, warnings
sys.path[:0] = [{sysconfig.get_paths()["purelib"]!r}, {{parent!r}}]
assert importlib.util.find_spec("kernelwright") is None, "kernelwright must not be at hand here"
import torch
"""


def use(folder: Path, script: str, **environment: str) -> str:
    """What a script prints that runs beside an exported folder; its warnings go to standard error."""
    code = PREAMBLE.format(parent=str(folder.parent)) + textwrap.dedent(script)
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "OMP_NUM_THREADS": "2", **environment}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(task, candidate, folder: Path, *bindings: dict[str, int], specialised: bool = False) -> Path:
    verdict = records.passed(task, candidate, *bindings, specialised=specialised)
    return export_candidate(task, candidate, verdict, DEVICE, folder, versions={"torch": "2"})


@pytest.fixture
def function(tmp_path: Path) -> Path:
    bindings = ({"B": 8, "N": 16}, {"B": 3, "N": 5})
    return exported(records.function_task(tmp_path), records.function_kernel(), tmp_path / "best", *bindings)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return exported(records.module_task(tmp_path), records.module_kernel(), tmp_path / "best", {"B": 8}, {"B": 3})


def test_a_function_runs_its_kernel_and_falls_back_with_one_warning_for_each_reason(function: Path) -> None:
    use(
        function,
        """
        from best import optimized, explain, strict_shapes, KernelFallbackWarning
        import inspect
        assert list(inspect.signature(optimized).parameters) == ["x", "y", "factor"]

        def check(x, y, *rest, kernel, kind="", **keywords):
            decision = explain(x, y, *rest, **keywords)
            assert (decision.kernel, decision.kind) == (kernel, kind), decision
            factor = (list(rest) + [keywords.get("factor", 2.0)])[0]
            got = optimized(x, y, *rest, **keywords)
            torch.testing.assert_close(got, x * factor + y)
            return got

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check(torch.randn(8, 16), torch.randn(16), kernel=True)
            check(torch.randn(8, 16), torch.randn(16), 2.0, kernel=True)
            check(torch.randn(70, 33), torch.randn(33), kernel=True)
            check(torch.randn(16, 8).T, torch.randn(32)[::2], kernel=True)
            optimized(y=torch.randn(16), x=torch.randn(8, 16))
            with torch.no_grad():
                check(torch.randn(8, 16, requires_grad=True), torch.randn(16), kernel=True)
        cases = {
            "scalar": lambda: check(torch.randn(8, 16), torch.randn(16), factor=3.0, kernel=False, kind="scalar"),
            "dtype": lambda: check(torch.randn(8, 16).double(), torch.randn(16).double(), kernel=False, kind="dtype"),
            "shape": lambda: check(torch.randn(2, 8, 16), torch.randn(16), kernel=False, kind="shape"),
            "gradient": lambda: check(torch.randn(8, 16, requires_grad=True), torch.randn(16), kernel=False, kind="gradient"),
        }
        for name, case in cases.items():
            for expected in (1, 0):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    case()
                assert len(seen) == expected, (name, [str(w.message) for w in seen])
                assert all(w.category is KernelFallbackWarning and "reference runs" in str(w.message) for w in seen)
        x = torch.randn(8, 16, requires_grad=True)
        optimized(x, torch.randn(16)).sum().backward()
        assert torch.equal(x.grad, torch.full((8, 16), 2.0))
        check(torch.empty(0, 16), torch.randn(16), kernel=False, kind="shape")
        assert explain(torch.randn(2, 5000), torch.randn(5000)).kernel
        wide = check(torch.randn(2, 5000), torch.randn(5000), kernel=True)
        assert explain(torch.randn(2, 5000), torch.randn(5000)).kind == "unsupported"
        class Own(torch.Tensor): pass
        assert explain(torch.randn(8, 16).as_subclass(Own), torch.randn(16)).kind == "type"
        assert explain(torch.empty(8, 16, device="meta"), torch.randn(16)).kind == "device"
        strict_shapes()
        assert explain(torch.randn(8, 16), torch.randn(16)).kernel
        assert explain(torch.randn(9, 16), torch.randn(16)).kind == "shape"
        for wrong in (lambda: optimized(torch.randn(8, 16)), lambda: optimized(1, 2, 3, 4), lambda: optimized(z=1)):
            try:
                wrong()
            except TypeError as error:
                assert "it takes x, y, factor" in str(error)
            else:
                raise AssertionError("accepted")
        assert "kernelwright" not in sys.modules
        """,
    )
    assert list(function.glob("build/*/kernel.so"))


def test_a_module_keeps_its_parameters_and_names(module: Path) -> None:
    use(
        module,
        """
        import best
        from best import ModelNew, optimized
        original = ModelNew.__mro__[1](16)
        made = ModelNew()
        assert list(made.state_dict()) == list(original.state_dict()) == ["shift", "norm.weight"]
        made.load_state_dict(original.state_dict())
        x = torch.randn(40, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert made.explain(x).kernel
            torch.testing.assert_close(made(x), original(x))
            torch.testing.assert_close(made(x=x), original(x))
            state = [original.norm.weight.detach(), original.shift]
            torch.testing.assert_close(optimized(x, *state), original(x))
            with torch.no_grad():
                original.norm.weight.add_(1), made.norm.weight.add_(1)
            torch.testing.assert_close(made(x), original(x))
        warnings.simplefilter("ignore")
        assert made.train().explain(x).kind == "training"
        torch.testing.assert_close(made(x), original(x))
        made.eval().requires_grad_(True)
        assert made.explain(x).kind == "gradient"
        made(x).sum().backward()
        torch.testing.assert_close(made.norm.weight.grad, x.sum(0))
        other = ModelNew(16, offset=5.0)
        other.load_state_dict(original.state_dict())
        assert other.explain(x).kind == "constructor"
        torch.testing.assert_close(other(x), original(x) + 5)
        assert ModelNew(16).explain(x).kernel
        torch.testing.assert_close(optimized(x.double(), *(s.double() for s in state)), x.double() * state[0] + state[1])
        """,
    )


def test_a_plan_with_library_steps_and_several_outputs_is_imported_by_path(tmp_path: Path) -> None:
    bindings = ({"M": 8, "K": 16, "N": 24}, {"M": 3, "K": 5, "N": 7})
    folder = exported(records.product_task(tmp_path), records.product_kernel(), tmp_path / "any name", *bindings)
    use(
        folder,
        f"""
        spec = importlib.util.spec_from_file_location("mine", {str(folder / "__init__.py")!r})
        mine = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(mine)
        a, b = torch.randn(33, 20), torch.randn(20, 11)
        assert mine.explain(a, b).kernel
        got = mine.optimized(a, b)
        assert isinstance(got, tuple) and not hasattr(mine, "ModelNew")
        torch.testing.assert_close(got, (torch.relu(a @ b), (a @ b).sum()), atol=1e-4, rtol=1e-4)
        warnings.simplefilter("ignore")
        got = mine.optimized(a.double(), b.double())
        torch.testing.assert_close(got[0], torch.relu(a.double() @ b.double()))
        """,
    )


def test_a_python_kernel_takes_the_state_it_is_given(tmp_path: Path) -> None:
    task = records.module_task(tmp_path)
    folder = exported(task, records.python_kernel(), tmp_path / "best", {"B": 8}, specialised=True)
    use(
        folder,
        """
        from best import ModelNew, optimized, explain
        weight, shift = torch.randn(16), torch.randn(16)
        for _ in range(2):
            x = torch.randn(8, 16)
            assert explain(x, weight, shift).kernel
            torch.testing.assert_close(optimized(x, weight, shift), x * weight + shift)
            weight.add_(1)
        made = ModelNew()
        torch.testing.assert_close(made(x), x * made.norm.weight + made.shift)
        assert explain(torch.randn(9, 16), weight, shift).kind == "shape"
        """,
    )
    assert not (folder / "building.py").exists()


def test_without_a_compiler_the_reference_runs(function: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = use(
        function,
        """
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            from best import optimized, explain
            x, y = torch.randn(8, 16), torch.randn(16)
            torch.testing.assert_close(optimized(x, y), x * 2 + y)
        assert len(seen) == 1, [str(w.message) for w in seen]
        assert explain(x, y).kind == "build"
        print(seen[0].message)
        """,
        PATH=str(tmp_path / "empty"),
    )
    assert "no C++ compiler" in out


def test_sources_that_do_not_build_here_name_the_compiler_s_error(function: Path) -> None:
    (function / "sources" / "kernel.cpp").write_text("int broken(\n")
    out = use(
        function,
        "warnings.simplefilter('ignore')\nfrom best import explain\nprint(explain(torch.ones(8, 16), torch.ones(16)))",
    )
    assert "error" in out
    assert "kind='build'" in out


def test_a_folder_that_cannot_be_written_builds_in_the_cache_and_builds_once(function: Path, tmp_path: Path) -> None:
    (function / "build").write_text("a file where the folder would be")
    script = "from best import explain\nassert explain(torch.randn(8, 16), torch.randn(16)).kernel"
    use(function, script, XDG_CACHE_HOME=str(tmp_path / "cache"))
    (built,) = (tmp_path / "cache").rglob("kernel.so")
    before = built.stat().st_mtime_ns
    use(function, script, XDG_CACHE_HOME=str(tmp_path / "cache"), PATH="")
    assert built.stat().st_mtime_ns == before


def test_processes_that_import_at_once_build_once(function: Path) -> None:
    code = PREAMBLE.format(parent=str(function.parent)) + "import best\nassert best._operation._kernel is not None"
    command = [sys.executable, "-I", "-S", "-c", code]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    errors = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    assert len(list(function.rglob("kernel.so"))) == 1
    assert not list(function.rglob("building-*"))


@pytest.mark.slow
def test_torch_compile_leaves_the_kernel_as_it_is(function: Path) -> None:
    use(
        function,
        """
        from best import optimized
        x, y = torch.randn(8, 16), torch.randn(16)
        compiled = torch.compile(lambda x, y: torch.relu(optimized(x, y)) + 1)
        for _ in range(2):
            torch.testing.assert_close(compiled(x, y), torch.relu(x * 2 + y) + 1)
        """,
    )


def test_a_folder_says_what_was_verified(function: Path) -> None:
    record = json.loads((function / VERIFICATION).read_text())
    assert record["evaluation"]["outcome"] == "passed"
    assert record["evaluation"]["speed"]["workloads"][0]["candidate_us"] == [1.0, 1.1, 1.2]
    assert set(record["files"]) == {str(p.relative_to(function)) for p in function.rglob("*") if p.is_file()} - {
        VERIFICATION
    }
    readme = (function / "README.md").read_text()
    assert "from best import optimized" in readme
    assert "other sizes of B, N" in readme
    assert "2.00x the best baseline" in readme
    assert "B=8, N=16; B=3, N=5" in readme


def test_only_what_passed_is_exported_and_nothing_foreign_is_replaced(tmp_path: Path) -> None:
    task, candidate = records.function_task(tmp_path), records.function_kernel()
    wrong = Incorrect(candidate=candidate.id, task=task.id, device=DEVICE.id, reason="off by one")
    with pytest.raises(UsageError, match="incorrect"):
        export_candidate(task, candidate, wrong, DEVICE, tmp_path / "best")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is no exported folder"):
        exported(task, candidate, tmp_path / "mine", {"B": 8, "N": 16})
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    first = exported(task, candidate, tmp_path / "best", {"B": 8, "N": 16})
    (first / "build").mkdir()
    second = exported(task, candidate, tmp_path / "best", {"B": 8, "N": 16})
    assert second == first
    assert not (second / "build").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
