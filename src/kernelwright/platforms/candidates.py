"""`Candidate`: sources in some language that claim to do a task's work, and how they came to be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kernelwright.core.dimensions import Dim
from kernelwright.core.dtypes import DType
from kernelwright.core.records import SCHEMA_VERSION, Record, content_id
from kernelwright.tasks.graph import Arg

Language = Literal["cpp", "python", "triton"]
"""`cpp`: C++ behind the plain C interface of `kernelwright.h`. `python`: a module with `ModelNew`, or a function of the
reference's name (plain torch, `load_inline`, generated Inductor code). `triton`: such a module with Triton kernels."""

ParameterValue = bool | int | str


class BufferSpec(Record):
    """An intermediate tensor between two steps of a plan; contiguous."""

    name: str
    dtype: DType
    dims: tuple[Dim, ...]


class KernelStep(Record):
    """Call one C entry point with contiguous tensors."""

    kind: Literal["kernel"] = "kernel"
    entry: str
    inputs: tuple[str, ...]
    """Names: task inputs (`Task.kernel_inputs`), constants of the graph, or buffers."""
    outputs: tuple[str, ...]
    """Names: task outputs or buffers; allocated by the host, never aliasing an input."""


class LibraryStep(Record):
    """Call one ATen operation for a part that no kernel of ours covers."""

    kind: Literal["library"] = "library"
    op: str
    """Overload name, such as `aten.convolution.default`."""
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg] = {}
    outputs: tuple[str, ...]
    """Names given to the results; a result that is a task output carries that name."""


Step = Annotated[KernelStep | LibraryStep, Field(discriminator="kind")]


class ConstantBuffer(Record):
    """A constant tensor of the plan, base64 of its little-endian C-order bytes."""

    spec: BufferSpec
    data_base64: str


class Plan(Record):
    """How a `cpp` candidate computes the outputs: steps in order. An empty plan means one kernel step with the entry
    `kernelwright_run`, all kernel inputs and all outputs."""

    buffers: tuple[BufferSpec, ...] = ()
    constants: tuple[ConstantBuffer, ...] = ()
    steps: tuple[Step, ...] = ()


class Origin(Record):
    """How a candidate came to be. Not part of its identity."""

    proposer: str = "file"
    """`drafter`, `inductor`, `mutate`, `cross`, `model`, `file`, …"""
    operator: str = ""
    """The step that made it, such as `draft`, `mutate`, `cross`, `repair`, `improve`."""
    parents: tuple[str, ...] = ()
    """Ids of the candidates it was made from."""
    plan: str = ""
    """Why: one sentence for people."""
    template: str = ""
    """The proposer's own key for the parameter space that `parameters` lives in."""
    covered: tuple[str, ...] = ()
    """ATen operations that became kernels."""
    left_to_library: tuple[str, ...] = ()
    """ATen operations that stayed library calls, with the reason."""


class Candidate(Record):
    """Sources that claim to do a task's work."""

    schema_version: int = SCHEMA_VERSION
    language: Language
    sources: dict[str, str]
    """Relative path to text. For `cpp`, each `.cpp` is compiled; `kernelwright.h` and its siblings are on the include path."""
    entry: str = ""
    """`cpp`: empty (see `plan`). `python`/`triton`: path of the main module in `sources`."""
    plan: Plan = Plan()
    build_options: tuple[str, ...] = ()
    """Extra compiler flags out of the language's allow-list."""
    parameters: dict[str, ParameterValue] = {}
    """Named schedule decisions, already rendered into `sources`."""
    threads: int | None = None
    """Threads the kernel is called with; None means all cores of the device."""
    origin: Origin = Origin()

    @property
    def id(self) -> str:
        """Content hash over what decides the behaviour: language, sources, entry, plan, options, threads."""
        return content_id(self.model_dump(mode="json", exclude={"origin": True, "parameters": True}))
