"""`kernelwright evaluate`: one candidate, one verdict."""

from __future__ import annotations

from pathlib import Path

from kernelwright.core.errors import ExitCode
from kernelwright.interfaces.output import Output, folded
from kernelwright.interfaces.requests import device_at_hand, rule_named, task_request
from kernelwright.interfaces.wording import (
    BASELINE_WORDS,
    baseline_of,
    evaluation_keys,
    failed_checks,
    outcome_words,
    reason_of,
    speed_words,
    stage_of,
    workload_table,
)
from kernelwright.judge.candidate_files import read_candidate
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.judge.local import LocalJudge
from kernelwright.judge.protocol import TimingPlan
from kernelwright.platforms.device import Device

_SHOWN_CHECKS = 5


def evaluate(
    candidate: Path,
    task: str,
    inputs: tuple[str, ...],
    workloads: tuple[str, ...],
    *,
    rule: str,
    device: str,
    timed: bool,
    output: Output,
) -> ExitCode:
    """Judge a candidate and print the verdict; 0 when it is right."""
    asked = rule_named(rule)
    request = task_request(task, inputs, workloads)
    read_candidate(candidate)
    machine = device_at_hand(device)
    with LocalJudge(machine) as judge:
        described = judge.describe(request)
        for note in described.notes:
            for line in folded(f"note: {note}"):
                output.note(line)
        ready = read_candidate(candidate, described)
        with judge.open(described) as session:
            verdict = session.evaluate(ready, rule=asked, timing=TimingPlan() if timed else TimingPlan(pairs=0))
    if output.as_json:
        output.answer(evaluation_keys(verdict, machine))
    else:
        _show(verdict, machine, candidate, output)
    if verdict.outcome == "judge_error":
        return ExitCode.INTERNAL
    return ExitCode.OK if verdict.outcome == "passed" else ExitCode.NOT_PASSED


def _show(verdict: Evaluation, device: Device, candidate: Path, output: Output) -> None:
    output.say(
        f"{candidate.name}: {verdict.outcome.replace('_', ' ')} ({outcome_words(verdict)}, stage {stage_of(verdict)})"
    )
    if reason_of(verdict):
        for line in reason_of(verdict).splitlines():
            output.say(f"  {line}")
    failed = failed_checks(verdict)
    for check in failed[:_SHOWN_CHECKS]:
        for line in folded(f"wrong on {check['workload']} with {check['distribution']} values: {check['detail']}"):
            output.say(f"  {line}")
    if len(failed) > _SHOWN_CHECKS:
        output.say(f"  and {len(failed) - _SHOWN_CHECKS} more of {len(verdict.checks)} checks")
    if isinstance(verdict, Passed):
        output.say(f"  right on {len(verdict.checks)} checks, {sum(c.hidden for c in verdict.checks)} of them hidden")
        if verdict.speed is not None:
            over = BASELINE_WORDS[baseline_of(verdict.speed)]
            output.say(
                f"  {speed_words(verdict.speed)} over {over}, {verdict.speed.roofline_fraction:.0%} of the roofline"
            )
            output.say()
            for line in workload_table(verdict.speed):
                output.say(f"  {line}")
    for note in verdict.notes:
        output.say(f"  note: {note}")
    times = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in verdict.seconds.items())
    for line in folded(f"{times}; on {device.name}, {device.cores} cores", indent=""):
        output.say(f"  {line}")
