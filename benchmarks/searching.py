"""One search of the product, for a benchmark: the real judge, the real loop, a ledger of its own."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kernelwright.agents.events import AttemptJudged, Event, Note
from kernelwright.agents.loop import run_search
from kernelwright.agents.run import Budget, RunConfig, RunResult
from kernelwright.archive.ledger import Archive
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.judge.protocol import Judge
from kernelwright.platforms.device import Device
from kernelwright.tasks.request import TaskRequest

ROOT = Path(__file__).parent.parent


@dataclass
class Progress:
    """Tells on standard error how far a search is, and keeps what the result does not say."""

    label: str
    notes: list[str]
    began: float

    def on_event(self, event: Event) -> None:
        if isinstance(event, Note):
            self.notes.append(event.text)
        if isinstance(event, AttemptJudged):
            best = event.best.evaluation if event.best else None
            speedup = f"{best.speed.speedup:.2f}x" if isinstance(best, Passed) and best.speed else "-"
            elapsed = time.perf_counter() - self.began
            print(
                f"\r{self.label}: {event.index} evaluations, best {speedup}, {elapsed:.0f} s ", end="", file=sys.stderr
            )


@dataclass(frozen=True)
class Search:
    """What one search came to."""

    result: RunResult
    seconds: float
    """Wall clock of `run_search`, baselines and finalists included."""
    notes: tuple[str, ...]

    @property
    def best(self) -> Evaluation | None:
        """The last verdict on the best candidate."""
        found = [f.evaluation for f in self.result.finalists if f.candidate == self.result.best]
        return found[-1] if found else None


def search(
    task: Path, judge: Judge, device: Device, *, label: str, budget: Budget, seed: int, to_the_end: bool = False
) -> Search:
    """Run one search; `to_the_end` spends the whole budget even near the roofline."""
    shown = task.relative_to(ROOT) if task.is_relative_to(ROOT) else task
    target = 1e6 if to_the_end else RunConfig.model_fields["target_roofline_fraction"].default
    config = RunConfig(request=TaskRequest(target=str(task)), seed=seed, budget=budget, target_roofline_fraction=target)
    progress = Progress(label or str(shown), [], time.perf_counter())
    with tempfile.TemporaryDirectory(prefix="kernelwright-benchmark-") as folder:
        archive = Archive.open(f"sqlite:///{folder}/ledger.sqlite")
        began = time.perf_counter()
        result = run_search(
            config, judge, device=device, archive=archive, folder=Path(folder) / "run", observer=progress
        )
        seconds = time.perf_counter() - began
    print(file=sys.stderr)
    return Search(result, seconds, tuple(progress.notes))
