"""Text of what Inductor generates, taken apart and written again as one module that needs only torch.

No torch import: everything here is text in, text out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_BUILDER = "async_compile.cpp_pybinding"
_CLEARING = re.compile(r"^(args\.clear\(\)|del arg\d+_\d+)$")
_BINDING = re.compile(r"^(?:(s\d+)|arg\d+_\d+_(?:size|stride)) = .*$")
_INPUT_CHECK = re.compile(r"^assert_size_stride\(arg\d+_\d+,.*\)$")


class NotLiftable(Exception):
    """The generated code has a part that cannot be carried over; the message names it."""


@dataclass(frozen=True)
class Kernel:
    """One generated C++ function and the types of its arguments."""

    name: str
    argument_types: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Generated:
    """One output file of Inductor, without what only its benchmark and its loader need."""

    kernels: tuple[Kernel, ...]
    prologue: tuple[str, ...]
    """Imports and assignments that the call sequence uses."""
    unpacking: str
    """The line that gives the arguments their names."""
    bindings: tuple[str, ...]
    """Lines that give symbolic sizes their values."""
    checks: tuple[str, ...]
    """Assertions about sizes and strides of the arguments."""
    body: tuple[str, ...]
    """The call sequence, unindented, without the lines above."""
    library_calls: tuple[str, ...]
    """Framework operations in `body`, in order of first use."""

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbolic sizes."""
        return frozenset(found[1] for line in self.bindings if (found := _BINDING.match(line)) and found[1])


@dataclass(frozen=True)
class Variant:
    """The generated code for one set of shapes, static or symbolic."""

    label: str
    """What it is for, in words."""
    generated: Generated
    arguments: tuple[str, ...]
    """Expressions over `tensors` and the module's constants, in the order that `unpacking` expects."""
    conditions: tuple[str, ...] = ()
    """What the compiler assumed about symbolic sizes, beyond the checks."""


@dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer that the module must hold."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As in `torch.float32`."""
    is_parameter: bool


@dataclass(frozen=True)
class Surroundings:
    """What all variants of one module share."""

    title: str
    cpu_capability: str
    dtypes: tuple[str, ...]
    """Of all kernel inputs."""
    argument_count: int
    """How many of the kernel inputs are arguments; the others are state."""
    state: tuple[StateTensor, ...]
    constants: dict[str, str]
    """Name to an expression that makes the tensor."""
    returns_tuple: bool


def take_apart(source: str) -> Generated:
    """Read one output file of Inductor.

    Raises:
        NotLiftable: it contains something other than C++ kernels and a straight-line call sequence.
    """
    tree = ast.parse(source)
    kernels: list[Kernel] = []
    offered: list[ast.stmt] = []
    call: ast.FunctionDef | None = None
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if ast.unparse(made.func).startswith(
                "async_compile."
            ):
                kernels.append(_kernel(name, made))
            case ast.ClassDef(name="Runner"):
                call = next(d for d in statement.body if isinstance(d, ast.FunctionDef) and d.name == "call")
            case ast.FunctionDef(name="call"):
                call = statement
            case ast.FunctionDef(name=name) if name.startswith("partition"):
                raise NotLiftable("the call sequence is split into partitions")
            case ast.Import() | ast.ImportFrom() | ast.Assign():
                offered.append(statement)
    if call is None:
        raise NotLiftable("there is no call sequence in the generated code")
    lines = _call_lines(source, call)
    unpacking = next((line for line in lines if line.endswith("= args")), "")
    checks = tuple(line for line in lines if _INPUT_CHECK.match(line))
    bindings = tuple(line for line in lines if _BINDING.match(line))
    taken = {unpacking, *bindings, *checks}
    body = tuple(line for line in lines if line not in taken and not _CLEARING.match(line.strip()))
    used = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
    return Generated(
        kernels=tuple(kernels),
        prologue=_needed(offered, used | {"assert_size_stride"}),
        unpacking=unpacking,
        bindings=bindings,
        checks=checks,
        body=body,
        library_calls=_library_calls(call),
    )


