"""Counts of requests."""

from __future__ import annotations

import pytest

from coordinator.testing import Tenure
from protocol.messages import MetadataRequest
from tests.support.raw import Closed, Connection
from tests.support.scripted import settle
from tests.testing.conftest import Join, port_of


def test_each_request_counts_for_its_api_and_its_client(server: Tenure, member: Join) -> None:
    """All heartbeats of a member count, although a server answers repeated ones by their bytes."""
    one, other = member("one"), member("other")
    settle(one, other)
    for _ in range(5):
        assert one.heartbeat() == 0
    assert other.heartbeat() == 0
    assert server.requests.count("Heartbeat", "one") == 5
    assert server.requests.count("Heartbeat") == 6
    assert server.requests.by_client["other"] == {"Heartbeat": 1, "JoinGroup": 2, "SyncGroup": 1}
    assert server.requests.count(client_id="other") == 4
    assert server.requests.count() == 12


def test_a_request_without_a_client_id_counts_under_the_empty_one(server: Tenure) -> None:
    """A null client id is "", and bytes that are no request count nowhere and cost their connection."""
    with Connection(port_of(server), None) as connection:
        connection.ask(MetadataRequest(topics=[]), 4)
        assert server.requests.by_client == {"": {"Metadata": 1}}
        connection.send_bytes(b"\0\0\0\x02\x7f\x7f")
        with pytest.raises(Closed):
            connection.receive_frame()
    assert server.requests.count() == 1


def test_the_counts_can_begin_anew(server: Tenure, member: Join) -> None:
    """After `clear` only later requests count; looks at a group never do."""
    settle(member("one"))
    assert server.group("workers").state == "Stable"
    server.requests.clear()
    assert server.group("workers").members
    assert server.requests.by_client == {}


def test_an_api_that_kafka_does_not_have_is_refused(server: Tenure) -> None:
    """A slip in a name would count nothing for ever."""
    with pytest.raises(ValueError, match="there is no API 'Commit'"):
        server.requests.count("Commit")
