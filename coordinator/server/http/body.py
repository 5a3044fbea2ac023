"""JSON answers that are too large for one step: made on a thread in small pieces, and written piece by piece.

Python's JSON encoder keeps the interpreter's lock for a whole call, and a body in one piece is copied for every client.
So a body is encoded element by element into pieces of about PIECE_BYTES, which all clients of an answer share; a
connection holds one of them at a time.

House rule: `pieces_of` runs on any thread and knows no request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from starlette.responses import StreamingResponse

PIECE_BYTES = 64 * 1024


def pieces_of(body: Any) -> list[bytes]:
    """The JSON text of `body`, in pieces."""
    pieces: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for part in _parts(body, 3):
        encoded = part.encode()
        parts.append(encoded)
        size += len(encoded)
        if size >= PIECE_BYTES:
            pieces.append(b"".join(parts))
            parts.clear()
            size = 0
    return [*pieces, b"".join(parts)]


def answer_of(pieces: Sequence[bytes], media_type: str = "application/json") -> StreamingResponse:
    """The answer with these pieces."""

    async def each() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    headers = {"content-length": str(sum(map(len, pieces)))}
    return StreamingResponse(each(), headers={**headers, "content-type": media_type})


def _parts(value: Any, depth: int) -> Iterator[str]:
    """The text of a value in parts: the elements of lists and objects, down to `depth`, each by itself."""
    if depth and isinstance(value, list):
        yield "["
        for index, each in enumerate(value):
            if index:
                yield ","
            yield from _parts(each, depth - 1)
        yield "]"
    elif depth and isinstance(value, dict):
        yield "{"
        for index, (key, each) in enumerate(value.items()):
            yield f"{',' if index else ''}{_text(key)}:"
            yield from _parts(each, depth - 1)
        yield "}"
    else:
        yield _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
