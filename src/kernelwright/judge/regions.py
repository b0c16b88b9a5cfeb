"""Tensors in shared memory between guard bands, laid out alike by the judge and by a runner.

A region is an anonymous file (memfd). Every tensor starts at a multiple of 64 bytes and lies between bands of canary
bytes. A canary reads as NaN in every floating type, so that what strays out of bounds is seen either way: a write
changes the band, a read that matters turns the result into NaN.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelwright.core.dtypes import DType
from kernelwright.tasks.arrays import storage_dtype

BAND_BYTES = 4096
_ALIGNMENT = 64
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in a region."""

    offset: int
    size: int
    """Bytes."""
    shape: tuple[int, ...]
    dtype: DType

    @property
    def end(self) -> int:
        """First byte of the band behind it."""
        return self.offset + self.size


@dataclass(frozen=True)
class Layout:
    """The slots of a region, in order."""

    slots: tuple[Slot, ...]
    size: int
    """Bytes of the whole region."""

    @property
    def bands(self) -> list[tuple[int, int]]:
        """Begin and end of every stretch that belongs to no tensor."""
        edges = [0]
        for slot in self.slots:
            edges += [slot.offset, slot.end]
        edges.append(self.size)
        return list(zip(edges[::2], edges[1::2], strict=True))


def layout(tensors: Sequence[tuple[tuple[int, ...], DType]]) -> Layout:
    """Place tensors, given as (shape, element type)."""
    slots: list[Slot] = []
    place = BAND_BYTES
    for shape, dtype in tensors:
        count = 1
        for side in shape:
            count *= side
        slots.append(Slot(place, count * dtype.itemsize, shape, dtype))
        place = _aligned(place + count * dtype.itemsize + BAND_BYTES)
    return Layout(tuple(slots), place)


_F_SEAL_FUTURE_WRITE = 0x10
"""Of linux/fcntl.h; Python has no name for it yet."""
_MADV_POPULATE_READ = 22
"""Of linux/mman.h; Python has no name for it yet."""


class Region:
    """A mapped anonymous file with a layout."""

    def __init__(self, placed: Layout, descriptor: int | None = None, *, private: bool = False) -> None:
        """Map `descriptor`, or make a new file; `private` mappings copy a page when it is first written to."""
        self.layout = placed
        self.descriptor = (
            os.memfd_create("kernelwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if descriptor is None else descriptor
        )
        if descriptor is None:
            os.ftruncate(self.descriptor, placed.size)
        elif os.fstat(descriptor).st_size < placed.size:
            raise ValueError(f"a region of {os.fstat(descriptor).st_size} bytes where {placed.size} are needed")
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        self.memory = mmap.mmap(self.descriptor, placed.size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.bytes: Bytes = np.frombuffer(self.memory, np.uint8)

    def seal(self) -> None:
        """From now on nobody who is given the descriptor can change the content; what is mapped already stays writable."""
        with contextlib.suppress(OSError):  # a kernel before 5.1
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)

    def populate(self) -> None:
        """Map every page for reading now, so that no later read pays for a page fault."""
        try:
            self.memory.madvise(_MADV_POPULATE_READ)
        except OSError:  # a kernel before 5.14
            self.bytes[:: mmap.PAGESIZE].max()

    def array(self, index: int) -> NDArray[Any]:
        """Storage of one tensor, over the shared memory."""
        slot = self.layout.slots[index]
        return self.bytes[slot.offset : slot.end].view(storage_dtype(slot.dtype)).reshape(slot.shape)

    def arrays(self) -> list[NDArray[Any]]:
        """Storage of all tensors."""
        return [self.array(index) for index in range(len(self.layout.slots))]

    def fill_bands(self, pattern: Bytes) -> None:
        """Write the canary into every band."""
        for begin, end in self.layout.bands:
            self.bytes[begin:end] = np.resize(pattern, end - begin)

    def damaged_band(self, pattern: Bytes) -> int | None:
        """Number of the tensor beside the first band that no longer holds the canary, or None."""
        for number, (begin, end) in enumerate(self.layout.bands):
            if not np.array_equal(self.bytes[begin:end], np.resize(pattern, end - begin)):
                return max(0, min(number, len(self.layout.slots)) - (number > 0))
        return None

    def close(self) -> None:
        """Give the descriptor back; the mapping goes with the last array over it."""
        os.close(self.descriptor)


def canary(generator: np.random.Generator) -> Bytes:
    """One band of secret bytes, each pair of them NaN as float16 and bfloat16, each group as float32 and float64."""
    low = generator.integers(0xF1, 0x100, BAND_BYTES // 2, dtype=np.uint16)
    return (low | np.uint16(0xFF00)).view(np.uint8)


def same_bytes(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one shape and type hold the same bits (NaN included)."""
    return bool(np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)))


def _aligned(place: int) -> int:
    return (place + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
