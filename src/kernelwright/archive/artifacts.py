"""Texts by content hash on disk: written once, atomically, and verified on every read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from kernelwright.core.errors import EnvironmentProblem


class ArtifactStore:
    """A sharded folder `ab/cdef…`. Any number of processes may write into one store at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        """Store `content`; returns its SHA-256 as 64 hex digits.

        Raises:
            EnvironmentProblem: the disk is full or the folder cannot be written. Nothing half-written stays.
        """
        key = hashlib.sha256(content).hexdigest()
        path = self._path(key)
        if path.exists():
            return key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, content)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot store an artifact under {self.folder}: {error.strerror or error}",
                hint="free some space, or set KERNELWRIGHT_HOME to a folder that you can write to",
            ) from error
        return key

    def get(self, key: str) -> bytes:
        """The content of hash `key`.

        Raises:
            EnvironmentProblem: it is missing, or what is there is not what was stored.
        """
        path = self._path(key)
        hint = "rebuild the archive from the run folders, or share one artifacts folder between the machines"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise EnvironmentProblem(f"artifact {key} cannot be read: {error.strerror or error}", hint=hint) from error
        if hashlib.sha256(content).hexdigest() != key:
            raise EnvironmentProblem(f"artifact {path} is damaged: its content does not have its hash", hint=hint)
        return content

    def _path(self, key: str) -> Path:
        if len(key) != 64 or not set(key) <= set("0123456789abcdef"):
            raise ValueError(f"not a SHA-256 in hex: {key!r}")
        return self.folder / key[:2] / key[2:]


def _write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, then rename: a reader sees all of it or nothing."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
