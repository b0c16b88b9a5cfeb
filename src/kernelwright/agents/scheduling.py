"""Which step comes next: a function of the preset's schedule and the state."""

from __future__ import annotations

from random import Random

from kernelwright.agents.preset import Generations, Phase, Preset, Table
from kernelwright.agents.state import SearchState

PATIENCE = 3
"""A step that came back empty so often without a verdict in between has nothing to say for now."""


def next_step(preset: Preset, state: SearchState, *, progress: float, rng: Random) -> tuple[str, int] | None:
    """Name and phase of the next step.

    Args:
        preset: Steps and schedule.
        state: What is known. While candidates wait for their verdict, no phase is given up as exhausted.
        progress: Part of the budget that is spent, 0 to 1.
        rng: For draws by weight.

    Returns:
        None when no step has anything new to propose (until the next verdict, or for good where none is awaited).
    """
    if isinstance(preset.schedule, Table):
        return _from_table(preset.schedule, state)
    return _from_phases(preset.schedule, state, progress, rng)


def _from_phases(schedule: Generations, state: SearchState, progress: float, rng: Random) -> tuple[str, int] | None:
    current = state.steps[-1].phase if state.steps else 0
    for number in range(current, len(schedule.phases)):
        phase = schedule.phases[number]
        if phase.order == "each_once":
            name = _not_tried(phase, number, state)
            if name is not None and progress < phase.until:
                return name, number
            continue
        last = number == len(schedule.phases) - 1
        if progress >= phase.until and not last:
            continue
        lively = [name for name in phase.steps if not _is_dry(name, state)]
        if lively:
            return rng.choices(lively, [phase.steps[name] for name in lively])[0], number
        if state.queue:
            return None
    return None


def _not_tried(phase: Phase, number: int, state: SearchState) -> str | None:
    tried = {step.name for step in state.steps if step.phase == number}
    return next((name for name in phase.steps if name not in tried), None)


def _is_dry(name: str, state: SearchState) -> bool:
    empty = 0
    for step in reversed(state.steps):
        if step.seen != len(state.attempts):
            break
        if step.name == name:
            if step.drafts:
                return False
            empty += 1
    return empty >= PATIENCE


def _from_table(schedule: Table, state: SearchState) -> tuple[str, int] | None:
    if state.queue:
        return None
    outcome = state.attempts[-1].evaluation.outcome if state.attempts else "start"
    for row in schedule.rows:
        fits = outcome in row.after or "any" in row.after
        if fits and not _is_dry(row.step, state) and not _too_often(row.step, row.at_most, state):
            return row.step, 0
    return None


def _too_often(name: str, at_most: int | None, state: SearchState) -> bool:
    if at_most is None or len(state.steps) < at_most:
        return False
    return all(step.name == name for step in state.steps[-at_most:])
