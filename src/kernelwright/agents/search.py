"""The one loop: schedule → parents → proposer → screens → judge → ledger → population."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from kernelwright.agents import finalists as ending
from kernelwright.agents.events import (
    AttemptJudged,
    BaselinesMeasured,
    Event,
    FinalistMeasured,
    Note,
    PhaseStarted,
    RunFinished,
)
from kernelwright.agents.journal import Journal
from kernelwright.agents.preset import Preset
from kernelwright.agents.proposals import StepPlan, Surroundings, carry_out, plan_step
from kernelwright.agents.proposing import Attempt, Proposer
from kernelwright.agents.run import Finalist, RunConfig, RunResult, StopReason
from kernelwright.agents.scheduling import next_step
from kernelwright.agents.screens import Screens
from kernelwright.agents.spending import Spending
from kernelwright.agents.state import SearchState, StepRecord, keyed_random
from kernelwright.core.errors import ResumeError
from kernelwright.judge.evaluation import BaselineTiming, Evaluation, JudgeError, Passed
from kernelwright.judge.protocol import TaskSession
from kernelwright.platforms.candidates import Candidate

JUDGE_ERRORS_IN_A_ROW = 5
"""After so many failures of our own in a row the run stops: the machine is at fault, not the candidates."""


class Search:
    """One run over an open task. What `journal` holds already is taken from there instead of being done again."""

    def __init__(
        self,
        config: RunConfig,
        preset: Preset,
        *,
        proposers: dict[str, Proposer],
        session: TaskSession,
        journal: Journal,
        spending: Spending,
        screens: Screens,
        emit: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._preset = preset
        self._proposers = proposers
        self._session = session
        self._journal = journal
        self._spending = spending
        self._screens = screens
        self._emit = emit
        self._state = SearchState()
        self._origin_steps: deque[int] = deque()
        self._flight: tuple[StepPlan, Future[StepRecord]] | None = None
        self._around: Surroundings | None = None
        self._uncovered: tuple[str, ...] = ()
        self._baselines: tuple[BaselineTiming, ...] = ()
        self._finalists: list[Finalist] = []
        self._retried: set[str] = set()
        self._judge_errors = 0
        self._judged_before = frozenset(a.candidate.id for a in journal.attempts)
        self._builders: ThreadPoolExecutor | None = None
        self._waiter: ThreadPoolExecutor | None = None

    def run(self) -> RunResult:
        """Search, measure the finalists again, and say what came out."""
        self._prepare()
        self._emit(PhaseStarted(phase="search", detail=self._preset.name))
        try:
            self._start_threads()
            stop = self._loop()
        finally:
            self._stop_threads()
        self._measure_finalists()
        self._record_late_calls()
        return self._finish(stop)

    def interrupted(self) -> RunResult:
        """The result of a run that the user stopped: what is known, and no claim that was not measured again."""
        known = SearchState()
        for recorded in self._journal.attempts:
            known.add_attempt(Attempt(candidate=recorded.candidate, evaluation=recorded.evaluation))
        best = known.best
        reason = "interrupted before its best was measured again" if best else "interrupted before anything was right"
        result = self._result(
            "interrupted",
            ending.Verdict(
                winner=best.candidate.id if best else None,
                evaluation=best.evaluation if best else None,
                outcome="baseline_kept" if best else "failed",
                reason=reason,
            ),
        )
        self._journal.sync()
        self._journal.finish(result, best.evaluation if best else None)
        return result

    def _prepare(self) -> None:
        self._emit(PhaseStarted(phase="baselines"))
        self._baselines = tuple(self._session.baselines())
        self._emit(BaselinesMeasured(baselines=self._baselines))
        self._emit(PhaseStarted(phase="trace"))
        traced = self._session.graph()
        failure = traced if isinstance(traced, str) else ""
        if failure:
            self._emit(Note(text=f"the reference cannot be traced, so no kernel is drafted from it: {failure}"))
        elif not isinstance(traced, str):
            from kernelwright.agents.drafter.coverage import uncovered, undrafted

            self._uncovered = uncovered(traced)
            if self._uncovered:
                self._emit(Note(text=f"left to the library, since no kernel covers it: {', '.join(self._uncovered)}"))
            for reason in undrafted(self._session.task, traced, self._session.device):
                self._emit(Note(text=f"the drafter dropped a {reason}"))
        self._around = Surroundings(
            task=self._session.task,
            device=self._session.device,
            graph=None if isinstance(traced, str) else traced,
            graph_failure=failure,
            seed=self._config.seed,
        )

    def _loop(self) -> StopReason:
        while True:
            recorded = self._journal.recorded_attempt(len(self._state.attempts) + 1)
            stop = None if recorded is not None else self._spending.exhausted()
            if stop is not None:
                return stop
            self._propose_ahead()
            if not self._state.queue:
                return "exhausted"
            self._judge_next()
            if self._judge_errors >= JUDGE_ERRORS_IN_A_ROW:
                self._emit(Note(text=f"stopped: {self._judge_errors} failures of our own in a row"))
                return "failed"
            if self._is_near_roofline():
                return "near_roofline"

    def _propose_ahead(self) -> None:
        """Take steps until enough candidates wait. When one is taken depends on counts alone, never on the clock."""
        ahead = 0 if self._config.serial else self._preset.ahead
        while len(self._state.queue) <= ahead:
            if self._flight is not None:
                if self._state.queue:
                    return
                plan, future = self._flight
                record = future.result()
                self._flight = None
                self._adopt(plan, record)
                continue
            if not self._take_step():
                return

    def _take_step(self) -> bool:
        number = len(self._state.steps)
        recorded = self._journal.recorded_step(number)
        if recorded is not None:
            self._screens.admit(recorded.drafts)
            self._build_ahead([c for c in recorded.drafts if c.id not in self._judged_before])
            self._take_in(recorded)
            return True
        progress = self._spending.progress(serial=self._config.serial)
        rng = keyed_random(self._config.seed, number, "schedule")
        chosen = next_step(self._preset, self._state, progress=progress, rng=rng)
        if chosen is None:
            return False
        plan = plan_step(self._preset, self._state, *chosen, self._config.seed)
        if plan.spec.background and self._waiter is not None and self._state.queue:
            self._flight = (plan, self._waiter.submit(self._carry_out, plan))
        else:
            self._adopt(plan, self._carry_out(plan))
        return True

    def _carry_out(self, plan: StepPlan) -> StepRecord:
        assert self._around is not None
        return carry_out(plan, self._proposers[plan.spec.proposer], self._screens, self._around, self._build_ahead)

    def _adopt(self, plan: StepPlan, record: StepRecord) -> None:
        """Put a step on record, then in the queue."""
        proposer = self._proposers[plan.spec.proposer]
        self._record_calls(proposer, plan.number)
        for note in _taken(proposer, "take_notes"):
            self._emit(Note(text=note))
        if record.failure:
            self._emit(Note(text=f"proposer {record.proposer} broke in step {record.name}: {record.failure}"))
        self._journal.add_step(record)
        self._take_in(record)

    def _record_calls(self, proposer: Proposer, step: int) -> None:
        for call in _taken(proposer, "take_calls"):
            self._journal.add_call(step, call.model_dump(mode="json"))
            self._spending.tokens += call.input_tokens + call.output_tokens
            self._spending.cost_usd += call.cost_usd or 0.0

    def _record_late_calls(self) -> None:
        """A step that was under way when the search stopped brings no candidates, but what it cost counts."""
        if self._flight is not None:
            plan, _ = self._flight
            self._record_calls(self._proposers[plan.spec.proposer], plan.number)

    def _take_in(self, record: StepRecord) -> None:
        self._state.steps.append(record)
        self._state.queue.extend(record.drafts)
        self._origin_steps.extend([record.step] * len(record.drafts))

    def _judge_next(self) -> None:
        candidate = self._state.queue.pop(0)
        step = self._origin_steps.popleft()
        number = len(self._state.attempts) + 1
        recorded = self._journal.recorded_attempt(number)
        if recorded is None:
            started = self._spending.clock.elapsed()
            evaluation = self._session.evaluate(
                candidate, rule=self._config.rule, timing=self._config.timing, allowed_library=self._uncovered
            )
            elapsed = self._spending.clock.elapsed()
            self._journal.add_attempt(step, elapsed, candidate, evaluation)
            self._spending.evaluation_seconds += elapsed - started
        else:
            if recorded.candidate.id != candidate.id:
                raise ResumeError(
                    f"attempt {number} in {self._journal.path} is not the candidate that its step proposed",
                    hint="the folder was changed; start a new run",
                )
            evaluation, elapsed = recorded.evaluation, recorded.elapsed_seconds
            self._spending.clock.resume_at(elapsed)
            self._spending.evaluation_seconds = elapsed
        self._spending.evaluations = number
        attempt = Attempt(candidate=candidate, evaluation=evaluation)
        self._state.add_attempt(attempt)
        self._heed_judge_error(candidate, step, evaluation)
        if recorded is None:
            self._emit(AttemptJudged(index=number, attempt=attempt, best=self._state.best, elapsed_seconds=elapsed))

    def _heed_judge_error(self, candidate: Candidate, step: int, evaluation: Evaluation) -> None:
        """Our own failure says nothing about a candidate: it gets one more chance, at once."""
        if not isinstance(evaluation, JudgeError):
            self._judge_errors = 0
            return
        self._judge_errors += 1
        if candidate.id not in self._retried:
            self._retried.add(candidate.id)
            self._state.queue.insert(0, candidate)
            self._origin_steps.appendleft(step)

    def _is_near_roofline(self) -> bool:
        best = self._state.best
        if best is None or not isinstance(best.evaluation, Passed) or best.evaluation.speed is None:
            return False
        fraction = best.evaluation.speed.roofline_fraction
        if fraction < self._config.target_roofline_fraction:
            return False
        self._emit(Note(text=f"stopped early: the best candidate reaches {fraction:.0%} of the roofline"))
        return True

    def _measure_finalists(self) -> None:
        ranked = ending.ranking(self._state.attempts, self._config.finalists)
        if ranked:
            self._emit(PhaseStarted(phase="finalists", detail=f"up to {self._config.finalists} measured again"))
        for rank, attempt in enumerate(ranked):
            if ending.passed_again(self._finalists) == self._config.finalists:
                break
            recorded = self._journal.recorded_finalist(attempt.candidate.id)
            if recorded is not None:
                self._finalists.append(Finalist(candidate=recorded.candidate, evaluation=recorded.evaluation))
                continue
            first, second = (self._measured_again(attempt.candidate) for _ in range(2))
            evaluation = ending.confirmed(first, second)
            finalist = Finalist(candidate=attempt.candidate.id, evaluation=evaluation)
            self._journal.add_finalist(rank, self._spending.clock.elapsed(), finalist)
            self._finalists.append(finalist)
            self._emit(FinalistMeasured(finalist=finalist))

    def _measured_again(self, candidate: Candidate) -> Evaluation:
        return self._session.evaluate(
            candidate,
            rule=self._config.rule,
            timing=ending.longer(self._config.timing),
            allowed_library=self._uncovered,
        )

    def _finish(self, stop: StopReason) -> RunResult:
        hint = self._around.graph_failure if self._around is not None else ""
        verdict = ending.decide(self._state.best, self._finalists, len(self._state.attempts), hint, stop=stop)
        result = self._result(stop, verdict)
        self._journal.finish(result, verdict.evaluation)
        self._emit(RunFinished(result=result))
        return result

    def _result(self, stop: StopReason, verdict: ending.Verdict) -> RunResult:
        return RunResult.model_validate(
            {
                "run": self._journal.run,
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "stop_reason": stop,
                "task": self._session.task.id,
                "device": self._session.device.id,
                "best": verdict.winner,
                "finalists": tuple(self._finalists),
                "baselines": self._baselines,
                "evaluations": len(self._journal.attempts),
                "seconds": self._spending.clock.elapsed(),
                "tokens": self._spending.tokens,
                "cost_usd": self._spending.cost_usd,
            }
        )

    def _start_threads(self) -> None:
        if self._config.serial:
            return
        cores = max(1, self._session.device.cores)
        self._builders = ThreadPoolExecutor(cores, thread_name_prefix="build")
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="propose")

    def _stop_threads(self) -> None:
        """What was not begun is dropped; a build in progress ends by itself, since it has a limit."""
        for pool in (self._waiter, self._builders):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        self._waiter = self._builders = None

    def _build_ahead(self, candidates: Sequence[Candidate]) -> None:
        builders = self._builders
        if builders is not None:
            for candidate in candidates:
                builders.submit(self._session.build, candidate)


def _taken(proposer: Proposer, method: str) -> Sequence[Any]:
    """What a proposer has to tell since it was last asked; the methods `take_calls` and `take_notes` are optional."""
    take = getattr(proposer, method, None)
    return () if take is None else tuple(take())
