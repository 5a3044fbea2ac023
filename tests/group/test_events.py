"""Events: each one of a client states what the runtime has to know of it, and can be refused in its own form."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from coordinator.group import events
from coordinator.group.any_group import Prepared
from coordinator.group.coordinator import Coordinator
from coordinator.group.events import (
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
from protocol.messages import encode
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
