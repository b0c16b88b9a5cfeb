"""The checks of a verdict as a matrix: workloads down, distributions across."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.interfaces.report.figures import count, digits, one_line
from kernelwright.judge.evaluation import Check


@dataclass(frozen=True)
class Cell:
    """All checks of one workload under one distribution."""

    passed: bool
    worst: str
    """Largest error over allowed error."""
    level: int
    """How much of the allowance was used, 0 to 4, for the shade."""
    title: str


@dataclass(frozen=True)
class Row:
    """One workload."""

    workload: str
    axes: str
    hidden: bool
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Matrix:
    """Everything that was compared."""

    distributions: tuple[str, ...]
    rows: tuple[Row, ...]
    checks: int
    hidden_checks: int
    hidden_workloads: int
    failed: int
    elements: int
    worst: float | None

    @property
    def summary(self) -> str:
        """One sentence."""
        hidden = (
            f"{self.hidden_checks} of them on {count(self.hidden_workloads, 'shape')} that no proposer ever saw"
            if self.hidden_workloads
            else "none of them on a shape hidden from proposers"
        )
        said = (
            f"{count(self.checks, 'comparison')} with the fp64 oracle over {count(len(self.rows), 'shape')} and"
            f" {count(len(self.distributions), 'distribution')}; {hidden}."
        )
        failed = f" {self.failed} failed." if self.failed else " All passed."
        worst = f" The largest error used {digits(self.worst, 2)} of what is allowed." if self.worst is not None else ""
        return said + failed + worst


def matrix(checks: Sequence[Check]) -> Matrix:
    """The checks of one evaluation."""
    distributions = tuple(dict.fromkeys(c.distribution for c in checks))
    grouped: dict[str, list[Check]] = {}
    for check in checks:
        grouped.setdefault(check.workload, []).append(check)
    rows = [_row(name, found, distributions) for name, found in grouped.items()]
    return Matrix(
        distributions=tuple(one_line(d, 40) for d in distributions),
        rows=tuple(sorted(rows, key=lambda row: (row.hidden, row.workload if row.hidden else ""))),
        checks=len(checks),
        hidden_checks=sum(c.hidden for c in checks),
        hidden_workloads=len({c.workload for c in checks if c.hidden}),
        failed=sum(not c.passed for c in checks),
        elements=sum(e.elements for c in checks for e in c.errors),
        worst=worst_ratio(checks),
    )


def worst_ratio(checks: Sequence[Check]) -> float | None:
    """Largest error over allowance; None where nothing was compared."""
    ratios = [e.worst_ratio for c in checks for e in c.errors]
    return max((math.inf if math.isnan(r) else r for r in ratios), default=None)


def _row(name: str, checks: Sequence[Check], distributions: Sequence[str]) -> Row:
    cells = tuple(_cell([c for c in checks if c.distribution == d]) for d in distributions)
    axes = ", ".join(f"{one_line(k, 20)} {v:,}" for k, v in checks[0].axes.items())
    hidden = checks[0].hidden
    return Row(one_line(name, 60), "" if hidden else axes, hidden, cells)


def _cell(checks: Sequence[Check]) -> Cell | None:
    if not checks:
        return None
    worst, passed = worst_ratio(checks), all(c.passed for c in checks)
    details = [one_line(c.detail, 200) for c in checks if c.detail]
    shown = "∞" if worst == math.inf else digits(worst, 2) if worst is not None else ""
    title = f"{count(len(checks), 'comparison')}. {' '.join(details[:2])}".strip()
    return Cell(passed, shown, _level(worst), title)


def _level(worst: float | None) -> int:
    return 0 if worst is None else sum(worst > bound for bound in (0.01, 0.1, 0.5, 1.0))
