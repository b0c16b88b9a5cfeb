"""Prices are what the user states, or unknown."""

from __future__ import annotations

import pytest

from kernelwright.agents.model.pricing import Price, price_of
from kernelwright.core.errors import UsageError


def test_no_statement_no_price():
    assert price_of("m", {}) is None


def test_variables_come_before_the_file(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text('["vendor/m-1"]\ninput = 1.0\noutput = 4\n[incomplete]\ninput = 1\n')
    file = {"KERNELWRIGHT_PRICES": str(path)}
    price = price_of("vendor/m-1", file)
    assert price == Price(input_usd_per_million=1.0, output_usd_per_million=4.0)
    assert price.cost_usd(2_000_000, 500_000) == pytest.approx(4.0)
    assert price_of("other", file) is None
    stated = {**file, "KERNELWRIGHT_PRICE_INPUT": "0.15", "KERNELWRIGHT_PRICE_OUTPUT": "0.6"}
    assert price_of("vendor/m-1", stated) == Price(input_usd_per_million=0.15, output_usd_per_million=0.6)
    with pytest.raises(UsageError, match="needs `input` and `output`"):
        price_of("incomplete", file)


@pytest.mark.parametrize("value", ["cheap", "-1", "nan", "inf"])
def test_what_is_no_price_is_named(value):
    with pytest.raises(UsageError, match="KERNELWRIGHT_PRICE_INPUT"):
        price_of("m", {"KERNELWRIGHT_PRICE_INPUT": value, "KERNELWRIGHT_PRICE_OUTPUT": "1"})


def test_half_a_price_and_an_unreadable_file(tmp_path):
    with pytest.raises(UsageError, match="only KERNELWRIGHT_PRICE_OUTPUT"):
        price_of("m", {"KERNELWRIGHT_PRICE_OUTPUT": "1"})
    with pytest.raises(UsageError, match="cannot read"):
        price_of("m", {"KERNELWRIGHT_PRICES": str(tmp_path / "none.toml")})
