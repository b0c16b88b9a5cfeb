"""What a run came to: for people at the end of `optimize`, and as the keys of `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.agents.run import RunResult
from kernelwright.archive.records import LedgerAttempt, RunHeader
from kernelwright.archive.run_folder import RunFolder
from kernelwright.interfaces.output import Output, finite, folded
from kernelwright.interfaces.wording import (
    BASELINE_WORDS,
    baseline_of,
    speed_keys,
    speed_words,
    workload_keys,
    workload_table,
)
from kernelwright.judge.evaluation import Passed, Speed
from kernelwright.platforms.candidates import Candidate

_STOPS = {
    "evaluations": "the budget of evaluations was spent",
    "wall_seconds": "the time was up",
    "tokens": "the budget of tokens was spent",
    "cost": "the budget of money was spent",
    "near_roofline": "near the roofline",
    "exhausted": "nothing left to try",
    "interrupted": "interrupted",
    "failed": "it could not go on",
}


@dataclass(frozen=True)
class Winner:
    """The best candidate of a run with the verdict that counts: a finalist's where it was measured again."""

    candidate: Candidate
    evaluation: Passed

    @property
    def speed(self) -> Speed | None:
        """None where it was right but not timed."""
        return self.evaluation.speed


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder, read."""

    folder: RunFolder
    header: RunHeader
    attempts: list[LedgerAttempt]
    result: RunResult | None
    """None while it works, or when it was killed."""

    def winner(self, identity: str | None = None) -> Winner | None:
        """The run's best, or the candidate of that id."""
        wanted = identity or (self.result.best if self.result else None) or self._leading()
        found = next((a for a in self.attempts if a.candidate.id == wanted), None)
        if found is None:
            return None
        again = [f.evaluation for f in self.result.finalists if f.candidate == wanted] if self.result else []
        verdicts = [v for v in (*again, found.evaluation) if isinstance(v, Passed)]
        return Winner(found.candidate, verdicts[0]) if verdicts else None

    def _leading(self) -> str | None:
        timed = [
            (a.evaluation.speed.speedup_ci[0], a.candidate.id)
            for a in self.attempts
            if isinstance(a.evaluation, Passed) and a.evaluation.speed
        ]
        return max(timed)[1] if timed else None


def read_run(folder: Path) -> FinishedRun:
    """Everything that a run's folder holds.

    Raises:
        ResumeError: there is no readable run.
    """
    place = RunFolder(folder)
    stored = place.result()
    result = RunResult.model_validate(stored, strict=False) if stored else None
    return FinishedRun(place, place.header(), place.attempts(), result)


def summary_keys(run: FinishedRun, result: RunResult, best: Path | None, report: Path | None) -> dict[str, Any]:
    """The keys that `optimize --json` promises, and a few more. A kept baseline is a speedup of 1."""
    winner = run.winner()
    speed = winner.speed if winner else None
    keys = speed_keys(speed if result.outcome == "improved" else None)
    if result.outcome == "baseline_kept":
        keys |= {"speedup": 1.0, "baseline": baseline_of(speed) if speed else None}
    return {
        "outcome": result.outcome,
        **keys,
        "evaluations": result.evaluations,
        "seconds": round(result.seconds, 3),
        "best": str(best) if best else None,
        "run": result.run,
        "folder": str(run.folder.path.absolute()),
        "report": str(report) if report else None,
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "workloads": [workload_keys(w) for w in speed.workloads] if speed else [],
        "best_candidate": {"id": winner.candidate.id, **speed_keys(speed)} if winner else None,
        "task": run.header.task.name,
        "device": run.header.device.name,
        "tokens": result.tokens,
        "cost_usd": finite(result.cost_usd),
    }


def show_summary(run: FinishedRun, result: RunResult, best: Path | None, report: Path | None, output: Output) -> None:
    """The last lines of `optimize`."""
    winner = run.winner()
    speed = winner.speed if winner else None
    output.say()
    for line in folded(f"{result.outcome.replace('_', ' ')}: {result.reason}"):
        output.say(line)
    if speed is not None:
        over = BASELINE_WORDS[baseline_of(speed)]
        which = "" if result.outcome == "improved" else "  best candidate: "
        output.say(f"{which or '  '}{speed_words(speed)} over {over}, {speed.roofline_fraction:.0%} of the roofline")
        output.say()
        for line in workload_table(speed):
            output.say(f"  {line}")
        output.say()
    output.say(
        f"  {result.evaluations} evaluations in {result.seconds:.0f} s; {_STOPS.get(result.stop_reason, result.stop_reason)}"
    )
    if result.tokens:
        output.say(f"  {result.tokens} tokens, {result.cost_usd:.4f} USD")
    left = winner.candidate.origin.left_to_library if winner else ()
    if left:
        for line in folded(f"  left to the library: {', '.join(left)}", indent="    "):
            output.say(f"  {line}")
    if report is not None:
        output.say(f"  report  {_short(report)}")
    if best is not None:
        output.say(f"  kernel  {_short(best)}")
        output.say(f"  use it  from {best.name} import optimized    (with {_short(best.parent)} on sys.path)")


def _short(path: Path) -> str:
    """Relative to here where that is below here."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
