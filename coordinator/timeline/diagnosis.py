"""What is wrong with a group, out of what happened to it (timeline.py) and what it is now, each with what to do.

A finding is a value: its kind is a stable name, what was found a sentence with names and numbers, and the advice says
what a person can change. Nothing is guessed: a finding needs the event or the member that it names.

Severities are the audit's: an error keeps members from working, now or the last time; a warning is work that is done
for nothing, or left undone; a notice is good to know. Errors and warnings are problems, notices are none.

House rule: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from coordinator.timeline.described import DescribedGroup, Member
from coordinator.timeline.entries import Entry


class TooOld(NamedTuple):
    """What a JoinGroup before a version can't do, in words."""

    before: int
    text: str


TOO_OLD = {
    "client_without_instance_id": TooOld(5, "too old to have an instance id (JoinGroup before version 5)"),
    "client_without_reason": TooOld(8, "can't say why they join (JoinGroup before version 8)"),
}
"""Kinds of findings of clients that are too old, for an instance id (KIP-345) or a reason (KIP-800)."""

DROPPED = "events_dropped"
"""The kind of finding that is the same for all groups."""

OVER_MS = 10 * 60_000
"""A conflict that was not seen for so long is over: a program that was fenced, and ended of that, is started again by
its supervisor, 5 minutes later at most where that is Kubernetes, and fences or is fenced anew."""

OVER = f"; not seen for {OVER_MS // 60_000} minutes or more"

TURNS_MIN, TURNS_MS = 3, 60_000
"""A seat that so often in so short a time goes back to a client that had lost it has two programs: one that is moved
and moved back is once. Those that nobody fences come back when their next heartbeat fails, every 3 s by default."""

LOOP_MIN, LOOP_MS = 6, 60_000
"""So many restarts of one seat in so short a time are more than a person makes who tries something; a roll makes one of
each seat. Programs that share a seat and aren't fenced take it at once, or every 3 s by default."""

GONE_MIN_MS = 60_000
"""An instance id that expired less long ago may well come back."""

RAN_ON = ("consumer pro-actively leaving the group", "encountered ")
"""How reasons to join begin (KIP-800) that Kafka's Java client has if it was a member before: a process that was just
started has none. The first is that of a poll loop that took longer than max.poll.interval.ms (AbstractCoordinator)."""

AWAITED_MS = 10_000
"""What a member may take to rejoin: it hears of the rebalance by a heartbeat, every 3 s by default, and then polls."""

PENDING_MS = 1_000
"""What a client may take to join with the member id that it was given: it does so at once."""

RETURNS_MIN, RETURN_MS = 2, 5 * 60_000
"""A dynamic member that goes and comes is nothing to speak of the first time; one that comes after a longer while may
well be another one, of a scale-up."""

NO_RETURNS = frozenset({"removed_by_admin", "unsubscribed"})
"""Meanings of reasons to leave which neither an instance id nor another max.poll.interval.ms would do away with."""

UNITS_MS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000))

NAMED_MAX = 10
"""Members that a finding names."""

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})

JOINS = frozenset(
    {
        "member_joined",
        "member_rejoined",
        "leader_rejoined",
        "metadata_changed",
        "protocol_changed",
        "static_member_replaced",
    }
)
"""Kinds of causes that a JoinGroup is."""


class Severity(StrEnum):
    """How bad it is; from the worst on."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to do something."""
        return self is not Severity.NOTICE


class Finding(NamedTuple):
    """Something about a group: what, and what to do.

    last_at_ms: of what happened, when it did for the last time, Unix time in ms; None of what is. times: how often.
    """

    severity: Severity
    kind: str
    group_id: str
    found: str
    advice: str
    last_at_ms: int | None = None
    times: int | None = None


