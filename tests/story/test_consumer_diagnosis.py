"""The findings of `tenure doctor` about groups of the consumer protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.story.consumer_diagnosis import consumer_findings
from coordinator.story.described import ConsumerSeat, ConsumerState, CoordinatorNode, Group, HeldUp, Member
from coordinator.story.diagnosis import AWAITED_MS, OVER_MS, Case, Finding, Severity, findings
from coordinator.story.entries import Timeline
from tests.story.test_diagnosis import NOW_MS, started
from tests.support.told import event


def member(instance: str, topics: set[str], regex: str | None = None) -> Member:
    """A member of the group."""
    return Member(f"{instance}-1", instance, "c", "/h", {}, frozenset(topics), ConsumerSeat(3, {}, regex, False))


def group_of(*members: Member, awaited: list[HeldUp] | None = None, regexes: list[str] | None = None) -> Group:
    """A group as ConsumerGroupDescribe returns it."""
    state = ConsumerState(3, 3, NOW_MS, awaited or [], regexes or [])
    return Group("g", "Stable", "consumer", "uniform", CoordinatorNode(1, "h", 1), list(members), consumer=state)


def found(events: list[Any], group: Group | None = None, **counts: int) -> list[Finding]:
    """The findings after these events."""
    return list(consumer_findings(Case("g", Timeline("g").add_all(events).entries, group, counts, NOW_MS)))


def refused(at_ms: int, silent_ms: int | None, holder: str = "i-1") -> Any:
    """A client that wanted the seat of i."""
    return event(
        "instance_id_unreleased",
        at_ms,
        member_id=f"new-{at_ms}",
        current_member_id=holder,
        group_instance_id="i",
        silent_ms=silent_ms,
        client={"client_id": "new", "client_host": "/n"},
        current_client={"client_id": "old", "client_host": "/o"},
    )


def test_twins_are_a_conflict() -> None:
    """The seat's member was heard of after another program had been refused its seat: both ran."""
    (conflict,) = found([refused(NOW_MS - 9_000, 2_000), refused(NOW_MS - 1_000, 500)])
    assert (conflict.severity, conflict.kind, conflict.times) == (Severity.ERROR, "instance_id_conflict", 2)
    assert "two programs had the instance id i: new-" in conflict.found
    assert "(new at n) was refused the seat of i-1 (old at o), which went on meanwhile" in conflict.found
    old = [refused(NOW_MS - OVER_MS - 9_000, 2_000), refused(NOW_MS - OVER_MS, 500)]
    assert found(old)[0].severity is Severity.NOTICE


def test_a_seat_that_is_not_free_yet_is_no_conflict() -> None:
    """A killed program is not heard of any more: its successor is refused until the session ends."""
    for events in (
        [refused(NOW_MS - 9_000, 2_000), refused(NOW_MS - 1_000, 10_000)],
        [refused(NOW_MS - 9_000, None), refused(NOW_MS - 1_000, None)],
        [refused(NOW_MS - 9_000, 1_000, "i-1"), refused(NOW_MS - 1_000, 1_000, "i-2")],
        [refused(NOW_MS, 100)],
    ):
        (waits,) = found(events)
        assert (waits.severity, waits.kind) == (Severity.WARNING, "seat_not_released")
    assert found([refused(NOW_MS - OVER_MS, 100)])[0].severity is Severity.NOTICE


def test_members_that_never_revoke() -> None:
    """Members that were removed with their partitions, once for all of them."""
    (late,) = found([started(NOW_MS - 1, "revocation_timed_out", "i", None)])
    assert (late.severity, late.kind, late.times) == (Severity.WARNING, "members_never_revoked", 1)
    assert "were removed: i (c at h)" in late.found
    assert not found([started(NOW_MS - 1, "member_expired", "i", None)])


def test_who_holds_a_group_up_now() -> None:
    """It is an error once the member had time to do its part; a member that is away is none."""
    one = member("i", {"t"})
    for since_ms, severity in ((NOW_MS - AWAITED_MS, Severity.ERROR), (NOW_MS - 1, Severity.NOTICE)):
        for phase, kind in (("revoking", "members_not_revoked"), ("acknowledging", "members_silent")):
            group = group_of(one, awaited=[HeldUp(*one.named, phase, 2, since_ms, NOW_MS + 5_000)])
            (waits,) = found([], group, t=4)
            assert (waits.severity, waits.kind) == (severity, kind)
            assert "for i (c at h) to" in waits.found
            assert "in 5 s" in waits.found
    (away,) = found([], group_of(one, awaited=[HeldUp(*one.named, "away", 2, 1, NOW_MS + 5_000)]), t=4)
    assert (away.severity, away.kind) == (Severity.NOTICE, "member_away")
    unknown = HeldUp(*one.named, "acknowledging", 0, None, NOW_MS + 5_000)
    assert found([], group_of(one, awaited=[unknown]), t=4)[0].severity is Severity.NOTICE


def test_subscriptions_that_lead_to_nothing() -> None:
    """An expression that matches no topic, a topic that isn't there, and no subscription at all."""
    group = group_of(member("a", {"t", "gone"}), member("b", set(), "x.*"), member("c", set()), regexes=["x.*"])
    regex, absent, idle = found([], group, t=4)
    assert (regex.severity, regex.kind) == (Severity.WARNING, "regex_without_topics")
    assert "x.*, to which b (c at h) subscribe" in regex.found
    assert (absent.severity, absent.kind) == (Severity.WARNING, "subscribed_but_absent")
    assert "there is no topic gone, to which a (c at h) subscribe" in absent.found
    assert (idle.severity, idle.kind) == (Severity.NOTICE, "members_without_subscription")
    assert idle.found == "without a subscription: c (c at h)"


def test_a_streams_group_whose_topology_is_not_ready() -> None:
    """Its members have no subscription yet, which is no finding: the topics are the problem."""
    waits = replace(member("a", set()), subscription=None)
    assert [each.kind for each in found([], replace(group_of(waits), state="NotReady"))] == ["topology_not_ready"]


def test_a_coordinator_that_assigns_has_no_forgotten_topics() -> None:
    """The finding about classic static members that changed their subscription is not made here (KAFKA-12759)."""
    assert not list(findings(Case("g", [], group_of(member("a", {"t"})), {"t": 4}, NOW_MS)))
