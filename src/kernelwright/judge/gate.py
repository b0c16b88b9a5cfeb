"""Timing alone: nothing of ours computes while something is timed, in this process or in another one on the machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "kernelwright.timing.lock"
"""Held by whoever times something; one for the whole machine."""


class TimingGate:
    """Stops running compilers while something is timed, and lets them go on afterwards. Thread-safe."""

    def __init__(self, lock: Path = LOCK) -> None:
        self._path = lock
        self._timing = threading.Lock()
        self._state = threading.Lock()
        self._closed = False
        self._groups: set[int] = set()

    @contextlib.contextmanager
    def compiling(self, group: int) -> Iterator[None]:
        """While this is open, the process group may be stopped: the `pause` hook of `cpp.build.build`."""
        with self._state:
            self._groups.add(group)
            if self._closed:
                _signal(group, signal.SIGSTOP)
        try:
            yield
        finally:
            with self._state:
                self._groups.discard(group)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """While this is open, nothing else of ours runs."""
        with self._timing, self._machine_wide():
            self._stop(True)
            try:
                yield
            finally:
                self._stop(False)

    def _stop(self, closed: bool) -> None:
        with self._state:
            self._closed = closed
            for group in self._groups:
                _signal(group, signal.SIGSTOP if closed else signal.SIGCONT)

    @contextlib.contextmanager
    def _machine_wide(self) -> Iterator[None]:
        """Wait for other judges; a lock file that belongs to somebody else is enough to lock, not to write."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
