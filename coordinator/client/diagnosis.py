"""What is wrong with a group, out of what happened to it (timeline.py) and what it is now, each with what to do.

A finding is a value: its kind is a stable name, what was found a sentence with names and numbers, and the advice says
what a person can change. Nothing is guessed: a finding needs the event or the member that it names.

House rule: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from coordinator.client.groups import Group
from coordinator.client.timeline import Entry, Timeline

INSTANCE_ID_SINCE = 5
"""The first JoinGroup with an instance id."""
REASON_SINCE = 8
"""The first JoinGroup with a reason (KIP-800)."""

GONE_MIN_MS = 60_000
"""An instance id that expired less long ago may well come back."""

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


class Finding(NamedTuple):
    """Something wrong with a group: what, and what to do."""

    kind: str
    group_id: str
    found: str
    advice: str


def findings(
    timeline: Timeline, group: Group | None, partition_counts: Mapping[str, int], now_ms: int
) -> list[Finding]:
    """All that is wrong; group: as it is described now, None if there is none. now_ms: Unix time."""
    causes = [(entry, cause) for entry in timeline.entries if entry["type"] == "rebalance" for cause in entry["causes"]]
    found = [*_conflicts(timeline), *_holding(group, now_ms), *_absences(timeline, causes, group, now_ms)]
    found += _too_old(timeline.group_id, causes)
    if group is not None:
        found += _unassigned(group, partition_counts)
    return found


def _client(client: dict[str, str] | None) -> str:
    return (
        "an unknown client" if client is None else f"{client['client_id']} at {client['client_host'].removeprefix('/')}"
    )


def _conflicts(timeline: Timeline) -> Iterator[Finding]:
    """Two programs with one instance id: one finding for each id, with the newest two parties."""
    by_instance: dict[str, list[Entry]] = {}
    for entry in timeline.entries:
        if entry["type"] == "fencing" and entry["kind"] == "conflict":
            by_instance.setdefault(entry["group_instance_id"], []).append(entry)
    for instance_id, entries in by_instance.items():
        last = entries[-1]
        times = "" if len(entries) == 1 else f", {len(entries)} times"
        yield Finding(
            "instance_id_conflict",
            timeline.group_id,
            f"two programs have the instance id {instance_id}{times}: {last['member_id']} ({_client(last['client'])}) "
            f"was fenced by {last['current_member_id']} ({_client(last['current_client'])})",
            "give each a group.instance.id of its own, or stop one of them",
        )


def _holding(group: Group | None, now_ms: int) -> Iterator[Finding]:
    """Member ids that nobody uses, while the group waits for them."""
    if group is None or group.waiting is None:
        return
    for pending in group.waiting.pending:
        left_ms = pending.lapses_ms - now_ms
        if left_ms > 0:
            client = f"{pending.client_id} at {pending.client_host.removeprefix('/')}"
            yield Finding(
                "pending_member",
                group.group_id,
                f"the group waits for {pending.member_id} ({client}), a member id that nobody has used, "
                f"for {left_ms / 1000:.0f} s more",
                "the client asked for an id and did not come back with it: see why; "
                "tenure.group.pending.timeout.ms limits how long the others wait",
            )


def _absences(
    timeline: Timeline, causes: list[tuple[Entry, dict[str, Any]]], group: Group | None, now_ms: int
) -> Iterator[Finding]:
    """Static members that expired: back a little later, or never seen again."""
    gone: dict[str, int] = {}
    late: dict[str, list[int]] = {}
    for entry, cause in causes:
        instance_id = cause["group_instance_id"]
        if instance_id is None:
            continue
        if cause["kind"] == "member_expired":
            gone[instance_id] = entry["at_ms"]
        elif cause["kind"] == "member_joined" and instance_id in gone:
            late.setdefault(instance_id, []).append(entry["at_ms"] - gone.pop(instance_id))
        elif cause["kind"] in {"member_left", "member_removed"}:
            gone.pop(instance_id, None)
    if late:
        longest_ms = max(max(each) for each in late.values())
        yield Finding(
            "session_timeout_too_short",
            timeline.group_id,
            f"{', '.join(sorted(late))} expired and came back, up to {longest_ms / 1000:.1f} s too late",
            f"raise session.timeout.ms by {longest_ms // 1000 + 1} s or more, so that a restart keeps the seat",
        )
    present = {member.group_instance_id for member in group.members} if group is not None else set()
    never = sorted(name for name, at_ms in gone.items() if name not in present and now_ms - at_ms >= GONE_MIN_MS)
    if never:
        yield Finding(
            "instance_ids_gone",
            timeline.group_id,
            f"{len(never)} instance ids expired and never came back: {', '.join(never[:10])}",
            "an instance id must be the same after a restart (a stateful set's ordinal, not a random name); "
            "of a scale-down, remove members with `tenure members remove`",
        )


def _too_old(group_id: str, causes: list[tuple[Entry, dict[str, Any]]]) -> Iterator[Finding]:
    """Clients whose newest JoinGroup can't carry an instance id, or a reason."""
    newest: dict[str, int] = {}
    for _, cause in causes:
        if cause["kind"] in JOINS and cause["api_version"] is not None:
            newest[cause["client_id"]] = max(cause["api_version"], newest.get(cause["client_id"], 0))
    without_id = sorted(name for name, version in newest.items() if version < INSTANCE_ID_SINCE)
    if without_id:
        yield Finding(
            "client_without_instance_id",
            group_id,
            f"too old to have an instance id (JoinGroup before version {INSTANCE_ID_SINCE}): {', '.join(without_id)}",
            "a newer client can be a static member, whose restart rebalances nothing",
        )
    silent = sorted(name for name, version in newest.items() if version < REASON_SINCE)
    if silent:
        yield Finding(
            "client_without_reason",
            group_id,
            f"can't say why they join (JoinGroup before version {REASON_SINCE}): {', '.join(silent)}",
            "nothing needs to be done: causes of theirs are inferred",
        )


def _unassigned(group: Group, partition_counts: Mapping[str, int]) -> Iterator[Finding]:
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
            "subscribed_but_unassigned",
            group.group_id,
            f"nobody has a partition of {', '.join(missing)}, which {', '.join(who[:10])} subscribe to",
            "a static member that restarts with another subscription keeps its old assignment (KAFKA-12759): let the "
            "group rebalance once, or set tenure.fix.kafka-12759=true",
        )
