"""Groups that change their kind, and requests of the other protocol."""

from __future__ import annotations

from coordinator.group.events import CommitOffsets, DescribeGroup, Heartbeat, ListGroups
from coordinator.group.state import Kind
from protocol.messages import HeartbeatRequest
from schemas.errors import ErrorCode
from tests.group.consumer.play import CLIENT, GROUP, Play
from tests.support.requests import commit_request


def commit_from_outside(play: Play) -> None:
    """A commit of a simple consumer makes a classic group that has offsets only."""
    play.handle(CommitOffsets("r", 8, CLIENT, commit_request(GROUP, {("t", 0): 5})))


def test_empty_classic_group_becomes_one_of_the_consumer_protocol(play: Play) -> None:
    """It keeps its offsets and starts counting anew."""
    commit_from_outside(play)
    assert play.coordinator.groups[GROUP].kind is Kind.CLASSIC
    assert play.join("a").member_epoch == 2
    assert play.group.offsets["t"][0].offset == 5
    assert play.fetch(None, -1).topics[0].partitions[0].committed_offset == 5


def test_classic_requests_know_no_such_group(play: Play) -> None:
    """DescribeGroups shows it Dead, a classic heartbeat is of an unknown member."""
    play.join("a")
    described = play.handle(DescribeGroup("r", 6, GROUP))
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    body = HeartbeatRequest(group_id=GROUP, member_id="a", generation_id=2)
    assert play.handle(Heartbeat("r", body)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_lists_have_types(play: Play) -> None:
    """ListGroups names the type and filters by it and by the states of both kinds."""
    play.join("a")
    (listed,) = play.handle(ListGroups("r", [], ["Consumer"]))
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("consumer", "Stable", "consumer")
    assert play.handle(ListGroups("r", [], ["classic"])) == []
    assert play.handle(ListGroups("r", ["reconciling"], [])) == []