def write_module(variants: Sequence[Variant], around: Surroundings) -> str:
    """One Python module with `ModelNew`; it tries the variants in order and raises when none fits."""
    parts = [_docstring(variants, around), _imports(variants, bool(around.constants)), _common(around)]
    known: dict[tuple[tuple[str, ...], str], str] = {}
    for number, variant in enumerate(variants):
        renamed: dict[str, str] = {}
        for kernel in variant.generated.kernels:
            key = (kernel.argument_types, kernel.text)
            if key not in known:
                known[key] = kernel.name if number == 0 else f"{kernel.name}_{number}"
                parts.append(_kernel_text(known[key], kernel))
            renamed[kernel.name] = known[key]
        parts.append(_call_text(number, variant, renamed))
    calls = ", ".join(f"call_{number}" for number in range(len(variants)))
    parts.append(f"CALLS = ({calls},)")
    parts.append(_module_class(around))
    return "\n\n".join(parts) + "\n"


def with_shared_constants(variant: Variant, own: dict[str, str], shared: dict[str, str]) -> Variant:
    """The variant with its constants under names that are unique in `shared`, which gains them."""
    names: dict[str, str] = {}
    for name, expression in own.items():
        known = next((n for n, e in shared.items() if e == expression), None)
        names[name] = known or (name if name not in shared else f"constant_{len(shared)}")
        shared[names[name]] = expression
    body = tuple(_renamed(line, names) for line in variant.generated.body)
    arguments = tuple(names.get(argument, argument) for argument in variant.arguments)
    return replace(variant, generated=replace(variant.generated, body=body), arguments=arguments)


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: names.get(found[0], found[0]), text)


def _kernel(name: str, made: ast.Call) -> Kernel:
    if ast.unparse(made.func) != _BUILDER or made.keywords or len(made.args) != 2:
        raise NotLiftable(f"{name} is built by {ast.unparse(made.func)}, not as a C++ kernel")
    types, text = (ast.literal_eval(argument) for argument in made.args)
    return Kernel(name=name, argument_types=tuple(types), text=text)


def _call_lines(source: str, call: ast.FunctionDef) -> list[str]:
    lines = source.splitlines()[call.body[0].lineno - 1 : call.end_lineno]
    indent = call.body[0].col_offset
    return [line[indent:].rstrip() for line in lines]


