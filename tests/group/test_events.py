"""Events: each one of a client states what the runtime has to know of it, and can be refused in its own form."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from coordinator.group import events
from coordinator.group.any_group import Prepared
from coordinator.group.client import NOBODY
from coordinator.group.coordinator import Coordinator
from coordinator.group.events import (
    SHARED_BYTES_MAX,
    ClientEvent,
    CommitInTransaction,
    CommitOffsets,
    CommitPrepared,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    EndTransaction,
    EraseOffsets,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from protocol import messages
from protocol.messages import JoinGroupRequest, decode, encode
from schemas.errors import ErrorCode
from tests.group.harness import SOMEBODY

TOPIC = messages.OffsetCommitRequest.OffsetCommitRequestTopic(
    name="t", partitions=[messages.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=3)]
)
EVENTS: list[tuple[Any, int]] = [
    (JoinGroup("r", 5, SOMEBODY, messages.JoinGroupRequest(member_id="m"), "x"), 5),
    (SyncGroup("r", 5, SOMEBODY, messages.SyncGroupRequest()), 5),
    (Heartbeat("r", messages.HeartbeatRequest()), 4),
    (LeaveGroup("r", 2, SOMEBODY, messages.LeaveGroupRequest()), 2),
    (CommitOffsets("r", 8, SOMEBODY, messages.OffsetCommitRequest(topics=[TOPIC])), 8),
    (FetchOffsets("r", "g", None, require_stable=False), 8),
    (DeleteOffsets("r", messages.OffsetDeleteRequest()), 0),
    (DescribeGroup("r", 5, "g"), 5),
    (DeleteGroup("r", "g"), 2),
    (EraseOffsets("r", "g", []), 2),
    (ConsumerHeartbeat("r", 1, SOMEBODY, messages.ConsumerGroupHeartbeatRequest(), ""), 1),
    (DescribeConsumerGroup("r", "g"), 1),
]


ANOTHER_FORM = {ListGroups, CommitPrepared, CommitInTransaction, EndTransaction}
OF_CLIENTS = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, ClientEvent)}
OF_CLIENTS.remove(ClientEvent)


def error_in(body: Any) -> ErrorCode:
    """The error code of an answer, on top or at its one partition."""
    return ErrorCode(body.error_code if hasattr(body, "error_code") else body.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("event", "version"), EVENTS)
def test_each_event_is_refused_with_the_error(event: ClientEvent, version: int) -> None:
    """The answer has the error and can be encoded in the request's version."""
    body = event.refused(ErrorCode.NOT_COORDINATOR)
    assert error_in(body) is ErrorCode.NOT_COORDINATOR
    assert encode(body, version)


def test_no_event_is_left_out() -> None:
    """Every event with a request has a refusal; for ListGroups None, for three the error itself."""
    assert {type(event) for event, _ in EVENTS} | ANOTHER_FORM == OF_CLIENTS
    assert ListGroups("r", [], []).refused(ErrorCode.NOT_COORDINATOR) is None
    prepared = CommitPrepared("r", SOMEBODY, messages.OffsetCommitRequest(), Prepared({}, [], set(), fits=True))
    assert prepared.refused(ErrorCode.NOT_COORDINATOR) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Heartbeat, ErrorCode.NONE),
        (SyncGroup, ErrorCode.REBALANCE_IN_PROGRESS),
        (JoinGroup, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (CommitOffsets, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_while_loading(kind: type, expected: ErrorCode) -> None:
    """Old clients don't know COORDINATOR_LOAD_IN_PROGRESS in Heartbeat and SyncGroup, so those get another answer."""
    event: Any = next(event for event, _ in EVENTS if type(event) is kind)
    assert error_in(event.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) is expected


def test_an_event_of_a_client_without_flags_is_no_class() -> None:
    """Flags that are forgotten fail at the import, in place of a request that goes on while the log fails."""
    with pytest.raises(AssertionError, match="Forgets states no flags"):
        type("Forgets", (ClientEvent,), {})


def test_the_core_handles_each_event() -> None:
    """Each event of a client has a handler, and each of the others that the core may get."""
    assert set(Coordinator._HANDLERS) == OF_CLIENTS | set(get_args(Event)) - {ClientEvent}


def test_version_0_has_no_rebalance_timeout() -> None:
    """In version 0 the session timeout is also the rebalance timeout; later versions have both."""
    body = JoinGroupRequest(session_timeout_ms=10, rebalance_timeout_ms=20)
    assert JoinGroup("r", 0, NOBODY, body, "").rebalance_timeout_ms == 10
    assert JoinGroup("r", 1, NOBODY, body, "").rebalance_timeout_ms == 20


def test_protocols_come_in_the_order_of_preference() -> None:
    """Each protocol name comes with its metadata, in the order of the request."""
    listed = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in ("b", "a")]
    body = JoinGroupRequest(protocols=listed)
    assert JoinGroup("r", 5, NOBODY, body, "").listed() == [("b", b"b"), ("a", b"a")]


def join_with(name: str, metadata_bytes: int) -> JoinGroup:
    """A JoinGroup of one protocol, decoded from bytes of its own."""
    body = JoinGroupRequest(
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=bytes(metadata_bytes))]
    )
    return JoinGroup("r", 5, NOBODY, decode(JoinGroupRequest, encode(body, 5), 5), "")


def test_members_with_equal_protocols_share_one_list() -> None:
    """A thousand members of a group keep one list; a long one, which a client can make up at will, isn't kept."""
    assert join_with("range", 40).listed() is join_with("range", 40).listed()
    assert join_with("range", 40).listed() != join_with("range", 41).listed()
    for name, metadata_bytes in (("range", SHARED_BYTES_MAX), ("r" * SHARED_BYTES_MAX, 40)):
        one, other = (join_with(name, metadata_bytes).listed() for _ in range(2))
        assert one == other
        assert one is not other
