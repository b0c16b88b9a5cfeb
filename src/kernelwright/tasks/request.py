"""What a user names as a task, before any of its code has run."""

from __future__ import annotations

from kernelwright.core.records import Record


class TaskRequest(Record):
    """The words of the command line: `TASK [--input NAME=DTYPE[DIMS]]… [--workload AXIS=SIZE,…]…`."""

    target: str
    """`file.py`, `file.py:name`, or `module.path:callable`."""
    inputs: tuple[str, ...] = ()
    """`x=float32[4096,4096]`; sizes are integers or axis names bound by `workloads`."""
    workloads: tuple[str, ...] = ()
    """`B=32,N=4096`; empty means the file's own."""
