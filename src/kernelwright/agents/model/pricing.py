"""What tokens cost, where the user says so. No price list is built in: an unknown price is None, never zero."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.core.errors import UsageError
from kernelwright.core.records import Record

INPUT_VARIABLE = "KERNELWRIGHT_PRICE_INPUT"
OUTPUT_VARIABLE = "KERNELWRIGHT_PRICE_OUTPUT"
FILE_VARIABLE = "KERNELWRIGHT_PRICES"


class Price(Record):
    """US dollars per million tokens."""

    input_usd_per_million: float
    output_usd_per_million: float

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost."""
        return (input_tokens * self.input_usd_per_million + output_tokens * self.output_usd_per_million) / 1e6


def price_of(model: str, environment: Mapping[str, str] | None = None) -> Price | None:
    """The price of a model, or None where nobody stated it.

    `KERNELWRIGHT_PRICE_INPUT` and `KERNELWRIGHT_PRICE_OUTPUT` (dollars per million tokens, both or neither) come first,
    then the table `[MODEL]` with `input` and `output` in the TOML file that `KERNELWRIGHT_PRICES` names.

    Raises:
        UsageError: a value is no number >= 0, only one of the two is set, or the file cannot be read.
    """
    values = os.environ if environment is None else environment
    given = {name: values[name] for name in (INPUT_VARIABLE, OUTPUT_VARIABLE) if values.get(name)}
    if len(given) == 1:
        raise UsageError(f"only {next(iter(given))} is set", hint=f"set both {INPUT_VARIABLE} and {OUTPUT_VARIABLE}")
    if given:
        return Price(
            input_usd_per_million=_number(INPUT_VARIABLE, given[INPUT_VARIABLE]),
            output_usd_per_million=_number(OUTPUT_VARIABLE, given[OUTPUT_VARIABLE]),
        )
    if not (path := values.get(FILE_VARIABLE)):
        return None
    try:
        table: Any = tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8")).get(model)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{FILE_VARIABLE}: cannot read {path}: {error}", hint="give a TOML file") from error
    if table is None:
        return None
    if not isinstance(table, dict) or not {"input", "output"} <= table.keys():
        raise UsageError(f"{path}: [{model}] needs `input` and `output`", hint="dollars per million tokens")
    return Price(
        input_usd_per_million=_number(f"{path}: input", table["input"]),
        output_usd_per_million=_number(f"{path}: output", table["output"]),
    )


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(f"{name}: expected dollars per million tokens, got {value!r}", hint="a number such as 0.15")
    return number
