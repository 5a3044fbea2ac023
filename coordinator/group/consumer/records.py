"""The records of groups of the consumer protocol (Kafka 4.4: GroupCoordinatorRecordHelpers).

A member has three records: its subscription (key version 5), its target (7), and what it has (8). A group has its epoch
(3), the epoch of its target (6), and one record for each resolved regular expression (16).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping
from itertools import repeat
from uuid import UUID

from coordinator.group.consumer.group import (
    NOTHING,
    UNKNOWN,
    Classic,
    ConsumerGroup,
    ConsumerMember,
    Held,
    MemberState,
    Resolved,
    Target,
)
from protocol.errors import ProtocolError
from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Message,
    decode,
    encode,
    writer,
)
from protocol.records.batch import Record

VALUE_VERSION = 0
"""The version of all values."""

OLDER_VERSION = 0
"""A loaded regular expression has this version of topics, older than all others: topics may be there that it misses."""
MADE_AT_ONCE = 50
"""Members that are made in one step: less than a millisecond, if each has some topic partitions."""

_int16 = struct.Struct(">h")
_VERSION = _int16.pack(VALUE_VERSION)


def _key(cls: type[Message], *fields: str) -> bytes:
    version: int = cls.VERSIONS[0]
    return _int16.pack(version) + writer(cls, version)(*fields)  # type: ignore[arg-type]  # mypy: a message has no hash


def _record(key: bytes, value: Message | None, wall_ms: int) -> Record:
    return Record(key, None if value is None else _VERSION + encode(value, VALUE_VERSION), wall_ms)


def member_record(group_id: str, member: ConsumerMember, wall_ms: int) -> Record:
    """A member's subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    return _record(_key(ConsumerGroupMemberMetadataKey, group_id, member.member_id), value, wall_ms)


def epoch_record(group_id: str, epoch: int, metadata_hash: int, wall_ms: int) -> Record:
    """A group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(_key(ConsumerGroupMetadataKey, group_id), value, wall_ms)


def target_record(group_id: str, member_id: str, target: Target, wall_ms: int) -> Record:
    """A member's target."""
    return Record(*target_bytes(group_id, member_id, target), wall_ms)


def target_bytes(group_id: str, member_id: str, target: Target) -> tuple[bytes, bytes]:
    """Key and value of the record of a member's target."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return _key(ConsumerGroupTargetAssignmentMemberKey, group_id, member_id), _VERSION + encode(value, VALUE_VERSION)


def target_epoch_record(group_id: str, epoch: int, made_ms: int, wall_ms: int) -> Record:
    """The epoch of a group's target, which was made at `made_ms`; 0 for one that a leader made."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=made_ms)
    return _record(_key(ConsumerGroupTargetAssignmentMetadataKey, group_id), value, wall_ms)


def current_record(group_id: str, member: ConsumerMember, wall_ms: int) -> Record:
    """The partitions that a member has."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_written(member.assigned),
        partitions_pending_revocation=_written(member.revoking),
    )
    return _record(_key(ConsumerGroupCurrentMemberAssignmentKey, group_id, member.member_id), value, wall_ms)


def _written(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in held.items()
    ]


def regex_record(group_id: str, regex: str, resolved: Resolved, wall_ms: int) -> Record:
    """The topics that a regular expression matched."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.since_ms
    )
    return _record(_key(ConsumerGroupRegularExpressionKey, group_id, regex), value, wall_ms)


def regex_tombstone(group_id: str, regex: str, wall_ms: int) -> Record:
    """The record that deletes a regular expression."""
    return _record(_key(ConsumerGroupRegularExpressionKey, group_id, regex), None, wall_ms)


def partition_tombstone(group_id: str, wall_ms: int) -> Record:
    """The record that deletes the topics that Kafka up to 4.0 wrote of a group."""
    return _record(_key(ConsumerGroupPartitionMetadataKey, group_id), None, wall_ms)


def member_tombstones(group_id: str, member_id: str, wall_ms: int) -> list[Record]:
    """The records that delete a member, in Kafka's order."""
    return [
        _record(_key(cls, group_id, member_id), None, wall_ms)
        for cls in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: ConsumerGroup, wall_ms: int) -> Iterator[Record]:
    """The records that delete a group, in Kafka's order. Only a group that changes its kind has members."""
    for member_id in group.members:
        yield _record(_key(ConsumerGroupCurrentMemberAssignmentKey, group.group_id, member_id), None, wall_ms)
    for member_id in group.members:
        yield _record(_key(ConsumerGroupTargetAssignmentMemberKey, group.group_id, member_id), None, wall_ms)
    yield _record(_key(ConsumerGroupTargetAssignmentMetadataKey, group.group_id), None, wall_ms)
    for member_id in group.members:
        yield _record(_key(ConsumerGroupMemberMetadataKey, group.group_id, member_id), None, wall_ms)
    for regex in group.regexes:
        yield regex_tombstone(group.group_id, regex, wall_ms)
    yield partition_tombstone(group.group_id, wall_ms)
    yield _record(_key(ConsumerGroupMetadataKey, group.group_id), None, wall_ms)


