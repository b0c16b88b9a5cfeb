"""The page of a run: one file that needs nothing else, no network and no script."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernelwright import __version__
from kernelwright.core.dtypes import DType
from kernelwright.core.errors import EnvironmentProblem
from kernelwright.interfaces.report import measurements, surroundings, tried
from kernelwright.interfaces.report.ancestry import lineage
from kernelwright.interfaces.report.figures import count, digits, one_line
from kernelwright.interfaces.report.kinds import KINDS, kind_of
from kernelwright.interfaces.report.outcome import head
from kernelwright.interfaces.report.parameters import known_parameters
from kernelwright.interfaces.report.plotting import marker
from kernelwright.interfaces.report.progress_chart import progress_chart, speed_of
from kernelwright.interfaces.report.reading import RunRecords, read_run
from kernelwright.interfaces.report.roofline_chart import attempt_points, best_points, roofline_chart
from kernelwright.interfaces.report.sources import columns
from kernelwright.interfaces.report.verification import matrix
from kernelwright.judge.evaluation import Speed
from kernelwright.tasks.model import Task

SIZES = (("wide", 960, 340), ("narrow", 350, 330))
"""Each chart is drawn twice, and the style sheet shows the one that fits: text keeps its size on a phone."""
ATTEMPTS_SHOWN = 1000
"""Rows of the list of all attempts."""


@dataclass(frozen=True)
class ParameterRow:
    """One schedule decision of the best candidate."""

    name: str
    value: str
    values: str
    """The legal ones on the device."""
    meaning: str


def write_page(run_folder: Path, destination: Path) -> Path:
    """Write the HTML report of the run in `run_folder` to the file `destination`, and give its path back.

    A run that works still, was interrupted or killed, or has damaged lines gives a page that says so.

    Raises:
        ResumeError: there is no run in the folder, or its `run.json` is damaged.
        EnvironmentProblem: the page cannot be written.
    """
    content = render(read_run(run_folder)).encode("utf-8", "replace")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=destination.parent, prefix=f".{destination.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(destination)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the report {destination}: {error.strerror or error}",
            hint="free some space or choose another place with --out",
        ) from error
    return destination


def render(run: RunRecords) -> str:
    """The page as text."""
    return _environment().get_template("report.html.jinja").render(**_view(run))


@cache
def _environment() -> Environment:
    # Everything is escaped; what is HTML already is `Markup`, made in this package only.
    environment = Environment(
        loader=PackageLoader("kernelwright.interfaces.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["marker"] = _legend_marker
    return environment


def _legend_marker(shape: str, tone: str) -> Markup:
    return Markup('<svg class="key" viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">{}</svg>').format(
        marker(shape, 7.0, 7.0, 4.2, tone)
    )


def _view(run: RunRecords) -> dict[str, Any]:
    task, device = run.header.task, run.header.device
    evaluation = run.best_evaluation
    speed = speed_of(evaluation) if evaluation else None
    origin = run.best.candidate.origin if run.best else None
    baselines = run.result.baselines if run.result else ()
    return {
        "style": Markup((resources.files(__package__) / "templates" / "report.css").read_text(encoding="utf-8")),
        "title": one_line(task.name, 120),
        "run_id": one_line(run.header.run, 80),
        "device_name": one_line(device.name, 120),
        "version": __version__,
        "head": head(run),
        "progress": _progress(run),
        "legend": _legend(run),
        "roofline": _roofline(run, speed),
        "ceilings": run.header.device.ceilings,
        "digits": digits,
        "unplotted": speed is not None and any(w.operations <= 0 for w in speed.workloads),
        "workloads": measurements.workload_rows(speed) if speed else [],
        "measured_again": run.best_is_measured_again,
        "finalists": measurements.finalist_rows(run),
        "modes": measurements.baseline_modes(baselines),
        "baselines": measurements.baseline_rows(baselines),
        "columns": columns(run),
        "best": run.best,
        "plan": one_line(origin.plan, 400) if origin else "",
        "covered": [one_line(op, 80) for op in origin.covered] if origin else [],
        "left_to_library": [one_line(op, 300) for op in origin.left_to_library] if origin else [],
        "lineage": lineage(run.best, run.by_candidate) if run.best else [],
        "parameters": _parameters(run),
        "matrix": matrix(evaluation.checks) if evaluation else None,
        "evaluation_notes": [one_line(note, 400) for note in evaluation.notes] if evaluation else [],
        "groups": tried.groups(run.attempts),
        "screened": tried.screened(run.steps),
        "broken_steps": tried.broken_steps(run.steps),
        "attempts": measurements.attempt_rows(run.attempts[:ATTEMPTS_SHOWN]),
        "attempts_total": count(len(run.attempts), "attempt"),
        "attempts_left_out": max(len(run.attempts) - ATTEMPTS_SHOWN, 0),
        "task_notes": [one_line(note, 600) for note in task.notes],
        "task_facts": surroundings.task_facts(task),
        "device_facts": surroundings.device_facts(device),
        "method_facts": surroundings.method_facts(run),
        "model_facts": surroundings.model_facts(run),
    }


def _progress(run: RunRecords) -> list[tuple[str, Markup]]:
    if not run.attempts:
        return []
    return [
        (name, progress_chart(run.attempts, run.finalists, width=width, height=height, identity=f"progress-{name}"))
        for name, width, height in SIZES
    ]


def _legend(run: RunRecords) -> list[tuple[str, str, str]]:
    """(shape, tone, words) of what the progress chart shows."""
    present = {kind_of(a.evaluation).key for a in run.attempts}
    return [(k.shape, k.tone, k.words) for k in KINDS.values() if k.key in present]


def _roofline(run: RunRecords, speed: Speed | None) -> list[tuple[str, Markup]]:
    ceilings = run.header.device.ceilings
    if ceilings is None or speed is None:
        return []
    baselines, kernels = best_points(speed)
    if not kernels:
        return []
    others = attempt_points([s for a in run.attempts if a is not run.best and (s := speed_of(a.evaluation))])
    dtype = computation_dtype(run.header.task)
    return [
        (
            name,
            roofline_chart(
                ceilings, dtype, baselines, kernels, others, width=width, height=height, identity=f"roofline-{name}"
            ),
        )
        for name, width, height in SIZES
    ]


def computation_dtype(task: Task) -> DType:
    """The first floating type among the tensors, in which the peak is shown."""
    dtypes: Sequence[DType] = [spec.dtype for spec in (*task.kernel_inputs, *task.outputs)]
    return next((dtype for dtype in dtypes if dtype.is_floating), DType.FLOAT32)


def _parameters(run: RunRecords) -> list[ParameterRow]:
    if run.best is None:
        return []
    known = known_parameters(run.header.device)
    rows = []
    for name, value in run.best.candidate.parameters.items():
        parameter = known.get(name)
        values = ", ".join(str(v) for v in parameter.values) if parameter else ""
        meaning = parameter.meaning if parameter else ""
        rows.append(ParameterRow(one_line(name, 60), one_line(value, 80), values, meaning))
    return rows
