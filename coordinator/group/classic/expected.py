"""Expected members (KIP-345, Future Works): a group whose settings name its members waits for them, then rebalances.

While expected members are missing, the group *holds* the join of a new member: its client is no member yet, and the
others don't notice. When the last one has come, or expected.instance.ids.timeout.ms is over, all held joins take part
in one rebalance.

    a new member, names missing     the group holds its join; the wait begins with the first held join
    the last missing member         the group lets all in
    the time is over                the group lets all in; it gives the missing ones up until they have been there
                                    again, or the group is empty
    a second join of a held name    takes its place; the first join is fenced, as in a rebalance (KAFKA-8500)
    a member that is lost           the group rebalances at once: the session timeout was the wait for that member
    not expected, allowed           held like the others; nobody waits for it
    not expected, held              held until every expected member is there, however long that takes
    not expected, refused           GROUP_MAX_SIZE_REACHED: there is no seat for it, in every version of JoinGroup

A held client waits in its JoinGroup, as in any rebalance. A client that gives up early asks again, and its instance id
gives it its place back. When its rebalance timeout is over, it gets COORDINATOR_LOAD_IN_PROGRESS, so that it asks
again. A program that died meanwhile doesn't ask.

House rule: a function that lets joins in returns them; `join.let_in` makes them members.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.config import ALLOWED, HELD, REFUSED, GroupSettings
from coordinator.group import notes
from coordinator.group.effects import ARRIVALS
from coordinator.group.events import JoinGroup
from coordinator.group.group import Arrivals, Group, Held
from coordinator.group.refusal import NOT_EXPECTED, Refusal
from coordinator.group.state import EMPTY
from coordinator.group.turn import Turn
from protocol.messages import DescribeGroupsResponse
from schemas.errors import ErrorCode

HOLD_MIN_MS, HOLD_MAX_MS = 1_000, 5 * 60 * 1_000
"""How long a group holds a JoinGroup at least and at most, whatever its rebalance timeout is: not so short that its
client asks all the time, and not longer than any new member's JoinGroup waits (join.NEW_MEMBER_JOIN_TIMEOUT_MS).
"""

HELD_MAX = 10_000
"""How many joins a group holds: as many as it can expect."""

NAMED_MAX = 100
"""How many missing members a note names: a log line stays readable, and `missing_count` has the others."""


def turns_away(turn: Turn, group: Group, event: JoinGroup) -> bool:
    """Refuse the join of a new member that the group doesn't expect, if its settings say so."""
    own = turn.expecting(group.group_id)
    if own is None or own.unexpected != REFUSED or event.body.group_instance_id in own.expected:
        return False
    turn.note_refused(group, event, NOT_EXPECTED)
    turn.refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
    return True


def arrive(turn: Turn, group: Group, event: JoinGroup, member_id: str) -> list[Held]:
    """A new member joins. Returns the joins that come in now, perhaps its own among them."""
    now_ms = turn.now.ms
    held = Held(event, member_id, now_ms + min(max(event.rebalance_timeout_ms, HOLD_MIN_MS), HOLD_MAX_MS))
    own = turn.expecting(group.group_id)
    if own is None:
        return [held]
    arrivals = group.arrivals = group.arrivals or Arrivals()
    former = arrivals.held.get(held.key)
    if former is not None:
        again = ErrorCode.NOT_COORDINATOR if held.event.body.group_instance_id is None else ErrorCode.FENCED_INSTANCE_ID
        turn.refuse(former.event, again)
    elif len(arrivals.held) >= HELD_MAX:
        why = f"{HELD_MAX} joins wait for expected members"
        turn.note_refused(group, event, Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, why=why))
        turn.refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED)
        return []
    arrivals.held[held.key] = held
    name = event.body.group_instance_id
    if name is not None:
        arrivals.given_up.discard(name)
    if arrivals.awaited is None:
        if group.state is EMPTY and group.size == 0:
            arrivals.given_up.clear()
        missing = missing_of(group, own) - arrivals.given_up - {name}
        if missing and own.expected_timeout_ms and (own.unexpected == ALLOWED or name in own.expected):
            arrivals.awaited, arrivals.until_ms = missing, now_ms + own.expected_timeout_ms
            until_wall_ms = turn.now.wall_ms + own.expected_timeout_ms
            turn.note(
                notes.RebalanceHeld(group.group_id, group.generation, named(missing), len(missing), until_wall_ms)
            )
    elif name is not None:
        arrivals.awaited.discard(name)
    return let_go(turn, group, own)


