"""From one generation to the next: prepare, wait for the members, complete.

`prepare` opens the rebalance and members join. `complete` closes it when all have joined or the time is up, and starts
the next generation. The leader's assignments make that generation Stable (`sync`).

An empty group holds its first rebalance open for group.initial.rebalance.delay.ms, and for as long again after each
arrival, up to the rebalance timeout (KIP-134). Nothing completes it earlier.

House rule: a rebalance timer runs exactly while the group is in PreparingRebalance, a sync timer exactly while members
of this generation have not synced.
"""

from __future__ import annotations

from coordinator.group import notes, records
from coordinator.group.answers import protocol_name_in
from coordinator.group.bounds import following
from coordinator.group.causes import Cause
from coordinator.group.classic import course, seats
from coordinator.group.course import Course, Outcome
from coordinator.group.effects import REBALANCE, SYNC
from coordinator.group.group import Group, InitialDelay, Member
from coordinator.group.state import COMPLETING_REBALANCE, EMPTY, NEXT, PREPARING_REBALANCE
from coordinator.group.turn import NONE, Turn
from protocol.messages import JoinGroupResponse, alike
from protocol.speed import new
from schemas.errors import ErrorCode

_answer = alike(JoinGroupResponse, "generation_id", "protocol_type", "protocol_name", "leader", "member_id", "members")
_follower_answer = alike(JoinGroupResponse, "member_id", "members")
_listed = alike(JoinGroupResponse.JoinGroupResponseMember, "member_id", "group_instance_id", "metadata")
# Answers share fields with these two; nobody changes them.
_LIKE = JoinGroupResponse.JoinGroupResponseMember()
_NO_ERROR = JoinGroupResponse(error_code=NONE)

STUCK_WAIT_MIN_MS = 1_000
"""How long a group waits at least before it looks again, if no member rejoined: a rebalance timeout may be 0."""


def maybe_prepare(turn: Turn, group: Group, cause: Cause) -> None:
    """Open a rebalance, unless one is open already."""
    if PREPARING_REBALANCE in NEXT[group.state]:
        prepare(turn, group, cause)
    else:
        course.opened(group).add(cause)
        turn.note(new(notes.RebalanceCause, (group.group_id, group.generation, cause, notes.CLASSIC)))


def prepare(turn: Turn, group: Group, cause: Cause) -> None:
    """Open a rebalance (Kafka: GroupCoordinator.prepareRebalance)."""
    before = group.state
    opened = course.opened(group)
    if before is COMPLETING_REBALANCE:
        course.end(turn, group, Outcome.SUPERSEDED)
        opened = group.course = Course(opened.before)
        group.assign({})
        turn.release_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.pending_sync:
        group.pending_sync.clear()
        turn.arm(SYNC, group, None)
    opened.begin(group.state, group.generation, cause, turn.now)
    group.transition_to(PREPARING_REBALANCE, turn.now.wall_ms)
    pending = tuple(group.pending.values())
    turn.note(
        notes.RebalanceStarted(
            group.group_id, group.generation, before.value, cause, len(group.members), pending, len(opened.before)
        )
    )
    if before is EMPTY:
        delay_ms = turn.config.group_initial_rebalance_delay_ms
        if delay_ms == 0:
            complete(turn, group)
        else:
            hold_open(turn, group, InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0)))
    else:
        opened.until_ms = until_ms = turn.now.ms + group.rebalance_timeout_ms
        turn.arm(REBALANCE, group, until_ms)
        maybe_complete(turn, group)


def hold_open(turn: Turn, group: Group, delay: InitialDelay) -> None:
    """Wait for arrivals before the first generation."""
    group.initial_delay = delay
    course.opened(group).until_ms = until_ms = turn.now.ms + delay.delay_ms
    turn.arm(REBALANCE, group, until_ms)


def hold_no_longer(turn: Turn, group: Group) -> None:
    """Complete the first rebalance of a group as soon as all have joined, without the initial delay."""
    if group.initial_delay is not None:
        group.initial_delay = None
        course.opened(group).until_ms = until_ms = turn.now.ms + group.rebalance_timeout_ms
        turn.arm(REBALANCE, group, until_ms)
        maybe_complete(turn, group)


def maybe_complete(turn: Turn, group: Group) -> None:
    """Complete the open rebalance if it waits for nobody."""
    if group.state is PREPARING_REBALANCE and group.initial_delay is None and group.all_joined:
        turn.arm(REBALANCE, group, None)
        complete(turn, group)


def time_is_up(turn: Turn, group: Group) -> None:
    """The rebalance timer went off."""
    assert group.state is PREPARING_REBALANCE
    delay = group.initial_delay
    if delay is not None and group.new_member_added and delay.remaining_ms != 0:
        group.new_member_added = False
        delay_ms = min(turn.config.group_initial_rebalance_delay_ms, delay.remaining_ms)
        hold_open(turn, group, InitialDelay(delay_ms, max(delay.remaining_ms - delay.delay_ms, 0)))
    else:
        complete(turn, group)


def wait_in_full(turn: Turn, group: Group) -> None:
    """Restart the wait for joins or for syncs, if there is one."""
    if group.state is PREPARING_REBALANCE:
        kind, wait_ms = REBALANCE, group.rebalance_timeout_ms
        if group.initial_delay is not None:
            wait_ms = group.initial_delay.delay_ms
    elif group.pending_sync:
        kind, wait_ms = SYNC, group.rebalance_timeout_ms
    else:
        return
    course.opened(group).until_ms = until_ms = turn.now.ms + wait_ms
    turn.arm(kind, group, until_ms)


