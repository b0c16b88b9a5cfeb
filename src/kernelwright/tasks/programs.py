"""`Program`: the reference found in the user's file, ready to be called, before anything is known of its shapes."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernelwright.core.errors import TaskError
from kernelwright.tasks import source_files
from kernelwright.tasks.declaration import DECLARATION_ATTRIBUTE, Declaration, check_bindings, declared_argument
from kernelwright.tasks.failures import task_error
from kernelwright.tasks.model import Argument, ScalarSpec, TaskSource, TensorSpec, Tolerance
from kernelwright.tasks.source_files import Contents

if TYPE_CHECKING:
    from torch import nn

_SCALARS = (bool, int, float, str, type(None))
_LISTED = 12
"""Names that a message lists at most."""


@dataclass(frozen=True)
class Program:
    """The user's callable and where its inputs come from: a generator or a declaration, never both."""

    source: TaskSource
    callable: Callable[..., Any]
    module: nn.Module | None
    """Set where the callable is a module instance, in evaluation mode."""
    generator: Callable[[], Any] | None
    declaration: Declaration | None
    arguments: tuple[Argument, ...]
    """Declared arguments; empty where a generator makes them."""

    def generate(self, seed: int) -> list[Any]:
        """Fresh positional arguments from the user's generator.

        Raises:
            TaskError: it raises, or returns something else than arguments.
        """
        assert self.generator is not None
        try:
            with seeded(seed):
                made = self.generator()
        except (Exception, SystemExit) as error:
            raise task_error(
                error, path=self.source.path, doing="in get_inputs()", otherwise="reference_raises"
            ) from error
        return self._positional(made)

    def _positional(self, made: Any) -> list[Any]:
        import torch

        if isinstance(made, torch.Tensor):
            return [made]
        if isinstance(made, Mapping):
            names = parameter_names(self.callable, len(made))
            unknown = [name for name in made if name not in names]
            if unknown:
                raise TaskError(
                    "bad_declaration",
                    f"get_inputs() names `{unknown[0]}`; the reference takes {', '.join(names)}",
                    hint="name the arguments of forward(), or return a list",
                )
            last = max((names.index(name) for name in made), default=-1)
            defaults = _defaults(self.callable)
            return [made[name] if name in made else defaults.get(name) for name in names[: last + 1]]
        if inspect.isgenerator(made) or isinstance(made, list | tuple):
            return list(made)
        raise TaskError(
            "unsupported_input", f"get_inputs() returned a {type(made).__name__}, expected a list of arguments"
        )


class seeded:  # noqa: N801 - reads as a statement: `with seeded(0):`
    """Seeds torch, numpy and `random` inside a block, and gives their states back after it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        import torch

        self._states = (torch.get_rng_state(), np.random.get_state(), random.getstate())
        torch.manual_seed(self._seed)
        np.random.seed(self._seed % 2**32)
        random.seed(self._seed)

    def __exit__(self, *_: object) -> None:
        import torch

        torch.set_rng_state(self._states[0])
        np.random.set_state(self._states[1])
        random.setstate(self._states[2])


def open_program(
    target: str, inputs: Sequence[str], workloads: Sequence[Mapping[str, int]], *, source: TaskSource | None = None
) -> Program:
    """Load the file and find the reference; `source` re-opens a task from the text that was kept.

    Raises:
        TaskError: missing or unparsable file, no reference, or one that cannot be made.
    """
    place = source_files.parse_target(target) if source is None else None
    path = Path(source.path) if source else place.path if place else Path()
    text = source.text if source else source_files.read_text(path)
    module = source_files.load_module(path, text, place.module_name if place else "")
    wanted = source.attribute if source else place.attribute if place else ""
    declared = tuple(source.declared if source else inputs)
    attribute, found = _resolve(module, wanted, text, path) if wanted else _search(module, text, path, bool(declared))
    declaration = getattr(found, DECLARATION_ATTRIBUTE, None)
    generator = None if declaration or declared else getattr(module, "get_inputs", None)
    if declaration is None and generator is None:
        declared = declared or _annotated(found)
        declaration = _command_line(declared, workloads, path, attribute)
    elif declaration is not None and workloads:
        check_bindings(declaration.tensors.values(), workloads)
    kind: Literal["kernelbench", "function", "callable"] = (
        "kernelbench" if generator else "callable" if declared else "function"
    )
    ready, instance = _ready(found, module, path)
    return Program(
        source=TaskSource(kind=kind, path=str(path), attribute=attribute, text=text, declared=declared),
        callable=ready,
        module=instance,
        generator=generator,
        declaration=declaration,
        arguments=_declared_arguments(ready, declaration, attribute) if declaration else (),
    )


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Names for `count` positional arguments: the signature's own, `x0`, `x1`, … where it has none."""
    from torch import nn

    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return [f"x{i}" for i in range(count)]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds]
    return names + [f"x{i}" for i in range(len(names), count)]


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    from torch import nn

    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in signature.parameters.values() if p.default is not inspect.Parameter.empty}


