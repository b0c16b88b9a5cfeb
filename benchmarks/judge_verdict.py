"""What one verdict costs: seconds of a small C++ candidate in a warm judge, seconds of a whole search, peak memory.

    python benchmarks/judge_verdict.py [--verdicts 15] [--evaluations 60]

Memory is the proportional set size (shared pages divided among their owners) of every process of the judge: its server,
the runners, the compilers, and what the trusted side adds to this process. Only one set of the task's own tensors is
taken off, not the copies that timing rotates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.agents.run import Budget
from kernelwright.judge.local import LocalJudge
from kernelwright.judge.protocol import Judge
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.detect import detect_device
from kernelwright.platforms.device import Device
from kernelwright.tasks.request import TaskRequest
from recording import write
from searching import search

SMALL = Path(__file__).parent / "small_operation.py"
DEMO = Path(__file__).parent.parent / "examples" / "tanh_residual.py"
ASKED = {"median_verdict_seconds": "<=1.0", "search_seconds": "<=150", "peak_gbytes_above_tensors": "<=1.5"}
# A different first line each time, so that nothing comes from the build cache.
SOURCE = """// variant {variant}
#include "kernelwright.h"
#include <math.h>
extern "C" int32_t kernelwright_run(const kw_tensor* inputs, int32_t, kw_tensor* outputs, int32_t, void*, int32_t threads) {{
    const float* x = (const float*)inputs[0].data;
    const float* y = (const float*)inputs[1].data;
    float* out = (float*)outputs[0].data;
    int64_t count = 1;
    for (int32_t axis = 0; axis < outputs[0].ndim; ++axis) count *= outputs[0].shape[axis];
#pragma omp parallel for simd num_threads(threads)
    for (int64_t i = 0; i < count; ++i) out[i] = fmaxf(x[i], 0.0f) * y[i] + x[i];
    return KW_OK;
}}
"""


def main() -> int:
    options = _options()
    device = detect_device()
    rows = []
    with LocalJudge(device) as judge:
        rows.append(verdicts(judge, device, options.verdicts))
        rows.append(whole_search(judge, device, options.evaluations))
    figures = {
        "median_verdict_seconds": statistics.median(rows[0]["seconds"]),
        "slowest_verdict_seconds": max(rows[0]["seconds"]),
        "search_seconds": rows[1]["seconds"][0],
        "search_evaluations": float(rows[1]["evaluations"]),
        "peak_gbytes_above_tensors": max(row["peak_gbytes_above_tensors"] for row in rows),
    }
    for figure, value in figures.items():
        print(f"{figure:<36} {value:.3f}")
    print(write("judge_verdict", device, rows=rows, summary=figures, asked=ASKED))
    return 0


def verdicts(judge: Judge, device: Device, count: int) -> dict:
    """Fresh variants of one right candidate, judged one after another."""
    task = judge.describe(TaskRequest(target=str(SMALL)))
    seconds, stages, outcomes = [], [], []
    with peak_memory() as peak, judge.open(task) as session:
        session.baselines()
        for variant in range(count + 1):
            stamp = f"{variant} {time.time_ns()}"
            candidate = Candidate(language="cpp", sources={"kernel.cpp": SOURCE.format(variant=stamp)})
            began = time.perf_counter()
            evaluation = session.evaluate(candidate)
            seconds.append(time.perf_counter() - began)
            stages.append(evaluation.seconds)
            outcomes.append(evaluation.outcome)
    if set(outcomes) != {"passed"}:
        raise SystemExit(f"the small candidate should pass, got {outcomes}")
    tensors = task.compulsory_bytes(task.timed_workloads[0].axes)
    return {
        "figure": "verdicts of a small C++ candidate",
        "seconds": seconds[1:],
        "first_seconds": seconds[0],
        "stages": stages[1:],
        "outcomes": outcomes,
        **peak.above(tensors),
    }


def whole_search(judge: Judge, device: Device, evaluations: int) -> dict:
    """One search on the demo's operation that spends its whole budget."""
    budget = Budget(evaluations=evaluations, wall_seconds=None)
    with peak_memory() as peak:
        found = search(DEMO, judge, device, label="search", budget=budget, seed=0, to_the_end=True)
    task = judge.describe(TaskRequest(target=str(DEMO)))
    tensors = task.compulsory_bytes(task.timed_workloads[0].axes)
    return {
        "figure": "one search",
        "seconds": [found.seconds],
        "evaluations": found.result.evaluations,
        "outcome": found.result.outcome,
        "stop_reason": found.result.stop_reason,
        **peak.above(tensors),
    }


@dataclass
class Peak:
    """The largest sum seen, and what it was made of."""

    total: int = 0
    processes: tuple[int, ...] = ()
    """Bytes of each process, largest first; what this process added comes among them."""

    def above(self, tensors: int) -> dict[str, object]:
        """The row's entries, 10**9 bytes."""
        return {
            "peak_gbytes_above_tensors": (self.total - tensors) / 1e9,
            "peak_processes_gbytes": [round(size / 1e9, 3) for size in self.processes if size > 10_000_000],
        }


@contextlib.contextmanager
def peak_memory(every: float = 0.05) -> Iterator[Peak]:
    """The largest memory of all processes below this one, and of what this one adds, while the context is open."""
    peak, done, before = Peak(), threading.Event(), _memory(os.getpid())

    def watch() -> None:
        while not done.wait(every):
            sizes = [max(0, _memory(os.getpid()) - before), *map(_memory, descendants(os.getpid()))]
            if sum(sizes) > peak.total:
                peak.total, peak.processes = sum(sizes), tuple(sorted(sizes, reverse=True))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def descendants(root: int) -> list[int]:
    """Process ids below `root`."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parents[int(stat.parent.name)] = int(
                stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()[1]
            )
    below = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            return sorted(below - {root})
        below |= more


def _memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--verdicts", type=int, default=15)
    parser.add_argument("--evaluations", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
