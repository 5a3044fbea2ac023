"""The history of groups in words, for `tenure explain`, `tenure watch` and the page.

Words come from entries (`entries`), and so from records alone. The first line says it all; the lines below say more. A
member id is cut to its beginning, which a search in logs finds; the members that a group waits for have their full ids.

House rule: words call unknown what is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coordinator.group.causes import Cause, CauseKind, Change, TopicChange
from coordinator.group.course import Phase
from coordinator.story.causes import CAUSES, GONE, INFERENCES
from coordinator.story.described import client_text
from coordinator.story.diagnosis import turns
from coordinator.story.folding import folded
from coordinator.story.log_words import AWAITED, reason_of
from coordinator.story.schema import CONSUMER, UNKNOWN

if TYPE_CHECKING:
    from coordinator.story.entries import Entry

RECONCILING = frozenset({"Assigning", "Reconciling"})
"""States of a group of the consumer protocol whose members are not all at the newest target."""

MOVES_SHOWN = 3
MEMBERS_SHOWN = 5
CLIENTS_SHOWN = 5
AWAITED_SHOWN = 20
"""Most members that a group waits for which have a line each."""

NO_CLIENTS: Mapping[str, str] = {}

MEMBER_ID = re.compile("(.*-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.DOTALL)
"""A member id as coordinators make it: the client id or instance id, and a UUID."""

ENDS = {
    "completed": "completed",
    "emptied": "nobody was left",
    "superseded": "not completed: the next one started first",
    "unloaded": "not completed: the partition went away",
    "unknown": "its end is not told",
    "interrupted": "its end is not told: the server ended first",
    None: "under way",
}


def time_text(at_ms: int) -> str:
    """A time as log lines have it; the number, if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03}Z"


