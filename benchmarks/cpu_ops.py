"""The product on 16 operations: how much faster than the best of eager and torch.compile, and how near to the roofline.

    python benchmarks/cpu_ops.py [--evaluations 40] [--seconds 150] [--only tanh_residual,rotary] [--seed 0]

Where nothing is significantly faster the baseline is kept, and that counts as 1.0. An operation that cannot be
searched, or whose finalist is not right, is an error row. With `--only` nothing is written.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from kernelwright.agents.run import Budget
from kernelwright.core.errors import KernelwrightError
from kernelwright.judge.evaluation import Passed, WorkloadTiming
from kernelwright.judge.local import LocalJudge
from kernelwright.judge.protocol import Judge
from kernelwright.platforms.detect import detect_device
from kernelwright.platforms.device import Device
from recording import write
from searching import search

OPERATIONS = Path(__file__).parent / "operations"
GROUPS = ("memory_bound", "reductions", "products")
ASKED = {
    "memory_bound_geomean_speedup": ">=1.35",
    "reductions_geomean_speedup": ">=1.5",
    "slowest_speedup": ">=1.0",
    "errors": "<=0",
    "median_roofline_fraction": ">=0.6",
}


def main() -> int:
    options = _options()
    device = detect_device()
    chosen = [name for name in options.only.split(",") if name]
    rows = []
    with LocalJudge(device) as judge:
        for group in GROUPS:
            for path in sorted((OPERATIONS / group).glob("*.py")):
                if chosen and path.stem not in chosen:
                    continue
                rows.append(measure(path, group, judge, device, options))
                _tell(rows[-1])
    figures = summary(rows)
    for figure, value in figures.items():
        print(f"{figure:<36} {'-' if value is None else format(value, '.3f')}")
    if not chosen:
        print(write("cpu_ops", device, rows=rows, summary=figures, asked=ASKED))
    return 1 if figures["errors"] else 0


def measure(path: Path, group: str, judge: Judge, device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """One row: a search on the operation in `path`."""
    row: dict[str, Any] = {"operation": path.stem, "group": group}
    budget = Budget(evaluations=options.evaluations, wall_seconds=options.seconds)
    try:
        found = search(path, judge, device, label=path.stem, budget=budget, seed=options.seed)
    except KernelwrightError as error:
        return {**row, "outcome": "error", "reason": error.message, "speedup": None}
    result, best = found.result, found.best
    row |= {
        "outcome": result.outcome,
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "evaluations": result.evaluations,
        "seconds": round(found.seconds, 2),
        "notes": list(found.notes),
        "baselines": [baseline.model_dump(mode="json") for baseline in result.baselines],
    }
    timed = best.speed if isinstance(best, Passed) else None
    wrong = [finalist.evaluation.outcome for finalist in result.finalists if finalist.evaluation.outcome != "passed"]
    if wrong or result.outcome == "failed":
        return {**row, "outcome": "error", "reason": f"{result.reason} {wrong}", "speedup": None}
    if result.outcome == "improved" and timed:
        return {
            **row,
            "speedup": timed.speedup,
            "speedup_ci": list(timed.speedup_ci),
            "roofline_fraction": timed.roofline_fraction,
            "workloads": [workload.model_dump(mode="json") for workload in timed.workloads],
        }
    return {
        **row,
        "speedup": 1.0,
        "roofline_fraction": _baseline_fraction(timed.workloads) if timed else None,
        "best_candidate_speedup": timed.speedup if timed else None,
        "workloads": [workload.model_dump(mode="json") for workload in timed.workloads] if timed else [],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """The figures over all rows; an error counts as no speedup beside being an error."""

    def geomean(group: str) -> float | None:
        speedups = [row["speedup"] or 1.0 for row in rows if row["group"] == group]
        return statistics.geometric_mean(speedups) if speedups else None

    fractions = [row.get("roofline_fraction") or 0.0 for row in rows]
    return {
        "memory_bound_geomean_speedup": geomean("memory_bound"),
        "reductions_geomean_speedup": geomean("reductions"),
        "products_geomean_speedup": geomean("products"),
        "slowest_speedup": min((row["speedup"] or 1.0 for row in rows), default=None),
        "median_speedup": statistics.median(row["speedup"] or 1.0 for row in rows) if rows else None,
        "median_roofline_fraction": statistics.median(fractions) if fractions else None,
        "errors": float(sum(row["speedup"] is None for row in rows)),
        "improved": float(sum(row["outcome"] == "improved" for row in rows)),
        "operations": float(len(rows)),
    }


def _baseline_fraction(workloads: tuple[WorkloadTiming, ...]) -> float:
    return statistics.geometric_mean(w.roofline_us / statistics.median(w.baseline_us) for w in workloads)


def _tell(row: dict[str, Any]) -> None:
    if row["speedup"] is None:
        print(f"{row['operation']:<24} error: {row['reason']}")
        return
    fraction = row.get("roofline_fraction")
    shown = "-" if fraction is None else f"{fraction:.2f}"
    print(
        f"{row['operation']:<24} {row['outcome']:<14} {row['speedup']:5.2f}x  roofline {shown}  {row['seconds']:.0f} s"
    )
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=40, help="evaluations per operation")
    parser.add_argument("--seconds", type=float, default=150.0, help="wall seconds per operation")
    parser.add_argument("--only", default="", help="names of operations, comma-separated; writes nothing")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
