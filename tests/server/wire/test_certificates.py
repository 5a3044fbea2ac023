"""Certificates that change while the server runs: new connections get them, and open ones keep theirs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from coordinator.config import ConfigError, load
from coordinator.server.wire.certificates import CHECK_EVERY_MS, settings_of
from coordinator.server.wire.certificates import Certificates as Reloading
from protocol.messages import ApiVersionsRequest
from schemas.errors import ErrorCode
from tests.server.harness import Serving, heartbeat_request, seat, serving
from tests.server.tls_peer import greeted
from tests.support.certificates import HOSTS, Certificates, client_context
from tests.support.tenure import Tenure


def listener(certificates: Certificates, folder: Path) -> list[str]:
    """Settings of a server with a TLS listener whose files lie in a folder, so that a test may change them."""
    folder.mkdir(exist_ok=True)
    for path in (certificates.server, certificates.ca):
        shutil.copy(path, folder)
    return [
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'server.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'ca.pem'}",
        "ssl.client.auth=required",
    ]


def replaced(path: Path, text: str) -> None:
    """Put another file in the place of one, as programs that renew certificates do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


async def shown(server: Serving, certificates: Certificates) -> bytes:
    """The certificate that the server shows to a new client."""
    peer = await greeted(server, client_context(certificates.ca, certificates.client))
    assert (await peer.ask(ApiVersionsRequest(), 0)).api_keys
    shown = peer.tls.getpeercert(binary_form=True)
    peer.close()
    assert shown is not None
    return shown


async def line(server: Serving, event: str, count: int = 1) -> str:
    """The message of the last such line, once there are so many; the clock moves on to the next look.

    The look before has ended: a clock that moves on during a look begins no other.
    """
    await server.until(lambda: all(each.name != "certificates" for each in threading.enumerate()))
    await server.barrier()
    await server.advance(CHECK_EVERY_MS)
    await server.until(lambda: len(server.events(event)) >= count)
    return str(server.events(event)[-1]["message"])


async def test_a_new_certificate_is_shown_and_nobody_is_dropped(certificates: Certificates, tmp_path: Path) -> None:
    """A member from before goes on on its connection; a client that comes sees the new certificate."""
    async with serving(*listener(certificates, tmp_path)) as server:
        member = await greeted(server, client_context(certificates.ca, certificates.client))
        joined = await seat(member, "g", "i")
        before = await shown(server, certificates)
        fresh = certificates.authority.issue("localhost", hosts=HOSTS)
        replaced(tmp_path / "server.pem", fresh.pem())
        assert "Listener SSL has read its certificates again" in await line(server, "certificates_loaded")
        after = await shown(server, certificates)
        assert after != before
        assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        await line(server, "certificates_loaded")
        assert len(server.events("certificates_loaded")) == 1


async def test_a_ca_that_is_taken_away_lets_nobody_in(certificates: Certificates, tmp_path: Path) -> None:
    """From the next look on, its clients are refused, and those of the new CA let in."""
    async with serving(*listener(certificates, tmp_path)) as server:
        await shown(server, certificates)
        replaced(tmp_path / "ca.pem", certificates.foreign_ca.read_text())
        await line(server, "certificates_loaded")
        peer = await greeted(server, client_context(certificates.ca, certificates.client))
        assert (await peer.said()).endswith("UNKNOWN_CA")
        other = await greeted(server, client_context(certificates.ca, certificates.foreign_client))
        assert (await other.ask(ApiVersionsRequest(), 0)).api_keys


async def test_the_end_waits_for_a_look(certificates: Certificates, tmp_path: Path) -> None:
    """A server that ends while a thread reads its files goes on once that is over."""
    async with serving(*listener(certificates, tmp_path)) as server:
        assert server.server.certificates is not None
        (tmp_path / "server.pem").unlink()
        os.mkfifo(tmp_path / "server.pem")
        server.server.certificates.check(all_of_them=True)
        stopping = asyncio.ensure_future(server.server.certificates.stop())
        await asyncio.to_thread((tmp_path / "server.pem").write_bytes, certificates.server.read_bytes())
        await stopping
        assert all(each.name != "certificates" for each in threading.enumerate())