def complete(turn: Turn, group: Group) -> None:
    """Close the open rebalance, whose timer has stopped (Kafka: GroupCoordinator.onCompleteJoin).

    Dynamic members that did not rejoin are dropped; static ones stay until their session ends (KIP-345, KAFKA-8220). If
    no member rejoined, the group waits for another rebalance timeout.
    """
    group.initial_delay = None
    if group.joined_count < len(group.members):
        late = [member for member in group.members.values() if member.awaiting_join is None]
        course.opened(group).late = tuple(member.member_id for member in late)
        dynamic = [member for member in late if not member.is_static]
        for member in dynamic:
            turn.drop(group, member)
        if dynamic:
            dropped = tuple(member.member_id for member in dynamic)
            turn.note(notes.MembersDropped(group.group_id, group.generation, dropped, "did not rejoin in time"))
    if group.standbys or 0 < group.target_size < len(group.members):
        seats.settle(turn, group)
    if group.members and not elect_joined_leader(turn, group):
        turn.note(notes.RebalanceStuck(group.group_id, group.generation))
        course.opened(group).until_ms = until_ms = turn.now.ms + max(group.rebalance_timeout_ms, STUCK_WAIT_MIN_MS)
        turn.arm(REBALANCE, group, until_ms)
        return
    if group.members:
        start_generation(turn, group)
    else:
        become_empty(turn, group)


def elect_joined_leader(turn: Turn, group: Group) -> bool:
    """Make sure that a member that joined leads; False if no member joined (KAFKA-8220)."""
    assert group.leader is not None
    if group.members[group.leader].awaiting_join is not None:
        return True
    joined = next((member for member in group.members.values() if member.awaiting_join is not None), None)
    if joined is None:
        return False
    turn.note(notes.LeaderElected(group.group_id, group.generation, group.leader, joined.member_id))
    group.leader = joined.member_id
    return True


def start_generation(turn: Turn, group: Group) -> None:
    """Answer every JoinGroup, and wait for the syncs."""
    group.generation = following(group.generation)
    group.new_member_added = False
    protocol_name = group.select_protocol()
    if protocol_name != group.protocol_name:
        group.protocol_name = protocol_name
        group.all_changed()
    group.subscribed_topics = group.find_subscribed_topics()
    group.transition_to(COMPLETING_REBALANCE, turn.now.wall_ms)
    opened = course.opened(group)
    opened.joined(group.leader, turn.now.ms)
    assert group.leader is not None
    turn.note(
        notes.GenerationStarted(group.group_id, group.generation, group.leader, protocol_name, len(group.members))
    )
    leader = group.members[group.leader]
    joins = group.take_joins()
    own = join_answer(group, leader, 0)
    nobody: list[JoinGroupResponse.JoinGroupResponseMember] = []
    answers = [
        (request, own if member is leader else _follower_answer(own, member.member_id, nobody))
        for member, (request, _) in joins
    ]
    if not protocol_name:
        for (_, answer), (_, waiting) in zip(answers, joins, strict=True):
            answer.protocol_name = protocol_name_in(waiting.version, protocol_name)
    turn.answer_all(answers)
    if group.standbys:
        for standby in list(group.standbys.values()):
            seats.answer(turn, group, standby.member)
    for member in group.members.values():
        member.is_new = False
    turn.renew_sessions(group, group.members.values())
    group.pending_sync.update(group.members)
    # A standby that has to join first has a time of its own for both.
    called = [key for key, member in group.members.items() if member.called_until_ms is not None]
    group.pending_sync.difference_update(called)
    opened.until_ms = until_ms = turn.now.ms + group.rebalance_timeout_ms
    turn.arm(SYNC, group, until_ms)


def become_empty(turn: Turn, group: Group) -> None:
    """The last member is gone: increase the generation, and write the group without members."""
    group.generation = following(group.generation)
    group.new_member_added = False
    group.protocol_name = None
    group.subscribed_topics = group.find_subscribed_topics()
    group.transition_to(EMPTY, turn.now.wall_ms)
    turn.note(notes.GroupEmptied(group.group_id, group.generation))
    course.end(turn, group, Outcome.EMPTIED)
    # This ignores message.max.bytes: the record has a few names, and it acknowledges the leave.
    turn.append(records.group_record(group, group.state_since_ms, turn.now.wall_ms))


def join_answer(group: Group, member: Member, version: int) -> JoinGroupResponse:
    """The answer of a JoinGroup: the current generation. Only the leader gets the members (KIP-345)."""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = []
    if group.leader == member.member_id:
        listed = zip(group.members.values(), group.metadata(), strict=True)
        members = [_listed(_LIKE, each.member_id, each.group_instance_id, metadata) for each, metadata in listed]
    return _answer(
        _NO_ERROR,
        group.generation,
        group.protocol_type,
        group.protocol_name or protocol_name_in(version, None),
        group.leader or "",
        member.member_id,
        members,
    )


def synced(turn: Turn, group: Group, member: Member) -> None:
    """`member` synced."""
    if member.member_id in group.pending_sync:
        group.pending_sync.remove(member.member_id)
        if not group.pending_sync:
            turn.arm(SYNC, group, None)
