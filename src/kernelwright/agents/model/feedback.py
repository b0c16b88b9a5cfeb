"""The judge's verdict on a failed candidate, in words for a proposer.

Built from the typed fields. Oracle values are left out, and of hidden workloads the sizes too. A free text that arose while
hidden inputs may have been running keeps only the numbers that the task shows anyway.
"""

from __future__ import annotations

import re

from kernelwright.core.text import strip_escapes, trimmed
from kernelwright.judge.evaluation import (
    BuildFailed,
    Check,
    Crashed,
    Evaluation,
    Incorrect,
    Invalid,
    JudgeError,
    Passed,
    Rejected,
    Stage,
    TimedOut,
)
from kernelwright.tasks.model import Task

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])|0x[0-9a-fA-F]+")
_LINE = re.compile(r"(?:\bline |\.(?:cpp|cc|hpp|h|py):)$")
_BEFORE_HIDDEN_INPUTS = {Stage.SCREEN, Stage.BUILD, Stage.LOAD}
_CHECKS_SHOWN = 6


def describe_failure(evaluation: Evaluation, task: Task) -> str:
    """Outcome, stage, guard, reason and failing checks, one a line."""
    lines = [f"outcome: {evaluation.outcome}"]
    match evaluation:
        case Passed():
            lines.append("it passed")
        case Incorrect():
            lines.append("stage: verify")
        case Rejected():
            lines += [f"stage: {evaluation.stage}", f"guard: {evaluation.guard}"]
            lines.append(f"reason: {_reason(evaluation.reason, evaluation.stage, task)}")
        case BuildFailed():
            lines += [f"stage: {evaluation.stage}", f"first compiler error: {_clean(evaluation.reason)}"]
        case TimedOut():
            lines += [f"stage: {evaluation.stage}", f"limit: {evaluation.limit}"]
            lines.append(f"reason: {_reason(evaluation.reason, evaluation.stage, task)}")
        case Crashed():
            lines.append(f"stage: {evaluation.stage}")
            if evaluation.signal is not None:
                lines.append(f"signal: {evaluation.signal}")
            lines.append(f"reason: {_reason(evaluation.reason, evaluation.stage, task)}")
        case Invalid() | JudgeError():
            lines += [f"stage: {evaluation.stage}", f"reason: {_reason(evaluation.reason, evaluation.stage, task)}"]
    lines += _checks(evaluation.checks)
    return "\n".join(lines)


def _checks(checks: tuple[Check, ...]) -> list[str]:
    failed = [check for check in checks if not check.passed]
    if not checks:
        return []
    lines = [f"checks: {len(checks) - len(failed)} passed, {len(failed)} failed"]
    lines += [line for check in failed[:_CHECKS_SHOWN] for line in _check(check)]
    return lines


def _check(check: Check) -> list[str]:
    sizes = ", ".join(f"{name}={size}" for name, size in check.axes.items())
    place = "other sizes than the ones shown" if check.hidden else f"workload {check.workload} ({sizes or 'own sizes'})"
    lines = [f"failed on {place}, values drawn as `{check.distribution}`"]
    for error in check.errors:
        if error.worst_ratio <= 1 and not error.mismatched:
            continue
        share = 100 * error.mismatched / max(1, error.elements)
        line = f"  output {error.output}: {share:.3g} % of the elements are wrong, "
        line += f"the worst error is {error.worst_ratio:.3g} times the allowance"
        if not check.hidden and error.worst_index:
            line += f", at index {list(error.worst_index)}"
        lines.append(line)
    return lines


def _reason(text: str, stage: Stage, task: Task) -> str:
    return _clean(text) if stage in _BEFORE_HIDDEN_INPUTS else _without_hidden_numbers(_clean(text), task)


def _clean(text: str) -> str:
    return trimmed(strip_escapes(text), limit=1500)


def _without_hidden_numbers(text: str, task: Task) -> str:
    """The text with every number that is neither a visible size nor a line number made `#`."""
    known = {str(n) for n in range(10)}
    for workload in task.workloads:
        if not workload.hidden:
            known |= {str(size) for size in workload.axes.values()}
            for spec in (*task.kernel_inputs, *task.outputs):
                known |= {str(size) for size in spec.shape(workload.axes)}

    def shown(found: re.Match[str]) -> str:
        if found[0] in known or _LINE.search(text[: found.start()]):
            return found[0]
        return "#"

    return _NUMBER.sub(shown, text)
