"""Confinement of a runner, applied by itself after the fork and before any code that is not ours.

The ladder of levels, from weakest to strongest, is `LEVELS`; the strongest that the host offers and that is
implemented is in force, and every evaluation records it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

from kernelwright.judge import landlock

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_MORE_PROCESSES = 512

LEVELS = {
    "process": "process: own session, killed with the judge, limits on memory, file size and core dumps, private scratch "
    "folder, clean environment, no inherited descriptors",
    "landlock": "landlock: as process; writes only in the scratch folder and the candidate's own build cache, no TCP and no "
    "signals to other processes as far as the kernel's version {version} offers that",
}
"""Name to what it means, in words."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Confinement:
    """What a runner may use."""

    folder: str
    """Its working and home folder."""
    memory_bytes: int
    """Address space above what is mapped already."""
    file_bytes: int = 2 << 30
    """Largest file that it may write."""
    writable: tuple[str, ...] | None = None
    """Where it may write besides its folder and /dev; None leaves that open (the user's own reference)."""


def level_in_force() -> str:
    """The level that candidates on this host get, in words."""
    version = landlock.version()
    return LEVELS["landlock"].format(version=version) if version else LEVELS["process"]


def confine(limits: Confinement) -> None:
    """Apply the level in force to the calling process, which must be a fresh fork of the server."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    address_space = mapped_bytes() + limits.memory_bytes
    _limit(resource.RLIMIT_AS, address_space)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    if os.geteuid() != 0:
        _limit(resource.RLIMIT_NPROC, _own_processes() + _MORE_PROCESSES)
    os.chdir(limits.folder)
    os.umask(0o077)
    if limits.writable is not None and landlock.version():
        landlock.restrict([Path(limits.folder), Path("/dev"), *map(Path, limits.writable)])


def adopt_orphans() -> None:
    """Make the calling process the parent of every orphan below it, so that nothing a candidate starts gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def mapped_bytes() -> int:
    """Address space of the calling process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _own_processes() -> int:
    uid = os.getuid()
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                count += entry.stat().st_uid == uid
            except OSError:
                continue
    return count


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl({option})")
