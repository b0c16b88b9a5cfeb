"""A bench for drafts: traces a function, builds the drafted kernel, and runs it beside torch in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from kernelwright.agents.drafter import templates
from kernelwright.agents.drafter.templates import DraftTemplate
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.detect import detect_device
from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.build import Built, build
from kernelwright.platforms.languages.cpp.host import CompiledPlan
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Axis, Task, TaskSource, TensorSpec, Workload
from kernelwright.tasks.tracing import trace

Function = Callable[..., object]


def declared(text: str) -> tuple[DType, tuple[int | str, ...]]:
    """`float32[B, 4]` as a dtype and dimensions."""
    dtype, _, dims = text.partition("[")
    parts = [d.strip() for d in dims.rstrip("]").split(",") if d.strip()]
    return DType(dtype), tuple(int(d) if d.isdigit() else d for d in parts)


@dataclass
class _Reference:
    function: Function
    draw: Callable[[dict[str, int]], tuple[torch.Tensor, ...]]

    def own_inputs(self, axes: dict[str, int]) -> tuple[torch.Tensor, ...]:
        return self.draw(axes)

    def as_module(self) -> torch.nn.Module:
        function = self.function

        class Wrapped(torch.nn.Module):
            def forward(self, *tensors: torch.Tensor) -> object:
                return function(*tensors)

        return Wrapped()


def as_tuple(result: object) -> tuple[torch.Tensor, ...]:
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def draw(spec: TensorSpec, axes: dict[str, int], seed: int, top: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = spec.shape(axes)
    dtype = getattr(torch, spec.dtype)
    if spec.dtype is DType.BOOL:
        return torch.rand(shape, generator=generator) > 0.5
    if not spec.dtype.is_floating:
        return torch.randint(0, top, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


class Case:
    """One function with declared inputs."""

    def __init__(
        self,
        function: Function,
        inputs: Sequence[str],
        device: Device,
        sizes: dict[str, int] | None = None,
        top: int = 4,
    ) -> None:
        self.function, self.device, self.top = function, device, top
        self.specs = tuple(
            TensorSpec(name=f"x{i}", dtype=declared(t)[0], dims=declared(t)[1]) for i, t in enumerate(inputs)
        )
        names = dict.fromkeys(d for s in self.specs for d in s.dims if isinstance(d, str) and d.isidentifier())
        self.defaults = {name: (sizes or {}).get(name, 24 + 8 * i) for i, name in enumerate(names)}
        outputs = as_tuple(function(*self.inputs(self.defaults)))
        self.task = Task(
            name="case",
            source=TaskSource(kind="function", path="case.py", attribute="case", text=""),
            arguments=self.specs,
            outputs=tuple(
                TensorSpec(
                    name=f"y{i}", dtype=DType(str(t.dtype).removeprefix("torch.")), dims=tuple(t.shape), role="output"
                )
                for i, t in enumerate(outputs)
            ),
            axes=tuple(Axis(name=n, origin="declared", default=s) for n, s in self.defaults.items()),
            workloads=(Workload(name="own", axes=self.defaults, timed=True),),
        )
        reference = _Reference(function, self.inputs)
        graph = trace(self.task, reference)  # type: ignore[arg-type]
        assert isinstance(graph, Graph), graph
        self.graph = graph

    def inputs(self, axes: dict[str, int], seed: int = 0) -> tuple[torch.Tensor, ...]:
        return tuple(draw(s, axes, seed + i, self.top) for i, s in enumerate(self.specs))

    def size_sets(self) -> list[dict[str, int]]:
        """Usual sizes, the smallest, and odd ones that leave tails everywhere."""
        odd = {name: 13 + 6 * i for i, name in enumerate(self.defaults)}
        small = dict.fromkeys(self.defaults, 1)
        for axis in ("H", "W", "N"):
            small.update({axis: 5} if axis in small else {})
        fixed = {name: self.defaults[name] for name in self.graph.static_axes}
        return [self.defaults, {**small, **fixed}, {**odd, **fixed}]

    def templates(self) -> Sequence[DraftTemplate]:
        return templates(self.task, self.graph, self.device)

    def candidate(self, **changes: object) -> Candidate:
        template = self.templates()[0]
        return template.render({**template.space.defaults(), **changes})

    def compiled(
        self, candidate: Candidate, options: tuple[str, ...] = ("-O2",)
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        built = build(candidate.sources, options=options, device=self.device)
        assert isinstance(built, Built), built.reason + built.log
        made = [o for n in self.graph.nodes for o in n.outputs] + list(self.graph.inputs)
        specs = [next(o for o in made if o.name == name) for name in self.graph.outputs]
        outputs = [
            {"name": output.name, "dtype": spec.dtype.value, "dims": list(spec.dims)}
            for output, spec in zip(self.task.outputs, specs, strict=True)
        ]
        inputs = [{"name": s.name, "dtype": s.dtype.value, "dims": list(s.dims)} for s in self.specs]
        return CompiledPlan(
            str(built.path), candidate.plan.model_dump(mode="json"), inputs, outputs, candidate.threads or 2
        )

    def expected(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        wide = [t.double() if t.is_floating_point() else t for t in tensors]
        return as_tuple(self.function(*wide))

    def check(self, run: Callable[..., tuple[torch.Tensor, ...]], tensors: Sequence[torch.Tensor]) -> None:
        """The kernel's outputs agree with torch in float64 as well as torch's own at this dtype does, within a factor."""
        got = run(*tensors)
        own = as_tuple(self.function(*tensors))
        for mine, theirs, exact in zip(got, own, self.expected(tensors), strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            if not theirs.is_floating_point():
                assert torch.equal(mine, theirs)
                continue
            epsilon = torch.finfo(theirs.dtype).eps
            scale = exact.abs().nan_to_num(0, 0, 0)
            error = (theirs.double() - exact).abs().nan_to_num(0, 0, 0)
            worst = error.max() if error.numel() else 0.0
            typical = scale.pow(2).mean().sqrt() if scale.numel() else 0.0
            allowed = 16 * epsilon * scale + 4 * error + 2 * worst + 8 * epsilon * typical
            wrong = ~((mine.double() - exact).abs() <= allowed) & ~(mine.isnan() & exact.isnan())
            wrong &= ~(mine.double() == exact)
            low = wrong & (exact.abs() > torch.finfo(theirs.dtype).max) & (mine == theirs)
            wrong &= ~low
            assert not wrong.any(), (
                f"{int(wrong.sum())} of {wrong.numel()} wrong: got {mine[wrong][:4]}, exact {exact[wrong][:4]}, "
                f"torch {theirs[wrong][:4]}"
            )


@pytest.fixture(scope="session")
def device() -> Device:
    return detect_device(measure=False)


@pytest.fixture(scope="session")
def bench() -> type[Case]:
    return Case
