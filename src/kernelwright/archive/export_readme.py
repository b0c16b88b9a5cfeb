"""The README of an exported folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright import __version__
from kernelwright.judge.evaluation import Passed
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import ScalarSpec, Task, TensorSpec

TEMPLATES = Path(__file__).parent / "export_templates"


def readme(
    task: Task,
    candidate: Candidate,
    evaluation: Passed,
    device: Device,
    *,
    record: dict[str, Any],
    name: str,
    note: str,
) -> str:
    """How to use the folder `name`, what was verified, and when the reference runs instead."""
    # Markdown for people to read as text, not HTML to be served: nothing is escaped.
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("README.md.j2").render(
        task=task,
        candidate=candidate,
        evaluation=evaluation,
        device=device,
        record=record,
        folder=name,
        note=note,
        version=__version__,
        call=", ".join(a.name for a in task.arguments if isinstance(a, TensorSpec)),
        state=", ".join(s.name for s in task.state),
        scalars=[a for a in task.arguments if isinstance(a, ScalarSpec)],
        checks=len(evaluation.checks),
        hidden=sum(check.hidden for check in evaluation.checks),
    )
