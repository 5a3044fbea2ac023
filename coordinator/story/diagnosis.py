"""Findings: what is wrong with a group, and what to do about it.

Findings come from the group's entries (`entries`) and from its description now (`described`). A finding is a value: its
kind is a stable name, its text a sentence with names and numbers, its advice something that a person can change. A
finding never guesses: it names the event or the member that shows it.

An error: members can't work, or couldn't the last time. A warning: work is done for nothing, or not done. A notice is
good to know. Errors and warnings are problems, notices are not. The audit finds some of this in a log, and says it with
the same severity and the same words (`conflict_text`, `loop_text`).

House rule: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from coordinator import pages
from coordinator.story.described import FailingLog, Group, Member, Named
from coordinator.story.entries import Entry, Loaded, Rebalance, Return, is_restart
from coordinator.story.events import Cause, EventsDropped, MemberFenced, MemberReplaced, UnixMs
from coordinator.story.offsets import HoldingTransaction
from coordinator.story.progress import GroupProgress
from coordinator.text import NAMED_MAX, NamedClient, client_text, names_text, several


class TooOld(NamedTuple):
    """The feature that a JoinGroup below a version lacks, in words."""

    before: int
    text: str


TOO_OLD = {
    "client_without_instance_id": TooOld(5, "too old to have an instance id (JoinGroup before version 5)"),
    "client_without_reason": TooOld(8, "can't say why they join (JoinGroup before version 8)"),
}
"""Kinds of findings about old clients: those without instance ids (KIP-345), and without reasons (KIP-800)."""

LOG_FAILS = "log_fails"
"""The kind of findings about a server's logs."""

DROPPED = "events_dropped"
"""The kind of the one finding that is the same for all groups."""

WRITES_FAILED = "writes_failed"
"""The kind of findings about a group's log that could not be written."""

LOG_FAILED = '"can\'t be written" (JSON: log_failed)'
LOG_RECOVERED = '"can be written again" (JSON: log_recovered)'
NOT_KEPT = '"not kept in __rebalance_events" (JSON: events_dropped)'
"""How to find lines in the server's log: by these words, or by name in a log of JSON."""

OVER_MS = 10 * 60_000
"""A conflict is over after so long without a fencing. A fenced program ends, and its supervisor starts it again
(Kubernetes after 5 minutes at most): then it fences, or is fenced again.
"""

FORGOTTEN_MS = 24 * 3_600_000
"""A finding about the past ends so long after it was last seen, because it says nothing about now."""

OVER = f"; not seen for {OVER_MS // 60_000} minutes or more"

TURNS_MIN, TURNS_MS = 3, 60_000
"""Three returns of a seat to a former client within a minute mean that two programs share the seat. A program that is
moved and moved back makes one return. Programs that nobody fences return with their next heartbeat, every 3 s by
default.
"""

LOOP_MIN, LOOP_MS = 6, 60_000
"""Six restarts of one seat within a minute are a loop. A person who tries something makes fewer, and a roll makes one
per seat. Programs that share a seat without being fenced take it at once, or every 3 s by default.
"""

GONE_MIN_MS = 60_000
"""An instance id that expired less long ago may still come back."""

RESTART_MAX_MS = 30 * 60_000
"""A member that comes back later was not restarted but stopped. By default no session is longer
(group.max.session.timeout.ms), so no session timeout would have kept its seat.
"""

RAN_ON = ("consumer pro-actively leaving the group", "encountered ")
"""How join reasons begin (KIP-800) that Kafka's Java client only has after it was a member; a fresh process has none.
The first is a poll loop that took longer than max.poll.interval.ms (AbstractCoordinator).
"""

AWAITED_MS = 10_000
"""How long a member may take to rejoin. It learns of the rebalance by a heartbeat, every 3 s by default, and then
polls.
"""

PENDING_MS = 1_000
"""How long a client may take to join with the member id that it got. A client does so at once."""

RETURNS_MIN, RETURN_MS = 2, 5 * 60_000
"""Two returns of a dynamic member, each within 5 minutes, make a finding. One return says little, and after a longer
pause it may be another member, of a scale-up.
"""

