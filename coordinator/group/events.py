"""Events: what goes into the group core.

An event is a plain value: a client asked for something, a timer ran out, or the partition comes or goes. The core
fetches nothing itself. So an event brings what the core needs: a fresh id for a new member, the client, and `request`,
an opaque value that leads the answer back. The core only stores and returns `request`: a test passes a string, the
runtime an object of its own. The time (`Now`) comes beside the event.

House rule: nobody changes an event after the core has it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import UUID

from coordinator.group.answers import commit_answer, join_error, sync_error
from coordinator.group.any_group import AnyGroup, CommittedOffset, Prepared
from coordinator.group.client import NOBODY, Client
from coordinator.group.effects import TimerKey
from coordinator.group.notes import TargetAssigned
from coordinator.group.topics import Topics
from protocol.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        ConsumerGroupHeartbeatRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
    )

SHARED_LISTS, SHARED_MAX, SHARED_BYTES_MAX = 1024, 16, 1024
"""How many lists of protocols members share, and how many protocols and bytes a list may have: about a megabyte. Most
members of a group send the same list.
"""

_NAME_AND_METADATA = attrgetter("name", "metadata")

MEMBERS_SINCE = 3
"""The first version of LeaveGroup with a list of members."""

LOADING, REBALANCE_IN_PROGRESS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS


class Flags(NamedTuple):
    """Properties of an event of a client that the runtime needs before the core has the event.

    writes: it may append records, so it is refused while the log keeps failing. makes_group: it makes a group where
    there is none. follows_commits: repeated commits that came earlier, and wait for their window, go first.
    """

    writes: bool
    makes_group: bool
    follows_commits: bool


class ClientEvent:
    """An event of a client, which has a `request` to answer. Each class states its flags, and how it is refused."""

    __slots__ = ()
    flags: ClassVar[Flags]
    request: Hashable
    client: Client

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        assert "flags" in vars(cls), f"{cls.__name__} states no flags"
        assert "_refused" in vars(cls), f"{cls.__name__} doesn't say how it is refused"

    def refused(self, error: ErrorCode) -> Any:
        """The answer with `error`: a body of the type that the event names, whatever state its group is in.

        The runtime refuses events while a partition loads, belongs to another node, or could not write. The coordinator
        refuses events with a group id that no group may have. While a partition loads, a heartbeat gets NONE and a sync
        REBALANCE_IN_PROGRESS, because old clients don't expect COORDINATOR_LOAD_IN_PROGRESS there.
        """
        return self._refused(error)

    def _refused(self, error: ErrorCode) -> Any:
        # Abstract, but no ABC: its isinstance is several times slower. __init_subclass__ asks each class for its own.
        raise NotImplementedError


@dataclass(slots=True)
class JoinGroup(ClientEvent):
    """JoinGroup v0-9. The answer is a `JoinGroupResponse`, perhaps much later.

    fresh_id: text of a random UUID, from which the core makes a member id (Kafka: GroupMetadata.generateMemberId); ""
    if the request has a member id.
    protocols: (name, metadata) of each protocol, once `listed` has made the list.
    """

    flags = Flags(writes=True, makes_group=True, follows_commits=False)
    request: Hashable
    version: int
    client: Client
    body: JoinGroupRequest
    fresh_id: str
    protocols: list[tuple[str, bytes]] | None = field(default=None, compare=False, repr=False)

    def listed(self) -> list[tuple[str, bytes]]:
        """The protocols, in the client's order of preference."""
        if self.protocols is None:
            protocols: list[tuple[str, bytes]] = list(map(_NAME_AND_METADATA, self.body.protocols))
            has_few = len(protocols) <= SHARED_MAX and sum(map(len, chain.from_iterable(protocols))) <= SHARED_BYTES_MAX
            self.protocols = _shared(tuple(protocols)) if has_few else protocols
        return self.protocols

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout. Version 0 has none, so its session timeout counts."""
        return self.body.session_timeout_ms if self.version == 0 else self.body.rebalance_timeout_ms

    def _refused(self, error: ErrorCode) -> Any:
        return join_error(self.version, error, self.body.member_id)


@lru_cache(SHARED_LISTS)
def _shared(protocols: tuple[tuple[str, bytes], ...]) -> list[tuple[str, bytes]]:
    """One list for all members with these protocols: it takes a fifth of a member's memory, and nobody changes it."""
    return list(protocols)


