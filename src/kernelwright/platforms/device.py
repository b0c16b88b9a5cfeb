"""`Device`: what was detected of the hardware at hand, with *measured* ceilings. Pure data; detection is in `detect`."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.dtypes import DType
from kernelwright.core.records import Record, content_id


class Compiler(Record):
    """A C++ compiler on the machine."""

    path: str
    name: Literal["gcc", "clang"]
    version: str


class Ceilings(Record):
    """What the machine was measured to reach with all its cores, once; cached per machine."""

    copy_gbytes_per_s: float
    """Copy bandwidth, bytes read plus written, 10**9 per second, footprint as in timing (see `footprint_bytes`)."""
    read_gbytes_per_s: float
    """Read (sum) bandwidth."""
    cache_copy_gbytes_per_s: float
    """Copy bandwidth with a footprint that stays in the second-level caches: the cap where a workload fits there."""
    fma_gflops: dict[DType, float]
    """Multiply-add peak per dtype, two operations each, 10**9 per second."""
    call_us: float
    """Time of an empty parallel region, microseconds: no kernel is shorter."""
    footprint_bytes: int
    samples: dict[str, tuple[float, ...]]
    """The samples each figure is the best of."""
    measured_at: str
    """ISO 8601, UTC."""


class Device(Record):
    """One CPU (all cores that this process may use)."""

    kind: Literal["cpu"] = "cpu"
    name: str
    architecture: str
    """`x86_64`, `aarch64`, …"""
    cores: int
    """Physical or virtual cores that this process may run on (affinity and cgroup quota respected)."""
    simd: Literal["avx512", "avx2", "sse", "neon", "sve", "scalar"]
    simd_bits: int
    features: tuple[str, ...]
    """Instruction-set flags that kernels may use, such as `avx512_bf16`, `amx_tile`, `fma`."""
    l1d_bytes: int
    """Per core."""
    l2_bytes: int
    """Per core."""
    last_level_bytes: int
    """Shared; as the system reports it, which in a virtual machine may be more than its share."""
    memory_bytes: int
    compilers: tuple[Compiler, ...]
    ceilings: Ceilings | None = None

    @property
    def id(self) -> str:
        """Identity of the machine (without measurements), the key of caches."""
        return content_id(self.model_dump(mode="json", exclude={"ceilings": True}))[:16]
