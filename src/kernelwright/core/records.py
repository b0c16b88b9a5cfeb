"""The base of everything that is stored or sent, and the identity of its content."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
"""Version of the stored and printed records; raised on any change that an older reader cannot follow."""


def content_id(payload: Any) -> str:
    """SHA-256, as 64 hex digits, of the canonical JSON of `payload` (sorted keys, no white space)."""
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Record(BaseModel):
    """Immutable, closed, self-describing. An attribute's docstring is its description in the JSON schema."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",
        protected_namespaces=(),
    )

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote.

        Raises:
            pydantic.ValidationError: the text is no such record.
        """
        return cls.model_validate_json(text)

    def replace(self, **changes: Any) -> Self:
        """A validated copy with some fields changed."""
        return type(self).model_validate({**{k: getattr(self, k) for k in type(self).model_fields}, **changes})