def findings(
    group_id: str,
    entries: Sequence[Entry],
    group: DescribedGroup | None,
    partition_counts: Mapping[str, int],
    now_ms: int,
) -> list[Finding]:
    """All that there is to say.

    entries: of its timeline. group: as it is described now, None if there is none. now_ms: Unix time.
    """
    causes = [cause for entry in entries if entry["type"] == "rebalance" for cause in _causes(entry)]
    found = [
        *_conflicts(group_id, entries, now_ms),
        *_swaps(group_id, entries, now_ms),
        *_refused_writes(group_id, entries, now_ms),
        *_dropped(group_id, entries, now_ms),
        *_absences(group_id, causes, group, now_ms),
        *_returns(group_id, entries, now_ms),
    ]
    if group is not None:
        found += [*_waits(group, now_ms), *_unassigned(group, partition_counts), *_too_old(causes, group)]
    return found


class _Cause(NamedTuple):
    """A cause, and between which times it came, Unix time in ms: the same where a record tells."""

    earliest_ms: int
    latest_ms: int
    said: Mapping[str, Any]


def _causes(rebalance: Entry) -> Iterator[_Cause]:
    """Those of a rebalance; all came while it was preparing."""
    earliest_ms = rebalance["at_ms"]
    end_ms = earliest_ms + rebalance.get("preparing_ms", 0)
    times = rebalance["causes_at_ms"]
    for place, (cause, at_ms) in enumerate(zip(rebalance["causes"], times, strict=True)):
        if at_ms is not None:
            earliest_ms = at_ms
        latest_ms = next((later for later in times[place:] if later is not None), end_ms)
        yield _Cause(earliest_ms, max(latest_ms, earliest_ms), cause)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """In the order of severity, and else as they came."""
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _client(client: Mapping[str, Any] | None) -> str:
    return (
        "an unknown client" if client is None else f"{client['client_id']} at {client['client_host'].removeprefix('/')}"
    )


