"""What a run's folder holds, read leniently: a page about a damaged or unfinished run is better than none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from kernelwright.agents.run import RunConfig, RunResult
from kernelwright.agents.state import StepRecord
from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, LedgerModelCall, RunHeader, lower_speedup
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.records import Record
from kernelwright.judge.evaluation import Evaluation, Passed

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class RunRecords:
    """The records of one run, and what was wrong with its files."""

    folder: Path
    header: RunHeader
    config: RunConfig | None
    """None where it cannot be read (a run of another version)."""
    attempts: Sequence[LedgerAttempt]
    finalists: Sequence[LedgerFinalist]
    calls: Sequence[LedgerModelCall]
    steps: Sequence[StepRecord]
    result: RunResult | None
    """None while the run works, or when it was killed."""
    problems: Sequence[str] = field(default_factory=tuple)
    """One sentence for each file that is damaged."""

    @cached_property
    def by_candidate(self) -> dict[str, LedgerAttempt]:
        """The first attempt of each candidate."""
        first: dict[str, LedgerAttempt] = {}
        for attempt in self.attempts:
            first.setdefault(attempt.evaluation.candidate, attempt)
        return first

    @cached_property
    def measured_again(self) -> dict[str, Evaluation]:
        """The second verdict of each finalist, by candidate."""
        again: dict[str, Evaluation] = {f.candidate: f.evaluation for f in self.finalists}
        if self.result is not None:
            again.update({f.candidate: f.evaluation for f in self.result.finalists})
        return again

    @cached_property
    def best(self) -> LedgerAttempt | None:
        """The attempt that made the best candidate; without a result, the best so far. None where its line is damaged."""
        if self.result is not None:
            return self.by_candidate.get(self.result.best or "")
        timed = [a for a in self.attempts if lower_speedup(a.evaluation) is not None]
        return max(timed, key=lambda a: lower_speedup(a.evaluation) or 0.0, default=None)

    @property
    def best_id(self) -> str:
        """Id of the best candidate; empty where there is none."""
        if self.result is not None:
            return self.result.best or ""
        return self.best.evaluation.candidate if self.best else ""

    @cached_property
    def best_evaluation(self) -> Evaluation | None:
        """The verdict that counts: the second measurement where there is one."""
        return self.measured_again.get(self.best_id, self.best.evaluation if self.best else None)

    @cached_property
    def best_is_measured_again(self) -> bool:
        """Whether `best_evaluation` is a second measurement."""
        return self.best_id in self.measured_again

    @cached_property
    def seconds(self) -> float | None:
        """Working time; None where nothing tells it."""
        if self.result is not None:
            return self.result.seconds
        return self.attempts[-1].elapsed_seconds if self.attempts else None

    @property
    def compiled_by_torch(self) -> LedgerAttempt | None:
        """The best candidate lifted from torch.compile, where there was one."""
        lifted = [a for a in self.attempts if a.candidate.origin.proposer == "inductor"]
        right = [a for a in lifted if isinstance(a.evaluation, Passed)]
        return max(right or lifted, key=lambda a: lower_speedup(a.evaluation) or 0.0, default=None)


def read_run(folder: Path) -> RunRecords:
    """Everything of a run that can be read.

    Raises:
        ResumeError: there is no run in the folder, or its `run.json` is damaged.
    """
    header = RunFolder(folder).header()
    problems: list[str] = []
    return RunRecords(
        folder=folder,
        header=header,
        config=_config(header),
        attempts=_lines(folder / "attempts.jsonl", LedgerAttempt, problems),
        finalists=_lines(folder / "finalists.jsonl", LedgerFinalist, problems),
        calls=_lines(folder / "calls.jsonl", LedgerModelCall, problems),
        steps=_lines(folder / "steps.jsonl", StepRecord, problems),
        result=_result(folder / "result.json", problems),
        problems=tuple(problems),
    )


def _config(header: RunHeader) -> RunConfig | None:
    try:
        return RunConfig.model_validate(header.config, strict=False)
    except ValidationError:
        return None


def _lines(path: Path, kind: type[R], problems: list[str]) -> list[R]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror or error}.")
        return []
    *whole, rest = content.split(b"\n")
    if rest:
        problems.append(f"The last line of {path.name} was cut off while it was written; what it held is not shown.")
    records = []
    for number, line in enumerate(whole, start=1):
        try:
            records.append(kind.from_json(line))
        except ValidationError:
            problems.append(f"Line {number} of {path.name} is damaged and is not shown.")
    return records


def _result(path: Path, problems: list[str]) -> RunResult | None:
    try:
        return RunResult.from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        problems.append(f"{path.name} is damaged, so what the run came to is not known.")
        return None
