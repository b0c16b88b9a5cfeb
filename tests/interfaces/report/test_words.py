"""Numbers, harmless text and colours of sources."""

from __future__ import annotations

import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.interfaces.report.colouring import SOURCE_LIMIT, coloured, language_of, line_numbers
from kernelwright.interfaces.report.figures import byte_count, clean, digits, duration, interval, microseconds, times

SOURCE = st.text(alphabet=st.sampled_from("ab_1.0xf'\"\\#/*@ \n<>&\u202e\x1b[m"), max_size=200)


@given(SOURCE, st.sampled_from(["cpp", "python", "plain"]))
def test_colours_change_no_character(source, language):
    html = str(coloured(source, language))
    tags = re.findall(r"<[^>]*>", html)
    assert set(tags) <= {f'<span class="{c}">' for c in ("comment", "string", "number", "keyword", "special")} | {
        "</span>"
    }
    assert unescape(re.sub(r"<[^>]*>", "", html)) == clean(source)
    assert line_numbers(source).count("\n") == clean(source).count("\n")


@pytest.mark.parametrize(
    ("language", "source", "kind", "part"),
    [
        ("cpp", "for (int i = 0; i < 10; ++i) // x", "comment", "// x"),
        ("cpp", "for (int i = 0; i < 10; ++i) // x", "keyword", "for"),
        ("cpp", '#include "a.h"\nint x;', "special", "#include &#34;a.h&#34;"),
        ("cpp", "float y = 1.5e-3f;", "number", "1.5e-3f"),
        ("python", '"""doc\nfor"""\nx = 1', "string", "&#34;&#34;&#34;doc\nfor&#34;&#34;&#34;"),
        ("python", "@operation(x=1)", "special", "@operation"),
        ("python", "return 'a # b'", "string", "&#39;a # b&#39;"),
    ],
)
def test_words_get_their_colour(language, source, kind, part):
    assert f'<span class="{kind}">{part}</span>' in coloured(source, language)


def test_a_long_source_is_cut_and_says_so():
    html = str(coloured("x" * (SOURCE_LIMIT + 1000), "cpp"))
    assert len(html) < SOURCE_LIMIT + 200 and "1000 characters cut" in re.sub(r"<[^>]*>", "", html)


def test_endings_name_languages():
    assert [language_of(f) for f in ("a.cpp", "b.h", "c.py", "d.txt")] == ["cpp", "cpp", "python", "plain"]


@given(st.text())
def test_cleaned_text_has_no_escape_and_can_be_encoded(text):
    shown = clean(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode("utf-8")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_has_a_shape(value):
    for written in (digits(value), times(value), microseconds(value), interval((value, value))):
        assert written and "e+" not in written and "nan" not in written and "inf" not in written


@given(st.floats(1e-3, 1e6))
def test_three_digits_are_right(value):
    assert float(digits(value).replace(",", "")) == pytest.approx(value, rel=5.1e-3)


def test_words_for_sizes_and_times():
    assert [byte_count(n) for n in (0, 1023, 1024, 100663296)] == ["0 B", "1023 B", "1.00 KiB", "96.0 MiB"]
    assert [duration(s) for s in (0.5, 59.0, 154.2, 7500.0, math.nan)] == [
        "0.500 s",
        "59.0 s",
        "2 min 34 s",
        "2 h 5 min",
        "–",
    ]
    assert [microseconds(t) for t in (0.5, 812.4, 20_812.0, 1.2e6)] == ["0.500 µs", "812 µs", "20.8 ms", "1.20 s"]
    assert interval((3.06, 4.6)) == "3.06 – 4.60" and times(4.027) == "4.03×"
