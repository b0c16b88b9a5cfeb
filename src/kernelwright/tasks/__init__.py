"""What must be computed, and what counts as right. Importing this wing loads no torch."""

from __future__ import annotations

from kernelwright.tasks.declaration import operation

__all__ = ["operation"]
