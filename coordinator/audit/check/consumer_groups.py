"""Follows a group of the consumer protocol (KIP-848) through its records, and checks them.

Such a group has many records, and a coordinator writes those of one change in one batch. So `ConsumerHistory` takes
record after record, and looks at the group where a batch ends: which epoch it has, who came, went, or came back, which
partition has two members. A batch is known by its place; a cluster shows none, so there it is known by its time.

A compaction removes records of the past, so at an earlier moment a group may seem to lack some. Two records of one
moment still fit each other then. Rules about records that must be there are checked where the log ends. They are also
checked in a batch that has a second record of a key: a compaction leaves one of each key, so it hasn't been there.

House rule: the rules are those of coordinator.group.consumer.invariants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.audit.check.checks import NAMES_MAX, Findings
from coordinator.group.causes import CauseKind
from coordinator.group.consumer.group import MemberState
from coordinator.group.consumer.invariants import ConsumerRule, broken_rules
from coordinator.group.consumer.records import CURRENT, EPOCH, MEMBER, TARGET, TARGET_EPOCH, LastRecords
from coordinator.log.topics.list import kafka_id
from coordinator.story.events import Cause
from coordinator.story.inference.consumer import Consumer
from coordinator.story.records.consumer import CONSUMER_VERSIONS, read_consumer_value
from coordinator.story.records.values import read_key
from coordinator.story.schema import UNKNOWN
from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    Message,
)

Partition = tuple[UUID, int]
Owners = dict[Partition, tuple[str, ...]]
"""Members by partition, nearly always one."""


class _Changes:
    """The changes of one batch.

    versions: of its records. retargeted: members that got another target. grown: by member, the partitions that it got
    although it had all of its target. removed: by member id, the former record of a member.
    """

    def __init__(self) -> None:
        self.versions: set[int] = set()
        self.retargeted: set[str] = set()
        self.grown: dict[str, set[Partition]] = {}
        self.removed: dict[str, ConsumerGroupMemberMetadataValue] = {}


class Moved(NamedTuple):
    """A change of the group from one batch to the next.

    epoch: the new one. grew: whether it grew. began: whether all members were at their target before. seats: the names
    of all seats. back: by instance id, the new member id of a static member that came back. cause: inferred.
    """

    epoch: int
    grew: bool
    began: bool
    seats: list[str]
    back: dict[str, str]
    cause: str


class ConsumerHistory:
    """Takes the records of one group in the order of the log, up to its deletion, and adds to `findings`."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._held: Owners = {}
        self._aimed: Owners = {}
        self._held_twice: set[Partition] = set()
        self._aimed_twice: set[Partition] = set()
        self._batch: Hashable = None
        self._offset = 0
        self._ts = -1
        self._target_ms = -1
        self._epoch_ms = -1
        self._epoch_before = 0
        self._seats_before: dict[str, str] = {}
        self._was_settled = True
        self._is_open = False
        self._changes = _Changes()
        self._is_upgraded = False
        self._inferred = Consumer("", {})

    @property
    def records(self) -> LastRecords:
        """The last records of the group."""
        return self._inferred.records

    def upgrade(self, generation: int, seats: dict[str, str]) -> None:
        """Go on from a classic group, with its members by the names of their seats: its upgrade is no rebalance."""
        self._epoch_before, self._seats_before, self._is_upgraded = generation, seats, True
        self._inferred.upgraded(generation)

    def ends_batch(self, batch: Hashable) -> bool:
        """Whether a record of `batch` is the first one behind a batch with records of this group."""
        return self._is_open and batch != self._batch

    def add(self, offset: int, ts: int, key: bytes, value: bytes | None, batch: Hashable) -> None:
        """Take a record or a tombstone."""
        read = read_key(key)
        version = CONSUMER_VERSIONS[read.kind]
        self._batch, self._offset, self._ts, self._is_open = batch, offset, ts, True
        said = None if value is None else read_consumer_value(value, version)[1]
        self._changes.versions.add(version)
        if isinstance(said, ConsumerGroupMetadataValue):
            self._check_epoch("group", said.epoch, self.records.epoch)
            self._epoch_ms = ts
        elif isinstance(said, ConsumerGroupTargetAssignmentMetadataValue):
            self._check_epoch("target", said.assignment_epoch, self.records.target_epoch)
            self._target_ms = ts
        elif read.name is not None:
            self._note_change(version, read.name, said)
            if version in (TARGET, CURRENT):
                self._share(version, read.name, said)
        self._inferred.add(ts, version, read.name, said, is_whole=True)

    def _check_epoch(self, what: str, epoch: int, before: int) -> None:
        if epoch < before and not self._is_upgraded:
            self._findings.add("generation_falls", self._offset, epoch, before=before, what=what)

    def _share(self, version: int, member_id: str, said: Message | None) -> None:
        """Note which partitions a member has or shall have, in place of those of its former record."""
        former = (self.records.current if version == CURRENT else self.records.targets).get(member_id)
        owners, twice = (self._held, self._held_twice) if version == CURRENT else (self._aimed, self._aimed_twice)
        for partition in _partitions(former):
            rest = list(owners.pop(partition, ()))
            if member_id in rest:
                rest.remove(member_id)
            if rest:
                owners[partition] = tuple(rest)
            if len(rest) < 2:
                twice.discard(partition)
        for partition in _partitions(said):
            owners[partition] = (*owners.get(partition, ()), member_id)
            if len(owners[partition]) > 1:
                twice.add(partition)

    def _note_change(self, version: int, member_id: str, said: Message | None) -> None:
        """Note what a record changes about a member whose former record is known."""
        match self._of_version(version).get(member_id), said:
            case ConsumerGroupTargetAssignmentMemberValue() as former, ConsumerGroupTargetAssignmentMemberValue():
                if set(_partitions(former)) != set(_partitions(said)):
                    self._changes.retargeted.add(member_id)
            case ConsumerGroupCurrentMemberAssignmentValue() as former, ConsumerGroupCurrentMemberAssignmentValue():
                is_stable = former.state == said.state == MemberState.STABLE.value
                if is_stable and former.member_epoch == said.member_epoch:
                    self._changes.grown[member_id] = set(_partitions(said)) - set(_partitions(former))
            case ConsumerGroupMemberMetadataValue() as former, None:
                self._changes.removed[member_id] = former

    def _of_version(self, version: int) -> dict[str, Any]:
        """The last records of a key version by member; empty for those that aren't about one member."""
        records = self.records
        of_version: dict[int, dict[str, Any]] = {
            MEMBER: records.members, TARGET: records.targets, CURRENT: records.current,
        }  # fmt: skip
        return of_version.get(version, {})

    def _check_changes(self) -> None:
        """Check that a batch changes members and assignments only with the epoch that says so."""
        changes, self._changes = self._changes, _Changes()
        records, offset = self.records, self._offset
        seats = {said.instance_id for said in records.members.values()} - {None}
        gone = [
            member_id
            for member_id, former in changes.removed.items()
            if former.instance_id not in seats
            and not any(member_id in each for each in (records.members, records.targets, records.current))
        ]
        changed = sorted(changes.retargeted) if TARGET_EPOCH not in changes.versions else []
        if gone and EPOCH not in changes.versions:
            self._findings.add(
                "membership_changed", offset, records.epoch,
                joined=[], gone=gone[:NAMES_MAX], reassigned=changed[:NAMES_MAX],
            )  # fmt: skip
        elif changed:
            self._findings.add(
                "assignment_changed", offset, records.target_epoch,
                members=changed[:NAMES_MAX], count=len(changed), what="target",
            )  # fmt: skip
        # A partition that another member has too is a finding of its own.
        grown = sorted(
            member_id
            for member_id, partitions in changes.grown.items()
            if any(self._held.get(partition) == (member_id,) for partition in partitions)
        )
        if grown:
            self._findings.add(
                "assignment_changed", offset, records.epoch,
                members=grown[:NAMES_MAX], count=len(grown), what="current",
            )  # fmt: skip

    def end_batch(self) -> Moved | None:
        """Check the group where a batch ends; the change since the last one, None if epoch and seats are the same."""
        self._is_open = False
        self._check_changes()
        why = words_of(self._inferred.causes_of_batch)
        self._inferred.end_batch(self._ts)
        epoch, offset = self.records.epoch, self._offset
        for check, owners, twice in (
            ("partition_held_twice", self._held, self._held_twice),
            ("partition_assigned_twice", self._aimed, self._aimed_twice),
        ):
            self._findings.add_new(check, {each: _detail(each, owners) for each in twice}, offset, epoch)
        seats = {said.instance_id or member_id: member_id for member_id, said in self.records.members.items()}
        before = self._seats_before
        static = {said.instance_id for said in self.records.members.values()}
        back = {
            name: member_id
            for name, member_id in seats.items()
            if name in static and before.get(name, member_id) != member_id
        }
        grew = epoch > self._epoch_before
        moved = None
        if grew or back or seats.keys() != before.keys() or self._is_upgraded:
            began = grew and self._was_settled and bool(seats or before)
            moved = Moved(epoch, grew, began, list(seats), back, why)
        self._epoch_before, self._seats_before, self._is_upgraded = epoch, seats, False
        self._was_settled = self._inferred.is_settled
        return moved

    def report(self, end_ms: int, at_end: Findings) -> None:
        """Check the group where the log ends; end_ms: the time of the last record of its partition."""
        records = self.records
        for rule, reason, member_id, _partition in broken_rules(records):
            if rule is ConsumerRule.INSTANCE_TWICE:
                instance_id = records.members[member_id or ""].instance_id
                at_end.add("duplicate_instance", self._offset, records.epoch, group_instance_id=instance_id)
            elif rule not in (ConsumerRule.OWNED_TWICE, ConsumerRule.TARGET_TWICE):
                at_end.add("records_contradict", self._offset, records.epoch, reason=reason)
        self._report_late(end_ms, at_end)

    def _report_late(self, end_ms: int, at_end: Findings) -> None:
        """Report a target that members had time to reach and did not, or an epoch that got no target."""
        records = self.records
        if not records.members:
            return
        limit_ms = max(said.rebalance_timeout_ms for said in records.members.values())
        has_none = records.epoch > records.target_epoch
        since_ms = self._epoch_ms if has_none else self._target_ms
        late = list(records.members) if has_none else self._inferred.behind
        if late and since_ms >= 0 and limit_ms >= 0 and end_ms - since_ms > limit_ms:
            at_end.add(
                "target_not_reached", self._offset, records.epoch,
                target_epoch=records.target_epoch, members=late[:NAMES_MAX], late_ms=end_ms - since_ms,
                rebalance_timeout_ms=limit_ms,
            )  # fmt: skip


def words_of(causes: Iterable[Cause]) -> str:
    """Inferred causes in words, each once: "joined, left or expired"."""
    return ", ".join(dict.fromkeys(_word(cause) for cause in causes))


def _word(cause: Cause) -> str:
    kinds = cause.possible or () if cause.kind == UNKNOWN else [cause.kind]
    return " or ".join(CauseKind(kind).words.short for kind in kinds) or UNKNOWN


def _partitions(said: object) -> list[Partition]:
    match said:
        case ConsumerGroupCurrentMemberAssignmentValue():
            topics: list[Any] = [*said.assigned_partitions, *said.partitions_pending_revocation]
        case ConsumerGroupTargetAssignmentMemberValue():
            topics = [*said.topic_partitions]
        case _:
            topics = []
    return [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]


def _detail(partition: Partition, owners: Owners) -> dict[str, Any]:
    topic_id, number = partition
    members = list(dict.fromkeys(owners[partition]))[:NAMES_MAX]
    return {"topic_id": kafka_id(topic_id), "topic_partition": number, "members": members}
