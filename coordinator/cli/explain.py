"""`tenure explain`: why a group rebalanced, as a timeline.

It reads what the server kept (coordinator.client.events), oldest first, so the newest stands at the bottom; the last
line says whether the group waits now, and for what. JSON is an object: `group_id`, `state` (as the server describes the
group, null if there is none), `timeline` (coordinator.client.timeline), `waiting` and `passed_over` (records that could
not be read).

House rule: what isn't known is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT,
    BootstrapServer,
    OutputForm,
    Timeout,
    cluster,
)
from coordinator.cli.exit_codes import ExitCode, fail
from coordinator.cli.output import Output, counted, print_json
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.events import EventReader, NoEvents
from coordinator.client.groups import describe_groups
from coordinator.client.timeline import Entry, Timeline
from coordinator.group.causes import Cause, CauseKind
from coordinator.server.notes import reason_of

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})

MOVES_SHOWN = 3
MEMBERS_SHOWN = 5

ENDS = {
    "completed": "completed",
    "emptied": "nobody was left",
    "superseded": "not completed: the next one started first",
    "unloaded": "not completed: the partition went away",
    "unknown": "its end is not told",
    None: "under way",
}


def command(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N entries.")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Tell why a group rebalanced: causes, who was waited for, what moved; the newest at the bottom."""
    with cluster(bootstrap_server, timeout) as client:
        reader = reader_of(client)
        timeline = Timeline(group_id).add_all(reader.read())
        state = state_of(client, group_id)
    if state is None and not any(entry["type"] != "gap" for entry in timeline.entries):
        fail(ExitCode.NOT_FOUND, f"no such group, and nothing is told of one: {group_id}")
    waiting = waiting_of(timeline, state)
    entries = timeline.entries[-last:] if last else timeline.entries
    if output is Output.JSON:
        print_json(
            {
                "group_id": group_id,
                "state": state,
                "timeline": entries,
                "waiting": waiting,
                "passed_over": reader.passed_over,
            }
        )
        return
    for entry in entries:
        print("\n".join(entry_lines(entry)))
    if waiting is not None:
        print("\n".join(waiting_lines(waiting)))
    if not entries:
        print(f"Nothing is told of group {group_id}, which is {state}")
    if reader.passed_over:
        print(f"{counted(reader.passed_over, 'record')} could not be read")


def reader_of(client: Client) -> EventReader:
    """A reader of the cluster's events; a cluster without any ends the command."""
    try:
        return EventReader(client)
    except NoEvents as error:
        fail(ExitCode.REFUSED, str(error))


def state_of(client: Client, group_id: str) -> str | None:
    """What state the server says that the group is in; None if there is no such group."""
    group = describe_groups(client, [group_id])[group_id]
    return None if isinstance(group, Refused) else group.state


def waiting_of(timeline: Timeline, state: str | None) -> dict[str, Any] | None:
    """What the group waits for now: the open rebalance, and the member ids that hold it up."""
    if state not in REBALANCING:
        return None
    opened = timeline.waiting
    return {
        "state": state,
        "since_ms": None if opened is None else opened["at_ms"],
        "pending": [
            {name: entry[name] for name in ("member_id", "client_id", "client_host", "lapses_ms")}
            for entry in (timeline.unused if state == "PreparingRebalance" else [])
        ],
    }


# In words.


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
    """An entry of the timeline: a line, and further ones below it."""
    at = time_text(entry["at_ms"])
    match entry["type"]:
        case "rebalance":
            yield from _rebalance_lines(entry, at)
        case "static_restart":
            what = "and the group rebalances" if entry["rebalances"] else "and nothing moves"
            yield (
                f"{at}  restart: static member {entry['group_instance_id']} is back as {entry['member_id']} "
                f"({entry['client_id']} at {entry['client_host'].removeprefix('/')}), {what}"
            )
        case "fencing":
            yield f"{at}  {fencing_text(entry)}"
        case "pending":
            ends = {"joined": "it was used", "left": "it was given back", "lapsed": "it lapsed unused"}
            end = ends.get(entry["outcome"], f"not used yet, lapses {time_text(entry['lapses_ms'])}")
            yield (
                f"{at}  member id given out: {entry['member_id']} ({entry['client_id']} at "
                f"{entry['client_host'].removeprefix('/')}); {end}"
            )
        case "gap":
            yield (
                f"{at}  gap: {counted(entry['events'], 'event')} could not be kept between "
                f"{time_text(entry['first_ms'])} and {time_text(entry['last_ms'])}"
            )
        case "deleted":
            yield f"{at}  the group was deleted"


def _rebalance_lines(entry: Entry, at: str) -> Iterator[str]:
    after = f" -> {entry['generation']}" if entry["generation"] != entry["generation_before"] else ""
    yield f"{at}  rebalance, generation {entry['generation_before']}{after}: {cause_text(entry['causes'][0])}"
    for cause in entry["causes"][1:]:
        yield f"    also: {cause_text(cause)}"
    if entry.get("further_causes"):
        yield f"    and {counted(entry['further_causes'], 'further cause')}"
    if "preparing_ms" not in entry:
        yield f"    {ENDS[entry['outcome']]}" + ("; nobody rejoined in time" if entry["is_stuck"] else "")
        return
    phases = f"{duration_text(entry['preparing_ms'])} until all had joined"
    if entry["completing_ms"] is not None:
        phases += f", {duration_text(entry['completing_ms'])} until all was assigned"
    waited = entry["waited_for"]
    if waited is not None:
        what = "to join" if waited["phase"] == "preparing" else "to assign"
        phases += f"; waited longest for {waited['member_id']} {what}, {duration_text(waited['ms'])}"
    yield f"    {ENDS[entry['outcome']]}: {phases}"
    if entry["late"]:
        yield f"    too late: {_some(entry['late'])}"
    if entry["lapsed"]:
        yield f"    member ids that lapsed meanwhile: {_some(entry['lapsed'])}"
    if entry["outcome"] in {"completed", "emptied"}:
        moved = entry["moved_partitions"]
        text = f"    members {entry['members_before']} -> {entry['members_after']}"
        if moved is not None:
            moves = [
                f"{move['topic']}-{move['partition']} {move['from'] or 'nobody'} -> {move['to'] or 'nobody'}"
                for move in entry["moved"][:MOVES_SHOWN]
            ]
            more = ", ..." if moved > MOVES_SHOWN else ""
            text += f", {counted(moved, 'topic partition')} moved" + (f" ({', '.join(moves)}{more})" if moves else "")
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


def waiting_lines(waiting: dict[str, Any]) -> Iterator[str]:
    """What the group waits for now."""
    since = "" if waiting["since_ms"] is None else f", since {time_text(waiting['since_ms'])}"
    yield f"The group is {waiting['state']} now{since}"
    for pending in waiting["pending"]:
        yield (
            f"    it waits for {pending['member_id']} ({pending['client_id']} at "
            f"{pending['client_host'].removeprefix('/')}), a member id that nobody has used; it lapses "
            f"{time_text(pending['lapses_ms'])}"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:MEMBERS_SHOWN]) + (
        f" and {len(names) - MEMBERS_SHOWN} more" if len(names) > MEMBERS_SHOWN else ""
    )