NO_RETURNS = frozenset({"removed_by_admin", "unsubscribed"})
"""Meanings of leave reasons that neither an instance id nor another max.poll.interval.ms would prevent."""

UNITS_MS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000))

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
"""Kinds of causes that a JoinGroup makes."""


class Severity(StrEnum):
    """How bad a finding is, the worst first. The doctor and the audit have the same."""

    ERROR = "error"
    """Members can't work, data is lost, or a group is in a state that a coordinator must not write."""
    WARNING = "warning"
    """Somebody should look: work is done twice, not at all, or for nothing."""
    NOTICE = "notice"
    """Unusual, and possibly intended."""

    @property
    def is_problem(self) -> bool:
        """Whether a person has to act."""
        return self is not Severity.NOTICE


CONFLICT_SEVERITY, LOOP_SEVERITY = Severity.ERROR, Severity.WARNING

CONFLICT_ADVICE = "give each a group.instance.id of its own, or stop one of them"

LOOP_ADVICE = (
    "either two programs have this instance id, and their client doesn't know of fencing (aiokafka): "
    f"{CONFLICT_ADVICE}; or one program ends and is started again at once: its own log says why it ends"
)

ENDED_ADVICE = "nothing needs to be done if it has ended on purpose"

SAY_HOW_OFTEN = frozenset({"dynamic_members_come_back", "restarts_in_a_loop"})
"""Kinds of findings whose text has the number of times."""


class Finding(Struct, frozen=True):
    """Something about a group: what, and what to do.

    group_id: None for a finding about a server or its cluster. last_at_ms: when it happened last; None if it is so now.
    times: how often it happened. since_ms: since when looks or timestamps of records show it. member_id: of the member
    that it is about.
    """

    severity: Severity
    kind: str
    group_id: str | None
    found: str
    advice: str
    last_at_ms: UnixMs | None = None
    times: int | None = None
    since_ms: UnixMs | UnsetType = UNSET
    member_id: str | UnsetType = UNSET


class Case(NamedTuple):
    """A group with all that findings look at.

    entries: of its timeline. group: its description now, None if no coordinator describes it. partition_counts: by
    topic. now_ms: Unix time. progress: of the look that has this description, None if its offsets can't be seen.
    transactions: those that hold back offsets of the group.
    """

    group_id: str
    entries: Sequence[Entry]
    group: Group | None
    partition_counts: Mapping[str, int]
    now_ms: int
    progress: GroupProgress | None = None
    transactions: Sequence[HoldingTransaction] = ()


def findings(case: Case) -> Iterator[Finding]:
    """The findings of this module about a group."""
    yield from _conflicts(case)
    yield from _swaps(case)
    yield from _refused_writes(case)
    yield from _dropped(case)
    yield from _absences(case)
    yield from _returns(case)
    if case.group is not None:
        yield from wait_findings(case.group, case.now_ms)
        yield from _unassigned(case.group, case.partition_counts)
        yield from _too_old(case.entries, case.group)


def unless_over(finding: Finding, now_ms: int, advice: str | None = None) -> Finding:
    """A finding about the past; one that was not seen for OVER_MS is a notice. advice: then, None for the same."""
    if finding.last_at_ms is None or now_ms - finding.last_at_ms < OVER_MS:
        return finding
    return replace(finding, severity=Severity.NOTICE, found=finding.found + OVER, advice=advice or finding.advice)


def log_findings(failing: Sequence[FailingLog], count: int, now_ms: int) -> Iterator[Finding]:
    """The findings about logs that fail, one for each reason; count: of all of them, also those that have no name."""
    by_reason: dict[str, list[FailingLog]] = {}
    for log in failing:
        by_reason.setdefault(log.reason, []).append(log)
    unnamed = count - len(failing)
    for reason, logs in by_reason.items():
        # Those without a name are most likely as the first ones are.
        names = names_text(sorted(log.name for log in logs), len(logs) + unnamed)
        unnamed = 0
        longest_ms = max(now_ms - min(log.since_ms for log in logs), 0)
        yield Finding(
            Severity.ERROR,
            LOG_FAILS,
            None,
            f"the log of {names} can't be used, for {span_text(longest_ms)} and by the last try: {reason}",
            f"if this names a damaged file, stop the server and repair it ({pages.DAMAGED_PARTITION}); "
            "else see what the disk lacks (space, above all): a log works again once a write to it succeeds",
        )