async def test_a_broken_file_changes_nothing_and_is_said_once(certificates: Certificates, tmp_path: Path) -> None:
    """Half a file, or none: an ERROR line, and the old certificate; the next whole file is taken."""
    async with serving(*listener(certificates, tmp_path)) as server:
        before = await shown(server, certificates)
        text = certificates.server.read_text()
        replaced(tmp_path / "server.pem", text[: len(text) // 2])
        assert "stay as they are" in await line(server, "certificates_not_loaded")
        (tmp_path / "server.pem").unlink()
        assert "no such file" in await line(server, "certificates_not_loaded", 2)
        assert server.events("certificates_not_loaded")[0]["level"] == "error"
        assert await shown(server, certificates) == before
        for _ in range(3):
            await server.advance(CHECK_EVERY_MS)
        replaced(tmp_path / "server.pem", certificates.authority.issue("localhost", hosts=HOSTS).pem())
        await line(server, "certificates_loaded")
        assert len(server.events("certificates_not_loaded")) == 2
        assert await shown(server, certificates) != before


async def test_an_ended_certificate_is_warned_of(certificates: Certificates, tmp_path: Path) -> None:
    """At the start, and when it is read again."""
    settings = listener(certificates, tmp_path)
    replaced(tmp_path / "server.pem", certificates.expired.read_text())
    async with serving(*settings) as server:
        assert len(server.events("certificate_ended")) == 1
        replaced(tmp_path / "server.pem", certificates.expired.read_text() + "\n")
        await line(server, "certificates_loaded")
        assert len(server.events("certificate_ended")) == 2


def test_a_wrong_store_names_setting_and_listener(certificates: Certificates, tmp_path: Path) -> None:
    """With several listeners it says whose."""
    config = load(sets=[*listener(certificates, tmp_path), "listener.name.ssl.ssl.keystore.location=/missing"])[0]
    with pytest.raises(ConfigError, match=r"^ssl.keystore.location: /missing: no such file .* \(listener SSL\)$"):
        Reloading(config)


def test_a_listener_with_sasl_asks_for_certificates_only_by_a_setting_of_its_own() -> None:
    """As in Kafka (KIP-684): the default of all listeners isn't meant for it."""
    given = [
        "listeners=A://h:1,B://h:2,C://h:3",
        "ssl.client.auth=required",
        "listener.name.b.ssl.client.auth=requested",
    ]
    config = load(sets=[*given, "listener.security.protocol.map=A:SASL_SSL,B:SASL_SSL,C:SSL"])[0]
    assert [settings_of(config, name).ssl_client_auth for name in "ABC"] == ["none", "requested", "required"]


# The process.


def seen_by(port: int, certificates: Certificates) -> bytes | None:
    """The certificate that a process shows."""
    context = client_context(certificates.ca, certificates.client)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_has_certificates_read_at_once(certificates: Certificates, tmp_path: Path, workers: int) -> None:
    """Each worker shows the new certificate then; the process goes on."""
    settings = dict(each.split("=", 1) for each in listener(certificates, tmp_path / "files"))
    del settings["listeners"]
    with Tenure(
        {**settings, "listener.security.protocol.map": "PLAINTEXT:SSL"},
        directory=tmp_path / "server",
        arguments=["--workers", str(workers)] if workers > 1 else [],
    ) as tenure:
        before = [seen_by(port, certificates) for port in tenure.ports]
        replaced(tmp_path / "files" / "server.pem", certificates.authority.issue("localhost", hosts=HOSTS).pem())
        tenure.send_signal(signal.SIGHUP)
        tenure.wait_for_event("certificates_loaded", count=workers)
        after = [seen_by(port, certificates) for port in tenure.ports]
        assert len(set(before)) == 1
        assert len(set(after)) == 1
        assert before != after
        assert tenure.stop() == 0


def test_a_worker_that_dies_beside_a_broken_file_has_the_last_good_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    """It serves again at its first start, with the certificate that was read last, and says so in one ERROR line."""
    settings = dict(each.split("=", 1) for each in listener(certificates, tmp_path / "files"))
    del settings["listeners"]
    with Tenure(
        {**settings, "listener.security.protocol.map": "PLAINTEXT:SSL"},
        directory=tmp_path / "server",
        arguments=["--workers", "2"],
    ) as tenure:
        replaced(tmp_path / "files" / "server.pem", certificates.authority.issue("localhost", hosts=HOSTS).pem())
        tenure.send_signal(signal.SIGHUP)
        tenure.wait_for_event("certificates_loaded", count=2)
        last = seen_by(tenure.ports[0], certificates)
        replaced(tmp_path / "files" / "server.pem", "broken")
        tenure.send_signal(signal.SIGHUP)
        tenure.wait_for_event("certificates_not_loaded", count=2)
        mark = tenure.mark()
        os.kill(tenure.worker_pid(1), signal.SIGKILL)
        tenure.wait_for_event("worker_back", since=mark)
        assert seen_by(tenure.ports[1], certificates) == last
        (said,) = tenure.events("certificates_not_loaded", since=mark)
        assert (said["level"], said["listener"]) == ("error", "PLAINTEXT")
        (ended,) = tenure.events("worker_ended", since=mark)
        assert ended["exit_code"] == -signal.SIGKILL
        replaced(tmp_path / "files" / "server.pem", certificates.authority.issue("localhost", hosts=HOSTS).pem())
        tenure.send_signal(signal.SIGHUP)
        tenure.wait_for_event("certificates_loaded", count=2, since=mark)
        assert seen_by(tenure.ports[0], certificates) == seen_by(tenure.ports[1], certificates) != last
        assert tenure.stop() == 0
