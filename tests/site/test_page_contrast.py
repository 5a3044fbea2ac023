"""The colors of the page: text and shapes differ enough from what is behind them, light and dark (WCAG 2.2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STYLE = Path(__file__).parents[2] / "coordinator" / "site" / "page.css"

TEXTS = {
    "back": ("text", "dim", "link", "fencing"),
    "raised": ("text", "dim", "link"),
    "calm-back": ("text",),
    "good-back": ("good",),
    "busy-back": ("busy",),
    "bad-back": ("fencing",),
}
"""Backgrounds, and the colors of the texts on them: 4.5 to 1 (1.4.3)."""

SHAPES = {"raised": ("seat", "restart", "rebalance", "fencing", "dim"), "back": ("restart", "rebalance", "link")}
"""Backgrounds, and the colors of the shapes on them: 3 to 1 (1.4.11)."""


def schemes() -> dict[str, dict[str, str]]:
    """The colors by name, of each scheme."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    return {name: dict(re.findall(r"--([\w-]+): (#\w{6});", text)) for name, text in (("light", light), ("dark", dark))}


def luminance(color: str) -> float:
    """The relative luminance of a color, such as #ff8000."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_of_black_and_white_is_21() -> None:
    """The formula is that of WCAG."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_shapes_can_be_seen(scheme: str) -> None:
    """Each text has 4.5 to 1, and each shape 3 to 1, beside its background."""
    colors = schemes()[scheme]
    for least, pairs in ((4.5, TEXTS), (3.0, SHAPES)):
        for back, fronts in pairs.items():
            for front in fronts:
                found = contrast(colors[front], colors[back])
                assert found >= least, f"{front} on {back} has {found:.2f} to 1"
