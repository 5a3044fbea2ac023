"""The driver hands each answer to the script that asked, however the bytes come, and notices a lost server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.driver import READ_BYTES, Driver, Link, Script, Stuck, clock
from benchmarks.stage import certified
from tests.support.certificates import client_context


def frame(text: bytes) -> bytes:
    """Bytes with their size in front."""
    return len(text).to_bytes(4, "big") + text


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server for one connection, which `serve` talks to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def asks(text: bytes, heard: list[bytes]) -> Script:
    """One question; what was answered goes to `heard`."""
    heard.append((yield frame(text)))


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def test_pipelined_answers_go_to_who_asked_in_order() -> None:
    """Two scripts share a connection; both answers come with one read."""

    def serve(connection: socket.socket) -> None:
        assert receive(connection, 14) == frame(b"one") + frame(b"two")
        connection.sendall(frame(b"first") + frame(b"second"))

    first: list[bytes] = []
    second: list[bytes] = []
    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        (link,) = driver.connect(1)
        driver.start(link, asks(b"one", first), asks(b"two", second))
        driver.run()
    assert (first, second) == ([frame(b"first")], [frame(b"second")])


def test_an_answer_in_pieces_is_put_together() -> None:
    """The driver joins pieces of any length, even single bytes of the size."""
    answer = frame(b"x" * 1000)

    def serve(connection: socket.socket) -> None:
        receive(connection, 7)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(0, len(answer), 3):
            connection.sendall(answer[place : place + 3])

    heard: list[bytes] = []
    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        driver.start(driver.connect(1)[0], asks(b"one", heard))
        driver.run()
    assert heard == [answer]


def test_a_request_larger_than_the_kernel_takes_arrives_whole() -> None:
    """The driver sends the rest of a request when the kernel has room."""
    text = bytes(range(256)) * 100_000

    def serve(connection: socket.socket) -> None:
        assert receive(connection, len(text) + 4) == frame(text)
        connection.sendall(frame(b"thanks"))

    heard: list[bytes] = []
    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        driver.start(driver.connect(1)[0], asks(text, heard))
        driver.run()
    assert heard == [frame(b"thanks")]


def test_a_script_that_waits_goes_on_when_its_time_has_come() -> None:
    """A script that yields a number goes on at that time, without an answer."""
    due = clock() + 0.02
    went_on: list[float] = []

    def waits() -> Script:
        yield due
        went_on.append(clock())
        yield frame(b"one")

    def serve(connection: socket.socket) -> None:
        receive(connection, 7)
        connection.sendall(frame(b"end"))

    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        driver.start(driver.connect(1)[0], waits())
        driver.run()
    assert went_on
    assert went_on[0] >= due


def test_a_closed_connection_is_told() -> None:
    """No script waits for an answer that can't come."""

    def serve(connection: socket.socket) -> None:
        receive(connection, 7)

    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        driver.start(driver.connect(1)[0], asks(b"one", []))
        with pytest.raises(Stuck):
            driver.run()


@contextmanager
def secure_server(folder: Path, serve: Callable[[socket.socket], None]) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port of a server with TLS for one connection, and the context of its client."""
    ca, identity = certified(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)

    def shaken(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            serve(secured)

    with server(shaken) as port:
        yield port, client_context(ca)


def test_an_encrypted_answer_of_many_records_is_put_together(tmp_path: Path) -> None:
    """No byte stays behind in TLS where epoll doesn't see it, with a handshake made at once or later."""
    answer = frame(b"x" * (2 * READ_BYTES - 4))  # two whole records

    def serve(connection: socket.socket) -> None:
        assert receive(connection, 7) == frame(b"one")
        connection.sendall(answer)
        connection.recv(1)  # until the client has the answer: an end of the connection would wake it

    heard: list[bytes] = []
    with secure_server(tmp_path, serve) as (port, context), Driver("127.0.0.1", port, context) as driver:
        (link,) = driver.connect(1)
        driver.start(link, asks(b"one", heard))
        driver.run()
        driver.close()
    with secure_server(tmp_path, serve) as (port, context), Driver("127.0.0.1", port, context) as driver:
        (link,) = driver.arrive(1)
        driver.enter(link, asks(b"one", heard))
        driver.run()
        driver.close()
    assert heard == [answer, answer]


def test_a_client_that_leaves_closes_its_connection_and_another_can_come() -> None:
    """The last script of a connection closes it: the server hears the end, and the driver forgets the connection."""
    ends: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        receive(connection, 7)
        connection.sendall(frame(b"yes"))
        ends.append(connection.recv(1))

    def last(driver: Driver, link: Link) -> Script:
        yield frame(b"one")
        driver.leave(link)

    with server(serve) as port, Driver("127.0.0.1", port) as driver:
        (link,) = driver.arrive(1)
        driver.enter(link, last(driver, link))
        driver.run()
        assert driver.links == []
    assert ends == [b""]


def test_a_handshake_that_fails_ends_the_work(tmp_path: Path) -> None:
    """A server that hangs up in a handshake isn't measured."""
    ca, _ = certified(tmp_path)

    def hang_up(connection: socket.socket) -> None:
        connection.recv(READ_BYTES)

    with server(hang_up) as port, Driver("127.0.0.1", port, client_context(ca)) as driver:
        (link,) = driver.arrive(1)
        # The end of the connection may be there at the first step, or come later.
        with pytest.raises(Stuck, match="handshake"):  # noqa: PT012
            driver.enter(link, asks(b"one", []))
            driver.run()
