"""A scripted OpenAI-compatible server on a loopback socket, and a context with something hidden in it."""

from __future__ import annotations

import ctypes
import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import numpy
import pytest

from kernelwright.agents.proposing import Attempt, Context
from kernelwright.core.dtypes import DType
from kernelwright.judge.evaluation import Check, Incorrect, Passed, Speed, TensorError, WorkloadTiming
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.platforms.device import Ceilings, Compiler, Device
from kernelwright.tasks.model import Axis, Task, TaskSource, TensorSpec, Workload

FILES = Path(__file__).parent / "files"
KEY = "sk-test-1f0e9d8c7b6a"


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    text: str | None = "hello"
    status: int = 200
    finish: str = "stop"
    wait_seconds: float = 0.0
    body: bytes | None = None
    """Sent as it is, instead of a well-formed completion."""
    headers: dict[str, str] = field(default_factory=dict)
    usage: bool = True
    refusal: str | None = None
    drip_seconds: float = 0.0
    """Pause between single bytes of the body."""


class ScriptedServer:
    """Answers the n-th request with the n-th reply, the last one for ever; keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[dict] = []
        self.authorizations: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                index = len(outer.requests)
                outer.requests.append(json.loads(asked))
                outer.authorizations.append(self.headers.get("Authorization", ""))
                outer.answer(self, outer.replies[min(index, len(outer.replies) - 1)])

            def log_message(self, *_arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": self.address}

    def answer(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        time.sleep(reply.wait_seconds)
        body = reply.body if reply.body is not None else json.dumps(self.completion(reply)).encode()
        try:
            handler.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            if not reply.drip_seconds:
                handler.wfile.write(body)
                return
            for byte in body:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(reply.drip_seconds)
        except (BrokenPipeError, ConnectionResetError):
            pass

    @staticmethod
    def completion(reply: Reply) -> dict:
        if reply.status != 200:
            return {"error": {"message": f"scripted status {reply.status}", "type": "scripted"}}
        message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
        answer = {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        }
        if reply.usage:
            answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """The loopback server is reached directly, whatever the machine's settings are."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def serve():
    """`serve(Reply(...), ...)` starts a server; all are closed after the test."""
    pytest.importorskip("openai")
    servers: list[ScriptedServer] = []

    def start(*replies: Reply) -> ScriptedServer:
        servers.append(ScriptedServer(*replies))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def reply():
    return Reply


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def files() -> Path:
    return FILES


@pytest.fixture
def context() -> Context:
    return Context(task=make_task(), graph=None, device=make_device())


@pytest.fixture
def failed() -> Attempt:
    """An attempt that failed one visible and one hidden check, with oracle values in its record."""
    evaluation = Incorrect(
        candidate="c" * 64,
        task="t" * 64,
        device="d" * 16,
        reason="y wrong on hidden-1 {'B': 37, 'N': 1531}: expected 0.123456789, got 7.5",
        checks=(
            Check(workload="main", axes={"B": 256, "N": 4096}, distribution="own", passed=True),
            Check(
                workload="main",
                axes={"B": 256, "N": 4096},
                distribution="large",
                passed=False,
                detail="expected 0.123456789",
                errors=(error(worst_index=(3, 7)),),
            ),
            Check(
                workload="hidden-1",
                axes={"B": 37, "N": 1531},
                distribution="tiny",
                hidden=True,
                passed=False,
                detail="B=37",
                errors=(error(worst_index=(36, 1530)),),
            ),
        ),
        notes=("secret seed 987654321",),
    )
    return Attempt(candidate=make_candidate("wrong"), evaluation=evaluation)


@pytest.fixture
def passed() -> Attempt:
    """An attempt that passed, timed on the visible workload and (wrongly kept) on a hidden one."""

    def timing(name: str, axes: dict[str, int]) -> WorkloadTiming:
        return WorkloadTiming(
            workload=name,
            axes=axes,
            baseline="compile",
            candidate_us=(410.0, 400.0, 420.0),
            baseline_us=(610.0, 600.0, 620.0),
            speedup=1.5,
            speedup_ci=(1.4, 1.6),
            roofline_us=200.0,
            roofline_fraction=0.49,
            bound="memory",
            moved_bytes=8_392_704,
            operations=5_242_880,
        )

    speed = Speed(
        verdict="faster",
        speedup=1.5,
        speedup_ci=(1.4, 1.6),
        roofline_fraction=0.49,
        workloads=(timing("main", {"B": 256, "N": 4096}), timing("hidden-1", {"B": 37, "N": 1531})),
        clock="perf_counter",
    )
    evaluation = Passed(candidate="c" * 64, task="t" * 64, device="d" * 16, speed=speed)
    return Attempt(candidate=make_candidate("right"), evaluation=evaluation)


