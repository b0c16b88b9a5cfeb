"""Text that came from untrusted places: trimmed, and free of terminal escapes."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def strip_escapes(text: str) -> str:
    """`text` without ANSI sequences and control characters (tab and newline stay)."""
    return _ESCAPES.sub("", text)


def trimmed(text: str, *, limit: int = 4000) -> str:
    """At most about `limit` characters of `text`: its head and its tail, with a note of what was cut."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n… {len(text) - limit} characters cut …\n{text[-tail:]}"
