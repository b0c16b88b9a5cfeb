"""Landlock through plain system calls: a process gives up writing outside a few folders, TCP, and signalling others.

Numbers and structures are those of the kernel's interface (linux/landlock.h); nothing here needs privileges.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_TCP = 3
"""Bind and connect."""
_OUTSIDE_SOCKETS_AND_SIGNALS = 3
_SIZE_BY_VERSION = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
"""Bytes of the ruleset that each version knows; 24 from version 6 on."""
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE
_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


@lru_cache(maxsize=1)
def version() -> int:
    """The interface's version that the kernel offers; 0 where there is none."""
    found = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, int(found))


def restrict(writable: Sequence[Path]) -> None:
    """From now on this process and its children write only below these folders, or to these files; as far as the kernel
    knows how, they neither use TCP nor signal or reach processes outside. Cannot be undone; requires `no_new_privs`.

    Paths that do not exist are left out.

    Raises:
        OSError: the kernel refuses.
    """
    abi = version()
    handled = _handled_rights(abi)
    wanted = _Ruleset(handled, _TCP, _OUTSIDE_SOCKETS_AND_SIGNALS)
    size = ctypes.c_size_t(_SIZE_BY_VERSION.get(abi, 24))
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), size, 0))
    try:
        for path in writable:
            _allow(ruleset, path, handled)
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _handled_rights(abi: int) -> int:
    rights = _WRITE_FILE | _REMOVE_AND_MAKE
    if abi >= 2:
        rights |= _REFER
    if abi >= 3:
        rights |= _TRUNCATE
    return rights


def _allow(ruleset: int, path: Path, handled: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = handled if path.is_dir() else handled & _FILE_RIGHTS
        rule = _PathBeneath(rights, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "landlock")
    return int(result)