class Reader:
    """Reads the last records of one group, in any order, and makes the group."""

    def __init__(self) -> None:
        self._group_id: str | None = None
        self._epoch: tuple[int, int] | None = None
        self._target_epoch: tuple[int, int] | None = None
        self._members: dict[str, ConsumerGroupMemberMetadataValue] = {}
        self._targets: dict[str, Target] = {}
        self._current: dict[str, ConsumerGroupCurrentMemberAssignmentValue] = {}
        self._regexes: dict[str, Resolved] = {}

    def read_group(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 3."""
        read = decode(ConsumerGroupMetadataValue, value, _version(value), _int16.size)
        self._group_id = decode(ConsumerGroupMetadataKey, key, version, _int16.size).group_id
        self._epoch = (read.epoch, read.metadata_hash)

    def read_member(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 5."""
        name = decode(ConsumerGroupMemberMetadataKey, key, version, _int16.size)
        self._group_id = name.group_id
        self._members[name.member_id] = decode(ConsumerGroupMemberMetadataValue, value, _version(value), _int16.size)

    def read_target_epoch(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 6."""
        read = decode(ConsumerGroupTargetAssignmentMetadataValue, value, _version(value), _int16.size)
        self._group_id = decode(ConsumerGroupTargetAssignmentMetadataKey, key, version, _int16.size).group_id
        self._target_epoch = (read.assignment_epoch, read.assignment_timestamp)

    def read_target(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 7."""
        member_id = decode(ConsumerGroupTargetAssignmentMemberKey, key, version, _int16.size).member_id
        read = decode(ConsumerGroupTargetAssignmentMemberValue, value, _version(value), _int16.size)
        self._targets[member_id] = {
            each.topic_id: frozenset(each.partitions) for each in read.topic_partitions if each.partitions
        }

    def read_current(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 8."""
        member_id = decode(ConsumerGroupCurrentMemberAssignmentKey, key, version, _int16.size).member_id
        read = decode(ConsumerGroupCurrentMemberAssignmentValue, value, _version(value), _int16.size)
        self._current[member_id] = read

    def read_regex(self, version: int, key: bytes, value: bytes) -> None:
        """Key version 16."""
        regex = decode(ConsumerGroupRegularExpressionKey, key, version, _int16.size).regular_expression
        read = decode(ConsumerGroupRegularExpressionValue, value, _version(value), _int16.size)
        # Another server, or this one before its last start, counted that version of its topics: see OLDER_VERSION.
        self._regexes[regex] = Resolved(frozenset(read.topics), OLDER_VERSION, read.timestamp)

    def group(self) -> Generator[None, None, ConsumerGroup | None]:
        """The group; None if there was no record of its own. Yields behind each MADE_AT_ONCE members.

        A group whose members never had topics has no epoch.
        """
        if self._group_id is None:
            return None
        group = ConsumerGroup(self._group_id)
        if self._epoch is not None:
            group.generation, group.metadata_hash = self._epoch
        group.regexes = self._regexes
        for number, (member_id, said) in enumerate(self._members.items(), 1):
            member = _member(member_id, said, self._current.get(member_id))
            if not _is_free(group, member):
                raise ProtocolError(f"group {group.group_id!r}: {member_id!r} has a partition that another member has")
            group.put(member)
            if number % MADE_AT_ONCE == 0:
                yield
        if self._target_epoch is not None:
            epoch, wall_ms = self._target_epoch
            targets = {member_id: target for member_id, target in self._targets.items() if member_id in group.members}
            group.set_targets(targets, epoch, wall_ms, gaps=None)
        # This sets the state that the records have; it is no transition.
        group.state = group.current_state()
        group.subscribed_topics = frozenset(group.subscribed_names())
        return group


def _is_free(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether nobody else has a partition of a member that is read from its records, and it has none twice."""
    return all(
        group.holders.get(topic_id, {}).keys().isdisjoint(partitions)
        and member.revoking.get(topic_id, {}).keys().isdisjoint(member.assigned.get(topic_id, {}))
        for held in (member.assigned, member.revoking)
        for topic_id, partitions in held.items()
    )


def _member(
    member_id: str, said: ConsumerGroupMemberMetadataValue, has: ConsumerGroupCurrentMemberAssignmentValue | None
) -> ConsumerMember:
    """A member from its records."""
    member = ConsumerMember(
        member_id,
        said.instance_id,
        said.rack_id,
        said.rebalance_timeout_ms,
        said.client_id,
        said.client_host,
        frozenset(said.subscribed_topic_names),
        said.subscribed_topic_regex,
        said.server_assignor,
        classic=_classic(said.classic_member_metadata),
    )
    if has is None:
        return member
    states = {state.value: state for state in MemberState}
    return member._replace(
        epoch=has.member_epoch,
        previous_epoch=has.previous_member_epoch,
        state=states.get(has.state, UNKNOWN),
        assigned=_read(has.assigned_partitions, has.member_epoch),
        revoking=_read(has.partitions_pending_revocation, has.member_epoch),
    )


def _classic(said: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None) -> Classic | None:
    """The part of a record that only a classic member has."""
    if said is None:
        return None
    return Classic(said.session_timeout_ms, tuple((each.name, each.metadata) for each in said.supported_protocols))


def _read(
    written: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> Mapping[UUID, Mapping[int, int]]:
    """Partitions from a record; without epochs of their own they have the member's."""
    if not written:
        return NOTHING
    return {
        each.topic_id: dict(zip(each.partitions, each.assignment_epochs or repeat(epoch), strict=False))
        for each in written
        if each.partitions
    }


def _version(value: bytes) -> int:
    if len(value) < _int16.size:
        raise ProtocolError(f"a value of {len(value)} bytes in a record of a group of the consumer protocol")
    version: int = _int16.unpack_from(value)[0]
    return version
