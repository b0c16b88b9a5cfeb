"""Memory for a kernel under verification: poisoned inside, guard bands outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelwright.judge.regions import BAND_BYTES, Bytes

if TYPE_CHECKING:
    import torch

_LARGEST_BAND = 1 << 16


class GuardedAllocator:
    """The allocator that `CompiledPlan` is given while a kernel is verified."""

    def __init__(self, pattern: Bytes) -> None:
        self._pattern = np.resize(pattern, _LARGEST_BAND)
        self._blocks: list[tuple[Bytes, int, int]] = []

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor between two bands; its content reads as NaN."""
        import torch

        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        band = BAND_BYTES
        while band < _LARGEST_BAND and band * 16 < size:
            band *= 2
        block = torch.empty(size + 2 * band, dtype=torch.uint8)
        memory: Bytes = block.numpy()
        memory[:] = np.resize(self._pattern, memory.size)
        self._blocks.append((memory, band, band + size))
        return block[band : band + size].view(dtype).view(shape)

    def damaged(self) -> bool:
        """Whether a band of any block since `forget` was written to."""
        return any(
            not np.array_equal(memory[begin:end], np.take(self._pattern, np.arange(begin, end), mode="wrap"))
            for memory, inner, outer in self._blocks
            for begin, end in ((0, inner), (outer, memory.size))
        )

    def forget(self) -> None:
        """Let go of the blocks of earlier calls."""
        self._blocks.clear()