def let_go(turn: Turn, group: Group, own: GroupSettings, *, time_is_up: bool = False) -> list[Held]:
    """Take out the held joins that wait for nobody, and arm the timer for the others."""
    arrivals = group.arrivals
    assert arrivals is not None
    if arrivals.awaited is not None:
        if arrivals.awaited and not time_is_up:
            look_later(turn, group, arrivals)
            return []
        arrivals.given_up |= arrivals.awaited
        missing, arrivals.awaited = arrivals.awaited, None
        turn.note(notes.HoldEnded(group.group_id, group.generation, len(arrivals.held), named(missing), len(missing)))
    going = list(arrivals.held.values())
    if own.unexpected == HELD:
        here = {each.event.body.group_instance_id for each in going}
        if missing_of(group, own) - here:
            going = [each for each in going if each.event.body.group_instance_id in own.expected]
    for each in going:
        del arrivals.held[each.key]
    look_later(turn, group, arrivals)
    return going


def missing_of(group: Group, own: GroupSettings) -> set[str]:
    """The expected members that are neither members nor standbys."""
    missing = set(own.expected).difference(group.static_members)
    return missing.difference(each.member.group_instance_id for each in group.standbys.values())


def describe(turn: Turn, group: Group) -> DescribeGroupsResponse.GroupExpects:
    """The expected members that are missing, and the joins that are held."""
    told = DescribeGroupsResponse.GroupExpects()
    own, arrivals = turn.expecting(group.group_id), group.arrivals
    if own is not None:
        here = set() if arrivals is None else arrivals.names
        told.missing = sorted(missing_of(group, own) - here)
    if arrivals is not None:
        told.held = len(arrivals.held)
        if arrivals.awaited is not None:
            told.until_ms = turn.now.wall_ms + arrivals.until_ms - turn.now.ms
    return told


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The first of these names, for a note."""
    return tuple(sorted(names)[:NAMED_MAX])


def look_later(turn: Turn, group: Group, arrivals: Arrivals) -> None:
    """Arm the timer for the next end of a wait."""
    ends = [each.until_ms for each in arrivals.held.values()]
    if arrivals.awaited is not None:
        ends.append(arrivals.until_ms)
    at_ms = min(ends, default=None)
    if at_ms != arrivals.timer_at_ms:
        arrivals.timer_at_ms = at_ms
        turn.arm(ARRIVALS, group, at_ms)


def wait_in_full(turn: Turn, group: Group) -> None:
    """Restart the wait for expected members, if there is one."""
    arrivals, own = group.arrivals, turn.expecting(group.group_id)
    if arrivals is not None and arrivals.awaited is not None and own is not None:
        arrivals.until_ms = turn.now.ms + own.expected_timeout_ms
        look_later(turn, group, arrivals)


def fired(turn: Turn, group: Group) -> list[Held]:
    """The timer went off. Returns the joins that come in now."""
    arrivals, own = group.arrivals, turn.expecting(group.group_id)
    if arrivals is None or own is None:
        return []
    arrivals.timer_at_ms = None
    now_ms = turn.now.ms
    time_is_up = arrivals.awaited is not None and arrivals.until_ms <= now_ms
    if not time_is_up:
        for held in [each for each in arrivals.held.values() if each.until_ms <= now_ms]:
            del arrivals.held[held.key]
            name = held.event.body.group_instance_id
            if arrivals.awaited is not None and name in own.expected:
                arrivals.awaited.add(name)
            turn.refuse(held.event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return let_go(turn, group, own, time_is_up=time_is_up)


def settings_changed(turn: Turn, group: Group) -> list[Held]:
    """Other members may be expected, or none. Returns the joins that come in now."""
    arrivals, own = group.arrivals, turn.expecting(group.group_id)
    if arrivals is None:
        return []
    if own is None:
        going = list(arrivals.held.values())
        arrivals.held.clear()
        if arrivals.awaited is not None:
            turn.note(notes.HoldEnded(group.group_id, group.generation, len(going)))
        arrivals.awaited = None
        look_later(turn, group, arrivals)
        group.arrivals = None
        return going
    here = arrivals.names
    if own.unexpected == REFUSED:
        for held in [each for each in arrivals.held.values() if turns_away(turn, group, each.event)]:
            del arrivals.held[held.key]
    missing = missing_of(group, own) - here
    arrivals.given_up &= missing
    if arrivals.awaited is not None:
        arrivals.awaited = missing - arrivals.given_up
    return let_go(turn, group, own)


def release_all(turn: Turn, group: Group) -> None:
    """The group goes, or becomes another: clients whose joins are held ask again."""
    arrivals, group.arrivals = group.arrivals, None
    if arrivals is not None:
        for held in arrivals.held.values():
            turn.refuse(held.event, ErrorCode.NOT_COORDINATOR)
        if arrivals.timer_at_ms is not None:
            turn.arm(ARRIVALS, group, None)
