"""Detection against the tools of the system, and against files written for the purpose."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.platforms import detect
from kernelwright.platforms.detect import (
    cache_sizes,
    cpu_flags,
    cpu_quota,
    detect_device,
    find_compilers,
    memory_bytes,
    read_version,
    simd_level,
    usable_cores,
)


def test_the_machine_at_hand() -> None:
    device = detect_device(measure=False)
    assert device.architecture == platform.machine()
    assert 1 <= device.cores <= (os.cpu_count() or 1)
    assert device.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 1.1
    assert device.ceilings is None
    assert 4096 <= device.l1d_bytes <= device.l2_bytes <= device.last_level_bytes
    assert device.id == detect_device(measure=False).id


def test_detection_loads_no_torch() -> None:
    code = (
        "import sys; from kernelwright.platforms.detect import detect_device; detect_device(measure=False);"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_affinity_limits_the_cores() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "garbage\n"}, None),
        ({}, None),
    ],
)
def test_control_group_quota(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == expected


def test_a_quota_below_one_core_still_leaves_one(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("30000 100000\n")
    assert usable_cores(tmp_path) == 1


def test_flags_are_those_that_all_cores_share(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : sse2 avx2 fma\n\nprocessor : 1\nflags : sse2 fma\n")
    assert cpu_flags(cpuinfo) == {"sse2", "fma"}
    assert cpu_flags(tmp_path / "missing") == frozenset()


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("sse2 avx avx2 fma avx512f avx512bw avx512dq avx512vl", ("avx512", 512)),
        ("sse2 avx avx2 fma avx512f", ("avx2", 256)),
        ("sse2 avx2", ("sse", 128)),
        ("fp asimd", ("neon", 128)),
        ("fp asimd sve", ("sve", 128)),
        ("", ("scalar", 64)),
    ],
)
def test_simd_level(flags: str, level: tuple[str, int]) -> None:
    assert simd_level(flags.split()) == level


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "64K"), (2, "Unified", "2048K"), (3, "Unified", "32M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "type").write_text(f"{kind}\n")
        (folder / "size").write_text(f"{size}\n")
    assert cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 32 << 20}
    assert cache_sizes(tmp_path / "missing") == {}


def test_memory_is_capped_by_the_control_group(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       1048576 kB\nMemFree: 1 kB\n")
    assert memory_bytes(tmp_path / "meminfo", tmp_path) == 1 << 30
    (tmp_path / "memory.max").write_text(f"{256 << 20}\n")
    assert memory_bytes(tmp_path / "meminfo", tmp_path) == 256 << 20
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path / "meminfo", tmp_path) == 1 << 30


def test_versions_of_compilers() -> None:
    gcc = read_version("/usr/bin/g++", "g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation\n")
    clang = read_version("/usr/bin/c++", "Debian clang version 14.0.6\nTarget: x86_64\n")
    assert gcc is not None and (gcc.name, gcc.version) == ("gcc", "12.2.0")
    assert clang is not None and (clang.name, clang.version) == ("clang", "14.0.6")
    assert read_version("/usr/bin/cat", "cat (GNU coreutils) 9.1\n") is None


def test_a_path_without_compilers_finds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compilers() == ()


def test_a_compiler_that_hangs_or_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "g++"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    fine = tmp_path / "clang++"
    fine.write_text("#!/bin/sh\necho 'clang version 17.0.1'\n")
    fine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(detect, "_COMPILERS", (("gcc", ("g++",)), ("clang", ("clang++",))))
    assert [compiler.name for compiler in find_compilers()] == ["clang"]