def _conflicts(group_id: str, entries: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Two programs with one instance id: one finding for each id, with the newest two parties."""
    by_instance: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry["type"] == "fencing" and entry["kind"] == "conflict":
            by_instance.setdefault(entry["group_instance_id"], []).append(entry)
    for instance_id, fencings in by_instance.items():
        last = fencings[-1]
        yield _shared(
            "instance_id_conflict",
            group_id,
            f"two programs had the instance id {instance_id}: {last['member_id']} ({_client(last['client'])}) "
            f"was fenced by {last['current_member_id']} ({_client(last['current_client'])})",
            last["at_ms"],
            len(fencings),
            now_ms,
        )


class Turns(NamedTuple):
    """Clients that take one seat from each other.

    clients: (client id, host) of the newest. times: how often the seat went from one client to another.
    last_at_ms: when it did in turn for the last time, Unix time in ms.
    """

    clients: list[tuple[str, str]]
    times: int
    last_at_ms: int


def turns(restarts: Sequence[Entry]) -> Turns | None:
    """Whether restarts of one instance id are clients that take its seat in turn; None if there is no sign of it.

    Two with the same client id on one host can't be told from one that restarts.
    """
    former: tuple[str, str] | None = None
    had: set[tuple[str, str]] = set()
    changes = 0
    returns: list[Entry] = []
    last: list[Entry] = []
    for entry in restarts:
        client = entry["client_id"], entry["client_host"]
        if former not in {None, client}:
            changes += 1
            if client in had:
                returns.append(entry)
                newest = returns[-TURNS_MIN:]
                if len(newest) == TURNS_MIN and newest[-1]["at_ms"] - newest[0]["at_ms"] <= TURNS_MS:
                    last = newest
        had.add(client)
        former = client
    if not last:
        return None
    return Turns(sorted({(entry["client_id"], entry["client_host"]) for entry in last}), changes, last[-1]["at_ms"])


def _swaps(group_id: str, entries: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Seats that are taken again and again without any fencing: heartbeats of some clients carry no instance id."""
    by_instance: dict[str, list[Entry]] = {}
    fenced: Counter[str] = Counter()
    for entry in entries:
        if entry["type"] == "static_restart":
            by_instance.setdefault(entry["group_instance_id"], []).append(entry)
        elif entry["type"] == "fencing" and entry["kind"] == "conflict":
            fenced[entry["group_instance_id"]] += 1
    for instance_id, restarts in by_instance.items():
        in_turn = turns(restarts)
        if in_turn is not None:
            clients = " and ".join(f"{name} at {host.removeprefix('/')}" for name, host in in_turn.clients)
            times = fenced[instance_id]
            fencings = f"only {times} of them {'was' if times == 1 else 'were'} fenced" if times else "none was fenced"
            yield _shared(
                "instance_id_in_turns",
                group_id,
                f"{clients} took the seat of {instance_id} from each other in turn, and {fencings}",
                in_turn.last_at_ms,
                in_turn.times,
                now_ms,
            )
        else:
            yield from _loop(group_id, instance_id, restarts, now_ms)


def _loop(group_id: str, instance_id: str, restarts: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Restarts of one seat at a pace that no healthy program has: the newest run of them."""
    times_ms = [entry["at_ms"] for entry in restarts]
    ends = range(len(times_ms) - LOOP_MIN, -1, -1)
    begin = next((place for place in ends if _is_loop(times_ms, place)), None)
    if begin is None:
        return
    end = begin + LOOP_MIN
    while begin and _is_loop(times_ms, begin - 1):
        begin -= 1
    run = times_ms[begin:end]
    shortest_ms = min(later - former for former, later in pairwise(run))
    is_over = now_ms - run[-1] >= OVER_MS
    yield Finding(
        Severity.NOTICE if is_over else Severity.WARNING,
        "restarts_in_a_loop",
        group_id,
        f"{instance_id} restarts in a loop: {len(run)} restarts in {(run[-1] - run[0]) / 1000:.1f} s, the shortest gap "
        f"{_span(shortest_ms)}, the last by {_client(restarts[end - 1])}{OVER if is_over else ''}",
        "nothing needs to be done if it has ended on purpose"
        if is_over
        else "either two programs have this instance id, and their client doesn't know of fencing (aiokafka): give "
        "each a group.instance.id of its own, or stop one of them; or one program ends and is started again at once: "
        "its own log says why it ends",
        run[-1],
        len(run),
    )


def _span(ms: int) -> str:
    """So long, in the largest unit of which there is at least one, or two of those that are coarse."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    return next(f"{ms // unit_ms} {name}" for name, unit_ms in UNITS_MS if ms >= 2 * unit_ms)


def _is_loop(times_ms: Sequence[int], begin: int) -> bool:
    """Whether the restarts from there on are that many in that short a time."""
    return times_ms[begin + LOOP_MIN - 1] - times_ms[begin] <= LOOP_MS


def _refused_writes(group_id: str, entries: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Loads after a write of the group's log had failed."""
    loads = [entry for entry in entries if entry["type"] == "loaded" and entry.get("write_failed")]
    if loads:
        last_at_ms = loads[-1]["at_ms"]
        is_over = now_ms - last_at_ms >= OVER_MS
        yield Finding(
            Severity.NOTICE if is_over else Severity.ERROR,
            "writes_failed",
            group_id,
            "the group's log could not be written: members that asked for a change were refused, and the group went "
            "back to what its log has" + (OVER if is_over else ""),
            "see log_failed in the server's log for why (a full disk, above all), and whether log_recovered follows it",
            last_at_ms,
            len(loads),
        )


def _dropped(group_id: str, entries: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Events of any group that the server could not keep: on a full disk that is all that is told of refused writes."""
    gaps = [entry for entry in entries if entry["type"] == "gap"]
    if gaps:
        last_at_ms = max(gap["last_ms"] for gap in gaps)
        is_over = now_ms - last_at_ms >= OVER_MS
        yield Finding(
            Severity.NOTICE if is_over else Severity.ERROR,
            DROPPED,
            group_id,
            f"{sum(gap['events'] for gap in gaps)} events, of this group or others, could not be kept: the server's "
            "disk was full, failed or was too slow" + (OVER if is_over else ""),
            "see events_dropped and log_failed in the server's log for why; what happened meanwhile is not told, and "
            "what members asked for then may have been refused",
            last_at_ms,
            len(gaps),
        )


def _shared(kind: str, group_id: str, found: str, last_at_ms: int, times: int, now_ms: int) -> Finding:
    """What two programs with one instance id did, as bad as it is: an error as long as it may go on."""
    is_over = now_ms - last_at_ms >= OVER_MS
    return Finding(
        Severity.NOTICE if is_over else Severity.ERROR,
        kind,
        group_id,
        found + (OVER if is_over else ""),
        "nothing needs to be done if one of them was stopped, or has another group.instance.id now"
        if is_over
        else "give each a group.instance.id of its own, or stop one of them",
        last_at_ms,
        times,
    )


def _waits(group: DescribedGroup, now_ms: int) -> Iterator[Finding]:
    """Whom a rebalance that is under way waits for: no problem as long as members can't have done their part yet."""
    waiting = group.waiting
    if waiting is None:
        if group.state in REBALANCING:
            yield Finding(
                Severity.NOTICE,
                "rebalancing",
                group.group_id,
                f"it rebalances now ({group.state}, members known: {len(group.members)}); its server doesn't say whom "
                "it waits for",
                "look again in a while: a member that doesn't rejoin within the group's rebalance timeout is left out",
            )
        return
    waits_ms = max(now_ms - waiting.since_ms, 0)
    for pending in waiting.pending:
        if pending.lapses_ms > now_ms:
            yield Finding(
                Severity.ERROR if waits_ms >= PENDING_MS else Severity.NOTICE,
                "pending_member",
                group.group_id,
                f"the group waits for {pending.member_id} ({_client(pending._asdict())}), a member id that nobody has "
                f"used, for {(pending.lapses_ms - now_ms) / 1000:.0f} s more",
                "the client asked for an id and did not come back with it: see why; "
                "tenure.group.pending.timeout.ms limits how long the others wait",
            )
    if waiting.leader is None:
        kind, awaited, what = "members_not_rejoined", waiting.members, "to rejoin"
        when = "a member rejoins when it polls"
    else:
        # The others' syncs wait for the leader's: with that the rebalance is over.
        awaited = [member for member in waiting.members if member.member_id == waiting.leader]
        kind, what = "members_not_synced", "to assign"
        when = "a client syncs as soon as it has joined"
    if awaited:
        left_s = max(waiting.until_ms - now_ms, 0) / 1000
        yield Finding(
            Severity.ERROR if waits_ms >= AWAITED_MS else Severity.NOTICE,
            kind,
            group.group_id,
            f"the group has waited {waits_ms / 1000:.0f} s for {_members(awaited)} {what}; "
            f"the rebalance timeout ends the wait, in {left_s:.0f} s at the latest",
            f"{when}: see what keeps it from that; the longest rebalance timeout of the group's members (a consumer's "
            "max.poll.interval.ms) is how long the others wait",
        )


def _members(members: Sequence[Member]) -> str:
    """Members by name, with their clients."""
    names = [
        f"{member.group_instance_id or member.member_id} ({member.client_id} at {member.client_host.removeprefix('/')})"
        for member in members[:NAMED_MAX]
    ]
    more = f" and {len(members) - NAMED_MAX} more" if len(members) > NAMED_MAX else ""
    return ", ".join(names) + more


def _absences(group_id: str, causes: list[_Cause], group: DescribedGroup | None, now_ms: int) -> Iterator[Finding]:
    """Static members that expired: back a little later, or never seen again."""
    gone: dict[str, _Cause] = {}
    late: list[tuple[_Cause, _Cause]] = []
    for cause in causes:
        kind, instance_id = cause.said["kind"], cause.said["group_instance_id"]
        if instance_id is None:
            continue
        if kind == "member_expired":
            gone[instance_id] = cause
        elif kind == "member_joined" and instance_id in gone:
            late.append((gone.pop(instance_id), cause))
        elif kind in {"member_left", "member_removed"}:
            gone.pop(instance_id, None)
    yield from _late(group_id, [pair for pair in late if pair[1].said["reason"].startswith(RAN_ON)], ran_on=True)
    yield from _late(group_id, [pair for pair in late if not pair[1].said["reason"].startswith(RAN_ON)], ran_on=False)
    present = {member.group_instance_id for member in group.members} if group is not None else set()
    never = sorted(
        name for name, cause in gone.items() if name not in present and now_ms - cause.latest_ms >= GONE_MIN_MS
    )
    if never:
        yield Finding(
            Severity.WARNING,
            "instance_ids_gone",
            group_id,
            f"{len(never)} instance {'id' if len(never) == 1 else 'ids'} expired and never came back: "
            f"{', '.join(never[:NAMED_MAX])}",
            "an instance id must be the same after a restart (a stateful set's ordinal, not a random name); "
            "of a scale-down, remove members with `tenure members remove`",
            max(gone[name].latest_ms for name in never),
        )


def _late(group_id: str, late: list[tuple[_Cause, _Cause]], *, ran_on: bool) -> Iterator[Finding]:
    """Static members that expired and came back: a restart that took too long, or a client that fell silent.

    ran_on: their clients say that it was no restart; else nobody can tell but who looks at the process.
    """
    if not late:
        return
    expired, back = max(late, key=lambda pair: pair[1].latest_ms - pair[0].earliest_ms)
    longest_ms = back.latest_ms - expired.earliest_ms
    is_told = expired.earliest_ms == expired.latest_ms and back.earliest_ms == back.latest_ms
    names = ", ".join(sorted({each.said["group_instance_id"] for _, each in late}))
    found = f"{names} expired and came back, {'up to' if is_told else 'at most'} {longest_ms / 1000:.1f} s later"
    if ran_on:
        kind, found = "silent_clients", f"{found}; nothing was restarted, as the client's reason says"
        advice = (
            "a client that isn't polled for max.poll.interval.ms stops its heartbeats: raise it, or lower "
            "max.poll.records; or it was paused, or cut off from the server"
        )
    else:
        kind = "session_timeout_too_short"
        advice = (
            "look when the process was started. If just before it came back, the restart took longer than the session "
            f"timeout: raise session.timeout.ms by {longest_ms // 1000 + 1} s "
            f"{'or more' if is_told else 'or less (when each was is not told)'}, so that a restart keeps the seat. If "
            "earlier, it ran on and its client had stopped its heartbeats, as it wasn't polled for "
            "max.poll.interval.ms: raise that, or lower max.poll.records"
        )
    yield Finding(Severity.WARNING, kind, group_id, found, advice, late[-1][1].latest_ms, len(late))


def _returns(group_id: str, entries: Sequence[Entry], now_ms: int) -> Iterator[Finding]:
    """Dynamic members that go and come back: a rebalance each time, and mostly two.

    Who comes back is known by client id and host alone: the member id is a new one. Of a process that was killed the
    next one joins first, and its rebalance waits until the former one's session ends.
    """
    rebalances = [entry for entry in entries if entry["type"] == "rebalance"]
    gone: dict[str, list[tuple[int, _Cause]]] = {}
    back: Counter[str] = Counter()
    places: set[int] = set()
    slow = last_ms = 0
    for place, rebalance in enumerate(rebalances):
        came: Counter[str] = Counter()
        for cause in _causes(rebalance):
            said = cause.said
            if said["group_instance_id"] is not None:
                continue
            client = _client(said)
            if said["kind"] == "member_expired" and came[client]:
                came[client] -= 1
                back[client] += 1
                places.add(place)
                last_ms = cause.latest_ms
            elif said["kind"] in {"member_left", "member_expired"} and said["meaning"] not in NO_RETURNS:
                gone.setdefault(client, []).append((place, cause))
            elif said["kind"] == "member_joined":
                waiting = [each for each in gone.pop(client, []) if cause.latest_ms - each[1].earliest_ms <= RETURN_MS]
                if waiting:
                    (went, left), *gone[client] = waiting
                    back[client] += 1
                    places |= {went, place}
                    slow += left.said["meaning"] == "poll_timeout"
                    last_ms = cause.latest_ms
                else:
                    came[client] += 1
    times = back.total()
    if times < RETURNS_MIN:
        return
    clients = [f"{client} {number} times" if number > 1 else f"{client} once" for client, number in back.most_common()]
    more = f", and {len(clients) - NAMED_MAX} further clients" if len(clients) > NAMED_MAX else ""
    said_so = f"; {slow} of them had not polled for max.poll.interval.ms, as they said" if slow else ""
    yield Finding(
        Severity.NOTICE,
        "dynamic_members_come_back",
        group_id,
        f"{len(places)} of {len(rebalances)} rebalances in the last {_span(now_ms - rebalances[0]['at_ms'])} came of "
        "members that left or expired and came back: "
        f"{', '.join(clients[:NAMED_MAX])}{more}{said_so}",
        "if they were restarted, give each a group.instance.id (KIP-345): who is back within session.timeout.ms then "
        "moves nothing. If they ran on, they weren't polled for max.poll.interval.ms: raise that, or lower "
        "max.poll.records",
        last_ms,
        times,
    )


def _too_old(causes: list[_Cause], group: DescribedGroup) -> Iterator[Finding]:
    """Members that are there whose newest JoinGroup can't carry an instance id, or a reason, by their client ids."""
    newest = {
        cause.said["member_ids"][0]: cause.said["api_version"]
        for cause in causes
        if cause.said["kind"] in JOINS and cause.said["api_version"] is not None
    }
    versions = [(member.client_id, newest[member.member_id]) for member in group.members if member.member_id in newest]
    advices = {
        "client_without_instance_id": "a newer client can be a static member, whose restart rebalances nothing",
        "client_without_reason": "nothing needs to be done: causes of theirs are inferred",
    }
    for kind, advice in advices.items():
        old = sorted({client_id for client_id, version in versions if version < TOO_OLD[kind].before})
        if old:
            found = f"{TOO_OLD[kind].text}: {', '.join(old)}"
            yield Finding(Severity.NOTICE, kind, group.group_id, found, advice)


def _unassigned(group: DescribedGroup, partition_counts: Mapping[str, int]) -> Iterator[Finding]:
    """Topics that a member subscribes to and of which nobody has a partition (KAFKA-12759, for one)."""
    if group.state != "Stable" or any(member.assignment is None for member in group.members):
        return
    assigned = {topic for member in group.members for topic in member.assignment or {}}
    wanted = {topic for member in group.members for topic in member.subscription or ()}
    missing = sorted(topic for topic in wanted - assigned if partition_counts.get(topic, 0) > 0)
    if missing:
        who = sorted(
            member.group_instance_id or member.member_id
            for member in group.members
            if not (member.subscription or frozenset()).isdisjoint(missing)
        )
        yield Finding(
            Severity.WARNING,
            "subscribed_but_unassigned",
            group.group_id,
            f"nobody has a partition of {', '.join(missing)}, which {', '.join(who[:NAMED_MAX])} subscribe to",
            "a static member that restarts with another subscription keeps its old assignment (KAFKA-12759): let the "
            "group rebalance once, or set tenure.fix.kafka-12759=true",
        )
