"""A proxy in front of one TCP port, which a test may cut: nothing passes any more, and no connection closes.

    with TcpProxy(member_port) as proxy:
        engine = open_engine([proxy.address])
        proxy.cut()         # as if a cable were pulled: what is sent is lost, new connections hang
        proxy.heal()        # new connections pass; those of the time of the cut are reset

House rule: it never looks at the bytes.
"""

from __future__ import annotations

import asyncio

from coordinator.testing.loop_thread import LoopThread
from tests.support.started import Closes

CHUNK = 64 * 1024


class TcpProxy(Closes):
    """See the module. address: HOST:PORT for clients."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = LoopThread("proxy")
        self._is_cut = False
        self._pairs: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server = self._loop.run(self._listen())
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._loop.do(lambda: self._set(is_cut=True))

    def heal(self) -> None:
        """Let new connections pass; the earlier ones are over."""
        self._loop.do(lambda: self._set(is_cut=False))

    def close(self) -> None:
        """Close everything."""

        async def end() -> None:
            self._server.close()
            for pair in list(self._pairs):
                pair.cancel()
            await asyncio.gather(*self._pairs, return_exceptions=True)

        self._loop.run(end())
        self._loop.end()

    def _set(self, *, is_cut: bool) -> None:
        was_cut, self._is_cut = self._is_cut, is_cut
        if was_cut and not is_cut:
            for pair in list(self._pairs):
                pair.cancel()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = asyncio.current_task()
        assert pair is not None
        self._pairs.add(pair)
        other: asyncio.StreamWriter | None = None
        try:
            while self._is_cut:
                if not await reader.read(CHUNK):
                    return
            far, other = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [asyncio.ensure_future(self._pass(reader, other)), asyncio.ensure_future(self._pass(far, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._pairs.discard(pair)
            for each in (writer, other):
                if each is not None:
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if not self._is_cut:
                writer.write(data)
                await writer.drain()
