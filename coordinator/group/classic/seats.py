"""Seats and standbys: a group with `target.group.size` has so many seats; members beyond them wait as standbys.

A standby has joined, sends heartbeats and holds no partitions. The coordinator answers it with STANDBY_GENERATION and
an assignment without partitions, whatever the others do. The group's record, the leader's list of members and the vote
leave it out. So a rebalance of the others doesn't touch it, and Kafka can read the log at any time.

    take_over   a member of a Stable group goes: one standby gets its seat, with the assignment as it is. The generation
                stays. The standby hears REBALANCE_IN_PROGRESS, joins again, and syncs.
    settle      a rebalance completes: standbys fill the seats that are free; with too many members, the last ones
                become standbys.

A standby that got a seat without a JoinGroup of its own is *called* until it has joined and synced. It has the time of
a rebalance for that (`Member.called_until_ms`). Then it expires, and the next standby has the seat. If the answer to
its sync is lost, its next JoinGroup calls it again (`is_due`).

House rule: a standby never delays a rebalance of the others.
"""

from __future__ import annotations

from coordinator.group import notes, records
from coordinator.group.causes import CauseKind
from coordinator.group.classic import course
from coordinator.group.group import Group, Member, Standby, subscribed_topics
from coordinator.group.state import COMPLETING_REBALANCE, STABLE
from coordinator.group.turn import NONE, Turn
from protocol.consumer import CONSUMER, decode_generation, decode_rack
from protocol.messages import JoinGroupResponse
from schemas.errors import ErrorCode

STANDBY_GENERATION = 0
"""The generation of a standby. No synced generation has this number, so a heartbeat or sync with it always shows that
its client doesn't know its seat yet, even after a crash of the coordinator.
"""

STREAMS = "stream"
"""The protocol name of Kafka Streams. Its assignments carry tasks that belong to one process."""


