"""The history of groups in words, for `tenure explain`, `tenure watch` and the page.

Words come from entries (`entries`), and so from records alone. The first line says it all; the lines below say more. A
member id is cut to its beginning, which a search in logs finds; the members that a group waits for have their full ids.

House rule: words call unknown what is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict, cast

from msgspec import UNSET

from coordinator.group import causes
from coordinator.group.causes import GONE, CauseKind, Change, reason_of
from coordinator.group.course import AWAITED, Phase
from coordinator.story import events
from coordinator.story.counts import REJOIN, RETURN, TAKEOVER
from coordinator.story.described import Awaited, ConsumerState, Expects, HeldUp, Named, Waiting
from coordinator.story.diagnosis import turns
from coordinator.story.entries import Entry, Held, Loaded, Pending, Rebalance, Return, entry_json, is_restart
from coordinator.story.events import Cause, UnixMs
from coordinator.story.folding import folded
from coordinator.story.schema import STREAMS, UNKNOWN
from coordinator.text import client_text, duration_text, names_text, several, short, time_text

NOT_SAID = "its server doesn't say whom it waits for"

RECONCILING = frozenset({"Assigning", "Reconciling"})
"""States of a group of the consumer protocol whose members are not all at the newest target."""

MOVES_SHOWN = 3
MEMBERS_SHOWN = 5
CLIENTS_SHOWN = 5
AWAITED_SHOWN = 20
"""Most members that a group waits for which have a line each."""

NO_CLIENTS: Mapping[str, str] = {}

CLIENTS_ID = re.compile("([A-Za-z0-9+/_-]{8})[A-Za-z0-9+/_-]{14}")
"""A member id as clients of the consumer protocol make it: a UUID in base64."""

ENDS = {
    "completed": "completed",
    "emptied": "nobody was left",
    "superseded": "not completed: the next one started first",
    "unloaded": "not completed: the partition went away",
    "unknown": "no record tells how it ended",
    "interrupted": "not completed, as far as records tell: the server ended first",
    None: "under way",
}


class EntryJson(TypedDict):
    """An entry with its words as JSON, which has the fields of its events and its own too."""

    type: str
    at_ms: UnixMs
    generation: int | None
    text: list[str]


def timeline_json(entries: Iterable[Entry]) -> list[EntryJson]:
    """The entries of a timeline as JSON, each with its words."""
    return [cast("EntryJson", entry_json(entry) | {"text": list(entry_lines(entry))}) for entry in entries]


def clients_of(entry: Entry) -> dict[str, str]:
    """Member id -> client id, of the members of the consumer protocol that an entry tells of.

    Clients make these member ids by chance, so an id alone says nothing to a person.
    """
    if not isinstance(entry, Rebalance) or not entry.is_consumer:
        return {}
    told = [*(entry.revoking or ()), *(member for cause in entry.causes for member in cause.members or ())]
    after = entry.ended.after if entry.ended is not None else ()
    found = {member.member_id: member.client_id for member in [*told, *after]}
    return {each.member_ids[0]: each.client_id for each in entry.causes if len(each.member_ids) == 1} | found


def with_client(name: str, clients: Mapping[str, str]) -> str:
    """A member: its client id first, if that is known, then what tells members with one client id apart.

    clients: see `clients_of`.
    """
    client, cut = clients.get(name), short(name)
    if not client or cut.startswith(client):
        return cut
    made = CLIENTS_ID.fullmatch(name)
    return f"{client} ({cut if made is None else made[1]})"


def cause_text(cause: Cause) -> str:
    """A cause in words, with its members. It says if the server inferred the cause."""
    if cause.kind == UNKNOWN:
        return _unknown_text(cause)
    kind = CauseKind(cause.kind)
    text = reason_of(
        causes.Cause(
            kind,
            tuple(_who(cause)),
            cause.group_instance_id,
            cause.client_id,
            cause.client_host,
            cause.reason,
            cause.join_reason,
            cause.api_version,
            topics=tuple(causes.TopicChange(each.topic, Change(each.change)) for each in cause.topics or ()),
            further_topics=cause.further_topics or 0,
        )
    ).removesuffix("; client reason: not provided")
    client = f" ({client_text(cause)})" if cause.client_host else ""
    return f"{text}{client}" + (" [inferred]" if kind.words.is_inference and cause.source != "client" else "")


def marked_text(cause: Cause, event: events.GroupEvent) -> str:
    """A cause in words; it says if it is inferred, also from the log. event: the one that has it."""
    text = cause_text(cause)
    if not event.inferred or cause.told:
        return text
    return f"{text.removesuffix(' [inferred]')} [inferred from the log]"


def _unknown_text(cause: Cause) -> str:
    """A cause that the log of groups doesn't tell: what it may have been."""
    kinds = [CauseKind(kind) for kind in cause.possible or ()]
    # Only a dynamic member may have left: an operator removes a static one. Its client leaves by itself in two cases.
    left = f"{CauseKind.MEMBER_LEFT.words.possible} (stopped, or not polled for max.poll.interval.ms)"
    maybe = ", or ".join(left if kind is CauseKind.MEMBER_LEFT else kind.words.possible for kind in kinds)
    client = f" ({client_text(cause)})" if cause.client_host else ""
    who = ", ".join(_who(cause))
    if who and GONE.issuperset(cause.possible or ()):
        return f"member {who} is gone{client}; unknown why: {maybe}"
    about = f" ({who}{client})" if who else ""
    return f"unknown: {maybe}{about}" if maybe else f"unknown{about}"


