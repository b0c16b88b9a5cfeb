"""One run of a compiler: bounded in time, memory and file size, and killed as a whole."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

_MEMORY_KIB = 8 << 20
_FILE_BLOCKS = 1 << 21  # 512-byte blocks in POSIX shells: 1 GiB (2 GiB where a shell counts 1024 bytes)
_OUTPUT_BYTES = 256 << 10
_LOOK_SECONDS = 0.25
_DYING_SECONDS = 2.0
# The limits must be in force before the compiler's own children start, and they outlive us if we are killed.
_LIMITED = 'ulimit -v "$1"; ulimit -f "$2"; ulimit -t "$3"; ulimit -c 0; shift 3; exec "$@"'


@dataclass(frozen=True)
class CompilerRun:
    """How it ended, and what it printed (standard output and error together, the first 256 KiB)."""

    returncode: int
    output: str
    timed_out: bool

    @property
    def succeeded(self) -> bool:
        """Whether the compiler reported success in time."""
        return self.returncode == 0 and not self.timed_out

    @property
    def repeatable(self) -> bool:
        """Whether the same sources would fail again: not when somebody killed the compiler from outside."""
        return self.timed_out or (self.returncode > 0 and "Killed signal" not in self.output)

    @property
    def ending(self) -> str:
        """The exit status in words."""
        return f"signal {-self.returncode}" if self.returncode < 0 else f"status {self.returncode}"


def run_compiler(
    command: Sequence[str],
    folder: Path,
    timeout: float,
    pause: Callable[[int], AbstractContextManager[object]] | None = None,
) -> CompilerRun:
    """Run `command` in `folder` for at most `timeout` seconds, not counting time in which its group was stopped.

    Temporary files go to `folder/../tmp`. The whole group has ended when this returns, whatever happened.
    """
    log_path = folder.parent / "log"
    limits = [str(_MEMORY_KIB), str(_FILE_BLOCKS), str(int(timeout) + 5)]
    with log_path.open("wb") as log:
        # A process group of its own, in our session: it can be stopped and killed as a whole, and should we die while
        # it is stopped, the kernel hangs up on it (an orphaned group with stopped members gets SIGHUP and SIGCONT).
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *limits, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(folder.parent / "tmp"),
            process_group=0,
        )
    timed_out = True
    try:
        with pause(process.pid) if pause else contextlib.nullcontext():
            timed_out = not _ended_within(process, timeout)
    finally:
        _kill_group(process)
    with log_path.open("rb") as log:
        output = log.read(_OUTPUT_BYTES).decode("utf-8", "replace")
    return CompilerRun(process.returncode, output, timed_out)


def _environment(temporary: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "CPATH") if name in os.environ}
    return {"PATH": os.defpath, **kept, "TMPDIR": str(temporary), "LC_ALL": "C.UTF-8"}


def _ended_within(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait for the end; seconds in which the process is stopped do not count."""
    counted = 0.0
    descriptor = os.pidfd_open(process.pid)
    try:
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        while counted < timeout:
            step = min(_LOOK_SECONDS, timeout - counted)
            began = time.monotonic()
            if ready.poll(step * 1000):
                process.wait()
                return True
            if not _is_stopped(process.pid):
                counted += time.monotonic() - began
        return False
    finally:
        os.close(descriptor)


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["T"]


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # The compiler proper may need a moment to give gigabytes back; what was killed must not run beside what comes next.
    deadline = time.monotonic() + _DYING_SECONDS
    while time.monotonic() < deadline and _lives(process.pid):
        time.sleep(0.01)


def _lives(group: int) -> bool:
    """Whether any process of the group still runs (one that only waits to be reaped does not)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, process_group = stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                return True
    return False
