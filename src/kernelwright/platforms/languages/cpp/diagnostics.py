"""What a C++ compiler said, reduced to what a proposer or a person needs first."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelwright.core.text import strip_escapes, trimmed

_ERROR = re.compile(r"^(?:[^\s:][^:\n]*:\d+:(?:\d+:)? )?(?:fatal |internal compiler )?error: .*$", re.MULTILINE)
_LINKER = re.compile(
    r"^.*(?:undefined reference to|undefined symbol|multiple definition of|cannot find -l).*$", re.MULTILINE
)
_OTHER = re.compile(r"^.*(?:internal compiler error|virtual memory exhausted|out of memory|error:).*$", re.MULTILINE)
_NEXT = re.compile(r"^(?:\S.*(?:error|note|warning): |In file included|compilation terminated|\S+: In )", re.MULTILINE)
_CONTEXT_LINES = 4


def relative_log(output: str, prefixes: Mapping[str, str], *, limit: int = 8000) -> str:
    """`output` without terminal escapes, each prefix (a folder of ours) replaced, trimmed to about `limit` characters."""
    text = strip_escapes(output)
    for prefix, replacement in sorted(prefixes.items(), key=lambda item: -len(item[0])):
        text = text.replace(prefix, replacement)
    return trimmed(text.strip(), limit=limit)


def first_error(log: str, *, limit: int = 800) -> str:
    """The first error with the source line it points at, or an empty string when the log holds none."""
    for pattern in (_ERROR, _LINKER, _OTHER):
        match = pattern.search(log)
        if match:
            following = log[match.end() :]
            end = _NEXT.search(following)
            context = following[: end.start()] if end else following
            lines = [line for line in context.splitlines() if line.strip()][:_CONTEXT_LINES]
            return trimmed("\n".join([match.group(0).strip(), *lines]), limit=limit)
    return ""
