"""What happened to groups, in plain words: for `tenure explain` and `tenure watch`, and for the page.

Words are made of entries of a timeline (coordinator.client.timeline), and so of records alone. Several lines are one
that says it all, and those below it that say more.

House rule: what isn't known is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coordinator.group.causes import Cause, CauseKind
from coordinator.server.notes import reason_of

if TYPE_CHECKING:
    from coordinator.client.timeline import Entry

MOVES_SHOWN = 3
MEMBERS_SHOWN = 5
AWAITED_SHOWN = 20
"""Of those that a group waits for each has a line."""

ENDS = {
    "completed": "completed",
    "emptied": "nobody was left",
    "superseded": "not completed: the next one started first",
    "unloaded": "not completed: the partition went away",
    "unknown": "its end is not told",
    None: "under way",
}


def time_text(at_ms: int) -> str:
    """A time, to be read beside log lines."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03}Z"


def duration_text(ms: int) -> str:
    """So many milliseconds, as a person says it."""
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min {ms // 1_000 % 60} s"


def cause_text(cause: dict[str, Any]) -> str:
    """A cause in words, with who it was and who says so."""
    text = reason_of(
        Cause(
            CauseKind(cause["kind"]),
            tuple(cause["member_ids"]),
            cause["group_instance_id"],
            cause["client_id"],
            cause["client_host"],
            cause["reason"],
            cause["join_reason"],
            cause["api_version"],
        )
    ).removesuffix("; client reason: not provided")
    who = f" ({cause['client_id']} at {cause['client_host'].removeprefix('/')})" if cause["client_host"] else ""
    return f"{text}{who}" + ("" if cause["source"] == "client" else " [inferred]")


def entry_lines(entry: Entry) -> Iterator[str]:
    """An entry of the timeline without its time: a line, and further ones below it."""
    match entry["type"]:
        case "rebalance":
            yield from _rebalance_lines(entry)
        case "static_restart":
            what = "and the group rebalances" if entry["rebalances"] else "and nothing moves"
            yield (
                f"restart: static member {entry['group_instance_id']} is back as {entry['member_id']} "
                f"({entry['client_id']} at {entry['client_host'].removeprefix('/')}), {what}"
            )
        case "fencing":
            yield fencing_text(entry)
        case "pending":
            ends = {"joined": "it was used", "left": "it was given back", "lapsed": "it lapsed unused"}
            end = ends.get(entry["outcome"], f"not used yet, lapses {time_text(entry['lapses_ms'])}")
            yield (
                f"member id given out: {entry['member_id']} ({entry['client_id']} at "
                f"{entry['client_host'].removeprefix('/')}); {end}"
            )
        case "gap":
            yield (
                f"gap: {_several(entry['events'], 'event')} could not be kept between "
                f"{time_text(entry['first_ms'])} and {time_text(entry['last_ms'])}"
            )
        case "deleted":
            yield "the group was deleted"


def _rebalance_lines(entry: Entry) -> Iterator[str]:
    after = f" -> {entry['generation']}" if entry["generation"] != entry["generation_before"] else ""
    yield f"rebalance, generation {entry['generation_before']}{after}: {cause_text(entry['causes'][0])}"
    for cause in entry["causes"][1:]:
        yield f"also: {cause_text(cause)}"
    if entry.get("further_causes"):
        yield f"and {_several(entry['further_causes'], 'further cause')}"
    if "preparing_ms" not in entry:
        yield f"{ENDS[entry['outcome']]}" + ("; nobody rejoined in time" if entry["is_stuck"] else "")
        return
    phases = f"{duration_text(entry['preparing_ms'])} until all had joined"
    if entry["completing_ms"] is not None:
        phases += f", {duration_text(entry['completing_ms'])} until all was assigned"
    waited = entry["waited_for"]
    if waited is not None:
        what = "to join" if waited["phase"] == "preparing" else "to assign"
        phases += f"; waited longest for {waited['member_id']} {what}, {duration_text(waited['ms'])}"
    yield f"{ENDS[entry['outcome']]}: {phases}"
    if entry["late"]:
        yield f"too late: {_some(entry['late'])}"
    if entry["lapsed"]:
        yield f"member ids that lapsed meanwhile: {_some(entry['lapsed'])}"
    if entry["outcome"] in {"completed", "emptied"}:
        moved = entry["moved_partitions"]
        text = f"members {entry['members_before']} -> {entry['members_after']}"
        if moved is not None:
            moves = [
                f"{move['topic']}-{move['partition']} {move['from'] or 'nobody'} -> {move['to'] or 'nobody'}"
                for move in entry["moved"][:MOVES_SHOWN]
            ]
            more = ", ..." if moved > MOVES_SHOWN else ""
            text += f", {_several(moved, 'topic partition')} moved" + (f" ({', '.join(moves)}{more})" if moves else "")
        yield text


def fencing_text(entry: Entry) -> str:
    """A fencing, with both parties."""
    one, other = (
        "unknown" if client is None else f"{client['client_id']} at {client['client_host'].removeprefix('/')}"
        for client in (entry["client"], entry["current_client"])
    )
    if entry["kind"] == "conflict":
        return (
            f"conflict: two programs are {entry['group_instance_id']}: {entry['member_id']} ({one}) is fenced by "
            f"{entry['current_member_id']} ({other})"
        )
    return (
        f"fenced: {entry['member_id']} of {entry['group_instance_id']} ({one}) by {entry['current_member_id']}, which "
        "came after it from the same client"
    )


def waiting_lines(state: str, waiting: dict[str, Any]) -> Iterator[str]:
    """Whom a group in `state` waits for now (coordinator.client.groups.waiting_json): a line, and those below it."""
    until = time_text(waiting["until_ms"])
    begin = f"The group is {state} now, since {time_text(waiting['since_ms'])}; "
    if waiting["is_held_open"]:
        yield f"{begin}it is held open for whoever may come until {until} (group.initial.rebalance.delay.ms)"
        return
    yield f"{begin}the rebalance timeout ends the wait {until}"
    for member in waiting["members"][:AWAITED_SHOWN]:
        static = f", instance id {member['group_instance_id']}" if member["group_instance_id"] is not None else ""
        leads = member["member_id"] == waiting["leader"]
        what = "to assign" if leads else "to join" if waiting["leader"] is None else "to sync"
        leader = "the leader " if leads else ""
        yield f"it waits for {leader}{member['member_id']}{static} ({_client_text(member)}) {what}"
    further = len(waiting["members"]) - AWAITED_SHOWN
    if further > 0:
        yield f"and for {_several(further, 'further member')}"
    for pending in waiting["pending"][:AWAITED_SHOWN]:
        yield (
            f"it waits for {pending['member_id']} ({_client_text(pending)}), a member id that nobody has used; "
            f"it lapses {time_text(pending['lapses_ms'])}"
        )
    further = len(waiting["pending"]) - AWAITED_SHOWN
    if further > 0:
        yield f"and for {_several(further, 'further member id')}"


def _client_text(client: dict[str, Any]) -> str:
    """Who sent something, and from where."""
    return f"{client['client_id']} at {client['client_host'].removeprefix('/')}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:MEMBERS_SHOWN]) + (
        f" and {len(names) - MEMBERS_SHOWN} more" if len(names) > MEMBERS_SHOWN else ""
    )


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
