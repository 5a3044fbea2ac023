"""JSON answers that are too large for one step: made on a thread in small pieces, and written piece by piece.

Python's JSON encoder keeps the interpreter's lock for a whole call, and a body in one piece is copied for every client.
So a body is encoded element by element into pieces of about PIECE_BYTES, which all clients of an answer share; a
connection holds one of them at a time.

House rule: `pieces_of` runs on any thread and knows no request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import astuple
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE_BYTES = 64 * 1024

PIECES = "pieces"
"""The key of all pieces in the message that begins an answer (web.py)."""

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_builtins).encode


def pieces_of(body: Any) -> list[bytes]:
    """The JSON text of `body`, in pieces. Values of msgspec's classes are objects."""
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


class InPieces(Response):
    """An answer with these pieces. If its client is gone, uvicorn drops them.

    Starlette's StreamingResponse watches the client in a task of its own, whose end leaves reference cycles.
    """

    def __init__(self, pieces: list[bytes], media_type: str = "application/json") -> None:
        self._pieces = pieces
        super().__init__(headers={"content-length": str(sum(map(len, pieces))), "content-type": media_type})

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """As ASGI."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send({**start, PIECES: self._pieces})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _parts(value: Any, depth: int) -> Iterator[str]:
    """The text of a value in parts: the elements of lists and objects, down to `depth`, each by itself."""
    if depth and isinstance(value, Struct):
        named = zip(value.__struct_encode_fields__, astuple(value), strict=True)
        value = {name: each for name, each in named if each is not UNSET}
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
