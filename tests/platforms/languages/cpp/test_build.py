"""Real compiler, real cache folder, real processes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright.core.errors import EnvironmentProblem
from kernelwright.platforms.detect import detect_device
from kernelwright.platforms.languages.cpp import build as build_module
from kernelwright.platforms.languages.cpp.build import BuildFailure, Built, build

DEVICE = detect_device(measure=False)
pytestmark = pytest.mark.skipif(not DEVICE.compilers, reason="no C++ compiler")

ADD = '#include <stdint.h>\nextern "C" int32_t add(int32_t a, int32_t b) { return a + b; }\n'
# Sixty-seven million distinct instantiations: far more compiler work than any limit below.
SLOW = """
template <int N, long K> struct S { static constexpr long v = S<N - 1, 2 * K>::v ^ S<N - 1, 2 * K + 1>::v; };
template <long K> struct S<0, K> { static constexpr long v = K; };
extern "C" long slow() { return S<26, 1>::v; }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    return tmp_path


def _processes_in_group(group: int) -> list[int]:
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                members.append(int(stat.parent.name))
    return members


def test_builds_a_library_whose_entry_can_be_called() -> None:
    result = build({"kernel.cpp": ADD}, device=DEVICE)
    assert isinstance(result, Built)
    assert ctypes.CDLL(str(result.path)).add(40, 2) == 42


def test_second_build_comes_from_the_cache_and_is_much_faster() -> None:
    first = build({"kernel.cpp": ADD}, device=DEVICE)
    second = build({"kernel.cpp": ADD}, device=DEVICE)
    assert isinstance(first, Built) and not first.cached
    assert isinstance(second, Built) and second.cached and second.path == first.path
    assert second.seconds < first.seconds / 2


def test_failures_are_cached_with_their_first_error() -> None:
    bad = {"kernel.cpp": "int f() {\n  return undeclared_name;\n}\nint g() { return other_name; }\n"}
    first = build(bad, device=DEVICE)
    second = build(bad, device=DEVICE)
    assert isinstance(first, BuildFailure) and not first.cached
    assert first.reason.startswith("kernel.cpp:2:")
    assert "undeclared_name" in first.reason and "other_name" not in first.reason
    assert isinstance(second, BuildFailure) and second.cached and second.reason == first.reason


def test_no_path_of_this_machine_is_in_what_a_candidate_sees(home: Path) -> None:
    result = build({"deep/kernel.cpp": "#include <kernelwright.h>\nint f() { return kw_nothing; }\n"}, device=DEVICE)
    assert isinstance(result, BuildFailure)
    assert str(home) not in result.log and "building-" not in result.log
    assert result.reason.startswith("deep/kernel.cpp:2:")


def test_warnings_are_not_errors_and_not_reported() -> None:
    result = build({"kernel.cpp": "int f(int* p) { int unused; return *p; }\nint g() { nope; }\n"}, device=DEVICE)
    assert isinstance(result, BuildFailure)
    assert "warning" not in result.log


def test_a_name_that_the_linker_cannot_find_fails_at_build() -> None:
    result = build({"kernel.cpp": 'int missing();\nextern "C" int f() { return missing(); }\n'}, device=DEVICE)
    assert isinstance(result, BuildFailure)
    assert "undefined reference" in result.reason


def test_only_c_entries_are_exported() -> None:
    text = 'int helper(int x) { return x + 1; }\nextern "C" int entry(int x) { return helper(x); }\n'
    result = build({"kernel.cpp": text}, device=DEVICE)
    assert isinstance(result, Built)
    library = ctypes.CDLL(str(result.path))
    assert library.entry(1) == 2
    assert not hasattr(library, "_Z6helperi")


