"""Error messages of answers.

A message may quote names and values that a client sent, and these can be as long as a string on the wire. A string
that is longer can't be encoded, and then the client gets no answer at all.

House rule: each error message that quotes a client passes `short`.
"""

from __future__ import annotations

TEXT_MAX = 1_000
"""Characters of an error message: a topic's name (249) and the reason fit, and at most 4 bytes encode each."""

CUT = " ..."


def short(text: str) -> str:
    """The message, cut to TEXT_MAX characters."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - len(CUT)] + CUT
