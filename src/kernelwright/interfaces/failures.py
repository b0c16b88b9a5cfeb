"""What the user sees when a command fails, and the exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import traceback
from typing import Any

from kernelwright import __version__
from kernelwright.core.errors import (
    CandidateError,
    EnvironmentProblem,
    ExitCode,
    Interrupted,
    KernelwrightError,
    ResumeError,
    SchemaTooNew,
    TaskError,
    UsageError,
)
from kernelwright.interfaces.output import Output

_CODES: tuple[tuple[type[KernelwrightError], str], ...] = (
    (CandidateError, "candidate"),
    (ResumeError, "resume"),
    (UsageError, "usage"),
    (SchemaTooNew, "schema_too_new"),
    (EnvironmentProblem, "environment"),
    (Interrupted, "interrupted"),
)


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def report_failure(error: BaseException, output: Output) -> ExitCode:
    """Print the error (one object with `--json`, else message and hint on standard error); returns the exit code."""
    if isinstance(error, KernelwrightError):
        described = describe(error)
        code = error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        described = {"code": "interrupted", "reason": "interrupted", "message": "stopped", "hint": ""}
        code = ExitCode.INTERRUPTED
    elif isinstance(error, MemoryError):
        described = {
            "code": "environment",
            "reason": "out_of_memory",
            "message": "out of memory",
            "hint": "take smaller inputs, or free some memory",
        }
        code = ExitCode.ENVIRONMENT
    elif isinstance(error, OSError) and error.errno in _DISK:
        place = f": {error.filename}" if error.filename else ""
        described = {
            "code": "environment",
            "reason": "environment",
            "message": f"{error.strerror}{place}",
            "hint": "free some space there, or set KERNELWRIGHT_HOME or TMPDIR to a folder that can be written to",
        }
        code = ExitCode.ENVIRONMENT
    else:
        described = _internal(error)
        code = ExitCode.INTERNAL
    if output.as_json and not output.lost:
        with contextlib.suppress(EnvironmentProblem):
            output.answer({"error": described})
    if not output.as_json or output.lost:
        quiet, output.quiet = output.quiet, False
        output.note(f"error: {described['message']}")
        if described["hint"]:
            output.note(f"  hint: {described['hint']}")
        output.quiet = quiet
    return code


def describe(error: KernelwrightError) -> dict[str, Any]:
    """`code` is the family, `reason` the precise word where there is one."""
    code = next((word for kind, word in _CODES if isinstance(error, kind)), "internal")
    if isinstance(error, TaskError):
        code = "task"
    described = {
        "code": code,
        "reason": error.reason if isinstance(error, TaskError) else code,
        "message": error.message,
        "hint": error.hint,
    }
    if isinstance(error, Interrupted):
        described["folder"] = error.folder
    return described


def _internal(error: BaseException) -> dict[str, Any]:
    words = f"{type(error).__name__}: {error}"
    return {
        "code": "internal",
        "reason": "internal",
        "message": f"kernelwright failed: {words[:500]}",
        "hint": f"please report it with {_traceback_file(error)}",
    }


def _traceback_file(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    try:
        handle, path = tempfile.mkstemp(prefix="kernelwright-traceback-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"kernelwright {__version__}, {' '.join(sys.argv)}\n\n{text}")
    except OSError:
        return text
    return path
