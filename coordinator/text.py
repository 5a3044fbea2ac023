"""Text of plain values for people, the same in logs, on terminals and on pages.

House rule: text of a client or of a log comes out as text that can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

MEMBER_ID = re.compile("(.*-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.DOTALL)
"""A member id as coordinators make it: the client id or instance id, and a UUID."""

SECONDS = len("2000-01-01 00:00:00")

MESSAGE_MAX = 1_000
"""Characters of an error message: a topic's name (249) and the reason fit, and at most 4 bytes encode each."""

CUT = " ..."

NAMED_MAX = 10
"""Names in a text, unless it says otherwise."""

_PLURALS = {"batch": "batches"}
"""Plurals of the nouns that don't just add an s."""


def printable(text: str) -> str:
    """Text of a client or of a log, for a terminal: what would move the cursor or end the line is escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def time_text(at_ms: int) -> str:
    """A time as log lines have it; the number, if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03}Z"


def iso_text(at_ms: int) -> str:
    """A time as ISO 8601 has it, without a blank: a column of a table."""
    return time_text(at_ms).replace(" ", "T")


def second_text(at_ms: int) -> str:
    """A time to the second, in UTC; "-" for a record without one."""
    return "-" if at_ms < 0 else time_text(at_ms)[:SECONDS]


def duration_text(ms: int) -> str:
    """A number of milliseconds as a person says it."""
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min {ms // 1_000 % 60} s"


def names_text(names: Sequence[str], count: int | None = None, most: int = NAMED_MAX) -> str:
    """The first of some names, and how many more of `count` there are. count: if not all have a name here."""
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def several(number: int, noun: str) -> str:
    """A number with its noun: "1 batch", "2 batches"."""
    return f"{number} {noun if number == 1 else _PLURALS.get(noun, f'{noun}s')}"


def size_text(size: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def sendable(text: str) -> str:
    """Text in which a path stands, as UTF-8 can have it: a path's bytes that aren't UTF-8 (PEP 383) are escaped."""
    return text.encode(errors="backslashreplace").decode()


def cut_text(message: str) -> str:
    """An error message for an answer: `sendable`, and cut to MESSAGE_MAX characters.

    It may quote a name that is as long as a string on the wire. No answer could have a longer string.
    """
    message = sendable(message)
    return message if len(message) <= MESSAGE_MAX else message[: MESSAGE_MAX - len(CUT)] + CUT


def address_text(host: str, port: int) -> str:
    """Where a server listens."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class NamedClient(Protocol):
    """A client by its id and host."""

    @property
    def client_id(self) -> str:
        """As it names itself."""

    @property
    def client_host(self) -> str:
        """As Kafka writes it."""


def client_text(client: NamedClient) -> str:
    """The sender of a request, its host, and its principal if it authenticated."""
    principal = getattr(client, "principal", None)
    who = f" as {principal}" if principal else ""
    return f"{client.client_id} at {client.client_host.removeprefix('/')}{who}"


def short(name: str) -> str:
    """A member id, cut to what tells members of a group apart; an instance id stays whole."""
    made = MEMBER_ID.fullmatch(name)
    return name if made is None else made[1]
