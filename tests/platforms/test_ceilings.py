"""The measuring program, run for real, and the rules about what is believed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import EnvironmentProblem
from kernelwright.platforms import ceilings as ceilings_module
from kernelwright.platforms.ceilings import ceilings_from, measured_ceilings, nonsense, read_figures, ring_bytes
from kernelwright.platforms.detect import detect_device
from kernelwright.platforms.device import Ceilings

DEVICE = detect_device(measure=False)
needs_compiler = pytest.mark.skipif(not DEVICE.compilers, reason="no C++ compiler")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Ceilings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_HOME", str(tmp_path_factory.mktemp("home")))
        return measured_ceilings(DEVICE)


def _figures(**changes: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    plausible = {
        "call": (1.0, 2.0, 1.5, 1.2, 1.1),
        "copy_plain": (10.0, 12.0, 11.0, 11.5, 11.0),
        "copy_streaming": (14.0, 15.0, 13.0, 14.0, 14.0),
        "read": (20.0, 21.0, 19.0, 20.0, 20.0),
        "cache_copy": (100.0, 90.0, 95.0, 99.0, 98.0),
        "fma_float32": (300.0, 310.0, 305.0, 300.0, 300.0),
        "fma_float64": (150.0, 155.0, 150.0, 150.0, 150.0),
    }
    return {**plausible, **changes}


@needs_compiler
def test_nothing_that_numpy_does_on_one_core_is_above_the_measured_copy(measured: Ceilings) -> None:
    source = np.ones(64 << 20, dtype=np.uint8).view(np.float32)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    one_core = 2 * source.nbytes / best / 1e9
    # Several times the same 64 MiB: numpy may find its source in the last-level cache, hence the slack.
    assert one_core < 2 * measured.copy_gbytes_per_s
    assert measured.copy_gbytes_per_s < 200 * one_core


@needs_compiler
def test_relations_that_every_machine_obeys(measured: Ceilings) -> None:
    peak = measured.fma_gflops
    assert peak[DType.FLOAT32] == pytest.approx(2 * peak[DType.FLOAT64], rel=0.6)
    assert peak[DType.BFLOAT16] >= peak[DType.FLOAT32]
    assert peak[DType.FLOAT16] >= peak[DType.FLOAT32]
    assert measured.cache_copy_gbytes_per_s > measured.copy_gbytes_per_s / 2
    assert 0 < measured.call_us < 20_000
    assert all(len(values) >= 5 for values in measured.samples.values())


@needs_compiler
def test_the_peak_is_not_below_a_matrix_product(measured: Ceilings) -> None:
    torch = pytest.importorskip("torch")
    size = 1024
    a = torch.randn(size, size)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    assert 2 * size**3 / best / 1e9 < 1.25 * measured.fma_gflops[DType.FLOAT32]


@needs_compiler
def test_measured_once_and_then_read(measured: Ceilings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    calls = []
    monkeypatch.setattr(ceilings_module, "measure", lambda device: calls.append(device) or measured)
    assert measured_ceilings(DEVICE) == measured_ceilings(DEVICE) == measured
    assert len(calls) == 1
    cached = next((tmp_path / "cache" / "ceilings").glob("*.json"))
    cached.write_text('{"truncated": ')
    assert measured_ceilings(DEVICE) == measured
    assert len(calls) == 2


def _measure_slowly(home: str, log: str) -> None:
    import os

    os.environ["KERNELWRIGHT_HOME"] = home

    def slow(_: object) -> Ceilings:
        with Path(log).open("a") as file:
            file.write("measured\n")
        time.sleep(0.5)
        return ceilings_from(_figures(), 1 << 20)

    ceilings_module.measure = slow
    measured_ceilings(DEVICE)


def test_processes_do_not_measure_at_the_same_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    processes = [context.Process(target=_measure_slowly, args=(str(tmp_path), str(log))) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=30)
        assert process.exitcode == 0
    assert log.read_text() == "measured\n"


def test_the_best_sample_counts_and_half_precision_is_never_below_single() -> None:
    ceilings = ceilings_from(_figures(fma_bfloat16=(100.0,) * 5, tile_bfloat16=(900.0, 950.0)), 1 << 20)
    assert ceilings.copy_gbytes_per_s == 15.0
    assert ceilings.read_gbytes_per_s == 21.0
    assert ceilings.call_us == 1.0
    assert ceilings.fma_gflops[DType.FLOAT16] == 310.0
    assert ceilings.fma_gflops[DType.BFLOAT16] == 950.0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"read": (1.0, 2.0)}, "samples"),
        ({"read": ()}, "samples"),
        ({"copy_plain": (0.0,) * 5}, "copy_plain"),
        ({"fma_float32": (float("nan"),) * 5}, "fma_float32"),
        ({"fma_float64": (float("inf"),) * 5}, "fma_float64"),
        ({"call": (5e7,) * 5}, "call"),
        ({"cache_copy": (4.0,) * 5}, "caches"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, tuple[float, ...]], word: str) -> None:
    assert nonsense(_figures()) == ""
    assert word in nonsense(_figures(**changes))


def test_figures_are_read_line_by_line() -> None:
    assert read_figures("call us 1.5 2\nread gbytes 3e1\nbroken gbytes x\n") == {"call": (1.5, 2.0), "read": (30.0,)}


def test_a_small_machine_gets_a_small_ring() -> None:
    assert ring_bytes(DEVICE.replace(memory_bytes=1 << 30)) == 128 << 20
    assert ring_bytes(DEVICE.replace(memory_bytes=1 << 20)) == 64 << 20
    assert ring_bytes(DEVICE.replace(memory_bytes=1 << 40)) == 512 << 20


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem) as caught:
        measured_ceilings(DEVICE.replace(compilers=()))
    assert "g++" in caught.value.hint


def test_a_full_disk_is_an_environment_problem_and_leaves_nothing(
    measured: Ceilings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ceilings_module, "measure", lambda device: measured)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        measured_ceilings(DEVICE)
    assert "KERNELWRIGHT_HOME" in caught.value.hint
    assert not [*tmp_path.rglob("*.tmp"), *tmp_path.rglob("*.json")]


@needs_compiler
def test_an_incomplete_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'fatal error: omp.h: No such file or directory' >&2\nexit 1\n")
    broken.chmod(0o755)
    device = DEVICE.replace(compilers=(DEVICE.compilers[0].replace(path=str(broken)),))
    with pytest.raises(EnvironmentProblem, match=r"omp\.h"):
        measured_ceilings(device)
