"""Every error that kernelwright raises on purpose.

    KernelwrightError                 what went wrong, a hint for the next step, an exit code
    ├── UsageError                (2) the user's words, file or candidate cannot be read as what they should be
    │   ├── TaskError                 the reference or its declaration is unusable; `.reason` is a stable word
    │   ├── CandidateError            the candidate's file cannot be read as a candidate
    │   └── ResumeError               the run to resume is missing or its configuration differs
    ├── EnvironmentProblem        (3) something on the machine is missing: compiler, torch, disk space, a sandbox
    │   └── SchemaTooNew              the archive was written by a newer version
    ├── Interrupted             (130) the user stopped a run; everything is kept and `.folder` resumes it
    └── InternalError             (4) our own fault

A wrong, slow, crashing or malicious *candidate* is never an exception: it is an `Evaluation` (judge.evaluation).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    NOT_PASSED = 1
    USAGE = 2
    ENVIRONMENT = 3
    INTERNAL = 4
    INTERRUPTED = 130


class KernelwrightError(Exception):
    """Root of the tree: `message` says what was expected and what came, `hint` what to do next."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(KernelwrightError):
    """The user's words, file or option cannot be read as what they should be."""

    exit_code = ExitCode.USAGE


TaskFault = Literal[
    "missing_file",
    "syntax_error",
    "import_failed",
    "no_reference",
    "bad_declaration",
    "reference_raises",
    "reference_hangs",
    "reference_crashes",
    "needs_gpu",
    "non_deterministic",
    "input_independent",
    "unstable_shapes",
    "out_of_memory",
    "unsupported_dtype",
    "unsupported_input",
    "unsupported_output",
    "trivial_candidate_passes",
]


class TaskError(UsageError):
    """The reference, or its declaration, is unusable; `reason` is a stable word for programs."""

    def __init__(self, reason: TaskFault, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason: TaskFault = reason


class CandidateError(UsageError):
    """The candidate's file cannot be read as a candidate (missing file, unknown ending, no entry point)."""


class ResumeError(UsageError):
    """The run to resume is missing, or its configuration differs; the message lists the differing keys."""


class EnvironmentProblem(KernelwrightError):
    """Something that the machine should have is missing (compiler, torch, disk space, sandbox level)."""

    exit_code = ExitCode.ENVIRONMENT


class SchemaTooNew(EnvironmentProblem):
    """The archive was written by a newer version of kernelwright than this one."""


class Interrupted(KernelwrightError):
    """A run was stopped by Ctrl-C or SIGTERM; every finished attempt is kept."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self, message: str, *, folder: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.folder = folder
        """The run's folder: `--resume` with it continues."""


class InternalError(KernelwrightError):
    """Our own fault: please report it."""


class KernelwrightWarning(UserWarning):
    """Root of our warnings."""
