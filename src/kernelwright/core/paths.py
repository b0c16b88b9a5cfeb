"""Where kernelwright keeps things on a machine.

`KERNELWRIGHT_HOME` overrides both folders (useful for tests, containers and read-only homes).
"""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

from kernelwright.core.errors import EnvironmentProblem


def cache_dir() -> Path:
    """Folder of what can be made again (measured ceilings, builds); created on first use, private to the user."""
    return _writable("cache")


def data_dir() -> Path:
    """Folder of what must last (the ledger and its artifacts); created on first use, private to the user."""
    return _writable("data")


def _writable(kind: str) -> Path:
    return _probe(kind, os.environ.get("KERNELWRIGHT_HOME", ""))


@lru_cache(maxsize=8)
def _probe(kind: str, home: str) -> Path:
    own = {"cache": user_cache_path, "data": user_data_path}[kind]
    folder = Path(home).expanduser() / kind if home else own("kernelwright")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write to the {kind} folder {folder}: {error.strerror or error}",
            hint="set KERNELWRIGHT_HOME to a folder that you can write to",
        ) from error
    return folder
