"""What a run has done, on disk before the next step: the folder first (the truth), then the ledger (the index).

On resume the loop runs from its beginning, and every step and verdict that is recorded here is taken from the record
instead of being done again. So a resumed run makes the decisions that an uninterrupted one makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.agents.run import Finalist, RunResult
from kernelwright.agents.state import StepRecord
from kernelwright.archive.ledger import Archive
from kernelwright.archive.rebuild import index, speedup_of
from kernelwright.archive.records import LedgerAttempt, LedgerFinalist, LedgerModelCall, RunHeader
from kernelwright.archive.run_folder import RunFolder, now_utc
from kernelwright.judge.evaluation import Evaluation
from kernelwright.platforms.candidates import Candidate


class Journal:
    """Appends to a run's folder and to the ledger, and remembers what earlier starts did."""

    def __init__(self, folder: RunFolder, archive: Archive, run: str) -> None:
        self._folder = folder
        self._archive = archive
        self.run = run
        self.steps: list[StepRecord] = []
        self.attempts: list[LedgerAttempt] = []
        self.finalists: list[LedgerFinalist] = []
        self.calls: list[LedgerModelCall] = []

    @classmethod
    def start(cls, folder: RunFolder, archive: Archive, header: RunHeader) -> Journal:
        """A new run."""
        folder.start(header)
        archive.record_run(header, folder.path)
        return cls(folder, archive, header.run)

    @classmethod
    def resume(cls, folder: RunFolder, archive: Archive, header: RunHeader) -> Journal:
        """A run that was started before.

        Raises:
            ResumeError: its files are damaged.
        """
        journal = cls(folder, archive, header.run)
        journal.sync()
        journal.steps = folder.read("steps.jsonl", StepRecord)
        journal.attempts = folder.attempts()
        journal.finalists = folder.finalists()
        journal.calls = folder.model_calls()
        return journal

    def sync(self) -> None:
        """Drop a torn last line, and give the ledger what it lacks: a stop may come between folder and ledger."""
        self._folder.drop_torn_lines()
        index(self._archive, self._folder)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._folder.path

    def recorded_step(self, number: int) -> StepRecord | None:
        """What step `number` (0-based) proposed, where that is known already."""
        return self.steps[number] if number < len(self.steps) else None

    def recorded_attempt(self, number: int) -> LedgerAttempt | None:
        """Evaluation `number` (1-based), where it was made already."""
        return self.attempts[number - 1] if number <= len(self.attempts) else None

    def recorded_finalist(self, candidate: str) -> LedgerFinalist | None:
        """The second measurement of a candidate, where it was made already."""
        return next((f for f in self.finalists if f.candidate == candidate), None)

    def add_step(self, step: StepRecord) -> None:
        """Keep what a step proposed."""
        self._folder.append("steps.jsonl", step)
        self.steps.append(step)

    def add_attempt(self, step: int, elapsed: float, candidate: Candidate, evaluation: Evaluation) -> None:
        """Keep a verdict."""
        attempt = LedgerAttempt(
            run=self.run,
            index=len(self.attempts) + 1,
            step=step,
            elapsed_seconds=elapsed,
            candidate=candidate,
            evaluation=evaluation,
        )
        self._folder.append("attempts.jsonl", attempt)
        self.attempts.append(attempt)
        self._archive.record_attempt(attempt)

    def add_finalist(self, rank: int, elapsed: float, finalist: Finalist) -> None:
        """Keep a second measurement."""
        record = LedgerFinalist(
            run=self.run,
            rank=rank,
            candidate=finalist.candidate,
            elapsed_seconds=elapsed,
            evaluation=finalist.evaluation,
        )
        self._folder.append("finalists.jsonl", record)
        self.finalists.append(record)
        self._archive.record_finalist(record)

    def add_call(self, step: int, call: dict[str, Any]) -> None:
        """Keep what a call of a language model cost; `call` is `agents.model.ModelCall` as JSON values."""
        record = LedgerModelCall(
            run=self.run,
            index=len(self.calls) + 1,
            step=step,
            model=call["model"],
            role=call["role"],
            prompt_hash=call["rendered"],
            input_tokens=call["input_tokens"],
            output_tokens=call["output_tokens"],
            cost_usd=call["cost_usd"],
            seconds=call["seconds"],
            outcome=call["outcome"],
            candidate=call["candidate"],
            record=call,
        )
        self._folder.append("calls.jsonl", record)
        self.calls.append(record)
        self._archive.record_model_call(record)

    def finish(self, result: RunResult, best: Evaluation | None) -> None:
        """Keep what the run came to."""
        self._folder.write_result(result)
        self._archive.finish_run(
            self.run, result.model_dump(mode="json"), finished_at=now_utc(), speedup=speedup_of(best)
        )