def _needed(offered: Sequence[ast.stmt], used: set[str]) -> tuple[str, ...]:
    """Statements that bind a used name, with what they themselves use; in their order."""
    kept: list[ast.stmt] = []
    for statement in reversed(offered):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            aliases = [a for a in statement.names if (a.asname or a.name).split(".")[0] in used]
            if not aliases:
                continue
            statement.names = aliases
        elif isinstance(statement, ast.Assign):
            names = {t.id for t in statement.targets if isinstance(t, ast.Name)}
            if not names & used:
                continue
            used = used | {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        kept.append(statement)
    return tuple(ast.unparse(s) for s in reversed(kept))


def _library_calls(call: ast.FunctionDef) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for node in ast.walk(call):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.startswith("extern_kernels."):
            found[name.replace("extern_kernels.", "aten.")] = None
        elif name.startswith(("torch.ops.", "aten.")) and not name.startswith("torch.ops.inductor."):
            found[name.removeprefix("torch.ops.")] = None
    return tuple(found)


def _docstring(variants: Sequence[Variant], around: Surroundings) -> str:
    listed = "\n".join(f"  {number}. {variant.label}" for number, variant in enumerate(variants))
    return (
        f'"""{around.title}\n\nCall sequences, tried in this order:\n{listed}\n\n'
        "Other shapes, strides, element types or another vector instruction set are refused by raising\n"
        'NotImplementedError. The C++ text includes torch headers and is built at import, into the compiler\'s cache.\n"""'
    )


def _imports(variants: Sequence[Variant], has_constants: bool) -> str:
    lines: dict[str, None] = (
        {"import torch": None} if not has_constants else {"import base64": None, "import torch": None}
    )
    if any(variant.generated.kernels for variant in variants):
        lines["from torch._inductor.codecache import CppPythonBindingsCodeCache"] = None
    for variant in variants:
        lines.update(dict.fromkeys(variant.generated.prologue))
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    return "\n".join([*imports, "", *(line for line in lines if line not in imports)]).rstrip()


def _common(around: Surroundings) -> str:
    lines = [
        f"if torch.backends.cpu.get_cpu_capability() != {around.cpu_capability!r}:",
        f'    raise NotImplementedError("generated for {around.cpu_capability}, which this processor does not offer")',
        "",
        f"DTYPES = [{', '.join(around.dtypes)}]",
    ]
    if around.constants:
        lines += ["", "", *_CONSTANT.splitlines(), "", ""]
        lines += [f"{name} = {expression}" for name, expression in around.constants.items()]
    return "\n".join(lines)


def _kernel_text(name: str, kernel: Kernel) -> str:
    if "'''" in kernel.text:
        raise NotLiftable(f"the text of {name} cannot be quoted")
    return f"{name} = CppPythonBindingsCodeCache.load_pybinding({list(kernel.argument_types)!r}, r'''{kernel.text}''')"


def _call_text(number: int, variant: Variant, renamed: dict[str, str]) -> str:
    """A function `call_N(tensors)`: None where the shapes are not the ones it was generated for."""
    generated = variant.generated
    text = _renamed("\n".join(f"    {line}" if line else "" for line in generated.body), renamed)
    names = generated.unpacking.removesuffix("= args").rstrip()
    unpacked = f"    {names} = {', '.join(variant.arguments)}," if names else ""
    head = [f"def call_{number}(tensors):", f'    """{variant.label[:1].upper()}{variant.label[1:]}."""', unpacked]
    head += [f"    {line}" for line in generated.bindings]
    if variant.conditions:
        head += [f"    if not ({' and '.join(f'({c})' for c in variant.conditions)}):", "        return None"]
    if generated.checks:
        checks = [f"        {line}" for line in generated.checks]
        head += ["    try:", *checks, "    except AssertionError:", "        return None"]
    return "\n".join(line for line in head if line) + "\n" + text


def _module_class(around: Surroundings) -> str:
    state = "\n".join(f"    ({s.name!r}, {s.shape!r}, {s.dtype}, {s.is_parameter})," for s in around.state)
    returned = "outputs" if around.returns_tuple else "outputs[0]"
    return _MODULE.format(state=f"(\n{state}\n)" if state else "()", returned=returned, count=around.argument_count)


_CONSTANT = """def constant(encoded, dtype, shape, strides):
    flat = torch.frombuffer(bytearray(base64.b64decode(encoded)), dtype=dtype)
    return torch.empty_strided(shape, strides, dtype=dtype).copy_(flat.reshape(shape))"""

_MODULE = '''STATE = {state}


class ModelNew(torch.nn.Module):
    """Takes the reference's arguments; holds its parameters and buffers under their names (load its `state_dict`)."""

    def __init__(self, *_arguments, **_options):
        super().__init__()
        self.places = []
        for name, shape, dtype, is_parameter in STATE:
            owner, (*path, leaf) = self, name.split(".")
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner._modules[part]
            value = torch.zeros(shape, dtype=dtype)
            if is_parameter:
                owner.register_parameter(leaf, torch.nn.Parameter(value, requires_grad=False))
            else:
                owner.register_buffer(leaf, value)
            self.places.append((owner, leaf))

    @torch.no_grad()
    def forward(self, *arguments):
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        if len(tensors) != {count}:
            raise NotImplementedError(f"generated for {count} tensor arguments, got {{len(tensors)}}")
        tensors += [getattr(owner, leaf) for owner, leaf in self.places]
        if [tensor.dtype for tensor in tensors] != DTYPES:
            raise NotImplementedError("generated for other element types")
        for call in CALLS:
            outputs = call(tensors)
            if outputs is not None:
                return {returned}
        raise NotImplementedError(f"generated for other shapes than {{[tuple(t.shape) for t in tensors]}}")'''