def test_special_values_survive_the_flags() -> None:
    text = """#include <cmath>
    extern "C" int nan_is_nan(float x) { return std::isnan(x); }
    extern "C" float divide(float x, float y) { return x / y; }
    extern "C" float sum(const float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }
    """
    result = build({"kernel.cpp": text}, device=DEVICE)
    assert isinstance(result, Built)
    library = ctypes.CDLL(str(result.path))
    library.nan_is_nan.argtypes = [ctypes.c_float]
    library.divide.argtypes = [ctypes.c_float, ctypes.c_float]
    library.divide.restype = ctypes.c_float
    library.sum.restype = ctypes.c_float
    assert library.nan_is_nan(float("nan")) == 1
    assert library.divide(-1.0, 0.0) == float("-inf")
    assert str(library.divide(-1.0, float("inf"))) == "-0.0"
    # 1e8 + 1 - 1e8 in order is 0 in float32: sums must not be reordered behind the author's back.
    values = (ctypes.c_float * 3)(1e8, 1.0, -1e8)
    assert library.sum(values, 3) == 0.0


def test_a_header_change_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = tmp_path / "include"
    include.mkdir()
    monkeypatch.setattr(build_module, "INCLUDE", include)
    source = {"kernel.cpp": '#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n'}
    answers = []
    for value in (1, 2):
        (include / "answer.h").write_text(f"#define ANSWER {value}\n")
        result = build(source, device=DEVICE)
        assert isinstance(result, Built) and not result.cached
        answers.append(ctypes.CDLL(str(result.path)).answer())
    assert answers == [1, 2]


def test_options_and_machine_are_in_the_key() -> None:
    source = {"kernel.cpp": '#ifndef V\n#define V 0\n#endif\nextern "C" int v() { return V; }\n'}
    plain = build(source, device=DEVICE)
    defined = build(source, options=("-DV=7",), device=DEVICE)
    elsewhere = build(source, device=DEVICE.replace(features=(*DEVICE.features, "another_flag")))
    assert isinstance(plain, Built) and isinstance(defined, Built) and isinstance(elsewhere, Built)
    assert len({plain.path, defined.path, elsewhere.path}) == 3
    assert ctypes.CDLL(str(defined.path)).v() == 7


@pytest.mark.parametrize(
    "option",
    ["-ffast-math", "-fplugin=./x.so", "-o/tmp/x", "-include/etc/passwd", "-B.", "-Wl,-rpath,/", "@file", "-O3 -B."],
)
def test_options_outside_the_list_are_refused(option: str) -> None:
    result = build({"kernel.cpp": ADD}, options=(option,), device=DEVICE)
    assert isinstance(result, BuildFailure)
    assert option in result.reason and "not allowed" in result.reason


@pytest.mark.parametrize("name", ["../kernel.cpp", "/tmp/kernel.cpp", "a/../../kernel.cpp", "-o.cpp", "a\nb.cpp", ""])
def test_unsafe_source_names_are_refused_and_write_nothing(name: str, home: Path) -> None:
    result = build({name: ADD}, device=DEVICE)
    assert isinstance(result, BuildFailure)
    assert not list(home.rglob("*.cpp"))


def test_no_cpp_file_is_a_failure_that_says_so() -> None:
    result = build({"kernel.h": ADD}, device=DEVICE)
    assert isinstance(result, BuildFailure) and "no C++ file" in result.reason


def test_timeout_ends_the_whole_compiler_and_is_remembered_for_that_limit() -> None:
    groups: list[int] = []

    @contextlib.contextmanager
    def watch(group: int):
        groups.append(group)
        yield

    began = time.monotonic()
    result = build({"kernel.cpp": SLOW}, device=DEVICE, timeout=1.0, pause=watch)
    assert isinstance(result, BuildFailure) and result.timed_out
    assert time.monotonic() - began < 5.0
    assert _processes_in_group(groups[0]) == []
    again = build({"kernel.cpp": SLOW}, device=DEVICE, timeout=1.0, pause=watch)
    assert isinstance(again, BuildFailure) and again.cached and len(groups) == 1
    longer = build({"kernel.cpp": SLOW}, device=DEVICE, timeout=1.5, pause=watch)
    assert isinstance(longer, BuildFailure) and not longer.cached and len(groups) == 2