def _who(cause: Cause) -> Iterator[str]:
    """The members of a cause; with their clients, if there are several."""
    for member in (cause.members or ())[:MEMBERS_SHOWN]:
        yield f"{_seat(member)} ({client_text(member)})"
    if not cause.members:
        yield from (short(member_id) for member_id in cause.member_ids[:MEMBERS_SHOWN])
    if len(cause.member_ids) > MEMBERS_SHOWN:
        yield f"{len(cause.member_ids) - MEMBERS_SHOWN} more"


def is_cut(entry: Entry) -> bool:
    """Whether the lines of an entry leave out members or topic partitions that the entry has."""
    if not isinstance(entry, Rebalance):
        return False
    members: list[Sequence[object]] = [cause.member_ids for cause in entry.causes]
    if entry.target:
        members.append(entry.target.changes)
    if (end := entry.ended) is not None:
        members += [end.late, end.lapsed]
    return (
        max(_moves(end)) > MOVES_SHOWN
        or max(map(len, members)) > MEMBERS_SHOWN
        or len(entry.revoking or ()) > AWAITED_SHOWN
    )


def folded_lines(entries: Iterable[Entry]) -> Iterator[list[str]]:
    """The lines of each entry, with times; entries that belong to one fold (`folding`) share one line."""
    for fold in folded(entries):
        restarts = list(filter(is_restart, fold))
        is_fold = len(restarts) > 1
        yield [f"{time_text(fold[0].at_ms)}  {restarts_text(restarts)}"] if is_fold else timed_lines(fold[0])


def timed_lines(entry: Entry) -> list[str]:
    """An entry with its time: a line, and more lines below it."""
    first, *more = entry_lines(entry)
    return [f"{time_text(entry.at_ms)}  {first}", *(f"    {line}" for line in more)]


def entry_lines(entry: Entry) -> Iterator[str]:
    """An entry without its time: a line, and further lines below it."""
    match entry:
        case Rebalance():
            yield from _rebalance_lines(entry)
        case Return():
            yield from _return_lines(entry.type, entry.event)
        case Pending(event=event):
            ends = {"joined": "it was used", "left": "it was given back", "lapsed": "it lapsed unused"}
            ends["forgotten"] = "it was forgotten, unused, when the coordinator started anew"
            end = ends.get(entry.outcome or "", f"not used yet, lapses {time_text(event.lapses_ms)}")
            yield f"member id given out: {short(event.member_id)} ({client_text(event)}); {end}"
        case Held():
            yield _held_text(entry)
        case Loaded():
            yield _loaded_text(entry)
        case _:
            yield from entry.event.lines()


def _return_lines(kind: str, event: events.MemberReplaced) -> Iterator[str]:
    """A static member that is back."""
    seat, member = event.group_instance_id, f"{short(event.member_id)} ({client_text(event)})"
    # As Kafka allows, a restart keeps an assignment although its topics changed (KAFKA-12759).
    other = " with another subscription, which counts from the next rebalance on" if event.subscription_changed else ""
    costs = "and nothing moves" if event.state == "Stable" else "while the group rebalances"
    if event.rebalances:
        costs = "and the group rebalances"
    if kind == RETURN:
        yield (
            f"return: static member {seat} is back as {member}{other}, {costs}; unknown why: it restarted, or a second "
            "program took its seat [inferred from the log]"
        )
    elif kind == TAKEOVER:
        former = short(event.old_member_id)
        yield f"takeover: {member} takes the seat of {seat} from {former}, which is still there, {costs}"
    elif kind == REJOIN:
        yield f"rejoin after an outage: static member {seat} is back as {member}{other}, {costs}"
        yield "nobody had heard of it since the group was loaded: it restarted meanwhile, or only joined again"
    else:
        away = f" after {duration_text(event.away_ms)}" if event.away_ms is not UNSET else ""
        yield f"restart: static member {seat} is back as {member}{away}{other}, {costs}"


