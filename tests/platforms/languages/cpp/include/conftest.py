"""Compiles small C++ programs against the headers."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.library import INCLUDE_DIR

FLAGS = ("-O3", "-std=c++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")

Compile = Callable[..., ctypes.CDLL]


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """`compile(source, march="native")`: the loaded shared object; any warning fails the test."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ on PATH")
    folder: Path = tmp_path_factory.mktemp("headers")

    def compile_(source: str, march: str = "native") -> ctypes.CDLL:
        name = hashlib.sha256(f"{march}\n{source}".encode()).hexdigest()[:20]
        target = folder / f"lib{name}.so"
        if not target.exists():
            path = folder / f"{name}.cpp"
            path.write_text(source)
            command = [
                compiler,
                *FLAGS,
                *STRICT,
                f"-march={march}",
                "-shared",
                "-fPIC",
                "-I",
                str(INCLUDE_DIR),
                str(path),
                "-o",
                str(target),
            ]
            built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert built.returncode == 0, built.stderr[:4000]
        return ctypes.CDLL(str(target))

    return compile_


@pytest.fixture(scope="session")
def device() -> Device:
    """The instruction set at hand with common cache sizes."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text() if cpuinfo.exists() else ""
    machine = platform.machine()
    simd: tuple[Literal["avx512", "avx2", "sse", "neon"], int] = ("neon", 128)
    if machine == "x86_64":
        simd = ("avx512", 512) if " avx512f " in flags else ("avx2", 256) if " avx2 " in flags else ("sse", 128)
    return Device(
        name="under test",
        architecture=machine,
        cores=2,
        simd=simd[0],
        simd_bits=simd[1],
        features=(),
        l1d_bytes=48 << 10,
        l2_bytes=2 << 20,
        last_level_bytes=32 << 20,
        memory_bytes=8 << 30,
        compilers=(),
    )
