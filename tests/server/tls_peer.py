"""A client over TLS for tests: the TLS happens in memory, so a test decides about each byte on the wire.

House rule: as of the harness.
"""

from __future__ import annotations

import asyncio
import ssl

from protocol.connection import FrameReader
from tests.server.harness import Peer, Serving
from tests.support.patience import WITHIN_S


class TlsPeer(Peer):
    """One connection. `hello` begins, `finish` ends the handshake; then it is as any other peer.

    tls: its side.
    """

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        super().__init__(peer.socket, "test")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._frames = FrameReader(2**31 - 1)

    def hello(self) -> bytes:
        """The bytes of its first message."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise AssertionError

    async def finish(self) -> None:
        """Go on until the handshake is over on this side. Raises ssl.SSLError."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                assert await self._receive(), "closed"
                continue
            except ssl.SSLError:
                await self.flush()
                raise
            await self.flush()
            return

    async def finish_with(self, plain: bytes) -> None:
        """As `finish`, but send plain bytes in one piece with the last message."""
        await super().send_bytes(self.hello())
        while True:
            assert await self._receive()
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            self.tls.write(plain)
            await self.flush()
            return

    async def flush(self) -> None:
        """Send what the TLS has to say."""
        data = self._outgoing.read()
        if data:
            await super().send_bytes(data)

    async def _receive(self) -> bool:
        try:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 65_536), WITHIN_S)
        except ConnectionResetError:
            data = b""
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)

    def encrypted(self, data: bytes) -> bytes:
        """The bytes on the wire for plain ones."""
        self.tls.write(data)
        return self._outgoing.read()

    async def send_bytes(self, data: bytes) -> None:
        """Encrypt and send."""
        await super().send_bytes(self.encrypted(data))

    async def receive_frame(self) -> bytes | None:
        """The next frame; None if the connection was closed in order. Raises ssl.SSLError."""
        while (frame := self._frames.next_frame()) is None:
            try:
                data = self.tls.read(65_536)
            except ssl.SSLWantReadError:
                await self._receive()
                continue
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return None
            if not data:
                return None
            self._frames.receive_data(data)
        return frame

    async def said(self) -> str:
        """The reason of the alert by which the server ends the connection; empty if it ends without one."""
        try:
            assert await self.receive_frame() is None
        except ssl.SSLError as error:
            return error.reason or ""
        return ""


async def tls_peer(server: Serving, context: ssl.SSLContext, *, listener: int = -1) -> TlsPeer:
    """A connection whose handshake hasn't begun. listener: the number of the server's listener."""
    return TlsPeer(await server.peer(listener=listener), context)


async def greeted(server: Serving, context: ssl.SSLContext, *, listener: int = -1) -> TlsPeer:
    """A connection with its handshake done."""
    peer = await tls_peer(server, context, listener=listener)
    await peer.finish()
    return peer
