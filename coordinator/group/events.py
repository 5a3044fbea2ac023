"""What the group core is told.

Each event is a plain value: what a client asked, that a timer ran out, or that the partition comes or goes. The core
reaches for nothing itself, so the event brings it along: a fresh id for a new member, the client that asks, and an
opaque `request` by which the answer finds its way back. The core only stores and returns `request`; a test hands in a
string, the runtime an object of its own. The time (`Now`) comes beside the event.

House rule: an event is never changed after it was handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.group.client import NOBODY, Client

if TYPE_CHECKING:
    from coordinator.group.effects import TimerKey
    from coordinator.group.group import Group
    from protocol.messages import (
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        SyncGroupRequest,
    )


@dataclass(slots=True)
class JoinGroup:
    """JoinGroup v0-9. Answered by a `JoinGroupResponse`, perhaps much later.

    fresh_id: a random UUID's text, from which the core makes a member id (Kafka: GroupMetadata.generateMemberId); "" if
    the join has one already.
    """

    request: Hashable
    version: int
    client: Client
    body: JoinGroupRequest
    fresh_id: str


@dataclass(slots=True)
class SyncGroup:
    """SyncGroup v0-5. Answered by a `SyncGroupResponse`, perhaps when the leader's assignment comes."""

    request: Hashable
    version: int
    client: Client
    body: SyncGroupRequest


@dataclass(slots=True)
class Heartbeat:
    """Heartbeat v0-4. Answered by a `HeartbeatResponse`. `Coordinator.heartbeat` is the same without an event."""

    request: Hashable
    body: HeartbeatRequest
    client: Client = NOBODY


@dataclass(slots=True)
class LeaveGroup:
    """LeaveGroup v0-5. Answered by a `LeaveGroupResponse`; up to v2 its error stands on top."""

    request: Hashable
    version: int
    client: Client
    body: LeaveGroupRequest


@dataclass(slots=True)
class CommitOffsets:
    """OffsetCommit v1-9, already reduced to topic partitions that exist. Answered by an `OffsetCommitResponse`."""

    request: Hashable
    version: int
    client: Client
    body: OffsetCommitRequest


@dataclass(slots=True)
class FetchOffsets:
    """One group of an OffsetFetch. Answered by an `OffsetFetchResponse.OffsetFetchResponseGroup`.

    topics: topics with partition indexes, [] for none, None for all.
    """

    request: Hashable
    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
    require_stable: bool
    client: Client = NOBODY


@dataclass(slots=True)
class DeleteOffsets:
    """OffsetDelete v0, already reduced to topic partitions that exist. Answered by an `OffsetDeleteResponse`."""

    request: Hashable
    body: OffsetDeleteRequest
    client: Client = NOBODY


@dataclass(slots=True)
class DescribeGroup:
    """One group of a DescribeGroups. Answered by a `DescribeGroupsResponse.DescribedGroup`.

    version: of the request; from v6 on an absent group is GROUP_ID_NOT_FOUND instead of a dead group (KIP-1043).
    waiting: whether to say whom the group waits for.
    """

    request: Hashable
    version: int
    group_id: str
    waiting: bool = False
    client: Client = NOBODY


@dataclass(slots=True)
class DeleteGroup:
    """One group of a DeleteGroups. Answered by a `DeleteGroupsResponse.DeletableGroupResult`."""

    request: Hashable
    group_id: str
    client: Client = NOBODY


@dataclass(slots=True)
class ListGroups:
    """ListGroups v0-5 for this partition. Answered by a list of `ListGroupsResponse.ListedGroup`.

    states, types: filters in any case; an empty list lets all pass (KIP-518, KIP-848).
    """

    request: Hashable
    states: list[str]
    types: list[str]
    client: Client = NOBODY


@dataclass(slots=True)
class TimerFired:
    """The time of `key` has come."""

    key: TimerKey


@dataclass(slots=True)
class RemoveExpired:
    """Time to look for expired offsets and for empty groups without any (offsets.retention.check.interval.ms)."""


@dataclass(slots=True)
class RemoveTopic:
    """A topic is no more: nobody's offsets in it count, as in Kafka (GroupCoordinator.onPartitionsDeleted)."""

    topic: str


@dataclass(slots=True)
class Load:
    """The partition's log was read: `groups`, by id, are some of those that it holds (records.Replay).

    is_last: they are the last ones, the partition is served from now on. Until then no other event comes.
    write_failed: the partition is loaded once more, because a write of its log failed.
    before: with the last ones, the ids of the groups that were in memory when that write failed.
    """

    groups: dict[str, Group]
    is_last: bool = True
    write_failed: bool = False
    before: Collection[str] = ()


@dataclass(slots=True)
class Unload:
    """The partition goes: each request that waits gets NOT_COORDINATOR, and every group is Dead afterwards."""


RequestEvent = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DescribeGroup
    | DeleteGroup
    | ListGroups
)
"""What a client asked: these have a `request` to answer."""

Event = RequestEvent | TimerFired | RemoveExpired | RemoveTopic | Load | Unload
