"""The drafter: a small compiler from core ATen graphs to fast C++ behind the plain C interface."""

from kernelwright.agents.drafter.drafter import Drafter
from kernelwright.agents.drafter.templates import DraftTemplate, templates

__all__ = ["DraftTemplate", "Drafter", "templates"]
