"""One allocation rule for everything that is timed, and poison for everything that is verified.

With glibc's default rule every large result is mapped afresh and pays page faults at each call, which makes whoever
allocates less look faster. The server sets the warm rule before it does anything else; runners inherit it with the fork.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_M_PERTURB = -6
_NEVER_TRIM = 0x7FFFFFFF
_TOP_PAD_BYTES = 64 << 20

RULE = "warm heap: M_MMAP_MAX=0, no trimming, M_TOP_PAD=64 MiB"
"""The rule in words, as recorded with every timing."""

_libc = ctypes.CDLL(None)


def set_warm_rule() -> bool:
    """Keep freed memory in the process, for every later allocation; False where the C library has no such switch."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER_TRIM), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return all(mallopt(option, value) == 1 for option, value in settings)


def set_lean_rule() -> None:
    """Large blocks go back to the system as soon as they are free: for a process in which nothing is ever timed."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        for option, value in ((_M_MMAP_MAX, 1 << 16), (_M_TRIM_THRESHOLD, 1 << 20), (_M_TOP_PAD, 0)):
            mallopt(option, value)


def return_free_memory() -> None:
    """Give what is free back to the system, which the warm rule alone never does."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def poison_allocations(byte: int) -> None:
    """Fill what is allocated from now on with `byte` (all but the smallest blocks); 0xFF switches it off."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, byte ^ 0xFF)
