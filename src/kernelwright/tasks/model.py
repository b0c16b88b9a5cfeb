"""`Task`: what must be computed, on which inputs, and what counts as right. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kernelwright.core.dimensions import Dim, evaluate_shape
from kernelwright.core.dtypes import DType
from kernelwright.core.records import SCHEMA_VERSION, Record, content_id


class TaskSource(Record):
    """Where the reference comes from."""

    kind: Literal["kernelbench", "function", "callable"]
    """`kernelbench`: a file with Model/get_inputs/get_init_inputs; `function`: a file with a function under
    `@kernelwright.tasks.operation`; `callable`: `module.path:name` with declared inputs."""
    path: str
    """Absolute path of the file that holds the reference."""
    attribute: str
    """Name of the class or function in that file (dotted for a callable inside a class)."""
    text: str
    """The file's text when it was read: the run keeps it, so that a later edit cannot change what was asked."""
    declared: tuple[str, ...] = ()
    """`name=dtype[dims]` declarations given on the command line (kind `callable`)."""


class Distribution(Record):
    """How the values of one input are drawn."""

    family: Literal[
        "own", "normal", "uniform", "large", "tiny", "ties", "positive", "zeros", "integers", "booleans", "special"
    ]
    """`own`: as the task's generator draws them. `special`: normal with NaN, infinities, -0.0 and denormals mixed in."""
    low: float = 0.0
    high: float = 1.0
    """Excluded."""
    high_axis: str = ""
    """Where not empty, the upper end is the size of this axis (indices into it)."""


class TensorSpec(Record):
    """One tensor input or output of the operation."""

    name: str
    dtype: DType
    dims: tuple[Dim, ...]
    role: Literal["input", "parameter", "buffer", "output"] = "input"
    distribution: Distribution | None = None
    """A declared distribution; None means the task's own."""
    structure: Literal["general", "symmetric", "lower_triangular", "upper_triangular", "sorted"] = "general"
    """A property of the values that the reference may rely on, kept by every distribution."""

    def shape(self, axes: dict[str, int]) -> tuple[int, ...]:
        """The shape under a binding of the axes."""
        return evaluate_shape(self.dims, axes)


class ScalarSpec(Record):
    """One plain Python argument of the operation. Its value is part of the task and does not vary."""

    name: str
    value: bool | int | float | str | None


class Axis(Record):
    """One named size."""

    name: str
    origin: Literal["declared", "derived"]
    """`declared` by the author of the task, or `derived`: found by trying other sizes on the reference."""
    default: int
    """The size in the task's own inputs."""
    multiple: int = 1
    """Sizes tried must be a multiple of this (the reference refused others)."""
    minimum: int = 1
    maximum: int | None = None
    """Bounds within which the reference was seen to work; None where larger sizes work too."""
    varies: bool = True
    """False for a declared axis at which the reference accepts no other size."""


class Workload(Record):
    """A binding of the axes."""

    name: str
    axes: dict[str, int]
    timed: bool = False
    """Timed workloads decide the speed; all workloads decide correctness."""
    hidden: bool = False
    """Never shown to a proposer; chosen by the judge from its secret seed."""


class Tolerance(Record):
    """How far from the fp64 oracle a result may lie. All factors multiply a measured or derived error.

    |candidate - oracle| <= ((rounding + sqrt(length)) * eps(computation) + eps(dtype, if 16 bits wide)) * |oracle|
                            + reference_error * (error of the reference itself)
                            + conditioning * (1 + sqrt(length) / 3) * (change of the oracle when inputs move by one rounding)
                            + 64 * eps(float64) * (upper quartile of |oracle|)

    eps(computation) is that of float32 for 16-bit types. Both measured errors are smoothed over the output, so that
    luck at one element decides nothing. `length` is the measured number of input elements that one output element
    depends on: a plain running sum loses that much more than a tree of sums does. `tasks.oracle` has the details.
    """

    rounding: float = 16.0
    reference_error: float = 4.0
    conditioning: float = 4.0
    rtol: float | None = None
    """A relative tolerance set by the task's author; it can only be wider than the rule above, never tighter."""
    atol: float | None = None


Argument = Annotated[TensorSpec | ScalarSpec, Field(union_mode="left_to_right")]


class Task(Record):
    """A reference, its inputs with symbolic shapes, the workloads and the tolerance."""

    schema_version: int = SCHEMA_VERSION
    name: str
    source: TaskSource
    arguments: tuple[Argument, ...]
    """Positional arguments of the call, in order."""
    state: tuple[TensorSpec, ...] = ()
    """Parameters and buffers of a module reference, by qualified name; inputs of the kernel too."""
    outputs: tuple[TensorSpec, ...]
    returns_tuple: bool = False
    """Whether the reference returns a tuple or list (True) or one tensor (False)."""
    axes: tuple[Axis, ...] = ()
    workloads: tuple[Workload, ...]
    """The visible ones; at least one is timed. The judge adds hidden ones of its own."""
    tolerance: Tolerance = Tolerance()
    special_values: bool = False
    """Whether NaN and infinity must propagate as in the reference (declared by the author)."""
    allowed_library: tuple[str, ...] = ()
    """ATen operations (such as `aten.convolution`) that a candidate may leave to the library under `own-kernel`."""
    notes: tuple[str, ...] = ()
    """What loading found worth telling the user (audit findings, axes that could not be varied)."""

    @property
    def id(self) -> str:
        """Content hash: the same source, inputs, workloads and tolerance give the same id."""
        return content_id(self.model_dump(mode="json", exclude={"notes": True, "source": {"path": True}}))

    @property
    def kernel_inputs(self) -> tuple[TensorSpec, ...]:
        """Tensors in the order in which a kernel receives them: tensor arguments, then state."""
        return tuple(a for a in self.arguments if isinstance(a, TensorSpec)) + self.state

    @property
    def timed_workloads(self) -> tuple[Workload, ...]:
        """The workloads that decide the speed."""
        return tuple(w for w in self.workloads if w.timed)

    def compulsory_bytes(self, axes: dict[str, int]) -> int:
        """Bytes that any implementation must move: each input read once, each output written once."""
        total = 0
        for spec in (*self.kernel_inputs, *self.outputs):
            count = 1
            for size in spec.shape(axes):
                count *= size
            total += count * spec.dtype.itemsize
        return total