def _resolve(module: ModuleType, attribute: str, text: str, path: Path) -> tuple[str, Any]:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_reference(path, f"`{attribute}` is not in the file", source_files.contents(module))
        found = getattr(found, part)
    if not callable(found):
        raise TaskError("no_reference", f"{path}: `{attribute}` is a {type(found).__name__}, not callable")
    return attribute, found


def _search(module: ModuleType, text: str, path: Path, inputs_declared: bool) -> tuple[str, Any]:
    offers = source_files.contents(module)
    has_generator = callable(getattr(module, "get_inputs", None))
    for group, usable in (
        (offers.declared, True),
        ({k: v for k, v in offers.module_classes.items() if k == "Model"}, has_generator or inputs_declared),
        (_only(offers.module_classes, text), has_generator or inputs_declared),
        (offers.module_instances, has_generator or inputs_declared),
        (
            _only(
                {k: f for k, f in offers.functions.items() if has_generator or inputs_declared or _annotated(f)}, text
            ),
            True,
        ),
    ):
        if usable and len(group) == 1:
            return next(iter(group.items()))
        if usable and len(group) > 1:
            named = next((n for n in ("Model", "reference", "model", "forward", path.stem) if n in group), None)
            if named:
                return named, group[named]
            raise TaskError(
                "no_reference",
                f"{path}: several references: {', '.join(group)}",
                hint=f"name one, such as {path.name}:{next(iter(group))}",
            )
    raise _no_reference(path, "no reference found", offers)


def _only(found: dict[str, Any], text: str) -> dict[str, Any]:
    return {name: found[name] for name in source_files.outermost(found, text)}


def _no_reference(path: Path, what: str, offers: Contents) -> TaskError:
    names = [*offers.declared, *offers.module_classes, *offers.module_instances, *offers.functions]
    return TaskError(
        "no_reference",
        f"{path}: {what}; it defines {_listed(names) or 'no class or function of its own'}",
        hint="looked for: a function under @kernelwright.tasks.operation, class Model with get_inputs(), one module or "
        "function with get_inputs(), or NAME given as file.py:NAME with --input x=float32[64,4096]",
    )


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {left} more" if left > 0 else "")


def _annotated(function: Any) -> tuple[str, ...]:
    """`x=float32[B, N]` for each argument annotated with such a string; empty where none is."""
    notes = getattr(function, "__annotations__", {})
    words = {k: str(v).strip("'\"") for k, v in notes.items() if k != "return" and isinstance(v, str) and "[" in str(v)}
    readable: list[str] = []
    for name, value in words.items():
        try:
            declared_argument(f"{name}={value}")
        except TaskError:
            return ()
        readable.append(f"{name}={value}")
    return tuple(readable)


def _command_line(
    declared: Sequence[str], workloads: Sequence[Mapping[str, int]], path: Path, attribute: str
) -> Declaration:
    if not declared:
        raise TaskError(
            "bad_declaration",
            f"{path}: nothing says which inputs `{attribute}` takes",
            hint="add get_inputs() to the file, the @operation decorator, or --input x=float32[64,4096]",
        )
    arguments = [declared_argument(words) for words in declared]
    tensors = {a.name: a for a in arguments if isinstance(a, TensorSpec)}
    check_bindings(tensors.values(), workloads)
    return Declaration(
        tensors=tensors,
        workloads=tuple(dict(w) for w in workloads),
        tolerance=Tolerance(),
        special_values=False,
        scalars={a.name: a for a in arguments if isinstance(a, ScalarSpec)},
    )