@dataclass(slots=True)
class SyncGroup(ClientEvent):
    """SyncGroup v0-5. The answer is a `SyncGroupResponse`, perhaps when the leader's assignments come.

    given: assignments by member id, if the sender has made this large table; else the core makes it.
    """

    flags = Flags(writes=True, makes_group=False, follows_commits=False)
    request: Hashable
    version: int
    client: Client
    body: SyncGroupRequest
    given: dict[str, bytes] | None = None

    def _refused(self, error: ErrorCode) -> Any:
        return sync_error(REBALANCE_IN_PROGRESS if error is LOADING else error)


@dataclass(slots=True)
class Heartbeat(ClientEvent):
    """Heartbeat v0-4. The answer is a `HeartbeatResponse`. `Coordinator.heartbeat` does the same without an event."""

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    body: HeartbeatRequest
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return HeartbeatResponse(error_code=ErrorCode.NONE if error is LOADING else error)


@dataclass(slots=True)
class LeaveGroup(ClientEvent):
    """LeaveGroup v0-5. The answer is a `LeaveGroupResponse`; up to v2 it has one error, on its top level."""

    flags = Flags(writes=True, makes_group=False, follows_commits=False)
    request: Hashable
    version: int
    client: Client
    body: LeaveGroupRequest

    @property
    def leaving(self) -> list[LeaveGroupRequest.MemberIdentity]:
        """The members that leave, in the form of v3: a request of an older version names one."""
        if self.version >= MEMBERS_SINCE:
            return self.body.members
        return [LeaveGroupRequest.MemberIdentity(member_id=self.body.member_id)]

    def answered(self, errors: Sequence[ErrorCode]) -> LeaveGroupResponse:
        """The answer, with an error per member. It echoes the ids of the request (KAFKA-18188)."""
        if self.version < MEMBERS_SINCE:
            return LeaveGroupResponse(error_code=errors[0], members=[])
        return LeaveGroupResponse(
            error_code=ErrorCode.NONE,
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
                )
                for each, error in zip(self.body.members, errors, strict=True)
            ],
        )

    def _refused(self, error: ErrorCode) -> Any:
        return LeaveGroupResponse(error_code=error, members=[])


@dataclass(slots=True)
class ConsumerHeartbeat(ClientEvent):
    """ConsumerGroupHeartbeat v0-1. The answer is a `ConsumerGroupHeartbeatResponse`.

    fresh_id: text of a random UUID, for a newcomer whose version leaves its member id to the coordinator.
    regex_error: what is wrong with the regular expression; None if it can be read, or there is none.
    owned: the partitions that the sender owns, if a handler has made this table; else the core makes it.
    """

    flags = Flags(writes=True, makes_group=True, follows_commits=False)
    request: Hashable
    version: int
    client: Client
    body: ConsumerGroupHeartbeatRequest
    fresh_id: str
    regex_error: str | None = None
    owned: Mapping[UUID, frozenset[int]] | None = None

    def _refused(self, error: ErrorCode) -> Any:
        return ConsumerGroupHeartbeatResponse(error_code=error, member_id=None)


@dataclass(slots=True)
class DescribeConsumerGroup(ClientEvent):
    """One group of a ConsumerGroupDescribe. The answer is a `consumer.describe.Description`.

    Without such a group it is a `ConsumerGroupDescribeResponse.DescribedGroup` with an error.

    waiting: whether the answer names the members that the group waits for.
    """

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    group_id: str
    client: Client = NOBODY
    waiting: bool = False

    def _refused(self, error: ErrorCode) -> Any:
        return ConsumerGroupDescribeResponse.DescribedGroup(error_code=error, group_id=self.group_id)


