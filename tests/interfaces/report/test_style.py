"""Colours can be told from their backgrounds, in light, in dark and in print."""

from __future__ import annotations

import re
from importlib import resources

import pytest

STYLE = (resources.files("kernelwright.interfaces.report") / "templates" / "report.css").read_text(encoding="utf-8")
ROOTS = [
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
]
TEXT_ON = {
    "card": ("ink", "soft", "accent", "good", "even", "slow", "bad", "quiet"),
    "page": ("ink", "soft", "accent"),
    "code": ("ink", "comment", "string", "number", "keyword", "special"),
    "good-tint": ("good",),
    "even-tint": ("even", "ink"),
    "bad-tint": ("bad", "ink"),
    "quiet-tint": ("quiet", "soft", "bad"),
}


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = (int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", range(3), ids=("light", "dark", "print"))
def test_text_has_the_contrast_of_wcag_aa(theme):
    assert len(ROOTS) == 3
    colours = ROOTS[theme]
    for ground, texts in TEXT_ON.items():
        for text in texts:
            low, high = sorted((luminance(colours[ground]), luminance(colours[text])))
            contrast = (high + 0.05) / (low + 0.05)
            assert contrast >= 4.5, f"{text} on {ground}: {contrast:.2f}"


def test_every_class_of_the_template_that_carries_meaning_is_styled():
    for tone in ("good", "even", "slow", "bad"):
        assert f".mark.{tone}" in STYLE and f".outcome.{tone}" in STYLE and f".bars .{tone}" in STYLE
