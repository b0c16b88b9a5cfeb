"""Builds the C++ kernel of an exported folder: once for each kind of CPU, beside the sources or in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECONDS = 600
_EXPORTS = "{ global: *; local: _Z*; };\n"
_COMPILERS = ("g++", "c++", "clang++")


class BuildProblem(RuntimeError):
    """The kernel cannot be built here."""


def built(folder: Path, record: dict[str, Any]) -> Path:
    """The shared object for this CPU; built now where it is missing.

    Raises:
        BuildProblem: no compiler, it refuses the sources, or nothing can be written.
    """
    sources = _texts(folder / "sources")
    key = _key(sources, record)
    roots = _roots(folder)
    for root in roots:
        library = root / key / "kernel.so"
        if library.is_file() and library.stat().st_uid in (os.getuid(), folder.stat().st_uid):
            return library
    compilers = _compilers()
    if not compilers:
        raise BuildProblem("no C++ compiler was found (g++ or clang++; the variable CXX names another)")
    for root in roots:
        with contextlib.suppress(OSError):
            (root / key).mkdir(parents=True, exist_ok=True)
            with _locked(root / key / "lock"):
                library = root / key / "kernel.so"
                if not library.exists():
                    _build(folder / "sources", root / key, compilers, record)
                return library
    raise BuildProblem(f"none of {', '.join(str(r) for r in roots)} can be written")


def _texts(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text("utf-8") for p in sorted(folder.rglob("*")) if p.is_file()}


def _key(sources: dict[str, str], record: dict[str, Any]) -> str:
    what = [sources, record["build_options"], record["flags"], os.environ.get("CXX", ""), _cpu()]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _cpu() -> str:
    """Architecture, name and instruction sets: a kernel built for one CPU may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    kept = {line for line in lines if line.split("\t")[0].split(":")[0].strip() in ("model name", "flags", "Features")}
    return "\n".join([platform.machine(), platform.processor(), *sorted(kept)])


def _roots(folder: Path) -> list[Path]:
    """Where builds may lie, best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    own = Path(tempfile.gettempdir()) / f"kernelwright-export-{os.getuid()}"
    roots = [folder / "build", Path(cache) / "kernelwright-exports"]
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        state = own.lstat()
        # Whoever else could write there could make us load a library of theirs.
        if state.st_uid == os.getuid() and not own.is_symlink() and not state.st_mode & 0o077:
            roots.append(own)
    return roots


def _compilers() -> list[str]:
    wanted = os.environ.get("CXX", "").strip()
    found = [shutil.which(name) for name in ((wanted,) if wanted else ()) + _COMPILERS]
    return list(dict.fromkeys(path for path in found if path))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(sources: Path, target: Path, compilers: list[str], record: dict[str, Any]) -> None:
    problems = []
    with tempfile.TemporaryDirectory(prefix="building-", dir=target) as scratch:
        exports = Path(scratch) / "exports.map"
        exports.write_text(_EXPORTS, "utf-8")
        result = Path(scratch) / "kernel.so"
        files = [name for name in record["sources"] if name.endswith((".cpp", ".cc", ".cxx"))]
        for compiler in compilers:
            flags = record["flags"]["clang" if _is_clang(compiler) else "gcc"]
            command = [compiler, *flags, *record["build_options"], "-Iinclude", "-I.", *files]
            command += [f"-Wl,--version-script={exports}", "-Wl,--no-undefined", "-o", str(result)]
            try:
                done = subprocess.run(
                    command,
                    cwd=sources,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                problems.append(f"{compiler}: {error}")
                continue
            if done.returncode == 0 and result.exists():
                result.replace(target / "kernel.so")
                return
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:500].strip())
            problems.append(f"{compiler}: {first or f'ended with {done.returncode}'}")
    raise BuildProblem("; ".join(problems))


def _is_clang(compiler: str) -> bool:
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "clang" in done.stdout.partition("\n")[0].lower()
