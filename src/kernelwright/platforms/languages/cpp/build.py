"""C++ sources to a shared object behind `kernelwright.h`, through a cache on disk keyed by everything that decides the result.

Two processes that want the same kernel build it once; a failure is remembered as well as a success; a build that is
killed leaves nothing that a later one could mistake for a result.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from kernelwright.core.errors import EnvironmentProblem
from kernelwright.core.paths import cache_dir
from kernelwright.core.records import Record, content_id
from kernelwright.platforms.device import Compiler, Device
from kernelwright.platforms.languages.cpp.compiling import CompilerRun, run_compiler
from kernelwright.platforms.languages.cpp.diagnostics import first_error, relative_log
from kernelwright.platforms.languages.cpp.options import compile_flags, refused_options

INCLUDE = Path(__file__).parent / "include"
"""Folder of `kernelwright.h` and its siblings, the only one on the include path."""
SOURCE_ENDINGS = (".cpp", ".cc", ".cxx")
_MAX_SOURCE_BYTES = 4 << 20
_STALE_SECONDS = 3600.0
# C++ names stay inside, so that a kernel's templates can never be bound to another library's; C entries are visible.
_EXPORTS = "{ global: *; local: _Z*; };\n"


class Built(Record):
    """A shared object is ready."""

    kind: Literal["built"] = "built"
    path: Path
    seconds: float
    """Time spent in this call; a few milliseconds when it was cached."""
    cached: bool = False


class BuildFailure(Record):
    """It does not compile, or not in time."""

    kind: Literal["failed"] = "failed"
    reason: str
    """The compiler's first error with its source line, paths relative to the candidate."""
    log: str = ""
    """The compiler's output, trimmed."""
    seconds: float
    cached: bool = False
    timed_out: bool = False
    limit_seconds: float | None = None
    """The time limit that was in force, when it was hit."""


BuildResult = Built | BuildFailure
_FAILURE = TypeAdapter(BuildFailure)

Pause = Callable[[int], AbstractContextManager[object]]
"""Given the compiler's process group, returns a context that is open while the compiler runs: a judge stops the group
(SIGSTOP) while it times something and continues it (SIGCONT) afterwards. Time spent stopped is not counted."""


def build(
    sources: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    device: Device,
    timeout: float = 120.0,
    pause: Pause | None = None,
) -> BuildResult:
    """Compile every C++ file of `sources` (relative path to text) into one shared object.

    Thread-safe and safe between processes. Anything wrong with the sources or options is a `BuildFailure`.

    Raises:
        EnvironmentProblem: no compiler, or the disk is full or not writable.
    """
    started = time.perf_counter()
    compiler = choose_compiler(device)
    refusal = refused_sources(sources) or refused_options(options)
    if refusal:
        return BuildFailure(reason=refusal, seconds=time.perf_counter() - started)
    flags = compile_flags(compiler, device.architecture)
    key = _key(sources, (*flags, *options), compiler, device)
    try:
        folder = _entry(key)
        with _locked(key):
            known = _read(folder, timeout, started)
            if known is not None:
                return known
            _sweep(folder.parent)
            command = _command(compiler, (*flags, *options), sources)
            return _build(folder, sources, command, timeout=timeout, pause=pause, started=started)
    except OSError as error:
        raise _disk_problem(error) from error


def choose_compiler(device: Device) -> Compiler:
    """The compiler that builds are made with: the first that was detected.

    Raises:
        EnvironmentProblem: there is none.
    """
    if not device.compilers:
        raise EnvironmentProblem("no C++ compiler was found", hint="install g++ (Debian, Ubuntu: apt-get install g++)")
    return device.compilers[0]


def refused_sources(sources: Mapping[str, str]) -> str:
    """Why these sources cannot be built (unsafe names, no C++ file, too large), or an empty string."""
    for name in sources:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
            return f"source name {name!r} is not a plain relative path"
        if name.startswith("-"):
            return f"source name {name!r} begins with a dash"
    if not any(name.endswith(SOURCE_ENDINGS) for name in sources):
        return f"no C++ file among the sources (expected a name ending in {', '.join(SOURCE_ENDINGS)})"
    if sum(len(text) for text in sources.values()) > _MAX_SOURCE_BYTES:
        return f"the sources are larger than {_MAX_SOURCE_BYTES >> 20} MiB"
    return ""