def _declared_arguments(function: Callable[..., Any], declaration: Declaration, attribute: str) -> tuple[Argument, ...]:
    known: dict[str, Argument] = {**declaration.tensors, **declaration.scalars}
    names = parameter_names(function, 0)
    if not names:
        return tuple(known.values())
    unknown = [name for name in known if name not in names]
    if unknown:
        raise TaskError("bad_declaration", f"`{attribute}` takes {', '.join(names)}; `{unknown[0]}` is none of them")
    defaults, found = _defaults(function), []
    for name in names:
        if name in known:
            found.append(known[name])
        elif name in defaults and isinstance(defaults[name], _SCALARS):
            found.append(ScalarSpec(name=name, value=defaults[name]))
        elif name in defaults:
            break
        else:
            raise TaskError(
                "bad_declaration", f"`{attribute}`: the argument `{name}` has neither declaration nor default"
            )
    left = [name for name in known if name not in {a.name for a in found}]
    if left:
        raise TaskError(
            "unsupported_input", f"`{attribute}`: an argument before `{left[0]}` has a default of no plain type"
        )
    return tuple(found)


def _ready(found: Any, module: ModuleType, path: Path) -> tuple[Callable[..., Any], nn.Module | None]:
    """Make the module where a class was found; evaluation mode, gradients off."""
    from torch import nn

    if isinstance(found, type) and issubclass(found, nn.Module):
        try:
            with seeded(0):
                arguments, keywords = initial_arguments(module)
                found = found(*arguments, **keywords)
        except (Exception, SystemExit) as error:
            raise task_error(error, path=path, doing="while making the module", otherwise="reference_raises") from error
    elif found is getattr(module, "Model", None):
        _refuse_factory(found, module, path)
    if isinstance(found, nn.Module):
        _refuse_lazy(found, path)
        return found.eval().requires_grad_(False), found
    if not callable(found):
        raise TaskError("no_reference", f"{path}: the reference is a {type(found).__name__}, not callable")
    return found, None


def _refuse_factory(found: Any, module: ModuleType, path: Path) -> None:
    """A function that makes the module would be taken for the operation itself."""
    from torch import nn

    if isinstance(found, nn.Module):
        return
    try:
        with seeded(0):
            arguments, keywords = initial_arguments(module)
            made = found(*arguments, **keywords)
    except (Exception, SystemExit):  # noqa: BLE001 - then it is no factory, or calling the reference will say why
        return
    if isinstance(made, nn.Module):
        raise TaskError(
            "no_reference",
            f"{path}: `Model` is a function that makes a module; expected a class, or a module made already",
            hint="give it a name beside the function: model = Model(*get_init_inputs()), and name it as "
            f"{path.name}:model",
        )


def _refuse_lazy(made: nn.Module, path: Path) -> None:
    from torch.nn.parameter import is_lazy

    for name, value in (*made.named_parameters(), *made.named_buffers()):
        if is_lazy(value):
            raise TaskError(
                "unsupported_input",
                f"{path}: the parameter `{name}` has no shape before the first call (a lazy module)",
                hint="name the sizes, such as nn.Linear(64, 8) in place of nn.LazyLinear(8)",
            )


def initial_arguments(module: ModuleType) -> tuple[list[Any], dict[str, Any]]:
    """Constructor arguments: a list, a dictionary of keywords, or `[list, dictionary]`."""
    make = getattr(module, "get_init_inputs", None)
    made = make() if callable(make) else []
    if isinstance(made, Mapping):
        return [], dict(made)
    if not isinstance(made, list | tuple):
        return [made], {}
    if len(made) == 2 and isinstance(made[0], list | tuple) and isinstance(made[1], Mapping):
        return list(made[0]), dict(made[1])
    return list(made), {}