class TimedCause(NamedTuple):
    """A cause, and the times between which it came, Unix time in ms; they are equal where a record has the time."""

    earliest_ms: int
    latest_ms: int
    said: Cause


def causes_of(rebalance: Rebalance) -> Iterator[TimedCause]:
    """The causes of a rebalance. All came while the group prepared."""
    earliest_ms, end = rebalance.at_ms, rebalance.ended
    # The time to prepare is null where the log of groups alone tells.
    end_ms = earliest_ms + ((end and end.preparing_ms) or 0)
    times = rebalance.causes_at_ms
    for place, (cause, at_ms) in enumerate(zip(rebalance.causes, times, strict=True)):
        if at_ms is not None:
            earliest_ms = at_ms
        latest_ms = next((later for later in times[place:] if later is not None), end_ms)
        yield TimedCause(earliest_ms, max(latest_ms, earliest_ms), cause)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Findings by severity; within one severity their order stays."""
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _client(client: NamedClient | None) -> str:
    return "an unknown client" if client is None else client_text(client)


def conflict_text(fencing: MemberFenced) -> str:
    """A fencing that shows two programs with one instance id."""
    return (
        f"two programs had the instance id {fencing.group_instance_id}: {fencing.member_id} "
        f"({_client(fencing.client)}) was fenced by {fencing.current_member_id} ({_client(fencing.current_client)})"
    )


def loop_text(instance_id: str, what: str, times: int, over_ms: int, shortest_ms: int) -> str:
    """Restarts of one seat, in a row and fast. what: restarts, or returns if nothing says that they were restarts."""
    return (
        f"{instance_id} {what} in a loop: {times} {what} in {over_ms / 1000:.1f} s, the shortest gap "
        f"{span_text(shortest_ms)}"
    )


def _conflicts(case: Case) -> Iterator[Finding]:
    """Two programs with one instance id: one finding for each instance id, with the newest two programs."""
    by_instance: dict[str, list[MemberFenced]] = {}
    for event in (entry.event for entry in case.entries):
        if isinstance(event, MemberFenced) and event.is_conflict:
            by_instance.setdefault(event.group_instance_id, []).append(event)
    for fencings in by_instance.values():
        last = fencings[-1]
        yield shared(case, "instance_id_conflict", conflict_text(last), last.at_ms, len(fencings))


class Turns(NamedTuple):
    """Clients that take one seat from each other.

    clients: (client id, host) of the newest. times: how often the seat went from one client to another.
    last_at_ms: when it last went to another client, Unix time in ms.
    """

    clients: list[tuple[str, str]]
    times: int
    last_at_ms: int


def turns(restarts: Sequence[Return]) -> Turns | None:
    """The clients that take one instance id's seat from each other; None if nothing shows that.

    Two clients with the same client id on one host look like one client that restarts.
    """
    former: tuple[str, str] | None = None
    had: set[tuple[str, str]] = set()
    changes = 0
    returns: list[MemberReplaced] = []
    last: list[MemberReplaced] = []
    for event in (entry.event for entry in restarts):
        client = event.client_id, event.client_host
        if former not in {None, client}:
            changes += 1
            if client in had:
                returns.append(event)
                newest = returns[-TURNS_MIN:]
                if len(newest) == TURNS_MIN and newest[-1].at_ms - newest[0].at_ms <= TURNS_MS:
                    last = newest
        had.add(client)
        former = client
    if not last:
        return None
    return Turns(sorted({(event.client_id, event.client_host) for event in last}), changes, last[-1].at_ms)


def _swaps(case: Case) -> Iterator[Finding]:
    """Seats that change hands again and again without a fencing: some clients' heartbeats have no instance id."""
    by_instance: dict[str, list[Return]] = {}
    fenced: Counter[str] = Counter()
    for entry in case.entries:
        if is_restart(entry):
            by_instance.setdefault(entry.event.group_instance_id, []).append(entry)
        elif isinstance(entry.event, MemberFenced) and entry.event.is_conflict:
            fenced[entry.event.group_instance_id] += 1
    for instance_id, restarts in by_instance.items():
        in_turn = turns(restarts)
        if in_turn is not None:
            clients = " and ".join(f"{name} at {host.removeprefix('/')}" for name, host in in_turn.clients)
            times = fenced[instance_id]
            fencings = f"only {times} of them {'was' if times == 1 else 'were'} fenced" if times else "none was fenced"
            found = f"{clients} took the seat of {instance_id} from each other in turn, and {fencings}"
            yield shared(case, "instance_id_in_turns", found, in_turn.last_at_ms, in_turn.times)
        else:
            yield from _loop(case, instance_id, restarts)


