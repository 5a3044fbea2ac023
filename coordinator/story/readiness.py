"""Whether a deployment can restart a static member now, so that nothing moves.

A restart of a static member moves nothing if the group is Stable, and the program is back within its session timeout
(KIP-345). In a group without static members each restart moves partitions. `verdict` asks for more. No other member may
be away or missing, because a deployment that goes on after one broken seat breaks the next one. For the same reason all
seats have to be taken (target.group.size); standbys are no members, but one that is away counts. The session timeout
has to be longer than restarts of the last days took.

A member is away if it was silent for too long (`away_after_ms`), or if it said so (consumer protocol). One that expired
is no member. The events have it, and it counts as long as it may be a restart (RESTART_MAX_MS), unless the deployment
says how many members there have to be.

A restart takes as long as the old member id was silent. The restart of a member that expired and came back took too
long. That counts against all other members until a later restart of the same one is in time. It doesn't count against
its own: only a restart brings it a longer session timeout, or shows that it has one.

House rule: one function per reason; the first reason against a restart is the verdict. The verdict names what a server
doesn't tell, and doesn't count it against a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coordinator.group.consumer.group import AWAY
from coordinator.story.counts import away_after_ms
from coordinator.story.described import Group, Member, seated
from coordinator.story.diagnosis import RESTART_MAX_MS, TimedCause, absences
from coordinator.story.entries import Entry, Return
from coordinator.story.group_diagnosis import since_deleted
from coordinator.text import NAMED_MAX, duration_text, names_text, several, time_text

STABLE = "Stable"


class Wanted(NamedTuple):
    """A question of a deployment. instance_id: the seat; None: any. members: how many have to be there; None: any.

    absent_ms: the silence after which a member is away; None: that of `away_after_ms`.
    """

    instance_id: str | None = None
    members: int | None = None
    absent_ms: int | None = None


class Verdict(NamedTuple):
    """Whether a restart is safe, in words why, and what the server doesn't tell."""

    is_ready: bool
    reason: str
    untold: list[str]


def verdict(group: Group, entries: Sequence[Entry] | None, wanted: Wanted, now_ms: int) -> Verdict:
    """Whether a deployment can restart a member now.

    entries: those of the group's timeline, of the last days; None if the server keeps none. wanted: its instance id is
    one of the group's. now_ms: Unix time.
    """
    entries = None if entries is None else since_deleted(entries)
    against = next(_reasons_against(group, entries, wanted, now_ms), None)
    untold = _untold(group, entries)
    if against is not None:
        return Verdict(False, against, untold)
    seats = _seats(group, wanted.instance_id)
    standbys = len(group.members) - len(seated(group.members))
    reason = f"group {group.group_id} is {STABLE}, {several(len(group.members) - standbys, 'member')}"
    if standbys:
        reason += f" and {several(standbys, 'standby')}"
    if seats and all(member.session_timeout_ms is not None for member in seats):
        shortest_ms = min(member.session_timeout_ms or 0 for member in seats)
        reason += f", {wanted.instance_id or 'each'} may be away for {duration_text(shortest_ms)}"
        if entries is not None:
            longest = _longest_restart(entries)
            took = "no restart is known" if longest is None else f"restarts took up to {duration_text(longest[0])}"
            reason += f", {took}"
            if wanted.instance_id in (late := _late(group, entries)):
                reason += f"; {_late_text(late[wanted.instance_id])}: restart it with a longer one"
    return Verdict(True, reason, untold)


def absent(members: Iterable[Member], absent_ms: int | None = None) -> list[Member]:
    """The members that are away, as far as the server tells. absent_ms: as of Wanted."""
    return [member for member in members if _is_absent(member, absent_ms)]


def tells_silence(group: Group) -> bool:
    """Whether the server says how long each member was silent."""
    return all(member.silent_ms is not None for member in group.members)


def _is_absent(member: Member, absent_ms: int | None) -> bool:
    if member.seat is not None and member.seat.epoch == AWAY:
        return True
    if member.silent_ms is None or member.session_timeout_ms is None:
        return False
    return member.silent_ms >= (away_after_ms(member.session_timeout_ms) if absent_ms is None else absent_ms)


def _seats(group: Group, instance_id: str | None) -> list[Member]:
    """The static members that a deployment may restart."""
    return [
        member
        for member in group.members
        if member.group_instance_id is not None
        and (member.group_instance_id == instance_id or (instance_id is None and not member.is_standby))
    ]


def _reasons_against(group: Group, entries: Sequence[Entry] | None, wanted: Wanted, now_ms: int) -> Iterator[str]:
    yield from _not_stable(group)
    yield from _none_static(group)
    yield from _others_away(group, wanted)
    yield from _missing(group)
    yield from _expired(group, entries, wanted, now_ms)
    yield from _seats_free(group)
    yield from _too_few(group, wanted)
    yield from _too_slow(group, entries, wanted)


