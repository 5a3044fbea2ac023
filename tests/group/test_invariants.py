"""The invariants find each way in which a group or its record can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.course import Pending
from coordinator.group.group import NEVER, Block, Group, InitialDelay, Waiting
from coordinator.group.invariants import RecordRule, record_violations
from coordinator.group.records import GROUP_VALUE_VERSION, decode_group, group_value
from coordinator.group.state import State
from protocol.messages import GroupMetadataValue, decode
from tests.group.harness import Bench
from tests.group.invariants import replay_differences, violations


def stable() -> Group:
    """A Stable group of two static members."""
    bench = Bench()
    bench.settle(bench.static("a"), bench.static("b"))
    return bench.group()


def first(group: Group) -> str:
    """A member's id."""
    return next(iter(group.members))


def of_first(**changed: object) -> Callable[[Group], None]:
    """Change these fields of a member."""

    def change(group: Group) -> None:
        for name, value in changed.items():
            setattr(group.members[first(group)], name, value)

    return change


def twice(group: Group | GroupMetadataValue) -> None:
    """Give both members one instance id."""
    for member in group.members.values() if isinstance(group, Group) else group.members:
        member.group_instance_id = "a"


def wait_in_join(group: Group) -> None:
    """Let a member wait in JoinGroup in Stable."""
    group.members[first(group)].awaiting_join = Waiting("r", 5)
    group.joined_count = 1


def late_timer(group: Group) -> None:
    """Set a timer behind its deadline."""
    member = group.members[first(group)]
    member.deadline_ms = member.timer_at_ms - 1


def nobodys_protocols(group: Group) -> None:
    """Leave no protocol that all members list."""
    member = group.members[first(group)]
    group.preferences = {("other",): 1, ("range",): 1}
    member.protocols = [("other", b"")]


def forgotten_rebalance(group: Group) -> None:
    """Let every member wait in JoinGroup while the rebalance stays open."""
    group.state = State.PREPARING_REBALANCE
    for member in group.members.values():
        member.awaiting_join = Waiting("r", 5)
    group.joined_count = len(group.members)


BREAKS: dict[str, tuple[Callable[[Group], object], str]] = {
    "map lacks a name": (lambda group: group.static_members.pop("a"), "the members say"),
    "name held twice": (twice, "held twice"),
    "filed wrongly": (of_first(member_id="other"), "is filed as"),
    "leader is gone": (lambda group: setattr(group, "leader", "ghost"), "is no member"),
    "pending member": (lambda group: group.pending.update({first(group): Pending("", "", "", 0)}), "that are pending"),
    "empty with members": (lambda group: setattr(group, "state", State.EMPTY), "Empty with members"),
    "joined count": (lambda group: setattr(group, "joined_count", 1), "are counted"),
    "waits in join": (wait_in_join, "waits in JoinGroup in Stable"),
    "waits in sync": (of_first(awaiting_sync=Waiting("r", 5)), "waits in SyncGroup in Stable"),
    "other order": (lambda group: group.blocks[0].members.reverse(), "not the members in their order"),
    "empty block": (lambda group: group.blocks.append(Block()), "a block of 0 members"),
    "stale block": (of_first(encoded=None), "before it changed"),
    "strayed member": (of_first(block=Block()), "in another block"),
    "no timer": (of_first(timer_at_ms=NEVER), "nothing would ever expire"),
    "late timer": (late_timer, "would expire late"),
    "held open": (lambda group: setattr(group, "initial_delay", InitialDelay(1, 1)), "held open"),
    "other support": (lambda group: group.support.update(other=1), "support of protocols is counted"),
    "rebalance stays open": (forgotten_rebalance, "stays open"),
    "protocol counts": (of_first(protocols=[("other", b"")]), "the members list"),
    "no common protocol": (nobodys_protocols, "no protocol that all members support"),
    "no type": (lambda group: setattr(group, "protocol_type", None), "without a protocol type"),
    "selected protocol": (lambda group: setattr(group, "protocol_name", "other"), "is not everybody's"),
}


def test_a_group_at_work_is_right() -> None:
    """The invariants find nothing."""
    assert violations(stable()) == []


@pytest.mark.parametrize("broken", BREAKS)
def test_each_break_is_found(broken: str) -> None:
    """The finding names it in words."""
    group = stable()
    do, words = BREAKS[broken]
    do(group)
    assert any(words in found for found in violations(group)), violations(group)


def test_a_record_is_right_before_timers_are_armed() -> None:
    """The rules for a record leave out what only a live group has, such as timers."""
    group = stable()
    value = group_value(group, 0)
    record = decode(GroupMetadataValue, value, GROUP_VALUE_VERSION, 2)
    assert record_violations(record) == []
    assert len(violations(decode_group(group.group_id, value))) == 2
    record.leader = "nobody"
    assert [each.reason for each in record_violations(record)] == ["the leader nobody is no member"]


def rename_all(record: GroupMetadataValue) -> None:
    """Give both members one id."""
    for member in record.members:
        member.member_id = "a"
    record.leader = "a"


RECORD_BREAKS: dict[RecordRule, tuple[Callable[[GroupMetadataValue], object], str | None]] = {
    RecordRule.MEMBER_TWICE: (rename_all, "a"),
    RecordRule.INSTANCE_TWICE: (twice, "a"),
    RecordRule.LEADER: (lambda record: setattr(record, "leader", "nobody"), "nobody"),
    RecordRule.PROTOCOL_TYPE: (lambda record: setattr(record, "protocol_type", ""), None),
    RecordRule.PROTOCOL_NAME: (lambda record: setattr(record, "protocol", None), None),
}


@pytest.mark.parametrize("rule", RecordRule)
def test_each_rule_of_a_record_is_found(rule: RecordRule) -> None:
    """There is one finding, with the rule and the member or instance id that breaks it."""
    record = decode(GroupMetadataValue, group_value(stable(), 0), GROUP_VALUE_VERSION, 2)
    do, who = RECORD_BREAKS[rule]
    do(record)
    (found,) = record_violations(record)
    assert (found.rule, found.who) == (rule, who)


def test_record_of_an_empty_group_has_no_leader() -> None:
    """A record without members must have no leader."""
    record = GroupMetadataValue(protocol_type="consumer", leader="a", members=[])
    assert [each.rule for each in record_violations(record)] == [RecordRule.LEADER]
    record.leader = None
    assert record_violations(record) == []


def test_members_without_state_are_found() -> None:
    """A group without members has no leader and waits for no sync."""
    group = Group("g", None)
    group.state, group.leader = State.STABLE, "m"
    assert len(violations(group)) == 2
    group.state, group.leader = State.EMPTY, None
    group.pending_sync.add("m")
    assert violations(group) == ["waits for syncs in Empty"]


def test_what_a_record_would_lose_is_found() -> None:
    """A member's cached bytes that are stale would lose its new assignment."""
    group = stable()
    assert replay_differences(group) == []
    group.members[first(group)].assignment = b"new"
    assert any(found.startswith("members") for found in replay_differences(group))