def _loop(case: Case, instance_id: str, restarts: Sequence[Return]) -> Iterator[Finding]:
    """The newest run of restarts of one seat, if they come faster than a healthy program makes them."""
    times_ms = [entry.at_ms for entry in restarts]
    ends = range(len(times_ms) - LOOP_MIN, -1, -1)
    begin = next((place for place in ends if _is_loop(times_ms, place)), None)
    if begin is None:
        return
    end = begin + LOOP_MIN
    while begin and _is_loop(times_ms, begin - 1):
        begin -= 1
    run = times_ms[begin:end]
    shortest_ms = min(later - former for former, later in pairwise(run))
    found = (
        f"{loop_text(instance_id, 'restarts', len(run), run[-1] - run[0], shortest_ms)}, the last by "
        f"{client_text(restarts[end - 1].event)}"
    )
    finding = Finding(LOOP_SEVERITY, "restarts_in_a_loop", case.group_id, found, LOOP_ADVICE, run[-1], len(run))
    yield unless_over(finding, case.now_ms, ENDED_ADVICE)


def span_text(ms: int) -> str:
    """A duration in the largest unit of which it has at least one; in a coarse unit at least two."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    return next(f"{ms // unit_ms} {name}" for name, unit_ms in UNITS_MS if ms >= 2 * unit_ms)


def _is_loop(times_ms: Sequence[int], begin: int) -> bool:
    """Whether LOOP_MIN restarts from `begin` on lie within LOOP_MS."""
    return times_ms[begin + LOOP_MIN - 1] - times_ms[begin] <= LOOP_MS


def _refused_writes(case: Case) -> Iterator[Finding]:
    """Loads after a write of the group's log had failed."""
    loads = [entry for entry in case.entries if isinstance(entry, Loaded) and entry.event.write_failed]
    if loads:
        finding = Finding(
            Severity.ERROR,
            WRITES_FAILED,
            case.group_id,
            "the group's log could not be written: members that asked for a change were refused, and the group went "
            "back to what its log has",
            f"look for {LOG_FAILED} in the server's log: the line says why (a full disk, above all). The log can be "
            f"written if {LOG_RECOVERED} follows it",
            loads[-1].at_ms,
            len(loads),
        )
        yield unless_over(finding, case.now_ms)


def _dropped(case: Case) -> Iterator[Finding]:
    """Events that the server could not keep, of any group."""
    gaps = [entry.event for entry in case.entries if isinstance(entry.event, EventsDropped)]
    if gaps:
        finding = Finding(
            Severity.ERROR,
            DROPPED,
            case.group_id,
            f"{several(sum(gap.events for gap in gaps), 'event')}, of this group or others, could not be kept: the "
            "server's disk was full, failed or was too slow",
            f"look for {NOT_KEPT} and {LOG_FAILED} in the server's log: the lines say why. What happened meanwhile "
            "is not told, and what members asked for then may have been refused",
            max(gap.last_ms for gap in gaps),
            len(gaps),
        )
        yield unless_over(finding, case.now_ms)