def header_texts() -> dict[str, str]:
    """Name to text of every header that a kernel may include."""
    return {path.name: path.read_text("utf-8") for path in sorted(INCLUDE.glob("*.h"))}


def _key(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, device: Device) -> str:
    return content_id(
        {
            "sources": dict(sources),
            "headers": header_texts(),
            "flags": list(flags),
            "compiler": [compiler.path, compiler.version],
            "machine": [device.architecture, device.name, sorted(device.features)],
        }
    )


def _root() -> Path:
    return cache_dir() / "builds"


def _entry(key: str) -> Path:
    folder = _root() / key[:2] / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(key: str) -> Iterator[None]:
    locks = _root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / key[:3]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(folder: Path, timeout: float, started: float) -> BuildResult | None:
    library = folder / "kernel.so"
    if library.exists():
        return Built(path=library, seconds=time.perf_counter() - started, cached=True)
    try:
        failure = _FAILURE.validate_json((folder / "failure.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    if failure.timed_out and (failure.limit_seconds or 0.0) < timeout:
        return None
    return failure.replace(seconds=time.perf_counter() - started, cached=True)


def _build(
    folder: Path,
    sources: Mapping[str, str],
    command: Sequence[str],
    *,
    timeout: float,
    pause: Pause | None,
    started: float,
) -> BuildResult:
    workplace = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        _write_sources(workplace, sources)
        run = run_compiler(command, workplace / "src", timeout, pause)
        seconds = time.perf_counter() - started
        result = workplace / "result"
        if run.succeeded and (result / "kernel.so").exists():
            _publish(result, folder)
            return Built(path=folder / "kernel.so", seconds=seconds)
        failure = _failure(run, workplace, seconds, timeout)
        if run.repeatable:
            (result / "failure.json").write_text(json.dumps(failure.model_dump(mode="json")), "utf-8")
            (result / "kernel.so").unlink(missing_ok=True)
            _publish(result, folder)
        return failure
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _write_sources(workplace: Path, sources: Mapping[str, str]) -> None:
    for name in ("src", "result", "tmp"):
        (workplace / name).mkdir()
    (workplace / "exports.map").write_text(_EXPORTS, "utf-8")
    for name, text in sources.items():
        path = workplace / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", errors="surrogatepass")


def _command(compiler: Compiler, flags: Sequence[str], sources: Mapping[str, str]) -> list[str]:
    files = sorted(name for name in sources if name.endswith(SOURCE_ENDINGS))
    link = ["-Wl,--version-script=../exports.map", "-Wl,--no-undefined", "-o", "../result/kernel.so"]
    return [compiler.path, *flags, f"-I{INCLUDE}", "-I.", *files, *link]


def _publish(result: Path, folder: Path) -> None:
    """Make the finished folder visible in one step; an older verdict (a shorter time limit) gives way."""
    if folder.exists():
        shutil.rmtree(folder)
    result.rename(folder)


def _failure(run: CompilerRun, workplace: Path, seconds: float, timeout: float) -> BuildFailure:
    log = relative_log(run.output, {f"{workplace / 'src'}/": "", f"{workplace}/": "", f"{INCLUDE}/": ""})
    if "No space left on device" in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if run.timed_out:
        reason = f"the compiler was still running after {timeout:g} s"
        return BuildFailure(reason=reason, log=log, seconds=seconds, timed_out=True, limit_seconds=timeout)
    return BuildFailure(reason=first_error(log) or f"the compiler ended with {run.ending}", log=log, seconds=seconds)


def _sweep(shard: Path) -> None:
    """Remove what a killed build left behind."""
    for leftover in shard.glob("building-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover, ignore_errors=True)


def _disk_problem(error: OSError) -> EnvironmentProblem:
    where = _root()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentProblem(
            f"the disk is full: a kernel could not be built in {where}",
            hint="free some space, or set KERNELWRIGHT_HOME to a folder on another disk",
        )
    return EnvironmentProblem(
        f"cannot build in {where}: {error.strerror or error}",
        hint="set KERNELWRIGHT_HOME to a folder that you can write to",
    )
