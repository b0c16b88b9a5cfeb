"""Untrusted text: no terminal escapes, bounded length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.text import strip_escapes, trimmed


def test_known_attacks_lose_their_teeth():
    assert strip_escapes("\x1b[31mred\x1b[0m") == "red"
    assert strip_escapes("\x1b]0;title\x07text") == "text"
    assert strip_escapes("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\") == "link"
    assert strip_escapes("a\rb\x08c\x9bd") == "abcd"
    assert strip_escapes("tab\tline\n") == "tab\tline\n"


@given(st.text())
def test_nothing_below_space_survives(text):
    cleaned = strip_escapes(text)
    assert all(c in "\t\n" or (c >= " " and not "\x7f" <= c <= "\x9f") for c in cleaned)


@given(st.text(min_size=0, max_size=3000), st.integers(10, 500))
def test_trimming_keeps_both_ends_and_is_bounded(text, limit):
    short = trimmed(text, limit=limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert len(short) <= limit + 40
        assert text.startswith(short[:5])
        assert text.endswith(short[-3:])