def shared(case: Case, kind: str, found: str, last_at_ms: int, times: int) -> Finding:
    """The finding about two programs with one instance id: an error as long as it may go on."""
    finding = Finding(CONFLICT_SEVERITY, kind, case.group_id, found, CONFLICT_ADVICE, last_at_ms, times)
    over = "nothing needs to be done if one of them was stopped, or has another group.instance.id now"
    return unless_over(finding, case.now_ms, over)


def wait_findings(group: Group, now_ms: int) -> Iterator[Finding]:
    """The members that an open rebalance waits for. It is no problem before they had time to do their part."""
    waiting = group.waiting
    if waiting is None:  # `progress_diagnosis` has a finding about a rebalance of which the server says nothing
        return
    waits_ms = max(now_ms - waiting.since_ms, 0)
    for pending in waiting.pending:
        if pending.lapses_ms > now_ms:
            yield Finding(
                Severity.ERROR if waits_ms >= PENDING_MS else Severity.NOTICE,
                "pending_member",
                group.group_id,
                f"the group waits for {pending.member_id} ({client_text(pending)}), a member id that nobody has "
                f"used, for {(pending.lapses_ms - now_ms) / 1000:.0f} s more",
                "the client asked for an id and did not come back with it: see why; "
                "tenure.group.pending.timeout.ms limits how long the others wait",
            )
    if waiting.leader is None:
        kind, awaited, what = "members_not_rejoined", waiting.members, "to rejoin"
        when = "a member rejoins when it polls"
    else:
        # All other syncs wait for the leader's, which ends the rebalance.
        awaited = [member for member in waiting.members if member.member_id == waiting.leader]
        kind, what = "members_not_synced", "to assign"
        when = "a client syncs as soon as it has joined"
    if awaited:
        left_s = max(waiting.until_ms - now_ms, 0) / 1000
        yield Finding(
            Severity.ERROR if waits_ms >= AWAITED_MS else Severity.NOTICE,
            kind,
            group.group_id,
            f"the group has waited {waits_ms / 1000:.0f} s for {members_text(awaited)} {what}; "
            f"the rebalance timeout ends the wait, in {left_s:.0f} s at the latest",
            f"{when}: see what keeps it from that; the longest rebalance timeout of the group's members (a consumer's "
            "max.poll.interval.ms) is how long the others wait",
        )


def members_text(members: Sequence[Member] | Sequence[Named]) -> str:
    """Names of members, with their clients."""
    names = [
        f"{member.group_instance_id or member.member_id} ({member.client_id} at {member.client_host.removeprefix('/')})"
        for member in members[:NAMED_MAX]
    ]
    return names_text(names, len(members))


class Absences(NamedTuple):
    """Static members that expired. late: why each went, and how it came back. gone: by instance id, the others.

    A late return counts until a restart of the same member is in time.
    """

    late: list[tuple[TimedCause, TimedCause]]
    gone: dict[str, TimedCause]


def absences(entries: Sequence[Entry]) -> Absences:
    """The static members that expired; a member that left or was removed since then is not gone."""
    late: list[tuple[TimedCause, TimedCause]] = []
    gone: dict[str, TimedCause] = {}
    for cause in (cause for entry in entries if isinstance(entry, Rebalance) for cause in causes_of(entry)):
        kind, instance_id = cause.said.kind, cause.said.group_instance_id
        if instance_id is None:
            continue
        if kind == "member_expired":
            gone[instance_id] = cause
        elif kind == "member_joined" and instance_id in gone:
            expired = gone.pop(instance_id)
            if cause.latest_ms - expired.earliest_ms <= RESTART_MAX_MS:
                late.append((expired, cause))
        elif kind in {"member_left", "member_removed"}:
            gone.pop(instance_id, None)
    restarted_ms: dict[str | None, int] = {
        entry.event.group_instance_id: entry.at_ms
        for entry in entries
        if isinstance(entry, Return) and entry.took_ms is not None
    }
    still = [pair for pair in late if restarted_ms.get(pair[1].said.group_instance_id, 0) < pair[1].latest_ms]
    return Absences(still, gone)


