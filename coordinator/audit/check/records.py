"""The checks on a group's records: each one alone, and beside the record before it.

A fault that goes on from record to record is one finding (`Findings.add_new`).

House rule: the rules of a record are those of coordinator.group.invariants; nothing is remembered here between records.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from coordinator.audit.check.checks import NAMES_MAX, Findings
from coordinator.audit.check.limits import Limits
from coordinator.group.invariants import RecordRule, record_violations
from coordinator.group.partition import partition_for
from coordinator.story.inference.seen import Member, Seen, seat_of, taken
from coordinator.story.records.values import read_assignment, read_subscription
from protocol.consumer import CONSUMER
from protocol.messages import GroupMetadataValue

CHECK_OF_RULE: dict[RecordRule, tuple[str, str]] = {
    RecordRule.MEMBER_TWICE: ("undecodable", "member_id"),
    RecordRule.INSTANCE_TWICE: ("duplicate_instance", "group_instance_id"),
    RecordRule.LEADER: ("leader_not_member", "leader"),
    RecordRule.PROTOCOL_TYPE: ("undecodable", ""),
    RecordRule.PROTOCOL_NAME: ("undecodable", ""),
}
"""A rule of a record -> the check that reports a violation, and the name of the violator in the finding's detail."""


class RecordChecks:
    """Checks the records of one group on one partition, and adds to `findings`."""

    def __init__(self, partition: int, group: str, limits: Limits, findings: Findings) -> None:
        self._partition = partition
        self._group = group
        self._limits = limits
        self._findings = findings

    def check_partition(self, offset: int) -> None:
        """The group must be on the partition of its id; offset: of its first record."""
        count = self._limits.partition_count
        if count is None:
            return
        right = partition_for(self._group, count)
        if right != self._partition:
            self._findings.add("wrong_partition", offset, belongs_on=right, partition_count=count)

    def check(self, seen: Seen) -> None:
        """Check a record alone."""
        value, offset = seen.value, seen.offset
        self._check_rules(value, offset)
        cap_ms = self._limits.session_ms_max
        above: dict[Hashable, dict[str, Any]] = {
            name: {"member": name, "session_ms": member.session_timeout, "cap_ms": cap_ms}
            for (name, _), member in seen.seats.items()
            if member.session_timeout > cap_ms
        }
        if value.members:  # a group without members neither goes on with a fault nor ends it
            self._findings.add_new("session_above_cap", above, offset, value.generation)
            if value.protocol_type == CONSUMER:
                self._check_assignments(value, offset)

    def _check_rules(self, value: GroupMetadataValue, offset: int) -> None:
        for broken in record_violations(value):
            check, named = CHECK_OF_RULE[broken.rule]
            detail = {named: broken.who} if named else {}
            if check == "undecodable":
                detail["reason"] = broken.rule.value
            self._findings.add(check, offset, value.generation, **detail)

    def _check_assignments(self, value: GroupMetadataValue, offset: int) -> None:
        """Check subscriptions and assignments: unreadable ones, partitions assigned twice, topics nobody has.

        A topic that a member owned when it joined doesn't count as one that nobody has: where members hand partitions
        over one by one (KIP-429), a partition that moves is in no assignment for one generation.
        """
        owners: dict[tuple[str, int], str] = {}
        topics: set[str] = set()
        owned: set[str] = set()
        subscribed: dict[str, str] = {}
        unread: dict[Hashable, dict[str, Any]] = {}
        twice: dict[Hashable, dict[str, Any]] = {}
        for member in value.members:
            wanted, assigned = read_subscription(member.subscription), read_assignment(member.assignment)
            for what, read, data in (
                ("subscription", wanted, member.subscription),
                ("assignment", assigned, member.assignment),
            ):
                if read is None:
                    unread[what, data] = {
                        "what": what, "member": _name(member), "size": len(data), "start": data[:32].hex(),
                    }  # fmt: skip
            if wanted is not None:
                owned.update(wanted.owned_topics)
                for topic in wanted.topics:
                    subscribed.setdefault(topic, _name(member))
            for topic, partitions in assigned or ():
                topics.add(topic)
                for partition in partitions:
                    owner = owners.get((topic, partition))
                    if owner is None:
                        owners[topic, partition] = member.member_id
                    else:
                        twice[topic, partition] = {
                            "topic": topic, "topic_partition": partition,
                            "members": list(dict.fromkeys([owner, member.member_id])),
                        }  # fmt: skip
        self._findings.add_new("undecodable_metadata", unread, offset, value.generation)
        self._findings.add_new("partition_assigned_twice", twice, offset, value.generation)
        if topics and not unread:
            nobodys = sorted(subscribed.keys() - topics - owned)
            self._findings.add_new(
                "subscribed_unassigned", {topic: {"topic": topic, "member": subscribed[topic]} for topic in nobodys},
                offset, value.generation,
            )  # fmt: skip

    def check_pair(self, before: Seen, seen: Seen) -> None:
        """Check a record beside the one before it: the generation must not fall, and within one little may change.

        Within a generation a static member may return under a new member id, to the assignment of its seat; and a
        standby may take the seat of one member, with its assignment (`taken`). Apache
        Kafka can write another change, if a leader syncs twice before the first record is durable
        (GroupMetadataManager.classicGroupSync): members then work by the first record, and the next owner of the group
        loads the second.
        """
        offset, generation = seen.offset, seen.value.generation
        if generation < before.value.generation:
            self._findings.add("generation_falls", offset, generation, before=before.value.generation)
        if generation != before.value.generation:
            return
        joined = [seat.name for seat in seen.seats if seat not in before.seats]
        gone = [seat.name for seat in before.seats if seat not in seen.seats]
        changed = [
            seat.name
            for seat, member in seen.seats.items()
            if seat in before.seats and before.seats[seat].assignment != member.assignment
        ]
        if (joined or gone) and taken(before, seen) is None:
            # The others' assignments change with the members.
            self._findings.add(
                "membership_changed", offset, generation,
                joined=joined[:NAMES_MAX], gone=gone[:NAMES_MAX], reassigned=changed[:NAMES_MAX],
            )  # fmt: skip
        elif changed:
            self._findings.add(
                "assignment_changed", offset, generation,
                members=changed[:NAMES_MAX], count=len(changed), before_offset=before.offset,
            )  # fmt: skip

    def check_new(self, before: Seen, seen: Seen, deleted_at: int | None) -> None:
        """Check the first record after a tombstone: it must be a new group's, without old members and old state.

        before: the last record in front of the tombstone, whose offset is `deleted_at`.
        """
        now, was = seen.value, before.value
        back = sorted({member.member_id for member in was.members} & {member.member_id for member in now.members})
        same = was.generation == now.generation and was.current_state_timestamp == now.current_state_timestamp
        if back or (same and now.current_state_timestamp >= 0):
            self._findings.add(
                "deleted_returns", seen.offset, now.generation,
                members=back[:NAMES_MAX], before=was.generation, deleted_at=deleted_at,
            )  # fmt: skip


def _name(member: Member) -> str:
    return seat_of(member).name
