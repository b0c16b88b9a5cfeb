"""A verified kernel beside the PyTorch operation that it replaces. README.md says how to use it and what was verified.

`optimized(...)` takes the reference's arguments (for a module: its arguments, then its parameters and buffers).
`ModelNew(...)`, where the reference is a module, is that module with the kernel as its `forward`.
`explain(...)` says for the same arguments whether the kernel or the reference would run, and why.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).resolve().parent
_PREFIX = "_kernelwright_export_" + hashlib.sha256(str(_FOLDER).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _load(name: str) -> ModuleType:
    """A file of this folder as a module. By path, so that the folder may have any name and be imported in any way."""
    full = f"{_PREFIX}_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(full, None)
        raise
    return module


_operation = _load("operation").Operation(_FOLDER, _load)
KernelFallbackWarning = _load("operation").KernelFallbackWarning


def optimized(*arguments: Any, **keywords: Any) -> Any:
    """What the reference returns for these arguments, computed by the kernel where that was verified."""
    return _operation(arguments, keywords)


def explain(*arguments: Any, **keywords: Any) -> Any:
    """`(kernel, reason)`: whether the kernel would run for these arguments, and if not, why. Nothing is computed."""
    return _operation.explain(arguments, keywords)


def strict_shapes(strict: bool = True) -> None:
    """With True, only the very sizes that were verified run the kernel."""
    _operation.strict_shapes = bool(strict)


# torch.compile leaves the call as it is instead of tracing into ctypes.
optimized._torchdynamo_disable = True  # type: ignore[attr-defined]
optimized.__signature__ = explain.__signature__ = _operation.signature()  # type: ignore[attr-defined]
optimized.explain = explain  # type: ignore[attr-defined]
__all__ = ["KernelFallbackWarning", "explain", "optimized", "strict_shapes"]
if _operation.has_module:
    __all__ += ["ModelNew"]  # noqa: F822 - made by __getattr__


def __getattr__(name: str) -> Any:
    """`ModelNew` is made when it is asked for: making it runs the reference's file."""
    if name == "ModelNew" and _operation.has_module:
        globals()[name] = _operation.model_class()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