def _absences(case: Case) -> Iterator[Finding]:
    """Static members that expired: they came back a little later, or never."""
    group_id, group, now_ms = case.group_id, case.group, case.now_ms
    late, gone = absences(case.entries)
    late = [pair for pair in late if now_ms - pair[1].latest_ms < FORGOTTEN_MS]
    present = set() if group is None else {member.group_instance_id for member in group.members}
    if group is not None:
        late = [pair for pair in late if pair[1].said.group_instance_id in present]
    yield from _late(group_id, [pair for pair in late if pair[1].said.reason.startswith(RAN_ON)], ran_on=True)
    yield from _late(group_id, [pair for pair in late if not pair[1].said.reason.startswith(RAN_ON)], ran_on=False)
    if group is not None and group.expects is not None:  # seat_diagnosis has a finding about them
        present |= set(group.expects.missing)
    never = sorted(
        name
        for name, cause in gone.items()
        if name not in present and GONE_MIN_MS <= now_ms - cause.latest_ms < FORGOTTEN_MS
    )
    if never:
        last_at_ms = max(gone[name].latest_ms for name in never)
        yield Finding(
            Severity.NOTICE if now_ms - last_at_ms >= OVER_MS else Severity.WARNING,
            "instance_ids_gone",
            group_id,
            f"{len(never)} instance {'id' if len(never) == 1 else 'ids'} expired and never came back: "
            f"{', '.join(never[:NAMED_MAX])}",
            "if they were stopped for good, do nothing: this goes a day after they went. Else start their programs "
            "with the same group.instance.id: it must stay the same over a restart (a StatefulSet's pod name, not a "
            "random one)",
            last_at_ms,
        )


def _late(group_id: str, late: list[tuple[TimedCause, TimedCause]], *, ran_on: bool) -> Iterator[Finding]:
    """Static members that expired and came back: a restart that took too long, or a client that fell silent.

    ran_on: their clients say that they kept running; without that, only a look at the process tells the two apart.
    """
    if not late:
        return
    expired, back = max(late, key=lambda pair: pair[1].latest_ms - pair[0].earliest_ms)
    longest_ms = back.latest_ms - expired.earliest_ms
    is_exact = expired.earliest_ms == expired.latest_ms and back.earliest_ms == back.latest_ms
    names = ", ".join(sorted({each.said.group_instance_id or "" for _, each in late}))
    found = f"{names} expired and came back, {'up to' if is_exact else 'at most'} {longest_ms / 1000:.1f} s later"
    if ran_on:
        kind, found = "silent_clients", f"{found}; nothing was restarted, as the client's reason says"
        advice = (
            "a client that isn't polled for max.poll.interval.ms stops its heartbeats: raise it, or lower "
            "max.poll.records; or it was paused, or cut off from the server"
        )
    else:
        kind = "session_timeout_too_short"
        advice = (
            "see when the process was started. If just before it came back, the restart took longer than the session "
            f"timeout: raise session.timeout.ms by {longest_ms // 1000 + 1} s "
            f"{'or more' if is_exact else 'or less (the log does not say when each happened)'} (consumer protocol: the "
            "group's consumer.session.timeout.ms, by tenure groups settings), and restart it. The restart that brings "
            "the longer one may still be too late; the next one that keeps the seat ends this. If the process was "
            "started earlier, it ran on without heartbeats, because it didn't poll for max.poll.interval.ms: raise "
            "that, or lower max.poll.records"
        )
    yield Finding(Severity.WARNING, kind, group_id, found, advice, late[-1][1].latest_ms, len(late))


