"""What this machine offers, each as a fact with the way to get what is missing. Nothing here loads torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from kernelwright import __version__
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.records import Record
from kernelwright.platforms.detect import cpu_quota, detect_device
from kernelwright.platforms.device import Device

_ENOUGH_BYTES = 2 << 30


class Capability(Record):
    """One thing that works here or does not."""

    name: str
    available: bool
    version: str | None = None
    """Version, level or size; what is measured of it."""
    why_not: str | None = None
    how_to_get: str | None = None
    needed: bool = False
    """Whether the main job cannot be done without it."""


def capabilities(*, measure: bool = False) -> list[Capability]:
    """Every capability, the needed ones first.

    Args:
        measure: Measure the ceilings where they are not known yet (about five seconds).
    """
    device = detect_device(measure=False)
    return [
        Capability(name="kernelwright", available=True, version=__version__, needed=True),
        Capability(name="python", available=True, version=platform.python_version(), needed=True),
        _package("torch", "pip install 'kernelwright[torch]'", needed=True),
        _compiler(device),
        _openmp(device),
        _folder("cache folder", "cache"),
        _folder("data folder", "data"),
        _disk(),
        _memory(device),
        Capability(name="processor", available=True, version=f"{device.name}, {_cores(device)}"),
        _simd(device),
        _ceilings(device, measure=measure),
        _sandbox(),
        _triton(),
        _model(),
        _package("psycopg", "pip install 'kernelwright[postgres]'", name="postgresql driver"),
        _counters(),
        Capability(
            name="gpu",
            available=False,
            why_not="this version makes kernels for CPUs only",
            how_to_get="kernels for GPUs are not supported yet",
        ),
    ]


def _package(package: str, how: str, *, name: str = "", needed: bool = False) -> Capability:
    label = name or package
    if find_spec(package) is None:
        return Capability(
            name=label, available=False, why_not=f"{package} is not installed", how_to_get=how, needed=needed
        )
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = None
    return Capability(name=label, available=True, version=version, needed=needed)


def _compiler(device: Device) -> Capability:
    found = ", ".join(f"{c.name} {c.version}" for c in device.compilers)
    return Capability(
        name="c++ compiler",
        available=bool(found),
        version=found or None,
        why_not=None if found else "neither g++ nor clang++ was found",
        how_to_get=None if found else "apt-get install g++, or name one in the variable CXX",
        needed=True,
    )


def _openmp(device: Device) -> Capability:
    """Whether the first compiler links a program with OpenMP."""
    if not device.compilers:
        return Capability(
            name="openmp", available=False, why_not="no compiler", how_to_get="install a C++ compiler", needed=True
        )
    text = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        command = [device.compilers[0].path, "-fopenmp", "-x", "c++", "-", "-o", f"{folder}/program"]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
            problem = "" if done.returncode == 0 else done.stderr.strip().partition("\n")[0][:200]
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
    return Capability(
        name="openmp",
        available=not problem,
        why_not=problem or None,
        how_to_get="apt-get install libomp-dev (clang) or libgomp1 (gcc)" if problem else None,
        needed=True,
    )


def _cores(device: Device) -> str:
    quota = cpu_quota(Path("/sys/fs/cgroup"))
    limit = f", control group grants {quota:g}" if quota else ""
    return f"{device.cores} core{'s' if device.cores != 1 else ''}{limit}"


def _simd(device: Device) -> Capability:
    if device.simd == "scalar":
        return Capability(
            name="simd", available=False, why_not="no vector instructions known", how_to_get="another CPU"
        )
    return Capability(name="simd", available=True, version=f"{device.simd}, {device.simd_bits} bits")


def _ceilings(device: Device, *, measure: bool) -> Capability:
    from kernelwright.platforms.ceilings import known_ceilings, measured_ceilings

    problem = "" if device.compilers else "they are measured with a compiled program, and there is no compiler"
    found = None
    try:
        found = known_ceilings(device)
        if found is None and measure and not problem:
            found = measured_ceilings(device)
    except KernelwrightError as error:
        problem = error.message
    if found is None:
        return Capability(
            name="measured ceilings",
            available=False,
            why_not=problem or "not measured yet; the first search does it",
            how_to_get="kernelwright doctor --measure",
        )
    peaks = ", ".join(f"{dtype} {peak:.0f} Gflop/s" for dtype, peak in found.fma_gflops.items())
    return Capability(
        name="measured ceilings",
        available=True,
        version=f"copy {found.copy_gbytes_per_s:.1f} GB/s, read {found.read_gbytes_per_s:.1f} GB/s, {peaks}",
    )


def _sandbox() -> Capability:
    from kernelwright.judge.sandbox import level_in_force

    return Capability(name="sandbox", available=True, version=level_in_force())


def _triton() -> Capability:
    found = _package("triton", "pip install 'kernelwright[triton]'", name="triton interpreter")
    return found.replace(version=f"{found.version}; correctness only, never timed") if found.available else found


def _model() -> Capability:
    """Whether a language model could be asked. The key is never shown."""
    sdk = _package("openai", "pip install 'kernelwright[llm]'", name="language model")
    if not sdk.available:
        return sdk
    base = os.environ.get("OPENAI_BASE_URL")
    if not os.environ.get("OPENAI_API_KEY"):
        return sdk.replace(
            available=False,
            version=f"openai {sdk.version}",
            why_not="OPENAI_API_KEY is not set",
            how_to_get="set OPENAI_API_KEY, and OPENAI_BASE_URL for an endpoint of your own; then --model NAME",
        )
    return sdk.replace(
        version=f"openai {sdk.version}, endpoint {_without_secrets(base) if base else 'of OpenAI'}, key set"
    )


def _without_secrets(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _counters() -> Capability:
    path = Path("/proc/sys/kernel/perf_event_paranoid")
    try:
        level = int(path.read_text("ascii"))
    except (OSError, ValueError):
        return Capability(
            name="performance counters",
            available=False,
            why_not="the system offers none",
            how_to_get="a machine, or a virtual machine, whose kernel has perf events",
        )
    allowed = level <= 2 or os.geteuid() == 0
    return Capability(
        name="performance counters",
        available=allowed,
        version=f"perf_event_paranoid {level}; not used in this version",
        why_not=None if allowed else f"perf_event_paranoid is {level}",
        how_to_get=None if allowed else "sysctl kernel.perf_event_paranoid=2",
    )


def _memory(device: Device) -> Capability:
    return Capability(name="memory", available=True, version=f"{device.memory_bytes / (1 << 30):.1f} GiB may be used")


def _folder(name: str, kind: str) -> Capability:
    from kernelwright.core import paths

    ask: dict[str, Callable[[], Path]] = {"cache": paths.cache_dir, "data": paths.data_dir}
    try:
        return Capability(name=name, available=True, version=str(ask[kind]()), needed=True)
    except KernelwrightError as error:
        return Capability(name=name, available=False, why_not=error.message, how_to_get=error.hint, needed=True)


def _disk() -> Capability:
    from kernelwright.core import paths

    try:
        where = paths.cache_dir()
    except KernelwrightError:
        where = Path(tempfile.gettempdir())
    free = shutil.disk_usage(where).free
    enough = free >= _ENOUGH_BYTES
    return Capability(
        name="disk space",
        available=enough,
        version=f"{free / (1 << 30):.1f} GiB free",
        why_not=None if enough else f"less than {_ENOUGH_BYTES >> 30} GiB free at {where}",
        how_to_get=None if enough else "free some space, or set KERNELWRIGHT_HOME to a folder on another disk",
    )
