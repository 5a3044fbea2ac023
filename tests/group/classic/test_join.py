"""JoinGroup beyond what the KIPs say."""

from __future__ import annotations

import pytest

from coordinator.group.client import Client
from coordinator.group.events import JoinGroup
from coordinator.group.notes import UnexpectedRequest
from schemas.errors import ErrorCode
from tests.group.harness import Bench, subscription


def test_member_ids_start_with_a_name(bench: Bench) -> None:
    """The name is the instance id, or the client id; a missing client id counts as empty."""
    bench.static("a").join()
    assert list(bench.group().members) == ["a-0001"]
    assert bench.join(client=Client("", "/h")).response.member_id == "-0002"
    assert bench.join(client=Client("app", "/h")).response.member_id == "app-0003"


def test_a_join_sent_again_supersedes_the_first(bench: Bench) -> None:
    """The first JoinGroup gets an answer and the member counts once (KAFKA-20938)."""
    peer = bench.dynamic("a")
    bench.settle(peer)
    bench.dynamic("b").enter()
    bench.dynamic("c").join()
    first = peer.join()
    second = peer.join()
    assert (first.error, first.response.member_id) == (ErrorCode.NOT_COORDINATOR, peer.member_id)
    assert second.waits
    assert bench.group().joined_count == 2


def test_a_pending_id_with_an_instance_id_is_an_error(bench: Bench) -> None:
    """The JoinGroup is refused, and the client may still use the pending id without an instance id."""
    peer = bench.dynamic("a")
    peer.join()
    call = peer.join(instance="x")
    assert (call.error, call.response.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert len(bench.said(UnexpectedRequest)) == 1
    assert peer.join().waits


def test_a_shorter_session_timeout_counts_while_the_join_waits(bench: Bench) -> None:
    """A heartbeat meanwhile must not find a timer that is later than its deadline."""
    peers = [bench.static(name, session_ms=200_000) for name in "ab"]
    bench.settle(*peers)
    assert peers[0].join(session_ms=10_000).waits
    assert peers[0].heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("static", [True, False])
def test_a_name_too_long_for_an_id_is_refused(bench: Bench, *, static: bool) -> None:
    """The JoinGroup changes nothing, because a member id made from the name would fit no answer and no record."""
    longest, name = "x" * (2**15 - 1 - len("-0001")), "x" * (2**15 - 1)
    refused = bench.join(instance=name) if static else bench.join(client=Client(name, "/h"))
    assert (refused.error, refused.response.member_id) == (ErrorCode.INVALID_REQUEST, "")
    assert bench.coordinator.groups == {}
    taken = bench.join(instance=longest) if static else bench.join(client=Client(longest, "/h"), version=3)
    assert taken.waits


@pytest.mark.parametrize(("version", "name"), [(5, ""), (6, ""), (7, None), (9, None)])
def test_an_empty_protocol_name_is_null_where_it_can_be(bench: Bench, version: int, name: str | None) -> None:
    """Apache Kafka's JoinGroupResponse does so from v7 on, for a generation, a rejoin and a static restart alike."""
    _, b = bench.seated("a", "b", protocols=[("", subscription("t"))], version=version)
    again = b.join(), b.restart()
    answers = [call.response for call in bench.calls.values() if isinstance(call.event, JoinGroup)]
    assert all(call.response.generation_id == 1 for call in again)
    assert {answer.protocol_name for answer in answers} == {name}
