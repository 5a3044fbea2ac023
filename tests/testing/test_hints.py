"""The hints that an error adds to a wait in vain."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.testing import Tenure
from coordinator.testing.hints import NAMES_SHOWN, of_server, of_topics
from protocol.messages import MetadataRequest
from tests.support.heartbeats import Beating
from tests.support.raw import Connection
from tests.support.scripted import settle
from tests.testing.conftest import Join, port_of


def test_a_wait_for_nobody_says_what_else_is_there(server: Tenure, member: Join) -> None:
    """The topics, the other groups and the clients: a wrong group id or a missing topic is seen at once."""
    settle(member("one"))
    with pytest.raises(AssertionError) as caught:
        server.group("worker").wait_until_stable(members=1, timeout=0)
    _, nothing, *rest = str(caught.value).splitlines()
    assert nothing == "there is no such group: no member has joined, and no offset is committed"
    assert rest == ["topics: t", "other groups: workers", "requests came from 'one' (JoinGroup 2, SyncGroup 1)"]


def test_a_topic_that_does_not_exist_is_named(server: Tenure, member: Join) -> None:
    """A wait in vain names each topic that a client asked for or subscribed to and that isn't there, and the client."""
    settle(member("one"))
    with Connection(port_of(server), "reader") as connection:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "ordres")]
        connection.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 4)
    assert Beating(port_of(server), "other", "beats", ["invoises"]).join() == 0
    with pytest.raises(AssertionError) as caught:
        server.group("workers").wait_until(generation=9, timeout=0)
    found = [line for line in str(caught.value).splitlines() if line.startswith("there is no topic")]
    assert found == [
        "there is no topic 'ordres', which 'reader' asked for",
        "there is no topic 'invoises', which 'beats' asked for",
    ]


def test_missing_topics_have_a_limit() -> None:
    """The rest is a number; a topic that exists is none of them."""
    asked = {str(index): ["c"] for index in range(NAMES_SHOWN + 2)}
    lines = of_topics({"0": 1}, asked)
    assert lines[0] == "there is no topic '1', which 'c' asked for"
    assert lines[NAMES_SHOWN:] == ["there are 1 further topics like these"]
    assert of_topics({"t": 1}, {"t": ["c"]}) == []


def test_a_server_without_topics_and_clients_says_so() -> None:
    """Then the clients ask another server."""
    assert of_server("127.0.0.1:1", {}, [], {}) == [
        "the server has no topic",
        "no client sent a request to 127.0.0.1:1",
    ]


def test_the_names_have_a_limit() -> None:
    """The rest is a number."""
    topics = {str(index): 1 for index in range(NAMES_SHOWN + 2)}
    assert of_server("", topics, [], {})[0].endswith(f", {NAMES_SHOWN - 1} and 2 more")


def test_a_wait_on_the_thread_of_a_loop_says_so(server: Tenure) -> None:
    """The consumers of an async test stand still while its thread waits."""
    group = server.group("workers")

    async def wait() -> None:
        group.wait_until_stable(timeout=0)

    for run, is_told in ((wait, True), (lambda: asyncio.to_thread(group.wait_until_stable, timeout=0), False)):
        with pytest.raises(AssertionError) as caught:
            asyncio.run(run())
        assert ("await asyncio.to_thread(" in str(caught.value)) == is_told
