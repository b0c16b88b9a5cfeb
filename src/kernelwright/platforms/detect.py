"""What this machine is: cores that we may use, instruction sets, caches, memory, compilers. Free of torch."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from kernelwright.platforms.device import Compiler, Device

Simd = Literal["avx512", "avx2", "sse", "neon", "sve", "scalar"]

_SIMD: tuple[tuple[Simd, int, frozenset[str]], ...] = (
    ("avx512", 512, frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})),
    ("avx2", 256, frozenset({"avx2", "fma"})),
    ("sve", 128, frozenset({"sve"})),
    ("neon", 128, frozenset({"asimd"})),
    ("sse", 128, frozenset({"sse2"})),
)
_FEATURE = re.compile(
    r"avx\w*|fma|f16c|sse\w*|ssse3|bmi[12]|amx_\w+|vaes|popcnt|asimd\w*|sve\w*|bf16|i8mm|fphp|neon",
)
_COMPILERS: tuple[tuple[Literal["gcc", "clang"], tuple[str, ...]], ...] = (
    ("gcc", ("g++", "c++", *(f"g++-{major}" for major in range(16, 8, -1)))),
    ("clang", ("clang++", *(f"clang++-{major}" for major in range(22, 11, -1)))),
)
_L1D_FALLBACK = 32 << 10
_L2_FALLBACK = 1 << 20
_LAST_LEVEL_FALLBACK = 8 << 20


def detect_device(measure: bool = True) -> Device:
    """The CPU at hand; with `measure`, its ceilings too (from the cache, or measured now in about five seconds).

    Without a compiler the ceilings stay None: they are measured with a small C++ program.
    """
    flags = cpu_flags()
    simd, bits = simd_level(flags)
    caches = cache_sizes()
    device = Device(
        name=cpu_name(),
        architecture=platform.machine(),
        cores=usable_cores(),
        simd=simd,
        simd_bits=bits,
        features=tuple(sorted(flag for flag in flags if _FEATURE.fullmatch(flag))),
        l1d_bytes=caches.get(1, _L1D_FALLBACK),
        l2_bytes=caches.get(2, _L2_FALLBACK),
        last_level_bytes=caches.get(3, caches.get(2, _LAST_LEVEL_FALLBACK)),
        memory_bytes=memory_bytes(),
        compilers=find_compilers(),
    )
    if not measure or not device.compilers:
        return device
    from kernelwright.platforms.ceilings import measured_ceilings

    return device.replace(ceilings=measured_ceilings(device))


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may keep busy: its affinity mask, capped by the control group's CPU quota (v2 or v1)."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota(cgroup)
    return max(1, min(cores, math.floor(quota))) if quota else cores


def cpu_quota(cgroup: Path) -> float | None:
    """CPUs granted by the control group mounted at `cgroup`, or None without a limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text("ascii").strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text("ascii").strip()
        except OSError:
            return None
    if limit in ("max", "-1") or not period.isdigit() or not limit.isdigit() or int(period) == 0:
        return None
    return int(limit) / int(period)


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction-set flags that every core has, as the kernel spells them."""
    common: frozenset[str] | None = None
    for line in _lines(cpuinfo):
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = frozenset(value.split())
            common = flags if common is None else common & flags
    return common or frozenset()


def simd_level(flags: Iterable[str]) -> tuple[Simd, int]:
    """The widest vector level and its width in bits (SVE: the guaranteed minimum)."""
    present = frozenset(flags)
    return next(((name, bits) for name, bits, needed in _SIMD if needed <= present), ("scalar", 64))


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The vendor's name of the processor, or the architecture where there is none."""
    for line in _lines(cpuinfo):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.machine()


def cache_sizes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Level to bytes of the data or unified caches that the first core sees."""
    sizes: dict[int, int] = {}
    for index in sorted(cpu.glob("index*")):
        try:
            kind = (index / "type").read_text("ascii").strip()
            level = int((index / "level").read_text("ascii"))
            size = _bytes((index / "size").read_text("ascii").strip())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified"):
            sizes[level] = size
    return sizes


def memory_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical memory, capped by the control group's limit."""
    total = next((int(line.split()[1]) << 10 for line in _lines(meminfo) if line.startswith("MemTotal:")), 0)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = (cgroup / name).read_text("ascii").strip()
        except OSError:
            continue
        if limit.isdigit():
            return min(total, int(limit)) if total else int(limit)
    return total


def find_compilers() -> tuple[Compiler, ...]:
    """C++ compilers that answer `--version`, GCC first, at most one of each family; `CXX` comes before all."""
    found: dict[str, Compiler] = {}
    wanted = os.environ.get("CXX", "").strip()
    for command in ((wanted,) if wanted else ()) + tuple(name for _, names in _COMPILERS for name in names):
        path = shutil.which(command)
        if path is None:
            continue
        compiler = _ask(path)
        if compiler and compiler.name not in found:
            found[compiler.name] = compiler
        if len(found) == len(_COMPILERS):
            break
    return tuple(found.values())


def _ask(path: str) -> Compiler | None:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_version(path, answer.stdout) if answer.returncode == 0 else None


def read_version(path: str, text: str) -> Compiler | None:
    """The compiler behind the output of `--version`, or None when it is none that we know."""
    first = text.partition("\n")[0]
    number = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", first)
    if number is None:
        return None
    name: Literal["gcc", "clang"] = "clang" if "clang" in first.lower() else "gcc"
    if name == "gcc" and not re.search(r"g\+\+|c\+\+|gcc|GCC|Free Software Foundation", text):
        return None
    return Compiler(path=path, name=name, version=number.group(1))


def _bytes(text: str) -> int:
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    return int(text[:-1] if scale else text) << scale


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