def duration_text(ms: int) -> str:
    """A number of milliseconds as a person says it."""
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min {ms // 1_000 % 60} s"


def short(name: str) -> str:
    """A member id, cut to what tells members of a group apart; an instance id stays whole."""
    made = MEMBER_ID.fullmatch(name)
    return name if made is None else made[1]


def clients_of(entry: Entry) -> dict[str, str]:
    """Member id -> client id, of the members of the consumer protocol that an entry tells of.

    Clients make these member ids by chance, so an id alone says nothing to a person.
    """
    if entry.get("group_type") != CONSUMER:
        return {}
    causes = entry.get("causes", ())
    told = [*entry.get("revoking", ()), *(member for cause in causes for member in cause.get("members", ()))]
    found = {member["member_id"]: member["client_id"] for member in [*told, *entry.get("after", ())]}
    return {each["member_ids"][0]: each["client_id"] for each in causes if len(each["member_ids"]) == 1} | found


def with_client(name: str, clients: Mapping[str, str]) -> str:
    """A member, cut as by `short`, with its client id beside it if that is known. clients: see `clients_of`."""
    return f"{short(name)} ({clients[name]})" if clients.get(name) else short(name)


def cause_text(cause: dict[str, Any]) -> str:
    """A cause in words, with its members. It says if the server inferred the cause."""
    if cause["kind"] == UNKNOWN:
        return _unknown_text(cause)
    kind = CauseKind(cause["kind"])
    text = reason_of(
        Cause(
            kind,
            tuple(_who(cause)),
            cause["group_instance_id"],
            cause["client_id"],
            cause["client_host"],
            cause["reason"],
            cause["join_reason"],
            cause["api_version"],
            topics=tuple(TopicChange(each["topic"], Change(each["change"])) for each in cause.get("topics", ())),
            further_topics=cause.get("further_topics", 0),
        )
    ).removesuffix("; client reason: not provided")
    client = f" ({client_text(cause)})" if cause["client_host"] else ""
    return f"{text}{client}" + (" [inferred]" if kind in INFERENCES and cause["source"] != "client" else "")


def marked_text(cause: dict[str, Any], event: dict[str, Any]) -> str:
    """A cause in words; it says if it is inferred, also from the log. event: an event, or an entry, that has it."""
    text = cause_text(cause)
    if not event.get("inferred") or cause.get("told"):
        return text
    return f"{text.removesuffix(' [inferred]')} [inferred from the log]"


def _unknown_text(cause: dict[str, Any]) -> str:
    """A cause that the log of groups doesn't tell: what it may have been."""
    kinds = [CauseKind(kind) for kind in cause["possible"]]
    maybe = ", or ".join(CAUSES[kind].possible for kind in kinds)
    client = f" ({client_text(cause)})" if cause["client_host"] else ""
    who = ", ".join(_who(cause))
    if who and GONE.issuperset(cause["possible"]):
        return f"member {who} is gone{client}; unknown why: {maybe}"
    about = f" ({who}{client})" if who else ""
    return f"unknown: {maybe}{about}" if maybe else f"unknown{about}"


def _who(cause: dict[str, Any]) -> Iterator[str]:
    """The members of a cause; with their clients, if there are several."""
    for member in cause.get("members", ())[:MEMBERS_SHOWN]:
        name = member["group_instance_id"]
        yield f"{short(member['member_id']) if name is None else name} ({client_text(member)})"
    if not cause.get("members"):
        yield from (short(member_id) for member_id in cause["member_ids"][:MEMBERS_SHOWN])
    if len(cause["member_ids"]) > MEMBERS_SHOWN:
        yield f"{len(cause['member_ids']) - MEMBERS_SHOWN} more"


def is_cut(entry: Entry) -> bool:
    """Whether the lines of an entry leave out members or topic partitions that the entry has."""
    moved = (entry.get(name) or 0 for name in ("moved_partitions", "assigned_partitions", "freed_partitions"))
    members = [
        *(cause["member_ids"] for cause in entry.get("causes", ())),
        entry.get("late", ()),
        entry.get("lapsed", ()),
    ]
    target = entry.get("target") or {"changes": ()}
    return (
        max(moved) > MOVES_SHOWN
        or max(map(len, [*members, target["changes"]])) > MEMBERS_SHOWN
        or len(entry.get("revoking", ())) > AWAITED_SHOWN
    )


def folded_lines(entries: Iterable[Entry]) -> Iterator[list[str]]:
    """The lines of each entry, with times; entries that belong to one fold (`folding`) share one line."""
    for fold in folded(entries):
        first = fold[0]
        yield timed_lines(first) if len(fold) == 1 else [f"{time_text(first['at_ms'])}  {restarts_text(fold)}"]


def timed_lines(entry: Entry) -> list[str]:
    """An entry with its time: a line, and more lines below it."""
    first, *more = entry_lines(entry)
    return [f"{time_text(entry['at_ms'])}  {first}", *(f"    {line}" for line in more)]


def entry_lines(entry: Entry) -> Iterator[str]:
    """An entry without its time: a line, and further lines below it."""
    match entry["type"]:
        case "rebalance":
            yield from _rebalance_lines(entry)
        case "static_restart":
            yield (
                f"restart: static member {entry['group_instance_id']} is back as {short(entry['member_id'])} "
                f"({client_text(entry)}){_away_text(entry)}{_other_topics(entry)}, {_costs(entry)}"
            )
        case "static_rejoin":
            yield (
                f"rejoin after an outage: static member {entry['group_instance_id']} is back as "
                f"{short(entry['member_id'])} ({client_text(entry)}){_other_topics(entry)}, {_costs(entry)}"
            )
            yield "nobody had heard of it since the group was loaded: it restarted meanwhile, or only joined again"
        case "takeover":
            yield (
                f"takeover: {short(entry['member_id'])} ({client_text(entry)}) takes the seat of "
                f"{entry['group_instance_id']} from {short(entry['old_member_id'])}, which is still there, "
                f"{_costs(entry)}"
            )
        case "fencing":
            yield fencing_text(entry)
        case "refused":
            yield from _refused_lines(entry)
        case "unreleased":
            yield from _unreleased_lines(entry)
        case "pending":
            ends = {"joined": "it was used", "left": "it was given back", "lapsed": "it lapsed unused"}
            ends["forgotten"] = "it was forgotten, unused, when the coordinator started anew"
            end = ends.get(entry["outcome"], f"not used yet, lapses {time_text(entry['lapses_ms'])}")
            yield f"member id given out: {short(entry['member_id'])} ({client_text(entry)}); {end}"
        case "held":
            yield _held_text(entry)
        case "seat_taken":
            yield _taken_text(entry)
        case "gap":
            first, last = time_text(entry["first_ms"]), time_text(entry["last_ms"])
            when = f"at {first}" if first == last else f"between {first} and {last}"
            yield f"gap: {_several(entry['events'], 'event')} could not be kept {when}"
        case "loaded":
            yield _loaded_text(entry)
        case "converted":
            yield _converted_text(entry)
        case "deleted":
            client = entry.get("client")  # null where the group expired
            yield "the group was deleted" + (f" by {client_text(client)}" if client else "")


def _held_text(entry: Entry) -> str:
    """Joins that waited for expected members."""
    is_begun = entry["missing"] is not None
    whom = f"{_several(entry['missing_count'], 'expected member')} ({_named(entry, 'missing')})" if is_begun else ""
    if entry["outcome"] is None:
        return f"joins are held for {whom} until {time_text(entry['until_wall_ms'])} at the latest"
    took = f"after {duration_text(entry['ended_ms'] - entry['at_ms'])} " if is_begun else ""
    begin = f"joins were held for {whom or 'expected members'}"
    if entry["outcome"] == "interrupted":
        return f"{begin}; their end is not told: {took}the coordinator started anew, or the group went"
    come = f"{begin}; {took}{_several(entry['joins'], 'join')} came in"
    if entry["outcome"] == "arrived":
        return f"{come}, and no expected member is missing"
    return (
        f"{come} without {_several(entry['still_missing_count'], 'expected member')} ({_named(entry, 'still_missing')})"
    )


def _named(entry: Entry, names: str) -> str:
    """The first of the members in a field of an entry; the field with `_count` counts all."""
    shown = entry[names][:AWAITED_SHOWN]
    further = entry[f"{names}_count"] - len(shown)
    return ", ".join(shown) + (f" and {further} more" if further else "")


def _taken_text(entry: Entry) -> str:
    """A standby that took a seat."""
    old = entry["old_group_instance_id"] or short(entry["old_member_id"])
    lost = client_text({"client_id": entry["old_client_id"], "client_host": entry["old_client_host"]})
    lead = " and leads" if entry["leads"] else ""
    why = "it is gone" if entry["kind"] == UNKNOWN else CAUSES[CauseKind(entry["kind"])].possible
    waited = ""
    if entry["waited_ms"] is not None:  # the log of groups alone doesn't tell
        waited = f"; it waited {duration_text(entry['waited_ms'])}, {_several(entry['standbys'], 'standby')} left"
    return (
        f"seat taken: standby {entry['group_instance_id'] or short(entry['member_id'])} ({client_text(entry)}) has the "
        f"seat of {old} ({lost}){lead}, because {why}; no rebalance{waited}"
    )


def restarts_text(restarts: Sequence[Entry]) -> str:
    """Restarts of one instance id, without the time of the first: how many, until when, clients, rebalances."""
    last = restarts[-1]
    seat, member = last["group_instance_id"], short(last["member_id"])
    clients = Counter(client_text(entry) for entry in restarts)
    by = "; ".join(f"{name}: {number}" for name, number in clients.most_common(CLIENTS_SHOWN))
    more = f"; and {len(clients) - CLIENTS_SHOWN} further clients" if len(clients) > CLIENTS_SHOWN else ""
    rebalances = sum(entry["rebalances"] for entry in restarts)
    in_turn = turns(restarts)
    if in_turn is None:
        what = f"static member {seat} is back as {member} at last"
    else:
        parties = " and ".join(client_text({"client_id": name, "client_host": host}) for name, host in in_turn.clients)
        what = f"{parties} take the seat of {seat} from each other in turn, {member} at last"
    return (
        f"{len(restarts)} restarts until {time_text(last['at_ms'])}: {what} ({by}{more}), "
        f"{rebalances or 'none'} with a rebalance"
    )


def _away_text(entry: Entry) -> str:
    """How long a static member of the consumer protocol was away."""
    away_ms = entry.get("away_ms")
    return "" if away_ms is None else f" after {duration_text(away_ms)}"


def _refused_lines(entry: Entry) -> Iterator[str]:
    seat = "" if entry["group_instance_id"] is None else f" with the instance id {entry['group_instance_id']}"
    yield f"refused: a client{seat} ({client_text(entry['client'])}) got {entry['error']}: {entry['why']}"
    yield f"this lasts until {entry['until']}"


def _unreleased_lines(entry: Entry) -> Iterator[str]:
    one, other = client_text(entry["client"]), client_text(entry["current_client"])
    heard = "" if entry["silent_ms"] is None else f" and was heard of {duration_text(entry['silent_ms'])} before"
    yield (
        f"refused: {short(entry['member_id'])} ({one}) wants the seat of {entry['group_instance_id']}, which "
        f"{short(entry['current_member_id'])} ({other}) has{heard}"
    )
    yield "a seat is free once its member leaves or its session ends (UNRELEASED_INSTANCE_ID)"


def counter_name(group_type: object) -> str:
    """The name of a group's counter: its epoch in the consumer protocol."""
    return "epoch" if group_type == CONSUMER else "generation"


def _rebalance_lines(entry: Entry) -> Iterator[str]:
    after = f" -> {entry['generation']}" if entry["generation"] != entry["generation_before"] else ""
    name = counter_name(entry.get("group_type"))
    yield f"rebalance, {name} {entry['generation_before']}{after}: {marked_text(entry['causes'][0], entry)}"
    is_order_known = entry.get("causes_in_order", True) or len({cause["kind"] for cause in entry["causes"]}) == 1
    also = "also" if is_order_known else "also, perhaps first"
    for cause in entry["causes"][1:]:
        yield f"{also}: {marked_text(cause, entry)}"
    if entry.get("further_causes"):
        yield f"and {_several(entry['further_causes'], 'further cause')}"
    if "preparing_ms" not in entry:
        yield f"{ENDS[entry['outcome']]}" + ("; nobody rejoined in time" if entry["is_stuck"] else "")
        yield from _steps_lines(entry)
        return
    waited = entry["waited_for"]
    text = f"{ENDS[entry['outcome']]}{_phases_text(entry)}"
    if waited is not None:
        who = waited.get("group_instance_id") or with_client(waited["member_id"], clients_of(entry))
        text += f"; waited longest for {who} {AWAITED[Phase(waited['phase'])]}, {duration_text(waited['ms'])}"
    yield text
    if entry["late"]:
        is_consumer = entry.get("group_type") == CONSUMER
        what = "removed, as their partitions were not given up in time" if is_consumer else "too late"
        yield f"{what}: {_some(entry['late'], clients_of(entry))}"
    if entry["lapsed"]:
        yield f"member ids that lapsed meanwhile: {_some(entry['lapsed'], {})}"
    if entry["outcome"] in {"completed", "emptied"}:
        moved = entry["moved_partitions"]
        text = f"members {entry['members_before']} -> {entry['members_after']}"
        if moved is not None:
            text += ", " + ", ".join(_moves_texts(entry))
        yield text


def _phases_text(entry: Entry) -> str:
    """How long each phase of a rebalance took. A rebalance from Empty is held open and waits for nobody (KIP-134)."""
    if entry["preparing_ms"] is None:
        return _assigned_text(entry)
    took = duration_text(entry["preparing_ms"])
    if entry.get("group_type") == CONSUMER:
        if entry["completing_ms"] is None:
            return f" after {took}" if entry["preparing_ms"] else ""
        taken = "until every member had its part" if entry["outcome"] == "completed" else "without an end"
        return f": {took} until there was a target, {duration_text(entry['completing_ms'])} {taken}"
    delayed = f"{took} initial delay (group.initial.rebalance.delay.ms)"
    if entry["completing_ms"] is None:
        if entry["state"] == "Empty":
            return f" after {delayed}"
        return f" after {took}" if entry["preparing_ms"] else ""
    joined = f"{took} until the rebalance timeout" if entry["late"] else f"{took} until all had joined"
    assigned = "until all was assigned" if entry["outcome"] == "completed" else "without assignments"
    return f": {delayed if entry['state'] == 'Empty' else joined}, {duration_text(entry['completing_ms'])} {assigned}"


def _assigned_text(entry: Entry) -> str:
    """How long the assignments of a rebalance took, where the log alone tells of it."""
    taken_ms = entry["completing_ms"]
    if taken_ms is None or entry["outcome"] != "completed":
        return ""
    until = "every member had its part" if entry.get("group_type") == CONSUMER else "all was assigned"
    return f": {duration_text(taken_ms)} until {until}"


def _steps_lines(entry: Entry) -> Iterator[str]:
    """How far an open rebalance of the consumer protocol is, as far as records tell."""
    target = entry.get("target")
    if target is not None:
        yield f"{target_text(target, clients_of(entry))} (target {entry['targets']} of this rebalance)"
    for asked in entry.get("revoking", ())[:AWAITED_SHOWN]:
        yield f"{time_text(asked['at_ms'])}  {revoking_text(asked)}"


def target_text(target: dict[str, Any], clients: Mapping[str, str] = NO_CLIENTS) -> str:
    """A target of the consumer protocol: what it changes. clients: see `clients_of`."""
    shown = target["changes"][:MEMBERS_SHOWN]
    names = (change["group_instance_id"] or with_client(change["member_id"], clients) for change in shown)
    changes = [f"{name} +{change['gains']} -{change['loses']}" for name, change in zip(names, shown, strict=True)]
    more = len(target["changes"]) - len(changes) + target["further_changes"]
    by = f" by {target['assignor']}" if target["assignor"] else ""  # the log of groups may not name it
    text = f"target{by} for {_several(target['members'], 'member')}"
    if not changes:
        return f"{text}: nothing changes"
    return f"{text}: {', '.join(changes)}" + (f" and {more} more" if more else "")


def revoking_text(asked: dict[str, Any]) -> str:
    """A member of the consumer protocol that must give up partitions."""
    who = asked["group_instance_id"] or short(asked["member_id"])
    what = _several(asked["partitions"], "topic partition")
    return f"{who} ({client_text(asked)}) must give up {what} until {time_text(asked['until_ms'])}"


def _moves_texts(entry: Entry) -> Iterator[str]:
    """The topic partitions that moved, those that had no member before, and those that have none now."""
    numbers = [entry.get(name, 0) for name in ("moved_partitions", "assigned_partitions", "freed_partitions")]
    texts: list[list[str]] = [[], [], []]
    clients = clients_of(entry)
    for move in entry["moved"]:
        place, one, other = f"{move['topic']}-{move['partition']}", move["from"], move["to"]
        if one is None:
            texts[1].append(f"{place} -> {with_client(other, clients)}")
        elif other is None:
            texts[2].append(f"{place} of {with_client(one, clients)}")
        else:
            texts[0].append(f"{place} {with_client(one, clients)} -> {with_client(other, clients)}")
    for number, what, named in zip(numbers, ("moved", "assigned", "left without a member"), texts, strict=True):
        if number or (what == "moved" and not any(numbers)):
            shown = ", ".join(named[:MOVES_SHOWN])
            more = ", ..." if number > MOVES_SHOWN else ""
            yield f"{_several(number, 'topic partition')} {what}" + (f" ({shown}{more})" if shown else "")


def _costs(entry: Entry) -> str:
    """The text about a static member's seat that another member id took: its cost."""
    if entry["rebalances"]:
        return "and the group rebalances"
    return "and nothing moves" if entry["state"] == "Stable" else "while the group rebalances"


def _converted_text(entry: Entry) -> str:
    """A group that changed its protocol: upgraded by its first member of the consumer protocol, or the way back."""
    members = _several(entry["members"], "member")
    if entry["kind"] == CONSUMER:
        stay = "stays" if entry["members"] == 1 else "stay"
        return (
            f"upgrade: the group has the consumer protocol, from epoch {entry['generation']} on; "
            f"{members} of the classic protocol {stay}"
        )
    return (
        f"downgrade: the group has the classic protocol again, from generation {entry['generation']} on, with {members}"
    )


def _loaded_text(entry: Entry) -> str:
    if entry.get("inferred"):
        name, members = counter_name(entry.get("group_type")), _several(entry["members"], "member")
        return f"the log of the group begins here, in {name} {entry['generation']} with {members}"
    if "former_node" in entry:
        begin = (
            f"node {entry['node']} became the coordinator in place of node {entry['former_node']}: it loaded the group"
        )
    elif not entry.get("write_failed") and entry.get("in_cluster"):
        begin = f"node {entry['node']} loaded the group,"
    elif not entry.get("write_failed"):
        begin = "the coordinator started anew: the group was loaded"
    elif entry.get("state") == "Dead":
        return "a write failed: the group is gone, because its log has nothing of it"
    else:
        begin = "a write failed: the group is again as its log has it,"
    return f"{begin} with {_several(entry['members'], 'member')} in generation {entry['generation']}"


def _other_topics(entry: Entry) -> str:
    """The words for a restart that keeps an assignment although its topics changed, as Kafka allows (KAFKA-12759)."""
    is_changed = entry.get("subscription_changed", False)
    return " with another subscription, which counts from the next rebalance on" if is_changed else ""


def fencing_text(entry: Entry) -> str:
    """A fencing, with both parties."""
    one, other = (
        "unknown" if client is None else client_text(client) for client in (entry["client"], entry["current_client"])
    )
    fenced, current = short(entry["member_id"]), short(entry["current_member_id"])
    if not fenced:
        return (
            f"refused: a request had the instance id {entry['group_instance_id']} and no member id "
            f"({entry['operation']}, {one}), and {current} ({other}) has the seat"
        )
    if entry["kind"] == "conflict":
        parties = f"{fenced} ({one}) is fenced by {current} ({other})"
        return f"conflict: two programs are {entry['group_instance_id']}: {parties}"
    came = "which came after it from the same client"
    return f"fenced: {fenced} of {entry['group_instance_id']} ({one}) by {current}, {came}"


def expects_lines(expects: dict[str, Any]) -> Iterator[str]:
    """The expected members that are missing: one line. expects: as JSON (coordinator.client.groups.expects_json)."""
    missing = expects["missing"]
    names = ", ".join(missing[:AWAITED_SHOWN])
    further = len(missing) - AWAITED_SHOWN
    names += f" and {_several(further, 'further member')}" if further > 0 else ""
    whom = (
        f"{_several(len(missing), 'expected member')} missing: {names}" if missing else "No expected member is missing"
    )
    if expects["until_ms"] is not None:
        yield f"{whom}; {_several(expects['held'], 'join')} held for them until {time_text(expects['until_ms'])}"
    elif expects["held"]:
        yield f"{whom}; {_several(expects['held'], 'join')} of members that are not expected held"
    else:
        yield f"{whom}; the group does not wait for them"


def waiting_lines(state: str, waiting: dict[str, Any]) -> Iterator[str]:
    """The members that a group in `state` waits for: a line, and lines below it.

    waiting: as JSON (coordinator.client.groups.waiting_json).
    """
    until = time_text(waiting["until_ms"])
    begin = f"The group is {state} now, since {time_text(waiting['since_ms'])}; "
    if waiting["is_held_open"]:
        yield f"{begin}it is held open for whoever may come until {until} (group.initial.rebalance.delay.ms)"
        return
    yield f"{begin}the rebalance timeout ends the wait {until} at the latest"
    for member in waiting["members"][:AWAITED_SHOWN]:
        static = f", instance id {member['group_instance_id']}" if member["group_instance_id"] is not None else ""
        leads = member["member_id"] == waiting["leader"]
        what = "to assign" if leads else "to join" if waiting["leader"] is None else "to sync"
        leader = "the leader " if leads else ""
        who = f"{leader}{member['member_id']}{static} ({client_text(member)})"
        yield f"it waits for {who} {what}{_silence_text(member)}"
    further = len(waiting["members"]) - AWAITED_SHOWN
    if further > 0:
        yield f"and for {_several(further, 'further member')}"
    for pending in waiting["pending"][:AWAITED_SHOWN]:
        yield (
            f"it waits for {pending['member_id']} ({client_text(pending)}), a member id that nobody has used; "
            f"it lapses {time_text(pending['lapses_ms'])}"
        )
    further = len(waiting["pending"]) - AWAITED_SHOWN
    if further > 0:
        yield f"and for {_several(further, 'further member id')}"


def _silence_text(member: dict[str, Any]) -> str:
    """How long a member was silent, and when its session ends; empty if its server doesn't say."""
    silent_ms, session_ms = member.get("silent_ms"), member.get("session_timeout_ms")
    if silent_ms is None or session_ms is None:
        return ""
    left = f"ends in {duration_text(session_ms - silent_ms)}" if silent_ms < session_ms else "is over"
    return f"; silent for {duration_text(silent_ms)}, its session {left}"


def held_up_lines(state: str, consumer: dict[str, Any]) -> Iterator[str]:
    """The members that a group of the consumer protocol in `state` waits for: a line, and lines below it.

    consumer: as JSON (coordinator.client.groups.consumer_json).
    """
    epoch, target = consumer["group_epoch"], consumer["assignment_epoch"]
    since = "" if consumer["state_since_ms"] is None else f", since {time_text(consumer['state_since_ms'])}"
    if epoch > target:
        yield f"The group is {state} now{since}: epoch {epoch} has no target yet; a heartbeat of any member makes it"
    else:
        yield f"The group is {state} now{since}: not all members have their part of the target of epoch {epoch}"
    awaited = consumer["held_up_by"]
    if awaited is None:
        yield "its server doesn't say whom it waits for"
        return
    for member in awaited[:AWAITED_SHOWN]:
        yield _awaited_text(member)
    further = len(awaited) - AWAITED_SHOWN
    if further > 0:
        yield f"and for {_several(further, 'further member')}"


def _awaited_text(member: dict[str, Any]) -> str:
    static = f", instance id {member['group_instance_id']}" if member["group_instance_id"] is not None else ""
    who = f"{member['member_id']}{static} ({client_text(member)})"
    since = "" if member["since_ms"] is None else f", since {time_text(member['since_ms'])}"
    until = time_text(member["until_ms"])
    partitions = _several(member["partitions"], "topic partition")
    if member["phase"] == "away":
        return f"{who} is away{since}; it keeps its seat with {partitions} until {until}"
    if member["phase"] == Phase.REVOKING.value:
        return f"it waits for {who} to give up {partitions}{since}; the member is removed {until} if it doesn't"
    return f"it waits for a heartbeat of {who}{since}; the member's session ends {until} without one"


def _some(names: list[str], clients: Mapping[str, str]) -> str:
    return ", ".join(with_client(name, clients) for name in names[:MEMBERS_SHOWN]) + (
        f" and {len(names) - MEMBERS_SHOWN} more" if len(names) > MEMBERS_SHOWN else ""
    )


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
