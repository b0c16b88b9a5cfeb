"""What the named schedule decisions mean, as their templates say it."""

from __future__ import annotations

from kernelwright.agents.drafter import spaces
from kernelwright.agents.proposing import Parameter
from kernelwright.core.dtypes import DType
from kernelwright.platforms.device import Device


def known_parameters(device: Device) -> dict[str, Parameter]:
    """The built-in templates' parameters by name. A default that depends on the operation is not told here."""
    found = [
        spaces.lanes(device, DType.FLOAT32),
        spaces.unroll(1),
        spaces.store("normal"),
        spaces.threads(device),
        spaces.block(),
        spaces.accumulate(),
        spaces.intermediate("recompute"),
        spaces.schedule(),
        spaces.rows_per_block(),
        spaces.column_order("rows"),
        spaces.rows_in_flight(),
        spaces.stripe(),
        *spaces.products(device),
        *spaces.attention(device),
    ]
    return {parameter.name: parameter for parameter in found}