def _not_stable(group: Group) -> Iterator[str]:
    if group.state != STABLE:
        held = 0 if group.expects is None else group.expects.held
        why = f", and {'1 join is' if held == 1 else f'{held} joins are'} held" if held else ""
        yield f"group {group.group_id} is {group.state}{why}"


def _none_static(group: Group) -> Iterator[str]:
    """A dynamic member has no seat: its restart moves its partitions."""
    if all(member.group_instance_id is None for member in group.members):
        yield f"no member of group {group.group_id} has an instance id, so each restart moves partitions"


def _others_away(group: Group, wanted: Wanted) -> Iterator[str]:
    away = [
        member
        for member in absent(group.members, wanted.absent_ms)
        if wanted.instance_id is None or member.group_instance_id != wanted.instance_id
    ]
    if away:
        names = [
            (member.group_instance_id or member.member_id)
            + ("" if member.silent_ms is None else f" (silent for {duration_text(member.silent_ms)})")
            for member in away[:NAMED_MAX]
        ]
        yield f"{names_text(names, len(away))} {'is' if len(away) == 1 else 'are'} away"


def _missing(group: Group) -> Iterator[str]:
    """Members that the group expects by its settings are not there."""
    if group.expects is not None and group.expects.missing:
        missing = group.expects.missing
        yield f"{names_text(missing)} {'is' if len(missing) == 1 else 'are'} expected and missing"


def _expired(group: Group, entries: Sequence[Entry] | None, wanted: Wanted, now_ms: int) -> Iterator[str]:
    """Members expired a short time ago: they may be restarts that take too long."""
    if entries is None or wanted.members is not None:
        return
    present = {member.group_instance_id for member in group.members}
    gone = {
        name: cause.latest_ms
        for name, cause in absences(entries).gone.items()
        if name not in present and now_ms - cause.latest_ms < RESTART_MAX_MS
    }
    if gone:
        here = several(len(seated(group.members)), "member")
        yield (
            f"{names_text(sorted(gone))} expired, at {time_text(max(gone.values()))}, and didn't come "
            f"back (if the group shall go on with {here}, say so with --members)"
        )


def _seats_free(group: Group) -> Iterator[str]:
    """The group has more seats than members, so a member and all standbys are gone."""
    taken = len(seated(group.members))
    if taken < group.target_size:
        yield f"only {taken} of the {group.target_size} seats of group {group.group_id} are taken"


def _too_few(group: Group, wanted: Wanted) -> Iterator[str]:
    members = len(seated(group.members))
    if wanted.members not in {None, members}:
        yield f"group {group.group_id} has {several(members, 'member')}, not {wanted.members}"


def _too_slow(group: Group, entries: Sequence[Entry] | None, wanted: Wanted) -> Iterator[str]:
    """A restart of the last days was longer than the session timeout of a seat."""
    seats = _seats(group, wanted.instance_id)
    if entries is None or not seats:
        return
    late = _late(group, entries)
    if late and wanted.instance_id not in late:
        name, back = max(late.items(), key=lambda each: each[1].latest_ms)
        yield f"{_late_text(back)}: first restart {name} with a longer one (tenure doctor says more)"
        return
    longest = _longest_restart(entries)
    if longest is None:
        return
    took_ms, at_ms, instance_id = longest
    for member in seats:
        timeout_ms = member.session_timeout_ms
        if timeout_ms is not None and timeout_ms <= took_ms:
            yield (
                f"the session timeout of {member.group_instance_id} is {duration_text(timeout_ms)}, and a restart of "
                f"{instance_id} at {time_text(at_ms)} took {duration_text(took_ms)}"
            )
            return


def _late(group: Group, entries: Sequence[Entry]) -> dict[str, TimedCause]:
    """How members of the group came back that had expired, by instance id."""
    present = {member.group_instance_id for member in group.members}
    back = {back.said.group_instance_id or "": back for _, back in absences(entries).late}
    return {name: cause for name, cause in back.items() if name in present}


def _late_text(back: TimedCause) -> str:
    return (
        f"{back.said.group_instance_id} expired before it came back at {time_text(back.latest_ms)}: its session "
        "timeout was shorter than its restart"
    )


def _longest_restart(entries: Sequence[Entry]) -> tuple[int, int, str] | None:
    """How long the longest restart took that was in time, when it was, and its instance id."""
    restarts = [entry for entry in entries if isinstance(entry, Return)]
    took = [
        (entry.took_ms, entry.at_ms, entry.event.group_instance_id) for entry in restarts if entry.took_ms is not None
    ]
    return max(took, default=None)


def _untold(group: Group, entries: Sequence[Entry] | None) -> list[str]:
    untold = [] if tells_silence(group) else ["which members are silent", "session timeouts"]
    return untold if entries is not None else [*untold, "which members expired", "how long restarts took"]