def _held_text(entry: Held) -> str:
    """Joins that waited for expected members."""
    whom = took = ""
    if entry.missing is not None:
        count = entry.missing_count or 0
        whom = f"{several(count, 'expected member')} ({names_text(entry.missing, count, AWAITED_SHOWN)})"
        if entry.outcome is None:
            return f"joins are held for {whom} until {time_text(entry.until_wall_ms or 0)} at the latest"
        took = f"after {duration_text((entry.ended_ms or 0) - entry.at_ms)} "
    begin = f"joins were held for {whom or 'expected members'}"
    if entry.outcome == "interrupted":
        return f"{begin}; their end is not told: {took}the coordinator started anew, or the group went"
    come = f"{begin}; {took}{several(entry.joins or 0, 'join')} came in"
    if entry.outcome == "arrived":
        return f"{come}, and no expected member is missing"
    count = entry.still_missing_count or 0
    named = names_text(entry.still_missing or [], count, AWAITED_SHOWN)
    return f"{come} without {several(count, 'expected member')} ({named})"


def _seat(member: events.Party | events.MemberRevoking) -> str:
    return short(member.member_id) if member.group_instance_id is None else member.group_instance_id


def restarts_text(restarts: Sequence[Return]) -> str:
    """Restarts of one instance id, without the time of the first: how many, until when, clients, rebalances."""
    last = restarts[-1].event
    seat, member = last.group_instance_id, short(last.member_id)
    clients = Counter(client_text(entry.event) for entry in restarts)
    by = "; ".join(f"{name}: {number}" for name, number in clients.most_common(CLIENTS_SHOWN))
    more = f"; and {len(clients) - CLIENTS_SHOWN} further clients" if len(clients) > CLIENTS_SHOWN else ""
    rebalances = sum(entry.event.rebalances for entry in restarts)
    in_turn, noun = turns(restarts), "returns" if last.inferred else "restarts"
    if in_turn is None:
        what = f"static member {seat} is back as {member} at last"
    else:
        parties = " and ".join(client_text(events.Client(*each)) for each in in_turn.clients)
        what = f"{parties} take the seat of {seat} from each other in turn, {member} at last"
    return (
        f"{len(restarts)} {noun} until {time_text(last.at_ms)}: {what} ({by}{more}), "
        f"{rebalances or 'none'} with a rebalance"
    )


def counter_name(group_type: object) -> str:
    """The name of a group's counter: its epoch in the newer protocols."""
    return "generation" if group_type is UNSET else "epoch"


def _rebalance_lines(entry: Rebalance) -> Iterator[str]:
    event, end = entry.ended or entry.event, entry.ended
    after = f" -> {entry.generation}" if entry.generation != entry.generation_before else ""
    name = counter_name(event.group_type)
    yield f"rebalance, {name} {entry.generation_before}{after}: {marked_text(entry.causes[0], event)}"
    is_order_known = end is None or end.causes_in_order is not False or len({each.kind for each in end.causes}) == 1
    also = "also" if is_order_known else "also, perhaps first"
    for cause in entry.causes[1:]:
        yield f"{also}: {marked_text(cause, event)}"
    if end is None:
        yield f"{ENDS[entry.outcome]}" + ("; nobody rejoined in time" if entry.is_stuck else "")
        yield from _steps_lines(entry)
        return
    if end.further_causes:
        yield f"and {several(end.further_causes, 'further cause')}"
    yield from end_lines(end, clients_of(entry))


def end_lines(end: events.RebalanceEnded, clients: Mapping[str, str]) -> Iterator[str]:
    """How a rebalance ended: a line, and further lines. clients: see `clients_of`."""
    waited = end.waited_for
    text = f"{ENDS[end.outcome]}{_phases_text(end)}"
    if waited is not None:
        who = waited.group_instance_id or with_client(waited.member_id, clients)
        text += f"; waited longest for {who} {AWAITED[Phase(waited.phase)]}, {duration_text(waited.ms)}"
    yield text
    if end.late:
        is_consumer = end.group_type is not UNSET
        what = "removed, as their partitions were not given up in time" if is_consumer else "too late"
        yield f"{what}: {_some(end.late, clients)}"
    if end.lapsed:
        yield f"member ids that lapsed meanwhile: {_some(end.lapsed, {})}"
    if end.outcome in {"completed", "emptied"}:
        text = f"members {end.members_before} -> {end.members_after}"
        if end.moved is not None:
            text += ", " + ", ".join(_moves_texts(end, end.moved, clients))
        yield text


