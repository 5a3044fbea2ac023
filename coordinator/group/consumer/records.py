"""The records of groups of the consumer protocol (Kafka 4.4: GroupCoordinatorRecordHelpers).

A member has three records: its subscription, its target, and what it has. A group has its epoch, the epoch of its
target, and one record for each resolved regular expression (FORMS).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple
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
    ConsumerGroupPartitionMetadataValue,
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

EPOCH, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
"""The versions of the keys."""


class Form(NamedTuple):
    """The classes of a record's key and value. name: the second field of the key, if it has one."""

    key: type[Message]
    value: type[Message]
    name: str | None = None


FORMS = {
    EPOCH: Form(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    PARTITIONS: Form(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    MEMBER: Form(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, "member_id"),
    TARGET_EPOCH: Form(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    TARGET: Form(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, "member_id"),
    CURRENT: Form(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, "member_id"),
    REGEX: Form(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, "regular_expression"),
}
"""By the version of the key."""

VALUE_VERSION = 0
"""The version of all values."""

OLDER_VERSION = 0
"""A loaded regular expression has this version of topics, older than all others: topics may be there that it misses."""
MADE_AT_ONCE = 50
"""Members that are made in one step: less than a millisecond, if each has some topic partitions."""

_int16 = struct.Struct(">h")
_VERSION = _int16.pack(VALUE_VERSION)


def _key(version: int, *names: str) -> bytes:
    write = writer(FORMS[version].key, version)  # type: ignore[arg-type]  # mypy: a message has no hash
    return _int16.pack(version) + write(*names)


def _record(version: int, value: Message | None, wall_ms: int, *names: str) -> Record:
    written = None if value is None else _VERSION + encode(value, VALUE_VERSION)
    return Record(_key(version, *names), written, wall_ms)


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
    return _record(MEMBER, value, wall_ms, group_id, member.member_id)


def epoch_record(group_id: str, epoch: int, metadata_hash: int, wall_ms: int) -> Record:
    """A group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(EPOCH, value, wall_ms, group_id)


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
    return _key(TARGET, group_id, member_id), _VERSION + encode(value, VALUE_VERSION)


def target_epoch_record(group_id: str, epoch: int, made_ms: int, wall_ms: int) -> Record:
    """The epoch of a group's target, which was made at `made_ms`; 0 for one that a leader made."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=made_ms)
    return _record(TARGET_EPOCH, value, wall_ms, group_id)


def current_record(group_id: str, member: ConsumerMember, wall_ms: int) -> Record:
    """The partitions that a member has."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_written(member.assigned),
        partitions_pending_revocation=_written(member.revoking),
    )
    return _record(CURRENT, value, wall_ms, group_id, member.member_id)


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
    return _record(REGEX, value, wall_ms, group_id, regex)


def regex_tombstone(group_id: str, regex: str, wall_ms: int) -> Record:
    """The record that deletes a regular expression."""
    return _record(REGEX, None, wall_ms, group_id, regex)


def member_tombstones(group_id: str, member_id: str, wall_ms: int) -> list[Record]:
    """The records that delete a member, in Kafka's order."""
    return [_record(version, None, wall_ms, group_id, member_id) for version in (CURRENT, TARGET, MEMBER)]


def group_tombstones(group: ConsumerGroup, wall_ms: int) -> Iterator[Record]:
    """The records that delete a group, in Kafka's order. Only a group that changes its kind has members."""
    for member_id in group.members:
        yield _record(CURRENT, None, wall_ms, group.group_id, member_id)
    for member_id in group.members:
        yield _record(TARGET, None, wall_ms, group.group_id, member_id)
    yield _record(TARGET_EPOCH, None, wall_ms, group.group_id)
    for member_id in group.members:
        yield _record(MEMBER, None, wall_ms, group.group_id, member_id)
    for regex in group.regexes:
        yield regex_tombstone(group.group_id, regex, wall_ms)
    yield _record(PARTITIONS, None, wall_ms, group.group_id)  # Kafka up to 4.0 wrote it
    yield _record(EPOCH, None, wall_ms, group.group_id)


FIRST_EPOCH = 1
"""The epoch of a group without a record of its epoch: no member ever subscribed to a topic."""

NO_EPOCH = 0
"""The epoch of a group's target before the first one."""


@dataclass
class LastRecords:
    """The last values of a group's records, members by their ids. target_ms: None if the target has no epoch."""

    epoch: int = FIRST_EPOCH
    target_epoch: int = NO_EPOCH
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    targets: dict[str, ConsumerGroupTargetAssignmentMemberValue] = field(default_factory=dict)
    current: dict[str, ConsumerGroupCurrentMemberAssignmentValue] = field(default_factory=dict)
    regexes: dict[str, ConsumerGroupRegularExpressionValue] = field(default_factory=dict)
    metadata_hash: int = 0
    target_ms: int | None = None

    def put(self, name: str | None, value: Message) -> None:
        """Take a record's value; name: the member id, or the regular expression, of its key. Topics don't count."""
        match value:
            case ConsumerGroupMetadataValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupTargetAssignmentMetadataValue():
                self.target_epoch, self.target_ms = value.assignment_epoch, value.assignment_timestamp
            case ConsumerGroupMemberMetadataValue() if name is not None:
                self.members[name] = value
            case ConsumerGroupTargetAssignmentMemberValue() if name is not None:
                self.targets[name] = value
            case ConsumerGroupCurrentMemberAssignmentValue() if name is not None:
                self.current[name] = value
            case ConsumerGroupRegularExpressionValue() if name is not None:
                self.regexes[name] = value


class Reader:
    """Reads the last records of one group, in any order, and makes the group."""

    def __init__(self) -> None:
        self._last = LastRecords()
        self._group_id: str | None = None

    def read(self, version: int, key: bytes, value: bytes) -> None:
        """Read a record. version: of its key, one of FORMS."""
        form = FORMS[version]
        name: Any = decode(form.key, key, version, _int16.size)
        said = decode(form.value, value, _version(value), _int16.size)
        self._last.put(None if form.name is None else getattr(name, form.name), said)
        if version in {EPOCH, TARGET_EPOCH, MEMBER}:
            self._group_id = name.group_id

    def group(self) -> Generator[None, None, ConsumerGroup | None]:
        """The group; None if there was no record of its own. Yields behind each MADE_AT_ONCE members.

        A group whose members never had topics has no epoch.
        """
        if self._group_id is None:
            return None
        last, group = self._last, ConsumerGroup(self._group_id)
        group.generation, group.metadata_hash = last.epoch, last.metadata_hash
        for regex, found in last.regexes.items():
            # Another server, or this one before its last start, counted that version of topics: see OLDER_VERSION.
            group.regexes[regex] = Resolved(frozenset(found.topics), OLDER_VERSION, found.timestamp)
        targets: dict[str, Target] = {}
        for number, (member_id, said) in enumerate(last.members.items(), 1):
            member = member_of(member_id, said, last.current.pop(member_id, None))
            if not _is_free(group, member):
                raise ProtocolError(f"group {group.group_id!r}: {member_id!r} has a partition that another member has")
            group.put(member)
            target = last.targets.pop(member_id, None)
            if target is not None:
                targets[member_id] = {
                    each.topic_id: frozenset(each.partitions) for each in target.topic_partitions if each.partitions
                }
            if number % MADE_AT_ONCE == 0:
                yield
        if last.target_ms is not None:
            group.set_targets(targets, last.target_epoch, last.target_ms, gaps=None)
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


_STATES = {state.value: state for state in MemberState}


def member_of(
    member_id: str, said: ConsumerGroupMemberMetadataValue, has: ConsumerGroupCurrentMemberAssignmentValue | None
) -> ConsumerMember:
    """A member from its records. has: None for one that has only subscribed."""
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
    return member._replace(
        epoch=has.member_epoch,
        previous_epoch=has.previous_member_epoch,
        state=_STATES.get(has.state, UNKNOWN),
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
