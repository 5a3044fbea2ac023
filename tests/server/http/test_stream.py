"""Events over HTTP, of a server that is killed and started again."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse

import pytest

from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "tenure.http": "127.0.0.1:0"}


@pytest.fixture
def server() -> Iterator[Tenure]:
    """With HTTP."""
    with Tenure(SETTINGS) as server:
        yield server
        hang_up()


def url_of(server: Tenure) -> str:
    """Where its HTTP is now."""
    found: str = server.events("http_listening")[-1]["url"]
    return found


@contextmanager
def stream(server: Tenure, last: str = "") -> Iterator[HTTPResponse]:
    """/events, from behind an id on."""
    headers = {"Last-Event-ID": last} if last else {}
    with urllib.request.urlopen(urllib.request.Request(f"{url_of(server)}events", headers=headers), timeout=30) as told:
        assert told.readline() == b": events follow\n"
        yield told


def message(told: HTTPResponse) -> dict[str, str]:
    """The next message, by field; comments are passed over."""
    fields: dict[str, str] = {}
    while (line := told.readline().decode().rstrip("\n")) or not fields:
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
    return fields


def groups_in(told: HTTPResponse, count: int) -> list[str]:
    """Of which groups the next so many events are."""
    return [json.loads(message(told)["data"])["group"] for _ in range(count)]


def test_a_listener_goes_on_where_it_was_after_the_server_was_killed(server: Tenure) -> None:
    """With what the former run told after its id and with all of the new one's; or with the id that it came with."""
    with stream(server) as told:
        begins = message(told)["id"]
        settle(Member(server.port, "one", "c", 5))
        first = message(told)
        assert json.loads(first["data"])["group"] == "one"
        settle(Member(server.port, "two", "c", 5))
        assert groups_in(told, 1) == ["two"]
    hang_up()
    server.kill()
    server.start()
    settle(Member(server.port, "three", "c", 5))
    for last, groups in (
        (first["id"], ["two", "one", "two", "three"]),
        (begins, ["one", "two", "one", "two", "three"]),
    ):
        with stream(server, last) as told:
            assert message(told) == {"id": last}
            assert sorted(groups_in(told, len(groups))) == sorted(groups)


def test_a_listener_with_an_id_of_nobody_is_told_of_a_gap(server: Tenure) -> None:
    """And gets all there is."""
    settle(Member(server.port, "one", "c", 5))
    with stream(server, "7-3") as told:
        assert list(message(told)) == ["id"]
        gap = message(told)
        assert gap["event"] == "gap"
        assert "may be missing" in json.loads(gap["data"])["text"]
        assert groups_in(told, 1) == ["one"]
