"""Attention through kw_attention.h, with what follows as its epilogue and the mask as its bias."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.agents.drafter.codegen.emitter import Operand
from kernelwright.agents.drafter.codegen.loops import Scratch, indented
from kernelwright.agents.drafter.codegen.products import OpaqueWriter
from kernelwright.agents.drafter.index import ONE, Atom, Expr, to_dim
from kernelwright.agents.drafter.lowering.contractions import base_offset, strides
from kernelwright.agents.drafter.values import Access, Attention, Shape, axis_variables
from kernelwright.core.dimensions import evaluate_dim

_GRAIN = 16
"""Head widths are rounded up to a multiple of this."""
_WIDEST = 512
"""Head width of the schedule that takes what the tuned one does not, where widths vary."""


class AttentionWriter(OpaqueWriter):
    """Prints one attention."""

    @property
    def attention(self) -> Attention:
        """The attention at work."""
        assert isinstance(self.kernel.value, Attention)
        return self.kernel.value

    def write(self, axes: Mapping[str, int]) -> list[str]:
        """The kernel's statements."""
        value = self.attention
        batch, heads, queries, value_width = value.shape
        kv_heads, keys, width = value.sizes
        sizes = [self.text(e) for e in (batch, heads, kv_heads, queries, keys, width, value_width)]
        shape = f"kw::attention_shape{{{', '.join(sizes)}}}"
        widths, varies = _widths(width, value_width, axes)
        room = self.emit.name("attention_room")
        rows, vectors = str(self.values["tile"]).split("x")
        decisions = [self.values["key_block"], self.values["query_tiles"], rows, vectors, self.values["depth_unroll"]]
        schedules = [f"kw::attention_schedule<{', '.join(map(str, [w, *decisions]))}>" for w in widths]
        bytes_of = [f"kw::attention_workspace_bytes<{s}>(threads, {shape})" for s in schedules]
        room_text = bytes_of[0] if len(bytes_of) == 1 else f"larger({bytes_of[0]}, {bytes_of[1]})"
        self.scratch.append(Scratch(room, "char", ONE, bytes_text=room_text))
        run = [
            "auto attend = [&](auto schedule) {",
            "    typedef decltype(schedule) Schedule;",
            *indented(self._call(shape, width, room)),
            "};",
        ]
        if not varies:
            return [*self._lanes(), *run, f"attend({schedules[0]}());"]
        return [
            *self._lanes(),
            *run,
            f"const int64_t widest = larger({sizes[-2]}, {sizes[-1]});",
            f"if (widest > {widths[-1]}) return KW_UNSUPPORTED;",
            f"if (widest <= {widths[0]}) attend({schedules[0]}());",
            f"else attend({schedules[-1]}());",
        ]

    def _lanes(self) -> list[str]:
        return ["constexpr int W = kw::native_lanes<float>;"]

    def _call(self, shape: str, width: Expr, room: str) -> list[str]:
        value = self.attention
        assert value.query is not None
        assert value.keys is not None
        assert value.content is not None
        batch, heads, queries, value_width = value.shape
        kv_heads, keys, _ = value.sizes
        operands = [
            self._heads(value.query, (batch, heads, queries, width)),
            self._heads(value.keys, (batch, kv_heads, keys, width)),
            self._heads(value.content, (batch, kv_heads, keys, value_width)),
        ]
        scale = f"{value.scale!r}f" if value.scale is not None else f"1.f / kw::sqrt(float({self.text(width)}))"
        return [
            *self._bias((batch, heads, queries, keys)),
            "auto epilogue = [&](kw::vec<float, W> value, int64_t batch, int64_t head, int64_t row, int64_t column, "
            "int lanes) __attribute__((always_inline)) {",
            *indented(self._epilogue()),
            "};",
            f"kw::attention<Schedule>(threads, {shape},",
            *[f"                        {o}," for o in operands],
            f"                        {scale}, {'true' if value.causal else 'false'}, bias, epilogue, {room});",
        ]

    def _heads(self, access: Access, shape: Shape) -> str:
        steps = strides(access, shape)
        if steps is None:
            raise ValueError(f"{access.value.name} is not at fixed strides")
        base = base_offset(access, shape)
        pointer = self.pointers[id(access.value)]
        start = pointer if not base.terms else f"{pointer} + {self.text(base)}"
        return f"kw::heads_of<{access.value.dtype.c_name}>{{{start}, {', '.join(self.text(s) for s in steps)}}}"

    def _named(self, shape: Shape, names: tuple[str, ...]) -> set[Atom]:
        atoms = [v.single for v in axis_variables(shape)]
        for atom, name in zip(atoms, names, strict=True):
            if atom is not None:
                self.emit.names[atom] = name
        return {a for a in atoms if a is not None}

    def _bias(self, shape: Shape) -> list[str]:
        mask = self.attention.mask
        if mask is None:
            return ["const kw::no_bias bias;"]
        emit = self.emit
        with emit.block(self._named(shape, ("batch", "head", "row", "key"))) as block:
            emit.lane, emit.lane_depth = axis_variables(shape)[-1].single, len(emit.blocks) - 1
            product = self.attention.product
            if product is not None:
                emit.results[id(product)] = Operand("score", "float", emit.lane_depth, True)
            operand = emit.value(mask.value, mask.index)
            text = operand.text if product is not None else f"score + {operand.text}"
            lines = block.lines
        return [
            "auto bias = [&](auto score, int64_t batch, int64_t head, int64_t row, int64_t key, int lanes) "
            "__attribute__((always_inline)) {",
            "    (void)batch, (void)head, (void)row, (void)key, (void)lanes;",
            *indented([*emit.blocks[0].lines, *lines]),
            f"    return {text};",
            "};",
        ]

    def _epilogue(self) -> list[str]:
        emit, value = self.emit, self.attention
        emit.blocks[0].lines.clear()
        emit.blocks[0].memo.clear()
        with emit.block(self._named(value.shape, ("batch", "head", "row", "column"))) as block:
            emit.lane, emit.lane_depth = axis_variables(value.shape)[-1].single, len(emit.blocks) - 1
            emit.results[id(value)] = Operand("value", "float", emit.lane_depth, True)
            block.lines.append("(void)batch, (void)head, (void)row, (void)column;")
            if emit.lane is None:
                block.lines.append("const int lane = 0;")
            for root in self.roots:
                block.lines.append(self.store(root, emit.value(root.value, root.index)))
            return [*emit.blocks[0].lines, *block.lines]


def _widths(width: Expr, value_width: Expr, axes: Mapping[str, int]) -> tuple[list[int], bool]:
    """Head widths to compile for, and whether the width varies at run time."""
    own = max(evaluate_dim(to_dim(w), axes) for w in (width, value_width))
    tuned = (max(own, 1) + _GRAIN - 1) // _GRAIN * _GRAIN
    if width.constant is not None and value_width.constant is not None:
        return [tuned], False
    return [tuned, max(_WIDEST, tuned)], True
