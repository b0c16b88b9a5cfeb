"""What a task needs from torch's compilers, made in the background: graph, compiled baselines in the cache, lifted kernels.

One process does all of it, so that imports, the compiler's probes and the generated code are paid for once. What it
compiles lands in torch's own cache on disk, from where the baselines' processes take it. It stands still while anything
is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from kernelwright.core.errors import KernelwrightError
from kernelwright.judge.gate import TimingGate
from kernelwright.judge.processes import ServerHandle
from kernelwright.judge.references import QUESTION_SECONDS, ReferenceProcess
from kernelwright.judge.wire import Message
from kernelwright.platforms.candidates import Candidate
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

COMPILE_SECONDS = 240.0
"""Longest for compiling one mode; time in which the process stands still counts as well."""
LIFT_SECONDS = 600.0
TUNED_OPERATIONS = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "convolution",
    "attention",
    "linear",
    "matmul",
    "einsum",
    "mv",
    "dot",
)
"""Parts of the names of operations for which max-autotune has more than one kernel to choose from on a CPU."""
SAME_CODE = "nothing to tune in this graph: the code is the same as that of `compile`"


def tunable(graph: Graph | str) -> bool:
    """Whether max-autotune may generate other code than the default mode; an unknown graph may be anything."""
    if isinstance(graph, str):
        return True
    return any(part in node.op.lower() for node in graph.nodes for part in TUNED_OPERATIONS)


class Ahead:
    """Starts at once, in a thread of its own; everything is a question that waits for its answer."""

    def __init__(
        self, task: Task, server: ServerHandle, process: ReferenceProcess, gate: TimingGate, modes: Sequence[str]
    ) -> None:
        self._task = task
        self._server = server
        self._gate = gate
        self._modes = modes
        self._process = process
        self._graph: Future[Graph | str] = Future()
        self._compiled: dict[str, Future[str]] = {mode: Future() for mode in modes}
        self._lifted: Future[Sequence[Candidate] | str] = Future()
        self._wanted = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, once."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="kernelwright-ahead", daemon=True)
                self._thread.start()

    def graph(self) -> Graph | str:
        """The reference as core ATen operations, or the reason why it cannot be traced."""
        self.start()
        return self._graph.result()

    def failure(self, mode: str) -> str:
        """Wait until this mode's code for all timed workloads is in the cache; why it is not, or an empty string."""
        if mode not in self._compiled:
            return ""
        self.start()
        return self._compiled[mode].result()

    def lifted(self) -> Sequence[Candidate] | str:
        """The generated kernels as candidates, or the reason why there are none."""
        self._wanted.set()
        self.start()
        return self._lifted.result()

    def close(self) -> None:
        """End the process, whatever it is doing, and the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wanted.set()
        self._process.kill()
        if thread is not None:
            thread.join()
        self._process.close()

    def _run(self) -> None:
        try:
            self._steps()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            self._answer_all(str(error))
        finally:
            self._process.close()
            self._answer_all("the session was closed")

    def _steps(self) -> None:
        graph = self._traced()
        self._graph.set_result(graph)
        for mode in self._modes:
            self._compiled[mode].set_result(self._compile(mode, graph))
        self._wanted.wait()
        if not self._closed:
            self._lifted.set_result(self._lift(tune=tunable(graph)))

    def _traced(self) -> Graph | str:
        try:
            said = self._ask({"do": "trace"}, seconds=QUESTION_SECONDS)
        except KernelwrightError as error:
            return error.message
        return str(said["reason"]) if "reason" in said else Graph.from_json(said["graph"])

    def _compile(self, mode: str, graph: Graph | str) -> str:
        if mode != "compile" and not tunable(graph):
            return SAME_CODE
        if mode != "compile":
            # It chooses by timing, which must not happen beside other work: left to the baseline's own process.
            return ""
        workloads = [workload.axes for workload in self._task.timed_workloads]
        try:
            self._ask({"do": "compile", "mode": mode, "workloads": workloads}, seconds=COMPILE_SECONDS)
        except KernelwrightError as error:
            return error.message
        self._server.remember_vector_units()
        return ""

    def _lift(self, *, tune: bool) -> Sequence[Candidate] | str:
        workloads = self._task.timed_workloads
        try:
            regions = [self._process.own_region(w.axes, [0])[0] for w in workloads]
            try:
                said = self._ask(
                    {"do": "lift", "workloads": [w.axes for w in workloads], "tune": tune},
                    [region.descriptor for region in regions],
                    seconds=LIFT_SECONDS,
                )
            finally:
                for region in regions:
                    region.close()
        except KernelwrightError as error:
            return error.message
        return str(said["reason"]) if "reason" in said else [Candidate.from_json(t) for t in said["candidates"]]

    def _ask(self, message: Message, descriptors: Sequence[int] = (), *, seconds: float) -> Message:
        # The runner's process id is that of its group, compilers included.
        with self._gate.compiling(self._process.runner.pid):
            return self._process.ask(message, descriptors, seconds=seconds)

    def _answer_all(self, reason: str) -> None:
        if not self._graph.done():
            self._graph.set_result(reason)
        for future in self._compiled.values():
            if not future.done():
                future.set_result(reason)
        if not self._lifted.done():
            self._lifted.set_result(reason)