@dataclass(slots=True)
class CommitOffsets(ClientEvent):
    """OffsetCommit v1-10, with topic partitions that exist only, by name. The answer is an `OffsetCommitResponse`."""

    flags = Flags(writes=True, makes_group=True, follows_commits=True)
    request: Hashable
    version: int
    client: Client
    body: OffsetCommitRequest

    def _refused(self, error: ErrorCode) -> Any:
        return commit_answer(self.body, error)


@dataclass(slots=True)
class CommitPrepared(ClientEvent):
    """OffsetCommit v1-10 of many topic partitions. The answer is an `ErrorCode` for all of them.

    body: names the group and its member. prepared: of the topic partitions that exist (offsets.prepare).
    """

    flags = Flags(writes=True, makes_group=True, follows_commits=True)
    request: Hashable
    client: Client
    body: OffsetCommitRequest
    prepared: Prepared
    version: int = 9

    def _refused(self, error: ErrorCode) -> Any:
        return error


@dataclass(slots=True)
class CommitInTransaction(ClientEvent):
    """TxnOffsetCommit v0-6 of an open transaction. The answer is an `ErrorCode` for all of its topic partitions.

    body: names the group and its member. prepared: of the topic partitions that exist (offsets.prepare).
    """

    flags = Flags(writes=True, makes_group=True, follows_commits=True)
    request: Hashable
    client: Client
    body: TxnOffsetCommitRequest
    prepared: Prepared

    def _refused(self, error: ErrorCode) -> Any:
        return error


@dataclass(slots=True)
class EndTransaction(ClientEvent):
    """A marker for the partition: it settles all pending offsets of a producer. The answer is an `ErrorCode`.

    coordinator_epoch: of the transaction coordinator.
    """

    flags = Flags(writes=True, makes_group=False, follows_commits=True)
    request: Hashable
    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return error


@dataclass(slots=True)
class FetchOffsets(ClientEvent):
    """One group of an OffsetFetch. The answer is an `OffsetFetchResponse.OffsetFetchResponseGroup`.

    topics: topics with partition indexes, [] for none, None for all.
    member_id, member_epoch: of a member of the consumer protocol; None and -1 from outside (KIP-848).
    """

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
    require_stable: bool
    client: Client = NOBODY
    member_id: str | None = None
    member_epoch: int = -1

    def _refused(self, error: ErrorCode) -> Any:
        return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=self.group_id, topics=[], error_code=error)


@dataclass(slots=True)
class DeleteOffsets(ClientEvent):
    """OffsetDelete v0, with topic partitions that exist only. The answer is an `OffsetDeleteResponse`."""

    flags = Flags(writes=True, makes_group=False, follows_commits=True)
    request: Hashable
    body: OffsetDeleteRequest
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return OffsetDeleteResponse(error_code=error)


@dataclass(slots=True)
class DescribeGroup(ClientEvent):
    """One group of a DescribeGroups. The answer is a `DescribeGroupsResponse.DescribedGroup`.

    version: of the request; from v6 on an absent group is GROUP_ID_NOT_FOUND instead of a dead group (KIP-1043).
    waiting: whether the answer names the members that the group waits for.
    """

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    version: int
    group_id: str
    waiting: bool = False
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return DescribeGroupsResponse.DescribedGroup(error_code=error, group_id=self.group_id, members=[])


@dataclass(slots=True)
class DeleteGroup(ClientEvent):
    """One group of a DeleteGroups. The answer is a `DeleteGroupsResponse.DeletableGroupResult`.

    A group may have so many offsets that their tombstones would take too long for one event. It is deleted with some of
    them; then the answer is their `Remainder`, and an EraseOffsets has to follow for each piece of it.
    """

    flags = Flags(writes=True, makes_group=False, follows_commits=True)
    request: Hashable
    group_id: str
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return DeleteGroupsResponse.DeletableGroupResult(group_id=self.group_id, error_code=error)


class Remainder(NamedTuple):
    """Offsets of a deleted group that have no tombstones yet: by topic and partition."""

    offsets: dict[str, dict[int, CommittedOffset]]


