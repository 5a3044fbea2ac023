"""The rules that hold of a live group between two events. The bench and the simulation check them after every step.

The rules that hold of a group's record too are those of `coordinator.group.invariants`.
"""

from __future__ import annotations

from collections import Counter

from coordinator.group.group import BLOCK_MEMBERS_MAX, NEVER, Group
from coordinator.group.invariants import member_violations
from coordinator.group.records import decode_group, group_value
from coordinator.group.state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE


def violations(group: Group) -> list[str]:
    """Every rule that `group` breaks, in words; empty if it is right."""
    return [*_membership(group), *_blocks(group), *_waiting(group), *_standbys(group), *_protocols(group)]


def _membership(group: Group) -> list[str]:
    found = [broken.reason for broken in member_violations(group.members.values(), group.leader, group.protocol_type)]
    named = {member.group_instance_id: key for key, member in group.members.items() if member.is_static}
    if named != group.static_members:
        found.append(f"the instance ids map to {group.static_members}, the members say {named}")
    found += [
        f"{key} is filed as {member.member_id}" for key, member in group.members.items() if key != member.member_id
    ]
    if group.pending.keys() & group.members.keys():
        found.append(f"members that are pending: {group.pending.keys() & group.members.keys()}")
    if group.state not in (COMPLETING_REBALANCE, STABLE):
        kept = [key for key, member in group.members.items() if member.beat is not None]
        found += [f"the next heartbeat of {key} isn't looked at" for key in kept]
    if group.state is EMPTY and group.members:
        found.append("Empty with members")
    if group.state in (COMPLETING_REBALANCE, STABLE) and not group.members:
        found.append(f"{group.state.value} without members")
    return found


def _blocks(group: Group) -> list[str]:
    found = []
    if [member for block in group.blocks for member in block.members] != list(group.members.values()):
        found.append("the blocks are not the members in their order")
    for block in group.blocks:
        if not 0 < len(block.members) <= BLOCK_MEMBERS_MAX:
            found.append(f"a block of {len(block.members)} members")
        if any(member.block is not block for member in block.members):
            found.append("a member in another block than it says")
        if block.encoded is not None and any(member.encoded is None for member in block.members):
            found.append("a block says what a member said before it changed")
    return found


def _waiting(group: Group) -> list[str]:
    found = []
    joined = sum(member.awaiting_join is not None for member in group.members.values())
    if joined != group.joined_count:
        found.append(f"{joined} wait in JoinGroup, {group.joined_count} are counted")
    for member in group.members.values():
        if member.awaiting_join is not None and group.state is not PREPARING_REBALANCE:
            found.append(f"{member.member_id} waits in JoinGroup in {group.state.value}")
        if member.awaiting_sync is not None and group.state is not COMPLETING_REBALANCE:
            found.append(f"{member.member_id} waits in SyncGroup in {group.state.value}")
        waits = member.awaiting_join is not None or member.awaiting_sync is not None
        if group.state is not DEAD and member.timer_at_ms == NEVER and not waits:
            found.append(f"nothing would ever expire {member.member_id}")
        if member.timer_at_ms != NEVER and member.timer_at_ms > member.deadline_ms:
            found.append(f"{member.member_id} would expire late")
    if group.state is PREPARING_REBALANCE and group.initial_delay is None and group.all_joined:
        found.append("everybody joined and the rebalance stays open")
    if group.initial_delay is not None and group.state is not PREPARING_REBALANCE:
        found.append(f"held open in {group.state.value}")
    if group.pending_sync and group.state not in (COMPLETING_REBALANCE, STABLE):
        found.append(f"waits for syncs in {group.state.value}")
    return found


def _standbys(group: Group) -> list[str]:
    found = []
    names = [each.member.group_instance_id for each in group.standbys.values() if each.member.is_static]
    held = group.members.keys() | group.pending.keys()
    found += [f"{key} is a standby and more" for key in group.standbys if key in held]
    found += [f"{name} is a standby's and a member's" for name in names if name in group.static_members]
    if len(names) != len(set(names)):
        found.append("two standbys with an instance id")
    # While a rebalance is open, its end gives them the seats.
    if group.standbys and not group.members and group.state is not PREPARING_REBALANCE:
        found.append("standbys wait and nobody has a seat")
    for key, (member, _) in group.standbys.items():
        if key != member.member_id:
            found.append(f"the standby {key} is filed as {member.member_id}")
        if member.awaiting_join is not None and group.state is not PREPARING_REBALANCE:
            found.append(f"the standby {key} waits in JoinGroup in {group.state.value}")
        if member.awaiting_sync is not None or member.assignment or member.block is not None:
            found.append(f"the standby {key} holds a seat")
        if group.state is not DEAD and member.awaiting_join is None and member.timer_at_ms == NEVER:
            found.append(f"nothing would ever expire the standby {key}")
    for key, member in group.members.items():
        if member.called_until_ms is None:
            continue
        if member.awaiting_join is not None or member.awaiting_sync is not None:
            found.append(f"{key} is called and waits")
        if key in group.pending_sync:
            found.append(f"{key} is called and has to sync by the time of the others as well")
        if group.state is not DEAD and member.timer_at_ms > member.called_until_ms:
            found.append(f"{key} would lose its seat late")
    return found


def _protocols(group: Group) -> list[str]:
    found = []
    preferences = Counter(tuple(name for name, _ in member.protocols) for member in group.members.values())
    if preferences != group.preferences:
        found.append(f"protocols are counted as {group.preferences}, the members list {preferences}")
    support = Counter(name for names in group.preferences for name in set(names))
    if support != group.support:
        found.append(f"the support of protocols is counted as {group.support}, the members' lists say {dict(support)}")
    common = {name for name, count in support.items() if count == len(group.preferences)}
    if group.members and not common:
        found.append("no protocol that all members support")
    if group.members and group.state in (COMPLETING_REBALANCE, STABLE) and group.protocol_name not in common:
        found.append(f"the selected protocol {group.protocol_name} is not everybody's")
    return found


def replay_differences(group: Group) -> list[str]:
    """How the group that its record would restore differs from the live one, in Stable and Empty.

    A record carries each member's metadata for the selected protocol only.
    """
    assert group.state in (STABLE, EMPTY)
    live, replayed = _recorded(group), _recorded(decode_group(group.group_id, group_value(group, group.state_since_ms)))
    return [f"{name}: live {live[name]}, replayed {replayed[name]}" for name in live if live[name] != replayed[name]]


def _recorded(group: Group) -> dict[str, object]:
    name = group.protocol_name
    return {
        "state": group.state,
        "state_since_ms": group.state_since_ms,
        "protocol_type": group.protocol_type,
        "protocol_name": name,
        "generation": group.generation,
        "leader": group.leader,
        "static_members": group.static_members,
        "members": {
            member.member_id: (
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(name or ""),
                member.assignment,
            )
            for member in group.members.values()
        },
    }