def _returns(case: Case) -> Iterator[Finding]:
    """Dynamic members that leave and come back: one rebalance each time, and mostly two.

    A member that comes back has a new member id, so only client id and host identify it. If the process was killed, the
    new member joins first, and its rebalance waits until the old one's session ends. Returns count only from
    the time on when their client last joined as a static member.
    """
    rebalances = [entry for entry in case.entries if isinstance(entry, Rebalance)]
    static_since = {
        client_text(cause.said): place
        for place, rebalance in enumerate(rebalances)
        for cause in causes_of(rebalance)
        if cause.said.group_instance_id is not None and cause.said.kind == "member_joined"
    }
    gone: dict[str, list[tuple[int, TimedCause]]] = {}
    back: Counter[str] = Counter()
    places: set[int] = set()
    went_by: list[Cause] = []
    last_ms = 0
    for place, rebalance in enumerate(rebalances):
        came: Counter[str] = Counter()
        for cause in causes_of(rebalance):
            said = cause.said
            client = client_text(said)
            if said.group_instance_id is not None or place < static_since.get(client, 0):
                continue
            if said.kind == "member_expired" and came[client]:
                came[client] -= 1
                back[client] += 1
                went_by.append(said)
                places.add(place)
                last_ms = cause.latest_ms
            elif said.kind in {"member_left", "member_expired"} and said.meaning not in NO_RETURNS:
                gone.setdefault(client, []).append((place, cause))
            elif said.kind == "member_joined":
                waiting = [each for each in gone.pop(client, []) if cause.latest_ms - each[1].earliest_ms <= RETURN_MS]
                if waiting:
                    (went, left), *gone[client] = waiting
                    back[client] += 1
                    places |= {went, place}
                    went_by.append(left.said)
                    last_ms = cause.latest_ms
                else:
                    came[client] += 1
    times = back.total()
    if times < RETURNS_MIN:
        return
    clients = [f"{client} {number} times" if number > 1 else f"{client} once" for client, number in back.most_common()]
    more = f", and {len(clients) - NAMED_MAX} further clients" if len(clients) > NAMED_MAX else ""
    slow = sum(each.meaning == "poll_timeout" for each in went_by)
    said_so = f"; {slow} of {times} were not polled for max.poll.interval.ms, as they said" if slow else ""
    yield Finding(
        Severity.NOTICE,
        "dynamic_members_come_back",
        case.group_id,
        f"members came back after they left or expired: {', '.join(clients[:NAMED_MAX])}{more}{said_so}. Of this came "
        f"{len(places)} of {len(rebalances)} rebalances in the last {span_text(case.now_ms - rebalances[0].at_ms)}",
        _returns_advice(went_by, slow),
        last_ms,
        times,
    )


def _returns_advice(went_by: Sequence[Cause], slow: int) -> str:
    """Advice about dynamic members that came back. went_by: why they went. slow: how many said that nobody polled."""
    raise_it = "raise that, or lower max.poll.records"
    if slow == len(went_by):
        return f"nobody polled them for max.poll.interval.ms: {raise_it}"
    advice = (
        "if they were restarted, give each a group.instance.id (KIP-345): who is back within session.timeout.ms then "
        "moves nothing"
    )
    if any(each.kind == "member_expired" for each in went_by):
        advice += ". Those that expired sent no heartbeats: their programs were killed, frozen or cut off"
    if slow or any(each.kind == "member_left" and each.meaning != "closed" for each in went_by):
        advice += f". Those that left and ran on weren't polled for max.poll.interval.ms: {raise_it}"
    return advice


def _too_old(entries: Sequence[Entry], group: Group) -> Iterator[Finding]:
    """Present members whose newest JoinGroup can't carry an instance id, or a reason, by client id."""
    newest: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Return) and isinstance(entry.event.api_version, int):
            newest[entry.event.member_id] = entry.event.api_version
        for cause in entry.causes if isinstance(entry, Rebalance) else ():
            if cause.kind in JOINS and cause.api_version is not None:
                newest[cause.member_ids[0]] = cause.api_version
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


def _unassigned(group: Group, partition_counts: Mapping[str, int]) -> Iterator[Finding]:
    """Topics that a member subscribes to and no member has a partition of (KAFKA-12759, for example)."""
    if group.state != "Stable" or any(member.assignment is None for member in group.members):
        return
    if group.consumer is not None:  # the coordinator assigns what there is
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
            "group rebalance once, as by a member that joins; tenure.fix.kafka-12759=true lets each such restart do so",
        )
