"""A benchmark's client comes in through each listener of a secured Tenure, as USER and as nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import entry, frames, servers
from benchmarks.driver import Driver, Script, Stuck
from benchmarks.entry import LISTENERS, Entry, log_in
from benchmarks.members import UnexpectedAnswer
from benchmarks.stage import certified, cpus


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[servers.Running, Path]]:
    """A secured Tenure, and the file of its CA."""
    ca, identity = certified(tmp_path_factory.mktemp("certificates"))
    with servers.tenure({}, cpus()[0], identity=identity) as server:
        yield server, ca


def come_in(server: servers.Running, ca: Path, listener: str) -> bytes:
    """Return the answer to a client's first request."""
    answers: list[bytes] = []

    def script() -> Script:
        yield from log_in(listener)
        answers.append((yield frames.api_versions()))
        # Answered on a listener with SASL only after a login.
        answers.append((yield frames.metadata([frames.TOPIC]).fill(0)))

    with ExitStack() as stack:
        driver = stack.enter_context(Driver("127.0.0.1", server.ports[listener], Entry(listener, str(ca)).context()))
        driver.enter(driver.arrive(1)[0], script())
        driver.run()
    assert answers[0][8:10] == b"\0\0"
    return answers[1]


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_client_comes_in_through_each_listener(secured: tuple[servers.Running, Path], listener: str) -> None:
    """It logs in where that is asked for, and its requests are answered."""
    assert frames.string(frames.TOPIC) in come_in(*secured, listener)


@pytest.mark.parametrize("listener", ["SCRAM", "PLAIN"])
def test_a_wrong_password_ends_the_work(
    secured: tuple[servers.Running, Path], listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that the server refuses isn't measured."""
    monkeypatch.setattr(entry, "PASSWORD", "another")
    monkeypatch.setattr(entry, "SALTED", bytes(64))
    with pytest.raises((UnexpectedAnswer, Stuck)):
        come_in(*secured, listener)


def test_without_a_login_the_server_refuses(
    secured: tuple[servers.Running, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listeners that ask for a login are not open: what is measured there includes the login."""
    monkeypatch.setattr(entry, "MECHANISMS", {})
    with pytest.raises(Stuck):
        come_in(*secured, "SCRAM")