def is_full(turn: Turn, group: Group, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
    """Whether a new member with these protocols has to wait as a standby."""
    group.target_size = target_size(turn, group.group_id)
    return 0 < group.target_size <= len(group.members) and can_wait(protocol_type, protocols)


def target_size(turn: Turn, group_id: str) -> int:
    """How many seats the settings give a group (target.group.size); 0: any number."""
    own = turn.own_settings(group_id)
    return 0 if own is None else own.target_size


def can_wait(protocol_type: str | None, protocols: list[tuple[str, bytes]]) -> bool:
    """Whether the coordinator knows an assignment without partitions for this client."""
    return protocol_type == CONSUMER and all(name != STREAMS for name, _ in protocols)


def has_seats(group: Group) -> bool:
    """Whether the number of seats counts for this group, which has members or had some."""
    return group.protocol_type == CONSUMER and group.protocol_name != STREAMS


def add(turn: Turn, group: Group, member: Member) -> None:
    """Let `member` wait as a standby. It must not be a member any more: nobody is both."""
    group.standbys[member.member_id] = Standby(member, turn.now.ms)
    group.pending.pop(member.member_id, None)
    turn.note(
        notes.StandbyJoined(group.group_id, group.generation, *member.named, len(group.standbys), member.principal)
    )


def answer(turn: Turn, group: Group, member: Member) -> None:
    """Answer the JoinGroup that a standby waits in, unless its group prepares a generation."""
    waiting = member.awaiting_join
    if waiting is None or group.state not in (COMPLETING_REBALANCE, STABLE):
        return
    member.awaiting_join = None
    member.is_new = False
    name = group.protocol_name
    if not any(name == own for own, _ in member.protocols):
        turn.refuse_join(waiting, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.member_id)
        remove(turn, group, member, "its assignors are not the group's")
        return
    turn.renew_sessions(group, [member])
    turn.answer(
        waiting.request,
        JoinGroupResponse(
            error_code=NONE,
            generation_id=STANDBY_GENERATION,
            protocol_type=group.protocol_type,
            protocol_name=name,
            leader=group.leader or "",
            member_id=member.member_id,
            members=[],
        ),
    )


def remove(turn: Turn, group: Group, member: Member, why: str) -> None:
    """Remove a standby that waits in no request."""
    assert member.awaiting_join is None
    turn.forget(group, member)
    del group.standbys[member.member_id]
    turn.note(
        notes.StandbyGone(group.group_id, group.generation, *member.named, why, len(group.standbys), member.principal)
    )


def release(turn: Turn, member: Member, error: ErrorCode) -> None:
    """Answer with an error the JoinGroup that a standby waits in, if there is one."""
    waiting, member.awaiting_join = member.awaiting_join, None
    if waiting is not None:
        turn.refuse_join(waiting, error, member.member_id)


def release_all(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Remove all standbys, because the group ends. Those that wait in JoinGroup get `error`."""
    for standby in group.standbys.values():
        release(turn, standby.member, error)
        turn.forget(group, standby.member)
    group.standbys.clear()


# A seat is free.


def take_over(turn: Turn, group: Group, lost: Member, kind: CauseKind) -> bool:
    """Give the seat of `lost` to a standby. Returns False, and changes nothing, if only a rebalance can do that.

    kind: why `lost` goes.
    """
    # A leader that is assigning may still assign to the lost member (KAFKA-9801), so the seat waits for a rebalance.
    if group.state is not STABLE or group.target_size == 0 or len(group.members) > group.target_size:
        return False
    standby = choose(group, lost)
    if standby is None or not fits_record(turn, group, standby.member, lost):
        return False
    leads = group.leader == lost.member_id
    assignment = lost.assignment
    # The standby comes in before the lost member goes, so that the group doesn't become empty.
    seat(turn, group, standby)
    standby.member.assignment = assignment
    turn.drop(group, lost)
    if leads:
        group.leader = standby.member.member_id
    is_written = turn.write_group(group, group.state_since_ms)
    assert is_written
    turn.note(
        notes.SeatTaken(
            group.group_id,
            group.generation,
            *standby.member.named,
            *lost.named,
            kind.value,
            turn.now.ms - standby.since_ms,
            leads,
            len(group.standbys),
            standby.member.principal,
        )
    )
    return True


def choose(group: Group, lost: Member) -> Standby | None:
    """The standby that takes the seat of `lost`: the one that has waited longest.

    Standbys on the host or in the rack of the lost member come last: what broke there may break them too.
    """
    name = group.protocol_name
    assert name is not None
    able = [each for each in group.standbys.values() if fits(each.member, lost, name)]
    rack, (_, host) = decode_rack(lost.metadata(name)), lost.client

    def is_near(standby: Standby) -> bool:
        own = decode_rack(standby.member.metadata(name))
        return standby.member.client[1] == host or (rack is not None and own == rack)

    return next((each for each in able if not is_near(each)), able[0] if able else None)


def fits(member: Member, lost: Member, protocol_name: str) -> bool:
    """Whether `member` can go on with the assignment of `lost`: the same assignor, the same topics."""
    if all(name != protocol_name for name, _ in member.protocols):
        return False
    own, others = member.metadata(protocol_name), lost.metadata(protocol_name)
    topics = subscribed_topics(own)
    return own == others or (topics is not None and topics == subscribed_topics(others))


def fits_record(turn: Turn, group: Group, member: Member, lost: Member) -> bool:
    """Whether the group's record surely has room for `member` in the place of `lost` (the limits of `write_group`)."""
    name = group.protocol_name
    assert name is not None
    record = records.group_record(group, group.state_since_ms, turn.now.wall_ms)
    size, more = records.batch_size([record]), len(records.member_bytes(member, name))
    if size + more > turn.config.message_max_bytes:
        return False
    limit = turn.config.stored_max_bytes
    # In another order the same members may take more room when they are packed.
    more += 2 * len(records.member_bytes(lost, name))
    return not 0 < limit < size + more or records.stored_size(record) + more <= limit


def seat(turn: Turn, group: Group, standby: Standby) -> None:
    """Make a standby a member. One that waits in no JoinGroup is called: it has to send one."""
    member = standby.member
    del group.standbys[member.member_id]
    waiting, member.awaiting_join = member.awaiting_join, None
    group.add(member, waiting)
    if waiting is None:
        member.called_until_ms = called_until_ms(member, turn.now.ms)


def called_until_ms(member: Member, now_ms: int) -> int:
    """Until when a standby that gets a seat now may join and sync."""
    return now_ms + max(member.rebalance_timeout_ms, member.session_timeout_ms)


def is_called(group: Group, member: Member, generation: int, now_ms: int) -> bool:
    """Whether a request with this generation, which is not the group's, has to be answered with "join again".

    The log doesn't say that a member was a standby. After a crash of the coordinator, the generation of its request
    says so. The answer calls the member again, unless a rebalance gave it the time of the others.
    """
    is_standbys = generation == STANDBY_GENERATION and group.target_size > 0
    is_timed = member.called_until_ms is not None or member.member_id in group.pending_sync
    if is_standbys and member.joined_by is None and not is_timed:
        member.called_until_ms = called_until_ms(member, now_ms)
    return is_standbys or member.called_until_ms is not None


def is_due(turn: Turn, group: Group, member: Member, protocols: list[tuple[str, bytes]]) -> bool:
    """Whether a JoinGroup of `member`, with these protocols, is that of a standby that takes its seat.

    It is called, or it is called again: the answer to its sync may be lost; or this coordinator hasn't heard of it
    since it loaded the group, and the metadata are those of a standby.
    """
    if member.called_until_ms is not None:
        return True
    if group.state is not STABLE or group.target_size == 0 or not has_seats(group):
        return False
    if not member.may_lack_seat and not (
        member.joined_by is None
        and member.member_id not in group.pending_sync
        and was_standby(group, member, protocols)
    ):
        return False
    member.may_lack_seat = False
    member.called_until_ms = called_until_ms(member, turn.now.ms)
    return True


def was_standby(group: Group, member: Member, protocols: list[tuple[str, bytes]]) -> bool:
    """Whether these protocols, of a member that the log restored, may be those of a standby that got the seat.

    Metadata name the generation (KIP-792), or a leader's are the same as in the record. A leader that rejoins for other
    partitions assigns them, and its sync then starts a rebalance (`sync.finds_more`).
    """
    name = group.protocol_name
    assert name is not None
    said = dict(protocols)[name]
    is_same_leader = group.leader == member.member_id and member.metadata(name) == said
    return is_same_leader or decode_generation(said) == STANDBY_GENERATION


# A rebalance completes.


def settle(turn: Turn, group: Group) -> None:
    """Fill free seats with standbys, or make standbys of members that are too many."""
    size = group.target_size
    while len(group.members) > size > 0 and demote_last(turn, group):
        pass
    for standby in list(group.standbys.values()):
        if 0 < size <= len(group.members):
            break
        member = standby.member
        if group.members and not group.supports(CONSUMER, member.protocols):
            continue
        seat(turn, group, standby)
        if member.awaiting_join is not None:
            course.arrived(turn, group, member.member_id)
        turn.note(
            notes.StandbySeated(
                group.group_id,
                group.generation,
                *member.named,
                turn.now.ms - standby.since_ms,
                len(group.standbys),
                member.principal,
            )
        )


def demote_last(turn: Turn, group: Group) -> bool:
    """Make a standby of the member that joined last, but not of the leader. False if no member can be one."""
    able = [
        member
        for member in group.members.values()
        if member.member_id != group.leader and can_wait(group.protocol_type, member.protocols)
    ]
    if not able:
        return False
    member = able[-1]
    waiting = group.take_join(member)
    group.remove(member)
    member.assignment = b""
    member.called_until_ms = None
    member.awaiting_join = waiting
    add(turn, group, member)
    return True