class KernelTensor(ctypes.Structure):
    """`kw_tensor` of kernelwright.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


def kernel_tensor(array: numpy.ndarray) -> KernelTensor:
    sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    return KernelTensor(array.ctypes.data, sizes, strides, array.ndim, DType.FLOAT32.code)


@pytest.fixture
def run_kernel(tmp_path):
    """`run_kernel(candidate, inputs, shape)`: build with a real compiler, call on float32 arrays, return the output."""
    include = resources.files("kernelwright.platforms.languages.cpp").joinpath("include")
    flags = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]

    def run(candidate: Candidate, inputs: list[numpy.ndarray], shape: tuple[int, ...]) -> numpy.ndarray:
        folder = tmp_path / candidate.id
        folder.mkdir()
        for name, text in candidate.sources.items():
            (folder / name).write_text(text)
        library = folder / "kernel.so"
        subprocess.run(["g++", *flags, f"-I{include}", str(folder / "kernel.cpp"), "-o", str(library)], check=True)
        output = numpy.full(shape, numpy.nan, dtype=numpy.float32)
        given = (KernelTensor * len(inputs))(*map(kernel_tensor, inputs))
        made = (KernelTensor * 1)(kernel_tensor(output))
        assert ctypes.CDLL(str(library)).kernelwright_run(given, len(inputs), made, 1, None, 2) == 0
        return output

    return run


def error(worst_index: tuple[int, ...]) -> TensorError:
    return TensorError(
        output="y",
        max_abs_error=7.376543211,
        max_relative_error=60.0,
        worst_ratio=1234.0,
        mismatched=50,
        elements=1000,
        worst_index=worst_index,
        expected=0.123456789,
        got=7.5,
    )


def make_candidate(word: str) -> Candidate:
    text = f'// {word}\nextern "C" int32_t kernelwright_run(...) {{ return 0; }}\n'
    return Candidate(language="cpp", sources={"kernel.cpp": text}, origin=Origin(proposer="model", operator="draft"))


def make_task() -> Task:
    return Task(
        name="scaled_rows",
        source=TaskSource(
            kind="function",
            path="/somewhere/private/scaled_rows.py",
            attribute="scaled_rows",
            text=(FILES / "scaled_rows.py").read_text(encoding="utf-8"),
        ),
        arguments=(
            TensorSpec(name="x", dtype=DType.FLOAT32, dims=("B", "N")),
            TensorSpec(name="weight", dtype=DType.FLOAT32, dims=("N",)),
        ),
        outputs=(TensorSpec(name="y", dtype=DType.FLOAT32, dims=("B", "N"), role="output"),),
        axes=(Axis(name="B", origin="declared", default=256), Axis(name="N", origin="declared", default=4096)),
        workloads=(
            Workload(name="main", axes={"B": 256, "N": 4096}, timed=True),
            Workload(name="hidden-1", axes={"B": 37, "N": 1531}, hidden=True),
        ),
    )


def make_device() -> Device:
    return Device(
        name="Example CPU",
        architecture="x86_64",
        cores=2,
        simd="avx2",
        simd_bits=256,
        features=("avx2", "fma"),
        l1d_bytes=32 << 10,
        l2_bytes=1 << 20,
        last_level_bytes=32 << 20,
        memory_bytes=8 << 30,
        compilers=(Compiler(path="/usr/bin/g++", name="gcc", version="12.2"),),
        ceilings=Ceilings(
            copy_gbytes_per_s=21.5,
            read_gbytes_per_s=24.0,
            cache_copy_gbytes_per_s=80.0,
            fma_gflops={DType.FLOAT32: 150.0},
            call_us=3.0,
            footprint_bytes=1 << 28,
            samples={},
            measured_at="2026-01-01T00:00:00Z",
        ),
    )