def _phases_text(end: events.RebalanceEnded) -> str:
    """How long each phase of a rebalance took. A rebalance from Empty is held open and waits for nobody (KIP-134)."""
    is_consumer, is_completed = end.group_type is not UNSET, end.outcome == "completed"
    if end.preparing_ms is None:  # the log alone tells of it
        until = "every member had its part" if is_consumer else "all was assigned"
        is_known = end.completing_ms is not None and is_completed
        return f": {duration_text(end.completing_ms or 0)} until {until}" if is_known else ""
    took = duration_text(end.preparing_ms)
    delayed = f"{took} initial delay (group.initial.rebalance.delay.ms)"
    if end.completing_ms is None:
        if end.state == "Empty" and not is_consumer:
            return f" after {delayed}"
        return f" after {took}" if end.preparing_ms else ""
    completing = duration_text(end.completing_ms)
    if is_consumer:
        taken = "until every member had its part" if is_completed else "without an end"
        return f": {took} until there was a target, {completing} {taken}"
    joined = f"{took} until the rebalance timeout" if end.late else f"{took} until all had joined"
    assigned = "until all was assigned" if is_completed else "without assignments"
    return f": {delayed if end.state == 'Empty' else joined}, {completing} {assigned}"


def _steps_lines(entry: Rebalance) -> Iterator[str]:
    """How far an open rebalance of the consumer protocol is, as far as records tell."""
    if entry.target:
        yield f"{target_text(entry.target, clients_of(entry))} (target {entry.targets} of this rebalance)"
    for asked in (entry.revoking or ())[:AWAITED_SHOWN]:
        yield f"{time_text(asked.at_ms)}  {revoking_text(asked)}"


def target_text(target: events.TargetAssigned, clients: Mapping[str, str] = NO_CLIENTS) -> str:
    """A target of the consumer protocol: what it changes. clients: see `clients_of`."""
    changes = [
        f"{change.group_instance_id or with_client(change.member_id, clients)} +{change.gains} -{change.loses}"
        for change in target.changes[:MEMBERS_SHOWN]
    ]
    by = f" by {target.assignor}" if target.assignor else ""  # the log of groups may not name it
    text = f"target{by} for {several(target.members, 'member')}"
    if not changes:
        return f"{text}: nothing changes"
    return f"{text}: {names_text(changes, len(target.changes) + target.further_changes)}"


def revoking_text(asked: events.MemberRevoking) -> str:
    """A member of the consumer protocol that must give up partitions."""
    what = several(asked.partitions, "topic partition")
    return f"{_seat(asked)} ({client_text(asked)}) must give up {what} until {time_text(asked.until_ms)}"


def _moves(end: events.RebalanceEnded | None) -> tuple[int, int, int]:
    """The numbers of topic partitions that moved, that had no member before, and that have none now."""
    if end is None:
        return 0, 0, 0
    return end.moved_partitions or 0, end.assigned_partitions or 0, end.freed_partitions or 0


def _moves_texts(end: events.RebalanceEnded, moved: Iterable[events.Move], clients: Mapping[str, str]) -> Iterator[str]:
    texts: list[list[str]] = [[], [], []]
    for move in moved:
        place, one, other = f"{move.topic}-{move.partition}", move.before, move.after
        if one is None:
            texts[1].append(f"{place} -> {with_client(other or '', clients)}")
        elif other is None:
            texts[2].append(f"{place} of {with_client(one, clients)}")
        else:
            texts[0].append(f"{place} {with_client(one, clients)} -> {with_client(other, clients)}")
    numbers = _moves(end)
    for number, what, named in zip(numbers, ("moved", "assigned", "left without a member"), texts, strict=True):
        if number or (what == "moved" and not any(numbers)):
            shown = ", ".join(named[:MOVES_SHOWN])
            more = ", ..." if number > MOVES_SHOWN else ""
            yield f"{several(number, 'task' if end.group_type == STREAMS else 'topic partition')} {what}" + (
                f" ({shown}{more})" if shown else ""
            )


def _loaded_text(entry: Loaded) -> str:
    event = entry.event
    members = several(event.members, "member")
    if event.inferred:
        return (
            f"the log of the group begins here, in {counter_name(event.group_type)} {event.generation} with {members}"
        )
    if entry.former_node is not UNSET:
        former = entry.former_node
        begin = f"node {entry.node} became the coordinator in place of node {former}: it loaded the group"
    elif event.write_failed and event.state == "Dead":
        return "a write failed: the group is gone, because its log has nothing of it"
    elif event.write_failed:
        begin = "a write failed: the group is again as its log has it,"
    elif event.in_cluster:
        begin = f"node {entry.node} loaded the group,"
    else:
        begin = "the coordinator started anew: the group was loaded"
    return f"{begin} with {members} in generation {event.generation}"


