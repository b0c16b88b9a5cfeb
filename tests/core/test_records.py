"""Records: immutable, closed, and identified by their content."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelwright.core.records import Record, content_id


class Point(Record):
    """A record to test with."""

    x: float
    """Place."""
    tags: tuple[str, ...] = ()


def test_round_trip_keeps_non_finite_numbers():
    for value in (math.inf, -math.inf, 0.1):
        assert Point.from_json(Point(x=value).to_json()).x == value
    assert math.isnan(Point.from_json(Point(x=math.nan).to_json()).x)


def test_records_are_frozen_and_closed():
    point = Point(x=1)
    with pytest.raises(ValidationError):
        point.x = 2
    with pytest.raises(ValidationError):
        Point(x=1, y=2)
    with pytest.raises(ValidationError):
        point.replace(x="far")
    assert point.replace(tags=("a",)) == Point(x=1, tags=("a",))


def test_attribute_docstrings_describe_the_schema():
    assert Point.model_json_schema()["properties"]["x"]["description"] == "Place."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=6))
def test_content_id_ignores_order_but_not_content(payload):
    turned = dict(reversed(payload.items()))
    assert content_id(payload) == content_id(turned)
    key = next(iter(payload))
    changed = {**payload, key: [payload[key], "changed"]}
    assert content_id(changed) != content_id(payload)


def test_content_id_is_sha256_of_canonical_json():
    import hashlib

    payload = {"b": [1, 2.5], "a": "ü"}
    canonical = '{"a":"ü","b":[1,2.5]}'
    assert json.loads(canonical) == payload
    assert content_id(payload) == hashlib.sha256(canonical.encode()).hexdigest()
