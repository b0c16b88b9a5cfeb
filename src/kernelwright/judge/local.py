"""`LocalJudge`: the judge on this machine. Needs no torch in the process that uses it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from kernelwright.judge.baselines import MODES, Mode
from kernelwright.judge.processes import ServerHandle
from kernelwright.judge.protocol import Limits
from kernelwright.judge.references import ReferenceProcess
from kernelwright.judge.session import LocalSession
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task
from kernelwright.tasks.request import TaskRequest

DESCRIBE_SECONDS = 120.0
"""Longest that reading a task may take: loading the file, running the reference, finding its axes, the audit."""


class LocalJudge:
    """Implements `judge.protocol.Judge` with a warm server process that forks a runner for everything untrusted.

    Args:
        device: Where candidates are built, run and timed.
        limits: What a candidate may use.
        secret_seed: Seed of inputs and hidden workloads; drawn afresh if None. Give one only to repeat a run exactly.
        describe_seconds: Longest that reading a task may take.
        baseline_modes: What candidates are compared with; fewer than all of them makes the first verdict quicker and
            the comparison weaker.
    """

    def __init__(
        self,
        device: Device,
        *,
        limits: Limits | None = None,
        secret_seed: int | None = None,
        describe_seconds: float = DESCRIBE_SECONDS,
        baseline_modes: Sequence[Mode] = MODES,
    ) -> None:
        self.device = device
        self.limits = limits or Limits()
        self._seed = secrets.randbits(63) if secret_seed is None else secret_seed
        self._describe_seconds = describe_seconds
        self._modes = tuple(baseline_modes)
        self.server = ServerHandle(device.cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and everything that it started."""
        self.server.close()

    def describe(self, request: TaskRequest) -> Task:
        """Read a task in a process of its own.

        Raises:
            TaskError: it is unusable; `.reason` says in a word, why.
            EnvironmentProblem: the server does not start.
        """
        process = ReferenceProcess(self.server, self.limits, self.device.cores, None)
        message = {"do": "describe", "request": request.model_dump(mode="json"), "folder": str(Path.cwd())}
        try:
            return Task.from_json(process.ask(message, seconds=self._describe_seconds)["task"])
        finally:
            process.close()

    @contextmanager
    def open(self, task: Task) -> Iterator[LocalSession]:
        """Prepare a task: hidden workloads are drawn now, oracle and baselines on first use."""
        if set(self._modes) - {"eager"}:
            self.server.warm_up_compilers()
        session = LocalSession(
            task, self.device, server=self.server, limits=self.limits, seed=self._seed, modes=self._modes
        )
        try:
            yield session
        finally:
            session.close()