def test_time_spent_stopped_does_not_count() -> None:
    stopped_seconds = 2.0

    @contextlib.contextmanager
    def stop_for_a_while(group: int):
        os.killpg(group, signal.SIGSTOP)
        timer = threading.Timer(stopped_seconds, os.killpg, (group, signal.SIGCONT))
        timer.start()
        yield
        timer.join()

    began = time.monotonic()
    result = build({"kernel.cpp": ADD}, device=DEVICE, timeout=1.5, pause=stop_for_a_while)
    assert isinstance(result, Built)
    assert time.monotonic() - began > stopped_seconds


def test_two_processes_build_one_kernel_once(home: Path) -> None:
    script = (
        "from kernelwright.platforms.detect import detect_device\n"
        "from kernelwright.platforms.languages.cpp.build import build\n"
        f"print(build({{'kernel.cpp': {ADD!r}}}, device=detect_device(measure=False)).cached)\n"
    )
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in running)
    assert answers == ["False", "True", "True"]
    assert not list(home.rglob("building-*"))


def test_a_killed_build_leaves_nothing_that_counts_as_a_result(home: Path) -> None:
    script = (
        "from kernelwright.platforms.detect import detect_device\n"
        "from kernelwright.platforms.languages.cpp.build import build\n"
        f"build({{'kernel.cpp': {SLOW!r}}}, device=detect_device(measure=False), timeout=8)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 20
        while not list(home.rglob("building-*/src/kernel.cpp")) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        victim.kill()
        victim.wait()
    result = build({"kernel.cpp": SLOW}, device=DEVICE, timeout=0.5)
    assert isinstance(result, BuildFailure) and not result.cached


def test_a_full_disk_is_the_machine_s_fault_not_the_candidate_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build_module, "_write_sources", no_space)
    with pytest.raises(EnvironmentProblem, match="disk is full"):
        build({"kernel.cpp": ADD}, device=DEVICE)


def test_without_a_compiler_the_error_names_the_package() -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        build({"kernel.cpp": ADD}, device=DEVICE.replace(compilers=()))
    assert "g++" in caught.value.hint


def _fake_compiler(folder: Path, script: str):
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return DEVICE.replace(compilers=(DEVICE.compilers[0].replace(path=str(path)),))


def test_a_disk_that_fills_up_in_the_compiler_is_not_remembered_as_a_failure(tmp_path: Path) -> None:
    device = _fake_compiler(tmp_path, "echo 'kernel.cpp: fatal error: cannot write: No space left on device'; exit 1")
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="disk is full"):
            build({"kernel.cpp": ADD}, device=device)
    assert not list(tmp_path.rglob("failure.json"))


def test_a_compiler_that_somebody_killed_is_asked_again(tmp_path: Path) -> None:
    device = _fake_compiler(tmp_path, "kill -9 $$")
    for _ in range(2):
        result = build({"kernel.cpp": ADD}, device=device)
        assert isinstance(result, BuildFailure) and not result.cached
        assert "signal 9" in result.reason


def test_megabytes_of_errors_stay_small(tmp_path: Path) -> None:
    device = _fake_compiler(tmp_path, "yes 'kernel.cpp:1:1: error: again and again' | head -c 5000000; exit 1")
    result = build({"kernel.cpp": ADD}, device=device)
    assert isinstance(result, BuildFailure)
    assert result.reason.startswith("kernel.cpp:1:1: error: again and again")
    assert len(result.log) < 10_000 and len(result.reason) < 1_000


def test_terminal_escapes_do_not_reach_the_log(tmp_path: Path) -> None:
    device = _fake_compiler(tmp_path, "printf 'kernel.cpp:1:1: error: \\033[31mred\\033[0m\\n'; exit 1")
    result = build({"kernel.cpp": ADD}, device=device)
    assert isinstance(result, BuildFailure) and "\x1b" not in result.log and "red" in result.reason