@dataclass(slots=True)
class EraseOffsets(ClientEvent):
    """A piece of a Remainder gets its tombstones. The answer is as DeleteGroup's, never a Remainder.

    An offset stays if a new group of this id committed it after the deletion. An offset that a load brought back goes.
    """

    flags = Flags(writes=True, makes_group=False, follows_commits=False)
    request: Hashable
    group_id: str
    offsets: Sequence[tuple[str, int, CommittedOffset]]
    client: Client = NOBODY

    def _refused(self, error: ErrorCode) -> Any:
        return DeleteGroupsResponse.DeletableGroupResult(group_id=self.group_id, error_code=error)


@dataclass(slots=True)
class ListGroups(ClientEvent):
    """ListGroups v0-5 for this partition. The answer is a list of `ListGroupsResponse.ListedGroup`; None if refused.

    states, types: filters in any letter case; an empty list lets all pass (KIP-518, KIP-848).
    group_ids: lists these groups only, as far as they exist; None: all of them.
    """

    flags = Flags(writes=False, makes_group=False, follows_commits=False)
    request: Hashable
    states: list[str]
    types: list[str]
    client: Client = NOBODY
    group_ids: list[str] | None = None

    def _refused(self, _: ErrorCode) -> Any:
        return None


@dataclass(slots=True)
class TimerFired:
    """The time of `key` has come."""

    key: TimerKey


@dataclass(slots=True)
class RemoveOffsets:
    """Committed offsets go, because their topics were deleted (Kafka: GroupCoordinator.onPartitionsDeleted).

    `Coordinator.offsets_in` makes these events. topic_partitions: by group id, the offsets to remove. A group without
    any is named if it can go itself.
    if_expired: only those go whose retention is over (Kafka: GroupMetadataManager.cleanupGroupMetadata).
    """

    topic_partitions: Mapping[str, Sequence[tuple[str, int]]]
    if_expired: bool = False

    @property
    def group_ids(self) -> Collection[str]:
        """The groups that it is about."""
        return self.topic_partitions.keys()


@dataclass(slots=True)
class Load:
    """The runtime has read groups from the partition's log (records.Replay).

    groups: some of the partition's groups, by id.
    is_last: these are the last ones; the partition serves from now on. No other event comes before.
    write_failed: the partition loads again because a write of its log failed.
    before: with the last groups, the ids of the groups that were in memory when that write failed.
    """

    groups: Mapping[str, AnyGroup]
    is_last: bool = True
    write_failed: bool = False
    before: Collection[str] = ()


@dataclass(slots=True)
class TopicsChanged:
    """Topics were created, grew or were deleted. changed: their names; None if any may have changed."""

    topics: Topics
    changed: Collection[str] | None


@dataclass(slots=True)
class GroupSettingsChanged:
    """The settings that a group has of its own changed. The coordinator has the new ones already.

    dropped: the instance ids that it expected before and doesn't expect now; none if it expects nobody any more.
    """

    group_id: str
    dropped: Collection[str] = ()


@dataclass(slots=True)
class RegexResolved:
    """The result of a `Resolution`: the topics that each regular expression matches.

    version: of the topics that were searched. since_ms: when the search began, Unix time in ms.
    """

    group_id: str
    topics: Mapping[str, frozenset[str]]
    version: int
    since_ms: int


@dataclass(slots=True)
class TargetMade:
    """A target that was made in steps is complete; `Coordinator.target_of` makes this event.

    epoch: the group epoch that the target is for. targets, written, note: see `consumer.group.Made`.
    """

    group_id: str
    epoch: int
    targets: Mapping[str, Mapping[UUID, frozenset[int]]]
    written: Mapping[str, tuple[bytes, bytes]]
    note: TargetAssigned | None = None


@dataclass(slots=True)
class Resume:
    """Members can reach the coordinator again, after a while in which none could. Every wait for one starts in full."""


@dataclass(slots=True)
class Unload:
    """The partition goes: each waiting request gets NOT_COORDINATOR, and every group is Dead."""


Event = (
    ClientEvent
    | TimerFired
    | RemoveOffsets
    | Load
    | TopicsChanged
    | GroupSettingsChanged
    | RegexResolved
    | TargetMade
    | Resume
    | Unload
)
