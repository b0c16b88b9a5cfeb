"""Compiles small C++ programs against the headers."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
            command = [compiler, *FLAGS, *STRICT, f"-march={march}", "-shared", "-fPIC", "-I", str(INCLUDE_DIR), str(path), "-o", str(target)]
            built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert built.returncode == 0, built.stderr[:4000]
        return ctypes.CDLL(str(target))

    return compile_
