"""Keys of a provider, from a file and over HTTP: read, read again, and limited."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coordinator.loop.clock import Arguments
from coordinator.loop.lines import Lines, Sparing
from coordinator.server.key_source import BYTES_MAX, MISSED_PAUSE_MS, KeySource, Reading, fetched
from tests.server.harness import ManualClock
from tests.support.certificates import Certificates
from tests.support.patience import WITHIN_S
from tests.support.tokens import jwk, jwks

REFRESH_MS = 60_000


class Provider(ThreadingHTTPServer):
    """An identity provider that counts who asks. content: of its answer. elsewhere: where it sends clients instead."""

    def __init__(self) -> None:
        self.content = jwks(jwk("ec"))
        self.asked = 0
        self.elsewhere = ""
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers with the content."""

    def do_GET(self) -> None:
        """Any path."""
        assert isinstance(self.server, Provider)
        self.server.asked += 1
        if self.server.elsewhere:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.end_headers()
            return
        self.send_response(200 if self.server.content else 500)
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        """Write no lines."""


@contextmanager
def provider(certificate: Path | None = None) -> Iterator[Provider]:
    """A provider that listens. certificate: with TLS, as this server."""
    with Provider() as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Served:
    """A source, its clock and its lines."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.log = io.StringIO()
        lines = Sparing(Lines(self.log, "text", 1, self.clock), self.clock)
        self._taken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hop(take: Callable[[*Arguments], object], *found: *Arguments) -> None:
            def taken() -> None:
                take(*found)
                self._taken.set()

            loop.call_soon_threadsafe(taken)

        self.source = KeySource(url, None, REFRESH_MS, self.clock, lines, hop)

    async def taken(self) -> None:
        """Wait until the next reading has ended."""
        await asyncio.wait_for(self._taken.wait(), WITHIN_S)
        self._taken.clear()

    def names(self) -> list[str]:
        """The names of the keys."""
        return [key.name for key in self.source.keys]


async def test_keys_are_read_again() -> None:
    """Over HTTP: at the start, then each time when the refresh is due. If they can't be read, the last ones stay."""
    with provider() as server:
        served = Served(f"http://127.0.0.1:{server.server_port}/keys")
        await served.source.start()
        await served.taken()
        assert served.names() == ["ec"]
        server.content = jwks(jwk("ed25519"))
        served.clock.advance(REFRESH_MS)
        await served.taken()
        assert served.names() == ["ed25519"]
        server.content = b""
        served.clock.advance(REFRESH_MS)
        await served.taken()
        assert served.names() == ["ed25519"]
        assert "can't be read: " in served.log.getvalue()
        await served.source.stop()
        served.clock.advance(REFRESH_MS)
        assert server.asked == 3


async def test_a_missed_key_is_looked_for_with_a_pause() -> None:
    """A token with an unknown key has the keys read again; a stranger can't have them read all the time."""
    with provider() as server:
        served = Served(f"http://127.0.0.1:{server.server_port}/keys")
        await served.source.start()
        await served.taken()
        for _ in range(5):
            served.source.missed()
        served.clock.advance(MISSED_PAUSE_MS)
        for _ in range(5):
            served.source.missed()
        await served.taken()
        assert server.asked == 2
        await served.source.stop()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_end_waits_for_the_thread(scheme: str) -> None:
    """A provider takes the connection and says nothing, not even in TLS: the thread ends with the source, silently."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Served(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/keys")
        starting = asyncio.create_task(served.source.start())
        peer, _ = await asyncio.to_thread(listening.accept)
        with peer:
            await asyncio.to_thread(peer.recv, 1)  # its request, or its hello
            await served.source.stop()
            assert "jwks" not in {thread.name for thread in threading.enumerate()}
            await starting
            assert served.log.getvalue() == ""


def test_nothing_connects_behind_the_end() -> None:
    """A thread that was late, because it waited for a name, say, begins no TLS."""
    with provider() as server:
        reading = Reading()
        reading.cut_off()
        with pytest.raises(OSError, match="the server ends"):
            fetched(f"https://localhost:{server.server_port}/keys", None, reading)
        assert server.asked == 0


@pytest.mark.parametrize("content", [None, b"x", bytes(BYTES_MAX + 1)], ids=["missing", "broken", "large"])
async def test_a_file_without_keys(tmp_path: Path, content: bytes | None) -> None:
    """The start ends all the same, with no keys and a line."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    served = Served(path.as_uri())
    await served.source.start()
    assert served.names() == []
    assert served.source.problem
    await served.source.stop()


def test_no_redirection_leads_out_of_tls(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of an https URL come by https alone, as with Java: else whoever is on the way could replace them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    with provider(certificates.server) as secure, provider(certificates.server) as other, provider() as plain:
        url = f"https://localhost:{secure.server_port}/keys"
        assert fetched(url, None, Reading()) == secure.content
        secure.elsewhere = f"https://localhost:{other.server_port}/keys"
        assert fetched(url, None, Reading()) == other.content
        secure.elsewhere = f"http://127.0.0.1:{plain.server_port}/keys"
        with pytest.raises(OSError, match="it redirects to http"):
            fetched(url, None, Reading())
        assert plain.asked == 0


def test_a_file_has_keys(tmp_path: Path) -> None:
    """By its URL, whatever its name."""
    path = tmp_path / "my keys.json"
    path.write_bytes(jwks(jwk("ec")))
    assert fetched(path.as_uri(), None, Reading()) == path.read_bytes()
