"""How numbers, moments and details of findings are said: the same on a terminal and on a page.

House rule: text from a log comes out as text that can be seen.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

MOMENTS_FROM_MS = 10**11
"""A number of ms from here on is a moment (1973), below it a duration."""


def time_text(timestamp_ms: int) -> str:
    """A moment in UTC; "-" for a record without one."""
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def size_text(size: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def count_text(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Text from a log as a terminal may have it: what would move the cursor or end the line is escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


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
        return time_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{count} x {what}" for what, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
