"""Colours for C++ and Python sources. Lexical only: the words are marked, never changed."""

from __future__ import annotations

import re
from typing import Literal

from markupsafe import Markup, escape

from kernelwright.interfaces.report.figures import clean

SOURCE_LIMIT = 150_000
"""Characters of one source that the page shows; the middle of a longer one is cut and says so."""
Language = Literal["cpp", "python", "plain"]

_PYTHON_WORDS = (
    "False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|"
    "import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield"
)
_CPP_WORDS = (
    "alignas|auto|bool|break|case|char|class|const|constexpr|continue|default|delete|do|double|else|enum|extern|false|"
    "float|for|if|inline|int|int8_t|int16_t|int32_t|int64_t|long|namespace|new|nullptr|operator|private|public|return|"
    "short|signed|size_t|sizeof|static|static_cast|struct|switch|template|this|true|typename|uint8_t|uint16_t|uint32_t|"
    "uint64_t|union|unsigned|using|void|volatile|while"
)
_NUMBER = r"(?P<number>\b(?:0[xX][0-9a-fA-F']+|\d[\d'_]*(?:\.\d*)?(?:[eE][+-]?\d+)?)[fFlLuU]{0,3}\b)"
_PATTERNS = {
    "python": re.compile(
        r"(?P<comment>\#[^\n]*)"
        r"|(?P<string>[rbfuRBFU]{0,2}(?:\"\"\"[\s\S]*?(?:\"\"\"|\Z)|'''[\s\S]*?(?:'''|\Z)"
        r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?))"
        rf"|(?P<special>^[ \t]*@[\w.]+)|{_NUMBER}|(?P<keyword>\b(?:{_PYTHON_WORDS})\b)",
        re.MULTILINE,
    ),
    "cpp": re.compile(
        r"(?P<comment>//[^\n]*|/\*[\s\S]*?(?:\*/|\Z))"
        r"|(?P<special>^[ \t]*\#[^\n]*)"
        r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)'?)"
        rf"|{_NUMBER}|(?P<keyword>\b(?:{_CPP_WORDS})\b)",
        re.MULTILINE,
    ),
}


def language_of(file: str) -> Language:
    """The language that a file's ending names."""
    if file.endswith((".cpp", ".cc", ".h", ".hpp", ".cu")):
        return "cpp"
    return "python" if file.endswith(".py") else "plain"


def coloured(source: str, language: Language) -> Markup:
    """`source` as safe HTML, its comments, strings, numbers and keywords in `span` elements."""
    text = clean(source, SOURCE_LIMIT)
    if language == "plain":
        return escape(text)
    parts: list[str] = []
    end = 0
    for found in _PATTERNS[language].finditer(text):
        parts.append(str(escape(text[end : found.start()])))
        parts.append(f'<span class="{found.lastgroup}">{escape(found.group())}</span>')
        end = found.end()
    parts.append(str(escape(text[end:])))
    return Markup("".join(parts))


def line_numbers(source: str) -> str:
    """The gutter beside `coloured(source)`."""
    return "\n".join(str(n) for n in range(1, clean(source, SOURCE_LIMIT).count("\n") + 2))
