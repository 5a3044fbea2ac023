"""The lower limit of cost: a server on uvloop that only cuts frames, and answers each like a real server.

    python -m benchmarks.echo ANSWER [PEM]

prints `ready PORT`. ANSWER, in hex, follows the correlation id in each answer, and is the same for every request. One
write answers all requests of one read. PEM: a file with private key and certificate, for TLS as uvloop has it.

House rule: it does nothing that a Python server can leave out.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import sys
from typing import cast

import uvloop

_unpack_size = struct.Struct(">i").unpack_from
SIZE_BYTES = 4


class Echo(asyncio.Protocol):
    """A connection. answer: the bytes behind the correlation id in each answer."""

    def __init__(self, answer: bytes) -> None:
        self._head = (len(answer) + 4).to_bytes(4, "big")
        self._tail = answer
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each complete frame."""
        if self._received:
            data = self._received + data
            self._received = b""
        size = len(data)
        if size >= SIZE_BYTES and _unpack_size(data)[0] + SIZE_BYTES == size:
            self._transport.write(self._head + data[8:12] + self._tail)
            return
        answers = []
        position = 0
        while size - position >= SIZE_BYTES:
            end = position + SIZE_BYTES + _unpack_size(data, position)[0]
            if end > size:
                break
            answers.append(self._head + data[position + 8 : position + 12] + self._tail)
            position = end
        self._received = data[position:]
        if answers:
            self._transport.write(b"".join(answers))


async def serve(answer: bytes, pem: str | None) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    context = None
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
    server = await loop.create_server(lambda: Echo(answer), "127.0.0.1", 0, backlog=1024, ssl=context)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(bytes.fromhex(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
