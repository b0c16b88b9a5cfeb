"""Measured ceilings: what this machine reaches with all its cores, measured once by `measure.cpp` and kept per device.

Bandwidths and multiply-add rates are the best of at least five samples: a ceiling is an upper bound, and noise on a
shared machine only ever takes away from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import EnvironmentProblem
from kernelwright.core.paths import cache_dir
from kernelwright.platforms.device import Ceilings, Device
from kernelwright.platforms.languages.cpp.build import choose_compiler
from kernelwright.platforms.languages.cpp.compiling import run_compiler
from kernelwright.platforms.languages.cpp.diagnostics import first_error
from kernelwright.platforms.languages.cpp.options import program_flags

PROGRAM = Path(__file__).parent / "measure.cpp"
_VERSION = 2  # raised when the program measures something else than before
_RING_BYTES = 512 << 20
_PIECE_BYTES = 32 << 20
_SECONDS_PER_FIGURE = 0.3
_COMPILE_SECONDS = 60.0
_MEASURE_SECONDS = 60.0
_ATTEMPTS = 2
_MINIMUM_SAMPLES = 5

# Outside of these a clock is broken or the machine is stopped, not slow: figure to (lowest, highest) believable value.
_BELIEVABLE = {
    "call": (0.01, 20_000.0),
    "copy_plain": (0.2, 20_000.0),
    "copy_streaming": (0.2, 20_000.0),
    "read": (0.2, 20_000.0),
    "cache_copy": (0.5, 200_000.0),
    "fma_float32": (0.2, 500_000.0),
    "fma_float64": (0.1, 500_000.0),
}


def measured_ceilings(device: Device) -> Ceilings:
    """The ceilings of `device`, from the cache or measured now; one process on the machine measures at a time.

    Raises:
        EnvironmentProblem: no compiler, the program does not build or run, or the figures make no sense.
    """
    path = _kept_in(device)
    known = _read(path)
    if known is not None:
        return known
    with _one_at_a_time(path.with_suffix(".lock")):
        known = _read(path)
        if known is not None:
            return known
        try:
            ceilings = measure(device)
        except OSError as error:
            raise _unwritable(cache_dir(), error) from error
        _write(path, ceilings)
    return ceilings


def known_ceilings(device: Device) -> Ceilings | None:
    """The ceilings of `device` where they were measured before; nothing is measured.

    Raises:
        EnvironmentProblem: the cache folder cannot be used.
    """
    return _read(_kept_in(device))


def measure(device: Device) -> Ceilings:
    """Build the program and run it; takes about four seconds.

    Raises:
        EnvironmentProblem: as `measured_ceilings`.
    """
    ring = ring_bytes(device)
    with tempfile.TemporaryDirectory(prefix="measure-", dir=cache_dir()) as folder:
        program = _compiled(device, Path(folder))
        problem = ""
        for _ in range(_ATTEMPTS):
            samples = read_figures(_run(program, device, ring))
            problem = nonsense(samples)
            if not problem:
                return ceilings_from(samples, ring)
    raise EnvironmentProblem(
        f"this machine's ceilings cannot be measured: {problem}",
        hint="try again when the machine is idle; without ceilings there is no roofline and no timing",
    )


def ring_bytes(device: Device) -> int:
    """Footprint of the copies: as timing uses, less on a small machine, at least two pieces."""
    affordable = device.memory_bytes // 8
    return max(2 * _PIECE_BYTES, min(_RING_BYTES, affordable // _PIECE_BYTES * _PIECE_BYTES))


def read_figures(output: str) -> dict[str, tuple[float, ...]]:
    """Figure name to samples, from the lines that `measure.cpp` prints."""
    figures: dict[str, tuple[float, ...]] = {}
    for line in output.splitlines():
        name, _, *values = line.split()
        with contextlib.suppress(ValueError):
            figures[name] = tuple(float(value) for value in values)
    return figures


def nonsense(samples: Mapping[str, tuple[float, ...]]) -> str:
    """Why these figures cannot be believed, or an empty string."""
    for name, (low, high) in _BELIEVABLE.items():
        values = samples.get(name, ())
        if len(values) < _MINIMUM_SAMPLES:
            return f"{name} has {len(values)} samples, expected at least {_MINIMUM_SAMPLES}"
        best = min(values) if name == "call" else max(values)
        if not math.isfinite(best) or not low <= best <= high:
            return f"{name} is {best:g}, expected {low:g} to {high:g}"
    if max(samples["cache_copy"]) < max(samples["copy_plain"]) / 2:
        return "a copy inside the caches is slower than one through memory"
    return ""


def ceilings_from(samples: Mapping[str, tuple[float, ...]], footprint_bytes: int) -> Ceilings:
    """The record behind believable figures.

    bfloat16 and float16 count as the best unit that this machine has for them (tiles, dot products, half arithmetic),
    at least as fast as float32, through which they can always be computed.
    """
    best = {name: max(values) for name, values in samples.items() if name != "call"}
    single = best["fma_float32"]
    return Ceilings(
        copy_gbytes_per_s=max(best["copy_plain"], best["copy_streaming"]),
        read_gbytes_per_s=best["read"],
        cache_copy_gbytes_per_s=best["cache_copy"],
        fma_gflops={
            DType.FLOAT64: best["fma_float64"],
            DType.FLOAT32: single,
            DType.FLOAT16: max(single, best.get("fma_float16", 0.0)),
            DType.BFLOAT16: max(single, best.get("fma_bfloat16", 0.0), best.get("tile_bfloat16", 0.0)),
        },
        call_us=min(samples["call"]),
        footprint_bytes=footprint_bytes,
        samples=dict(samples),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _kept_in(device: Device) -> Path:
    return cache_dir() / "ceilings" / f"{device.id}-{_VERSION}.json"


def _compiled(device: Device, folder: Path) -> Path:
    compiler = choose_compiler(device)
    source = folder / "src"
    for path in (source, folder / "tmp"):
        path.mkdir()
    program = folder / "measure"
    command = [compiler.path, *program_flags(compiler, device.architecture), str(PROGRAM), "-o", str(program)]
    run = run_compiler(command, source, _COMPILE_SECONDS)
    if not run.succeeded:
        reason = first_error(run.output.replace(f"{PROGRAM.parent}/", "")) or run.ending
        raise EnvironmentProblem(
            f"{compiler.name} {compiler.version} cannot build a small OpenMP program: {reason}",
            hint="install a complete g++ with OpenMP (Debian, Ubuntu: apt-get install g++)",
        )
    return program


def _run(program: Path, device: Device, ring: int) -> str:
    cache_bytes = device.l2_bytes // 2
    sizes = (device.cores, ring, _PIECE_BYTES, cache_bytes, _SECONDS_PER_FIGURE)
    environment = {**os.environ, "OMP_PROC_BIND": "true", "OMP_DYNAMIC": "false"}
    try:
        done = subprocess.run(
            [str(program), *map(str, sizes)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MEASURE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"measuring this machine took more than {_MEASURE_SECONDS:g} s", hint="try again when it is idle"
        ) from error
    if done.returncode != 0 and not done.stdout:
        raise EnvironmentProblem(
            f"the measuring program ended with status {done.returncode}: {done.stderr.strip()[:200]}",
            hint="see `kernelwright doctor`",
        )
    return done.stdout


def _read(path: Path) -> Ceilings | None:
    try:
        return Ceilings.from_json(path.read_bytes())
    except (OSError, ValidationError):
        return None  # what cannot be read is measured again


def _write(path: Path, ceilings: Ceilings) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(ceilings.to_json(), "utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"cannot write to {folder}: {error.strerror or error}",
        hint="free some space, or set KERNELWRIGHT_HOME to a folder that you can write to",
    )


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
