"""A run on a terminal: a live table. Drawn when something happened and never by a thread, which would disturb timing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernelwright.agents.events import AttemptJudged, Event
from kernelwright.interfaces.watching import Watched, baseline_lines, origin_words
from kernelwright.interfaces.wording import one_line, outcome_words, reason_of, speed_words
from kernelwright.judge.evaluation import Evaluation, Passed

_STYLES = {"faster": "bold green", "slower": "yellow", "inconclusive": "cyan", "right, untimed": "cyan"}
_NARROW = 96
_OTHER_LINES = 12


class LiveObserver:
    """Draws header, recent attempts, the best, and progress. Use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._watched = Watched()
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="visible", redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Draw the new state."""
        self._watched.take(event)
        self._live.update(self.drawn(), refresh=True)

    def drawn(self) -> Group:
        """The whole picture, at the console's width."""
        watched = self._watched
        rows = max(3, min(14, self._console.height - _OTHER_LINES))
        parts: list[Text | Table] = [*self._header()]
        if watched.recent:
            parts.append(self._table(list(watched.recent)[-rows:]))
        parts += [*self._best(), *self._progress()]
        for part in parts:
            if isinstance(part, Text):
                part.no_wrap, part.overflow = True, "ellipsis"
        return Group(*parts)

    def _header(self) -> list[Text]:
        started, width = self._watched.started, self._console.width
        if started is None:
            return []
        device = started.device
        lines = [
            Text(f"{one_line(started.task.name)}", style="bold").append(
                f"  on {one_line(device.name)}, {device.cores} cores, {device.simd}", style="dim"
            )
        ]
        lines += [Text(one_line(line, width), style="dim") for line in baseline_lines(self._watched.baselines)]
        lines += [Text(one_line(f"note: {note}", width), style="dim") for note in self._watched.notes[-2:]]
        return lines

    def _table(self, recent: list[AttemptJudged]) -> Table:
        narrow = self._console.width < _NARROW
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="dim")
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("from", no_wrap=True, max_width=16)
        table.add_column("what it tries, or why it failed", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("outcome", no_wrap=True, max_width=16)
        table.add_column("speedup", justify="right", no_wrap=True)
        if not narrow:
            table.add_column("95% CI", justify="right", no_wrap=True)
        table.add_column("roof", justify="right", no_wrap=True)
        for event in recent:
            table.add_row(*self._cells(event, narrow))
        return table

    def _cells(self, event: AttemptJudged, narrow: bool) -> list[Text]:
        verdict, origin = event.attempt.evaluation, event.attempt.candidate.origin
        speed = verdict.speed if isinstance(verdict, Passed) else None
        words = outcome_words(verdict)
        text = self._watched.change(event.attempt) if isinstance(verdict, Passed) else reason_of(verdict)
        best = self._watched.best is not None and self._watched.best.candidate.id == event.attempt.candidate.id
        cells = [
            Text(str(event.index)),
            Text(one_line(origin_words(origin.proposer, origin.operator))),
            Text(one_line(text)),
            Text(words, style=_STYLES.get(words, "red")),
            Text(f"{speed.speedup:.2f}x" if speed else "", style="bold" if best else ""),
        ]
        if not narrow:
            cells.append(Text(f"{speed.speedup_ci[0]:.2f}-{speed.speedup_ci[1]:.2f}" if speed else "", style="dim"))
        return [*cells, Text(f"{speed.roofline_fraction:.0%}" if speed else "")]

    def _best(self) -> list[Text]:
        best = self._watched.best
        if best is None:
            return []
        return [Text("best ", style="dim").append(best_words(best.evaluation, best.candidate.id), style="bold")]

    def _progress(self) -> list[Text]:
        watched = self._watched
        if watched.finished or watched.started is None:
            return [] if watched.finished else [Text(watched.phase, style="dim")]
        budget = watched.started.config.budget
        of = f" of {budget.evaluations}" if budget.evaluations else ""
        limit = f" of {budget.wall_seconds:.0f}" if budget.wall_seconds else ""
        shares = [watched.evaluations / budget.evaluations] if budget.evaluations else []
        shares += [watched.elapsed_seconds / budget.wall_seconds] if budget.wall_seconds else []
        filled = round(24 * min(1.0, max(shares, default=0.0)))
        bar = Text("━" * filled, style="green").append("━" * (24 - filled), style="dim")
        words = f"  {watched.evaluations}{of} evaluations, {watched.elapsed_seconds:.0f}{limit} s"
        return [bar.append(words, style="default").append(f"  {watched.phase}", style="dim")]


def best_words(evaluation: Evaluation, identity: str) -> str:
    """The best so far in one line."""
    speed = evaluation.speed if isinstance(evaluation, Passed) else None
    if speed is None:
        return f"{identity[:8]}, right but not timed"
    return f"{speed_words(speed)}, {speed.roofline_fraction:.0%} of the roofline  {identity[:8]}"
