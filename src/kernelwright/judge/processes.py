"""The trusted side of the server and its runners: start, ask within a deadline, capture output, kill, read the ending."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelwright.core.errors import EnvironmentProblem, InternalError
from kernelwright.core.paths import cache_dir
from kernelwright.core.text import strip_escapes
from kernelwright.judge.wire import Channel, Closed, Garbled, Message

_START_SECONDS = 120.0
_DYING_SECONDS = 10.0
_FORK_SECONDS = 60.0
"""A server that is still importing forks late."""
_SPIN_COUNT = "20000"
"""OpenMP threads that wait for work spin a fraction of a millisecond, then sleep: an idle runner must not take
cores from the one that is being timed."""
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "KERNELWRIGHT_HOME", "CPATH", "CXX", "CC")


class ServerDied(Exception):
    """The server is gone (killed from outside, out of memory); a new one can be started."""


@dataclass(frozen=True)
class Ending:
    """How a runner ended."""

    kind: Literal["exited", "signalled", "timed_out", "garbled", "server_died"]
    code: int = 0
    """Exit status, or the signal's number."""
    output: str = ""
    """The captured part of what it printed, without control characters."""
    left_behind: int = 0
    """Processes that it left running."""


class RunnerEnded(Exception):
    """A runner ended, or had to be ended, before it answered."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(f"{ending.kind} {ending.code}")
        self.ending = ending


class Server:
    """A running server process. Thread-safe."""

    def __init__(self, cores: int) -> None:
        """Start it.

        Raises:
            EnvironmentProblem: it does not start (torch is not installed).
        """
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kernelwright.judge.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=server_environment(cores),
                start_new_session=True,
            )
        self._control = Channel(ours)
        try:
            ready = self._control.receive_until(time.monotonic() + _START_SECONDS)
        except (Closed, Garbled):
            ready = None
        if ready is None:
            self.close()
            raise EnvironmentProblem(
                f"the judge's server did not start: {self._last_line()}",
                hint="is torch installed? see kernelwright doctor",
            )
        self.warm_rule = bool(ready.get("warm_rule"))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def spawn(
        self,
        role: str,
        *,
        folder: Path,
        memory_bytes: int,
        output_bytes: int,
        settings: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        writable: Sequence[Path] | None = None,
    ) -> Runner:
        """Fork a runner.

        Args:
            folder: Its working folder.
            environment: Added to the server's.
            writable: Where else it may write; None leaves that open.

        Raises:
            ServerDied: the server is gone.
        """
        channel, their_channel = socket.socketpair()
        status, their_status = socket.socketpair()
        output, their_output = os.pipe2(os.O_CLOEXEC)
        message = {
            "role": role,
            "folder": str(folder),
            "memory_bytes": memory_bytes,
            "writable": None if writable is None else [str(path) for path in writable],
            "environment": {"HOME": str(folder), "TMPDIR": str(folder), **(environment or {})},
            "settings": dict(settings),
        }
        try:
            with self._lock:
                self._control.send(message, [their_channel.fileno(), their_output, their_status.fileno()])
        except Closed as error:
            raise ServerDied(str(error)) from error
        finally:
            their_channel.close()
            their_status.close()
            os.close(their_output)
        return Runner(Channel(channel), Channel(status), output, output_bytes)

    def warm_up(self, what: Literal["compilers", "vector_units"]) -> None:
        """Have it import what torch.compile needs, or remember what its probes find; forks wait meanwhile."""
        with self._lock, contextlib.suppress(Closed):
            self._control.send({"warm": what})

    def close(self) -> None:
        """End the server and all its runners."""
        self._control.close()
        try:
            self._process.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return strip_escapes(lines[-1]) if lines else "no output"


class Runner:
    """One forked process: answers questions until it is closed. Not thread-safe."""

    def __init__(self, channel: Channel, status: Channel, output: int, output_bytes: int) -> None:
        self._channel = channel
        self._status = status
        self._output = output
        self._kept = bytearray()
        self._keep = output_bytes
        self.dropped_bytes = 0
        """Output beyond the limit."""
        self._ending: Ending | None = None
        os.set_blocking(output, False)
        try:
            started = status.receive_until(time.monotonic() + _FORK_SECONDS)
        except (Closed, Garbled):
            started = None
        if started is None or "pid" not in started:
            self._release()
            raise ServerDied("the server did not fork" if started is None else str(started))
        self.pid = int(started["pid"])

    def ask(self, message: Message, *, seconds: float, descriptors: Sequence[int] = ()) -> Message:
        """Send a question and wait for the answer.

        Raises:
            RunnerEnded: no answer in time, or the process ended; it is dead when this is raised.
        """
        deadline = time.monotonic() + seconds
        try:
            self._channel.send(message, descriptors)
            while (answer := self._channel.waiting()) is None:
                left = deadline - time.monotonic()
                watched: list[Any] = [self._channel, self._output] if self._output >= 0 else [self._channel]
                ready = select.select(watched, [], [], max(0.0, left))[0]
                if self._output in ready:
                    self._drain()
                if self._channel in ready:
                    self._channel.read()
                elif left <= 0:
                    self.kill()
                    raise RunnerEnded(self._ended("timed_out"))
            return answer
        except Closed:
            raise RunnerEnded(self._ended(None)) from None
        except Garbled:
            self.kill()
            raise RunnerEnded(self._ended("garbled")) from None

    def close(self) -> Ending:
        """Ask it to end, wait, and say how it ended."""
        if self._ending is None:
            with contextlib.suppress(Closed):
                self._channel.send({"do": "end"})
            self._ended(None)
        assert self._ending is not None
        return self._ending

    def kill(self) -> None:
        """Kill the whole process group."""
        if self._ending is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._ending is not None

    @property
    def output(self) -> str:
        """What it printed so far, as far as kept."""
        return strip_escapes(self._kept.decode("utf-8", "replace"))

    def _ended(self, kind: Literal["timed_out", "garbled"] | None) -> Ending:
        """Wait for the end (killing a process that takes its time) and release everything."""
        if self._ending is not None:
            return self._ending
        told = self._told(2.0)
        if told is None:
            self.kill()
            told = self._told(_DYING_SECONDS)
        self._drain()
        code = int(told.get("ended", 0)) if told else 0
        left = int(told.get("left_behind", 0)) if told else 0
        if told is None:
            found: Ending = Ending("server_died", output=self.output)
        elif kind is not None:
            found = Ending(kind, output=self.output, left_behind=left)
        elif code < 0:
            found = Ending("signalled", -code, self.output, left)
        else:
            found = Ending("exited", code, self.output, left)
        self._ending = found
        self._release()
        return found

    def _told(self, seconds: float) -> Message | None:
        """The server's word on the end; output is drained meanwhile, so that nobody blocks on a full pipe."""
        deadline = time.monotonic() + seconds
        try:
            while (message := self._status.waiting()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                watched: list[Any] = [self._status, self._output] if self._output >= 0 else [self._status]
                ready = select.select(watched, [], [], left)[0]
                if self._output in ready:
                    self._drain()
                if self._status in ready:
                    self._status.read()
            return message
        except (Closed, Garbled):
            return None

    def _drain(self) -> None:
        """Take what it printed; keep the beginning, count the rest."""
        if self._output < 0:
            return
        for _ in range(64):
            try:
                data = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                os.close(self._output)
                self._output = -1
                return
            room = max(0, self._keep - len(self._kept))
            self._kept += data[:room]
            self.dropped_bytes += len(data[room:])

    def _release(self) -> None:
        self._channel.close()
        self._status.close()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def server_environment(cores: int) -> dict[str, str]:
    """The environment of server and runners: nothing of the user's but what programs need to run; no keys."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    cache = cache_dir()
    temporary = cache / "temporary"
    temporary.mkdir(exist_ok=True)
    return {
        "PATH": os.defpath,
        **kept,
        "HOME": tempfile.gettempdir(),
        "TMPDIR": str(temporary),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(cores),
        "GOMP_SPINCOUNT": _SPIN_COUNT,
        "TRITON_INTERPRET": "1",
        "KINETO_LOG_LEVEL": "9",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_EXTENSIONS_DIR": str(cache / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


class ServerHandle:
    """The current server of a judge, restarted when it has died. Thread-safe."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._warm: dict[Literal["compilers", "vector_units"], None] = {}
        """What a new server is asked to have ready, in this order."""

    def get(self) -> Server:
        """A living server."""
        with self._lock:
            if self._server is not None and not self._server.alive:
                self._server.close()
                self._server = None
            if self._server is None:
                self._server = Server(self._cores)
                for what in self._warm:
                    self._server.warm_up(what)
            return self._server

    def warm_up_compilers(self) -> None:
        """Keep what torch.compile needs imported from now on, once."""
        self._warm_up("compilers")

    def remember_vector_units(self) -> None:
        """Probe only once what torch's compiler can use; quick when its cache holds the probes, so ask afterwards."""
        self._warm_up("vector_units")

    def _warm_up(self, what: Literal["compilers", "vector_units"]) -> None:
        server = self.get()
        if what not in self._warm:
            self._warm[what] = None
            server.warm_up(what)

    def spawn(self, role: str, **options: Any) -> Runner:
        """Fork a runner; starts a new server once where the old one has died.

        Raises:
            InternalError: the new one died as well.
        """
        for _ in range(2):
            try:
                return self.get().spawn(role, **options)
            except ServerDied as error:
                died = error
                with self._lock:
                    if self._server is not None:
                        self._server.close()
                        self._server = None
        raise InternalError(f"the judge's server died twice: {died}")

    def close(self) -> None:
        """End it."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None
