"""What the doctor finds, and what it leaves alone."""

from __future__ import annotations

from typing import Any

from coordinator.client.client import Node
from coordinator.client.connection import Address
from coordinator.client.diagnosis import GONE_MIN_MS, Finding, findings
from coordinator.client.groups import Group, Member, Pending, Waiting
from coordinator.client.timeline import Timeline

NOW_MS = 10_000_000


def group_of(*members: Member, state: str = "Stable", waiting: Waiting | None = None) -> Group:
    """The group as it is described."""
    return Group("g", state, "consumer", "range", Node(1, Address("h", 1)), list(members), waiting)


def member(
    instance: str, subscription: set[str] | None = None, assignment: dict[str, list[int]] | None = None
) -> Member:
    """A member of the group."""
    topics = None if subscription is None else frozenset(subscription)
    return Member(f"{instance}-1", instance, "c", "/h", {} if assignment is None else assignment, topics)


def event(kind: str, at_ms: int, /, **fields: Any) -> dict[str, Any]:
    """A record's object, of group g."""
    return {"version": 1, "type": kind, "at_ms": at_ms, "group": "g", "generation": 3, "node": 1, **fields}


def started(at_ms: int, kind: str, instance: str | None, version: int | None = 9, client: str = "c") -> dict[str, Any]:
    """A rebalance begins."""
    cause = {
        "kind": kind,
        "member_ids": [f"{instance}-1"],
        "group_instance_id": instance,
        "client_id": client,
        "api_version": version,
    }
    return event("rebalance_started", at_ms, cause=cause, members=1, state="Stable", pending=[])


def found(events: list[dict[str, Any]], group: Group | None = None, **counts: int) -> list[Finding]:
    """What is found after these events."""
    return findings(Timeline("g").add_all(events), group, counts, NOW_MS)


def fenced(member_id: str, kind: str) -> dict[str, Any]:
    """A fencing of instance id i."""
    return event(
        "member_fenced",
        5,
        member_id=member_id,
        current_member_id="i-9",
        group_instance_id="i",
        kind=kind,
        client={"client_id": "one", "client_host": "/10.0.0.1"},
        current_client={"client_id": "other", "client_host": "/10.0.0.2"},
    )


def test_a_conflict_has_both_parties() -> None:
    """Once for an instance id, however often; a client that met itself is none."""
    (finding,) = found([fenced("i-1", "conflict"), fenced("i-2", "conflict"), fenced("i-3", "self")])
    assert finding.kind == "instance_id_conflict"
    assert finding.found == (
        "two programs have the instance id i, 2 times: i-2 (one at 10.0.0.1) was fenced by i-9 (other at 10.0.0.2)"
    )
    assert not found([fenced("i-3", "self")])


def test_a_pending_member_that_holds_the_group() -> None:
    """While it does: the group waits for it, and the id has not lapsed."""
    pending = Pending("x", "c", "/h", NOW_MS + 4_000)
    waiting = Waiting(NOW_MS - 1_000, NOW_MS + 9_000, is_held_open=False, leader=None, members=[], pending=[pending])
    (finding,) = found([], group_of(waiting=waiting))
    assert finding.kind == "pending_member"
    assert "waits for x (c at h), a member id that nobody has used, for 4 s more" in finding.found
    assert not found([], group_of())
    assert not found([], group_of(waiting=waiting._replace(pending=[pending._replace(lapses_ms=NOW_MS)])))


def test_restarts_that_take_longer_than_the_session() -> None:
    """How much longer is how much is missing."""
    events = [
        started(1_000, "member_expired", "i", None),
        started(6_500, "member_joined", "i"),
        started(7_000, "member_expired", "j", None),
        started(7_100, "member_joined", "j"),
    ]
    (finding,) = found(events)
    assert finding.kind == "session_timeout_too_short"
    assert finding.found == "i, j expired and came back, up to 5.5 s too late"
    assert "by 6 s or more" in finding.advice


def test_instance_ids_that_never_return() -> None:
    """Expired a while ago and not seen since; who left on purpose, or is there, is not missing."""
    events = [
        started(1, "member_expired", "gone", None),
        started(2, "member_expired", "here", None),
        started(3, "member_expired", "removed", None),
        started(4, "member_removed", "removed"),
        started(NOW_MS - GONE_MIN_MS + 1, "member_expired", "just now", None),
    ]
    (finding,) = found(events, group_of(member("here")))
    assert (finding.kind, finding.found) == (
        "instance_ids_gone",
        "1 instance ids expired and never came back: gone",
    )


def test_clients_that_are_too_old() -> None:
    """By the newest JoinGroup that each sent; other requests have other versions."""
    events = [
        started(1, "member_joined", None, 4, "old"),
        started(2, "member_joined", None, 5, "middle"),
        started(3, "member_joined", None, 4, "upgraded"),
        started(4, "leader_rejoined", None, 9, "upgraded"),
        started(5, "member_left", None, 3, "new"),
    ]
    first, second = found(events)
    assert (first.kind, first.found.split(": ")[1]) == ("client_without_instance_id", "old")
    assert (second.kind, second.found.split(": ")[1]) == ("client_without_reason", "middle, old")


def test_a_topic_that_nobody_is_assigned() -> None:
    """A member subscribes to it and it has partitions (KAFKA-12759)."""
    group = group_of(member("a", {"t", "u", "absent"}, {"t": [0]}), member("b", {"t"}, {"t": [1]}))
    (finding,) = found([], group, t=2, u=1)
    assert finding.kind == "subscribed_but_unassigned"
    assert finding.found == "nobody has a partition of u, which a subscribe to"
    assert not found([], group, t=2)
    assert not found([], group_of(member("a", {"u"}), state="PreparingRebalance"), u=1)
    unreadable = Member("m", None, "c", "/h", None, frozenset({"u"}))
    assert not found([], group_of(unreadable), u=1)


def test_nothing_wrong_is_nothing_found() -> None:
    """Also of a group that is no more."""
    assert not found([started(1, "member_joined", "i")])