def expects_lines(expects: Expects) -> Iterator[str]:
    """The expected members that are missing: one line."""
    missing = expects.missing
    names = ", ".join(missing[:AWAITED_SHOWN])
    further = len(missing) - AWAITED_SHOWN
    names += f" and {several(further, 'further member')}" if further > 0 else ""
    whom = (
        f"{several(len(missing), 'expected member')} missing: {names}" if missing else "No expected member is missing"
    )
    if expects.until_ms is not None:
        yield f"{whom}; {several(expects.held, 'join')} held for them until {time_text(expects.until_ms)}"
    elif expects.held:
        yield f"{whom}; {several(expects.held, 'join')} of members that are not expected held"
    else:
        yield f"{whom}; the group does not wait for them"


def waiting_lines(state: str, waiting: Waiting) -> Iterator[str]:
    """The members that a group in `state` waits for: a line, and lines below it."""
    until = time_text(waiting.until_ms)
    begin = f"The group is {state} now, since {time_text(waiting.since_ms)}; "
    if waiting.is_held_open:
        yield f"{begin}it is held open for whoever may come until {until} (group.initial.rebalance.delay.ms)"
        return
    yield f"{begin}the rebalance timeout ends the wait {until} at the latest"
    for member in waiting.members[:AWAITED_SHOWN]:
        leads = member.member_id == waiting.leader
        what = "to assign" if leads else "to join" if waiting.leader is None else "to sync"
        leader = "the leader " if leads else ""
        yield f"it waits for {leader}{_named_member(member)} {what}{_silence_text(member)}"
    yield from _further(len(waiting.members), "further member")
    for pending in waiting.pending[:AWAITED_SHOWN]:
        yield (
            f"it waits for {pending.member_id} ({client_text(pending)}), a member id that nobody has used; "
            f"it lapses {time_text(pending.lapses_ms)}"
        )
    yield from _further(len(waiting.pending), "further member id")


def _further(count: int, noun: str) -> Iterator[str]:
    if count > AWAITED_SHOWN:
        yield f"and for {several(count - AWAITED_SHOWN, noun)}"


def _named_member(member: Named) -> str:
    static = f", instance id {member.group_instance_id}" if member.group_instance_id is not None else ""
    return f"{member.member_id}{static} ({client_text(member)})"


def _silence_text(member: Awaited) -> str:
    """How long a member was silent, and when its session ends; empty if its server doesn't say."""
    silent_ms, session_ms = member.silent_ms, member.session_timeout_ms
    if silent_ms is None or session_ms is None:
        return ""
    left = f"ends in {duration_text(session_ms - silent_ms)}" if silent_ms < session_ms else "is over"
    return f"; silent for {duration_text(silent_ms)}, its session {left}"


def held_up_lines(state: str, consumer: ConsumerState) -> Iterator[str]:
    """The members that a group of the consumer protocol in `state` waits for: a line, and lines below it."""
    epoch = consumer.group_epoch
    since = "" if consumer.since_ms is None else f", since {time_text(consumer.since_ms)}"
    if epoch > consumer.target_epoch:
        yield f"The group is {state} now{since}: epoch {epoch} has no target yet; a heartbeat of any member makes it"
    else:
        yield f"The group is {state} now{since}: not all members have their part of the target of epoch {epoch}"
    if consumer.awaited is None:
        yield NOT_SAID
        return
    for awaited in consumer.awaited[:AWAITED_SHOWN]:
        yield _awaited_text(awaited)
    yield from _further(len(consumer.awaited), "further member")


def _awaited_text(awaited: HeldUp) -> str:
    who = _named_member(awaited)
    since = "" if awaited.since_ms is None else f", since {time_text(awaited.since_ms)}"
    until = time_text(awaited.until_ms)
    partitions = several(awaited.partitions, "topic partition")
    if awaited.phase == "away":
        return f"{who} is away{since}; it keeps its seat with {partitions} until {until}"
    if awaited.phase == Phase.REVOKING.value:
        return f"it waits for {who} to give up {partitions}{since}; the member is removed {until} if it doesn't"
    return f"it waits for a heartbeat of {who}{since}; the member's session ends {until} without one"


def _some(names: list[str], clients: Mapping[str, str]) -> str:
    return names_text([with_client(name, clients) for name in names[:MEMBERS_SHOWN]], len(names), MEMBERS_SHOWN)
