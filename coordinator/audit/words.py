"""The details of findings in words: the same on a terminal and on a page.

House rule: the view that shows the words makes them printable.
"""

from __future__ import annotations

import json

from coordinator.text import second_text

MOMENTS_FROM_MS = 10**11
"""A number of ms from here on is a moment (1973), below it a duration."""


def detail_words(text: str) -> list[tuple[str, str]]:
    """Name and value of each part of a finding's detail, not made printable; ("", text) if it is no object."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return [("", text)]
    return [(name, _value_text(name, value)) for name, value in values.items()]


def _value_text(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int) and value >= MOMENTS_FROM_MS:
        return second_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{count} x {what}" for what, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
