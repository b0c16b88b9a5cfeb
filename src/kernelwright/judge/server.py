"""The warm server: has torch imported, forks a runner for whoever holds its control socket, and buries the dead.

Started as `python -m kernelwright.judge.server DESCRIPTOR` by `judge.processes`. It stays single-threaded and never
computes anything, because a process with running OpenMP threads must not fork.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from kernelwright.judge.allocation import set_warm_rule
from kernelwright.judge.sandbox import Confinement, adopt_orphans, confine
from kernelwright.judge.wire import Channel, Closed, Garbled, Message

_BURIAL_SECONDS = 5.0


def main(descriptor: int) -> None:
    """Serve until the control socket closes; every runner dies with the server."""
    warm = set_warm_rule()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm_up()
    control = Channel(socket.socket(fileno=descriptor))
    control.send({"ready": os.getpid(), "warm_rule": warm})
    Server(control).run()


def warm_up() -> None:
    """Import whatever a runner will need, so that it is there after the fork."""
    import torch
    import torch.autograd.profiler

    from kernelwright.judge.runner import ROLES

    torch.set_num_threads(1)
    assert ROLES
    gc.collect()
    gc.freeze()


def warm_up_compilers() -> None:
    """Import what torch.compile and extension builds need: seconds that every such runner would spend again."""
    import torch._dynamo
    import torch._inductor.codecache
    import torch._inductor.compile_fx
    import torch.utils.cpp_extension  # noqa: F401 - imported for the runners

    gc.collect()
    gc.freeze()


def remember_vector_units() -> None:
    """Look up once which vector units torch's compiler can use; its probes are compiled programs, kept in its cache."""
    from torch._inductor import cpu_vec_isa

    cpu_vec_isa.valid_vec_isa_list()


class Server:
    """Forks and reaps."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._runners: dict[int, socket.socket] = {}
        """Process id of each living runner, and where its end is to be told."""
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Until the control socket closes."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            while True:
                watched: list[Any] = [self._control, self._wake_read]
                ready = select.select(watched, [], [])[0]
                if self._wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                    self._reap()
                if self._control in ready:
                    self._control.read()
                    while (message := self._control.waiting()) is not None:
                        if "role" in message:
                            self._spawn(message)
                        elif message["warm"] == "compilers":
                            warm_up_compilers()
                        else:
                            with contextlib.suppress(Exception):
                                remember_vector_units()
        except (Closed, Garbled):
            pass
        finally:
            for pid in self._runners:
                _kill_group(pid)
            self._bury_orphans()

    def _spawn(self, message: Message) -> None:
        """Fork; the message brings three descriptors: the runner's channel, its output, and where its end is told."""
        channel, output, status = self._control.take_descriptors()
        teller = socket.socket(fileno=status)
        try:
            pid = os.fork()
        except OSError as error:
            Channel(teller).send({"failed": str(error)})
            teller.close()
        else:
            if pid == 0:
                self._become_runner(message, channel, output)
            self._runners[pid] = teller
            with contextlib.suppress(Closed):
                Channel(teller).send({"pid": pid})
        os.close(channel)
        os.close(output)

    def _become_runner(self, message: Message, channel: int, output: int) -> NoReturn:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _only_descriptors(channel, output)
            if os.getppid() == 1:
                os._exit(code)
            os.environ.update(message["environment"])
            tempfile.tempdir = None
            writable = message["writable"]
            confine(
                Confinement(
                    message["folder"],
                    message["memory_bytes"],
                    writable=None if writable is None else tuple(writable),
                )
            )
            from kernelwright.judge.runner import serve

            end = Channel(socket.socket(fileno=_CHANNEL))
            serve(message["role"], end, dict(message["settings"]))
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may travel up into the server's own stack
            _say_last_words()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            teller = self._runners.pop(pid, None)
            if teller is None:
                continue
            _kill_group(pid)
            left = self._bury_orphans()
            with contextlib.suppress(Closed):
                Channel(teller).send({"ended": os.waitstatus_to_exitcode(status), "left_behind": left})
            teller.close()

    def _bury_orphans(self) -> int:
        """Kill what dead runners left behind; how many there were.

        An orphan that forks faster than it is found is caught because its children come here as well.
        """
        seen: set[int] = set()
        deadline = time.monotonic() + _BURIAL_SECONDS
        while (orphans := _children() - self._runners.keys()) and time.monotonic() < deadline:
            for pid in orphans:
                seen |= {pid} if _is_running(pid) else set()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        return len(seen)


_CHANNEL = 3


def _only_descriptors(channel: int, output: int) -> None:
    """Leave 0-2 (nothing in, captured out) and the channel; everything else of the server is closed."""
    high = os.dup2(channel, 1000, inheritable=False)
    os.dup2(output, 1)
    os.dup2(output, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(high, _CHANNEL, inheritable=False)
    os.closerange(_CHANNEL + 1, 1 << 16)


def _say_last_words() -> None:
    import traceback

    with contextlib.suppress(OSError):
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> set[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return {int(pid) for pid in path.read_text("ascii").split()}
    except OSError:
        return {pid for pid in _all_pids() if _stat(pid)[1:2] == [str(os.getpid())]}


def _is_running(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all we want


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command: state, parent, group, session, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _arguments() -> Any:
    return int(sys.argv[1])


if __name__ == "__main__":
    main(_arguments())
