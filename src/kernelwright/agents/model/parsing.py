"""From a model's text to a candidate, or to the reason why it is none. Never repairs: a wrong answer is sent back."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.agents.model.client import Finish
from kernelwright.core.records import Record
from kernelwright.core.text import strip_escapes
from kernelwright.platforms.candidates import Candidate, Language, Origin

LARGEST_SOURCE_BYTES = 256 << 10

Fault = Literal[
    "empty",
    "truncated",
    "no_code",
    "no_language",
    "wrong_language",
    "several_blocks",
    "file_name",
    "too_large",
    "not_text",
    "does_not_parse",
    "missing_entry",
]

_OPENING = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$")
_PLAN = re.compile(r"^[-*_#> ]{0,6}plan[*_ ]{0,4}:[*_ ]{0,4}(.+)$", re.IGNORECASE)
_FILE_COMMENT = re.compile(r"^\s*(?://|#)\s*file:\s*(\S+)\s*$", re.IGNORECASE)
_FILE_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9]+)$")
_ENTRY_POINT = re.compile(r"\bkernelwright_run\s*\(")


@dataclass(frozen=True)
class _Rules:
    tags: frozenset[str]
    main: str
    endings: frozenset[str]


_RULES: dict[Language, _Rules] = {
    "cpp": _Rules(frozenset({"cpp", "c++", "cxx", "cc"}), "kernel.cpp", frozenset({".cpp", ".cc", ".h", ".hpp"})),
    "python": _Rules(frozenset({"python", "py", "python3"}), "kernel.py", frozenset({".py"})),
    "triton": _Rules(frozenset({"python", "py", "python3", "triton"}), "kernel.py", frozenset({".py"})),
}


class IllFormed(Record):
    """The answer is no candidate."""

    fault: Fault
    reason: str
    """What was expected and what came, as it is told to the model."""


@dataclass
class _Block:
    tag: str
    file: str
    lines: list[str] = field(default_factory=list)
    closed: bool = False


def parse_answer(text: str, *, finish: Finish, language: Language) -> Candidate | IllFormed:
    """Read an answer of the form that the prompts ask for: one `PLAN:` line, then fenced code.

    Blocks tagged with another language are taken as illustration. Several blocks of the language are files of one
    candidate and must each have a name. Never raises.
    """
    if not text.strip():
        return IllFormed(fault="empty", reason="the answer is empty")
    blocks = _blocks(text)
    if finish == "length" or any(not block.closed for block in blocks):
        return IllFormed(
            fault="truncated",
            reason="the answer ends in the middle (output limit or a code block that is never closed): make it shorter",
        )
    if not blocks:
        return IllFormed(fault="no_code", reason="there is no fenced code block in the answer")
    if any(not block.tag for block in blocks):
        return IllFormed(fault="no_language", reason="a code block has no language tag after its opening fence")
    own = [block for block in blocks if block.tag.lower() in _RULES[language].tags]
    if not own:
        tags = ", ".join(sorted({ascii(block.tag) for block in blocks}))
        return IllFormed(fault="wrong_language", reason=f"expected a block tagged {language}, got: {tags[:200]}")
    sources = _sources(own, language)
    if isinstance(sources, IllFormed):
        return sources
    return _candidate(sources, language, _plan(text))


def _blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    fence = ""
    for line in text.split("\n"):
        bare = line.rstrip("\r")
        if fence:
            ending = bare.strip()
            if len(ending) >= len(fence) and not ending.strip(fence[0]) and len(bare) - len(bare.lstrip(" ")) <= 3:
                blocks[-1].closed = True
                fence = ""
            else:
                blocks[-1].lines.append(line)
        elif found := _OPENING.match(bare):
            fence = found[1]
            blocks.append(_opened(found[2].strip()))
    return blocks


def _opened(information: str) -> _Block:
    """Tag and file name out of `cpp`, `cpp kernel.cpp`, `cpp:kernel.cpp` or `cpp file=kernel.cpp`."""
    tag, _, rest = re.sub(r"^([^\s:]+):(?=\S)", r"\1 ", information).partition(" ")
    return _Block(tag=tag, file=rest.strip().removeprefix("file=").strip("\"'"))


def _sources(blocks: list[_Block], language: Language) -> dict[str, str] | IllFormed:
    rules = _RULES[language]
    sources: dict[str, str] = {}
    for block in blocks:
        name = block.file
        if not name and block.lines and (found := _FILE_COMMENT.match(block.lines[0])):
            name = found[1]
        if not name and len(blocks) > 1:
            return IllFormed(
                fault="several_blocks",
                reason=f"{len(blocks)} {language} blocks: give one, or write a file name after each language tag",
            )
        name = name or rules.main
        shape = _FILE_NAME.match(name)
        if shape is None or shape[1].lower() not in rules.endings or name.startswith(("kernelwright.", "kw_")):
            allowed = " ".join(sorted(rules.endings))
            return IllFormed(fault="file_name", reason=f"not a usable file name: {name[:80]!r} (plain name, {allowed})")
        if name in sources:
            return IllFormed(fault="several_blocks", reason=f"two blocks for one file: {name}")
        sources[name] = "\n".join(block.lines) + "\n"
    try:
        size = sum(len(text.encode("utf-8")) for text in sources.values())
    except UnicodeEncodeError:
        return IllFormed(fault="not_text", reason="the code has characters that cannot be written as UTF-8")
    if size > LARGEST_SOURCE_BYTES:
        return IllFormed(fault="too_large", reason=f"{size} bytes of code, at most {LARGEST_SOURCE_BYTES} are taken")
    if any("\0" in text for text in sources.values()):
        return IllFormed(fault="not_text", reason="the code contains a zero byte")
    return sources


def _candidate(sources: dict[str, str], language: Language, plan: str) -> Candidate | IllFormed:
    origin = Origin(proposer="model", plan=plan)
    if language == "cpp":
        compiled = [text for name, text in sources.items() if name.endswith((".cpp", ".cc"))]
        if not any(_ENTRY_POINT.search(text) for text in compiled):
            return IllFormed(
                fault="missing_entry", reason='no .cpp file defines extern "C" int32_t kernelwright_run(...)'
            )
        return Candidate(language=language, sources=sources, origin=origin)
    entries: list[str] = []
    for name, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return IllFormed(fault="does_not_parse", reason=f"{name} is not Python: {str(error)[:200]}")
        if any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
            entries.append(name)
    if len(entries) != 1:
        return IllFormed(
            fault="missing_entry", reason=f"expected one class ModelNew at module level, found {len(entries)}"
        )
    return Candidate(language=language, sources=sources, entry=entries[0], origin=origin)


def _plan(text: str) -> str:
    """The sentence after `PLAN:`, empty where there is none."""
    for line in text.split("\n"):
        if found := _PLAN.match(strip_escapes(line).strip()):
            return found[1].encode("utf-8", "replace").decode("utf-8").strip(" *_")[:400]
    return ""
