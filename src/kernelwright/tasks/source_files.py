"""The user's file as a Python module, and what it holds."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import linecache
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.core.errors import TaskError
from kernelwright.tasks.declaration import DECLARATION_ATTRIBUTE
from kernelwright.tasks.failures import syntax_words, task_error


@dataclass(frozen=True)
class Target:
    """What the command line named: a file or a module, and perhaps a name in it."""

    path: Path
    module_name: str
    """Empty for a file."""
    attribute: str


_WHERE_MODULES_ARE = "install it beside kernelwright, run from the folder that holds it, or give the file itself"


def parse_target(words: str) -> Target:
    """Read `file.py`, `file.py:name` or `module.path:callable`.

    Raises:
        TaskError: no such file or module (`missing_file`), or not of these forms.
    """
    head, _, attribute = words.rpartition(":") if ":" in words else (words, "", "")
    path = Path(head).expanduser()
    if path.suffix == ".py" or path.exists() or "/" in head:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "no such file"
            raise TaskError("missing_file", f"{path}: {what}", hint="give a Python file, or module.path:callable")
        return Target(path.resolve(), "", attribute)
    if not attribute:
        raise TaskError(
            "missing_file",
            f"{words}: neither a file nor module.path:callable",
            hint="for example my_op.py, my_op.py:Model or torch.nn.functional:gelu --input x=float32[64,4096]",
        )
    sys.path[:0] = [""] if "" not in sys.path else []
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError, AttributeError) as error:
        raise TaskError("missing_file", f"cannot find the module {head!r}: {error}", hint=_WHERE_MODULES_ARE) from error
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        raise TaskError("missing_file", f"cannot find the module {head!r}", hint=_WHERE_MODULES_ARE)
    return Target(Path(spec.origin), head, attribute)


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        TaskError: unreadable, or not UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError("missing_file", f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(
            "syntax_error", f"{path}: not UTF-8 text (byte {error.start})", hint="save it as UTF-8"
        ) from error


def load_module(path: Path, text: str, module_name: str = "") -> ModuleType:
    """Run `text` as the module that lives at `path`; neighbours and the package it belongs to can be imported.

    Raises:
        TaskError: it does not parse (`syntax_error`) or raises (`import_failed`, `needs_gpu`, `out_of_memory`).
    """
    try:
        code = compile(ast.parse(text, str(path)), str(path), "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
        words = syntax_words(error, path) if isinstance(error, SyntaxError) else f"{path}: {error}"
        raise TaskError("syntax_error", words, hint="correct the file; `python FILE` says the same") from error
    try:
        if module_name:
            return importlib.import_module(module_name)
        return _run(path, text, code)
    except (Exception, SystemExit) as error:
        raise task_error(error, path=path, doing="while importing it", otherwise="import_failed") from error


def _run(path: Path, text: str, code: Any) -> ModuleType:
    package, root = _package_of(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{path.stem}_{digest}"
    if package:
        full = package if path.stem == "__init__" else f"{package}.{path.stem}"
        if path.is_file() and read_text(path) == text:
            return importlib.import_module(full)
        importlib.import_module(package)
        name = f"{full}_{digest}"
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[name] = module
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    try:
        exec(code, module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _package_of(path: Path) -> tuple[str, Path]:
    parts, folder = [], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(parts)), folder


@dataclass(frozen=True)
class Contents:
    """The public things that a file defines itself, in order."""

    declared: dict[str, Callable[..., Any]]
    """Functions under `@operation`."""
    module_classes: dict[str, type]
    module_instances: dict[str, Any]
    functions: dict[str, Callable[..., Any]]


_NOT_REFERENCES = {"get_inputs", "get_init_inputs", "main", "setup", "forward_backward", "get_flops", "generate_input"}


def contents(module: ModuleType) -> Contents:
    """What `module` offers as a reference."""
    from torch import nn

    found = Contents({}, {}, {}, {})
    for name, value in vars(module).items():
        if name.startswith("__"):
            continue
        if hasattr(value, DECLARATION_ATTRIBUTE) and callable(value):
            found.declared[name] = value
        elif isinstance(value, nn.Module):
            found.module_instances[name] = value
        elif getattr(value, "__module__", None) != module.__name__ or name.startswith("_"):
            continue
        elif isinstance(value, type) and issubclass(value, nn.Module):
            found.module_classes[name] = value
        elif callable(value) and not isinstance(value, type) and name not in _NOT_REFERENCES:
            found.functions[name] = value
    return found


def outermost(names: Iterable[str], text: str) -> list[str]:
    """Those of the classes or functions `names` that no other one of the file uses: meant to be used from outside."""
    used: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            inner = [item for part in node.body for item in ast.walk(part)]
            used |= {item.id for item in inner if isinstance(item, ast.Name)} - {node.name}
            used |= {base.id for base in node.bases if isinstance(base, ast.Name)}
        elif isinstance(node, ast.FunctionDef) and node.name not in _NOT_REFERENCES:
            inner = [item for part in node.body for item in ast.walk(part)]
            used |= {item.id for item in inner if isinstance(item, ast.Name)} - {node.name}
    return [name for name in names if name not in used]
