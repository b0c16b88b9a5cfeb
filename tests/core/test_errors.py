"""The error tree and the import law."""

from __future__ import annotations

import subprocess
import sys

from kernelwright.core import errors


def test_every_error_has_an_exit_code_and_one_root():
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    ours = [e for e in kinds if e.__module__ == errors.__name__ and not issubclass(e, Warning)]
    assert len(ours) >= 8
    assert all(issubclass(e, errors.KernelwrightError) and isinstance(e.exit_code, errors.ExitCode) for e in ours)


def test_hint_is_shown_after_the_message():
    error = errors.TaskError("needs_gpu", "no CPU", hint="take .cuda() out")
    assert str(error) == "no CPU\n  hint: take .cuda() out"
    assert (error.reason, error.exit_code) == ("needs_gpu", 2)


def test_importing_the_package_and_its_task_words_loads_no_torch():
    code = (
        "import sys, kernelwright, kernelwright.tasks, kernelwright.tasks.inputs, kernelwright.tasks.comparison, "
        "kernelwright.tasks.hidden\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'openai', 'fastapi')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
