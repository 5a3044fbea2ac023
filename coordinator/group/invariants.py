"""The rules that hold of a group's record: the one definition of "right" for `tenure log verify` and `tenure audit`.

Most of them hold of a live group between two events as well (`member_violations`). Tests check them after every event,
and rules that only a live group can break (tests/group/invariants.py).

House rule: each rule stands here once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from coordinator.group.group import Member
from protocol.messages import GroupMetadataValue


class RecordRule(StrEnum):
    """A rule for a group's record. The value says how a record breaks it."""

    MEMBER_TWICE = "a member id twice"
    INSTANCE_TWICE = "an instance id twice"
    LEADER = "the leader is no member"
    PROTOCOL_TYPE = "members without a protocol type"
    PROTOCOL_NAME = "members without a protocol name"


class Violation(NamedTuple):
    """A broken rule. reason: in words, with names. who: the member, instance id or leader that breaks it."""

    rule: RecordRule
    reason: str
    who: str | None = None


def record_violations(value: GroupMetadataValue) -> list[Violation]:
    """Every rule that a group's record breaks."""
    found = list(member_violations(value.members, value.leader, value.protocol_type))
    if value.members and value.protocol is None:
        found.append(Violation(RecordRule.PROTOCOL_NAME, RecordRule.PROTOCOL_NAME.value))
    return found


def member_violations(
    members: Iterable[Member | GroupMetadataValue.MemberMetadata], leader: str | None, protocol_type: str | None
) -> Iterator[Violation]:
    """A member id or instance id twice, a leader that is no member, members without a protocol type."""
    ids: set[str] = set()
    instances: set[str] = set()
    for member in members:
        instance_id = member.group_instance_id
        if member.member_id in ids:
            yield Violation(RecordRule.MEMBER_TWICE, f"member {member.member_id!r} appears twice", member.member_id)
        elif instance_id is not None and instance_id in instances:
            yield Violation(RecordRule.INSTANCE_TWICE, f"the instance id {instance_id!r} is held twice", instance_id)
        ids.add(member.member_id)
        if instance_id is not None:
            instances.add(instance_id)
    if ids and leader not in ids:
        yield Violation(RecordRule.LEADER, f"the leader {leader} is no member", leader)
    if leader and not ids:
        yield Violation(RecordRule.LEADER, f"{leader} leads a group without members", leader)
    if ids and not protocol_type:
        yield Violation(RecordRule.PROTOCOL_TYPE, RecordRule.PROTOCOL_TYPE.value)
