"""What can be said about a Python or Triton candidate from its text alone. Findings aim a check; they never reject."""

from __future__ import annotations

import ast

from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.languages.python.loading import CLASS, FUNCTIONS
from kernelwright.tasks.model import Task


def refusal(candidate: Candidate, task: Task) -> str:
    """Why this is no candidate at all (does not parse, no entry point), or an empty string."""
    if candidate.entry not in candidate.sources:
        return f"the entry {candidate.entry!r} is none of the sources"
    if not candidate.entry.endswith(".py"):
        return f"the entry {candidate.entry!r} is no Python file"
    unsafe = [name for name in candidate.sources if name.startswith("/") or ".." in name.split("/") or "\0" in name]
    if unsafe:
        return f"source name {unsafe[0]!r} is not a plain relative path"
    for name, text in candidate.sources.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            return f"{name}:{error.lineno or 0}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"{name}: does not parse: {error}"
        if name == candidate.entry and not _defines(tree, {CLASS, task.source.attribute, *FUNCTIONS}):
            return f"{name} defines neither class {CLASS} nor a function {task.source.attribute} or {FUNCTIONS[0]}"
    return ""


def uses_triton(text: str) -> bool:
    """Whether the text imports triton."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == "triton" for name in names):
            return True
    return False


def _defines(tree: ast.Module, wanted: set[str]) -> bool:
    """Whether a name may be bound at the top level (a star import may bind anything)."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                if name in wanted:
                    return True
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                if any((a.asname or a.name) in wanted or a.name == "*" for a in names):
                    return True
            case ast.Constant(value=str(value)) if value in wanted:
                return True
    return False
