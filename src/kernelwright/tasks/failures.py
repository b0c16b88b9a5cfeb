"""What user code raised, as a `TaskError` that names the file, the line and the likely cause."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernelwright.core.errors import TaskError, TaskFault
from kernelwright.core.text import strip_escapes, trimmed

_GPU_SIGNS = (
    "not compiled with cuda",
    "no nvidia driver",
    "no cuda gpus",
    "cuda driver",
    "no hip gpus",
    "cuda error",
    "xpu device",
    "torch not linked with support for mps",
)
_HINTS: dict[TaskFault, str] = {
    "reference_raises": "make the file work by itself first: Model(*get_init_inputs())(*get_inputs()), or the function "
    "on inputs of the declared shapes",
    "import_failed": "make `python FILE` work first; relative paths are best read from Path(__file__).parent",
}
_MEMORY_SIGNS = ("can't allocate memory", "cannot allocate memory", "out of memory", "unable to allocate")


def is_memory_failure(error: BaseException) -> bool:
    """Whether an allocation was refused."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _MEMORY_SIGNS)


def task_error(error: BaseException, *, path: str | Path, doing: str, otherwise: TaskFault) -> TaskError:
    """The typed form of what user code raised while `doing` something; `otherwise` is the reason where none fits better."""
    if isinstance(error, TaskError):
        return error
    words = trimmed(strip_escapes(str(error)), limit=600).strip()
    told = f"{place(error, path)}: {doing}: {type(error).__name__}{': ' + words if words else ''}"
    lowered = words.lower()
    if any(sign in lowered for sign in _GPU_SIGNS):
        return TaskError(
            "needs_gpu", told, hint="the reference must run on a CPU: take `.cuda()` and device='cuda' out"
        )
    if is_memory_failure(error):
        return TaskError("out_of_memory", told, hint="make the inputs smaller")
    if isinstance(error, SyntaxError):
        return TaskError(
            "syntax_error", syntax_words(error, path), hint="correct the file; `python FILE` says the same"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return TaskError(
            otherwise,
            told,
            hint=f"install {error.name.partition('.')[0]} beside kernelwright, or put it next to the file",
        )
    return TaskError(otherwise, told, hint=_HINTS.get(otherwise, ""))


def syntax_words(error: SyntaxError, path: str | Path) -> str:
    """`file:line: message` and the line at fault."""
    line = f"\n    {error.text.strip()}" if error.text else ""
    return f"{error.filename or path}:{error.lineno or 0}: {error.msg}{line}"


def place(error: BaseException, path: str | Path) -> str:
    """`file:line` of the innermost frame in the user's own file, else the file alone."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{own[-1].lineno}" if own else str(path)
