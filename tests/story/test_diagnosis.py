"""The findings of `tenure doctor` about a group, and the cases without a finding."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from coordinator.story.described import Awaited, CoordinatorNode, FailingLog, Group, Member, Waiting
from coordinator.story.diagnosis import (
    AWAITED_MS,
    GONE_MIN_MS,
    LOOP_MIN,
    LOOP_MS,
    OVER_MS,
    PENDING_MS,
    RETURN_MS,
    TURNS_MS,
    Case,
    Finding,
    Severity,
    findings,
    log_findings,
    span_text,
    worst_first,
)
from coordinator.story.entries import Timeline
from coordinator.story.events import Pending, fields_of
from coordinator.text import NAMED_MAX, names_text
from tests.support.told import but, event, told

NOW_MS = 10_000_000

JOINED_AND_EXPIRED = (("member_joined", "j"), ("member_expired", "i"))


def test_a_duration_has_its_largest_unit_that_says_enough() -> None:
    """At least one of it; two of a coarse one, which has no decimals."""
    durations = (999, 1_000, 119_999, 120_000, 7_199_999, 7_200_000, 172_800_000)
    assert [span_text(ms) for ms in durations] == [
        "999 ms", "1.0 s", "120.0 s", "2 minutes", "119 minutes", "2 hours", "2 days",
    ]  # fmt: skip


def group_of(*members: Member, state: str = "Stable", waiting: Waiting | None = None) -> Group:
    """A group as DescribeGroups returns it."""
    return Group("g", state, "consumer", "range", CoordinatorNode(1, "h", 1), list(members), waiting)


def member(
    instance: str, subscription: set[str] | None = None, assignment: dict[str, list[int]] | None = None
) -> Member:
    """A member of the group."""
    topics = None if subscription is None else frozenset(subscription)
    return Member(f"{instance}-1", instance, "c", "/h", {} if assignment is None else assignment, topics)


def started(
    at_ms: int, kind: str, instance: str | None, version: int | None = 9, client: str = "c", reason: str = ""
) -> Any:
    """The event of a rebalance that begins."""
    cause = {
        "kind": kind,
        "member_ids": [f"{instance}-1"],
        "group_instance_id": instance,
        "client_id": client,
        "client_host": "/h",
        "api_version": version,
        "reason": reason,
        "meaning": None,
    }
    return event("rebalance_started", at_ms, cause=cause, members=1, state="Stable", pending=[])


def found(events: list[Any], group: Group | None = None, **counts: int) -> list[Finding]:
    """The findings after these events."""
    return list(findings(Case("g", Timeline("g").add_all(events).entries, group, counts, NOW_MS)))


def fenced(member_id: str, kind: str, at_ms: int = NOW_MS) -> Any:
    """The event of a member with instance id i that is fenced."""
    return event(
        "member_fenced",
        at_ms,
        member_id=member_id,
        current_member_id="i-9",
        group_instance_id="i",
        kind=kind,
        client={"client_id": "one", "client_host": "/10.0.0.1"},
        current_client={"client_id": "other", "client_host": "/10.0.0.2"},
    )


def test_a_conflict_has_both_parties() -> None:
    """There is one finding per instance id, with both clients. A client that fenced itself is no conflict."""
    first, second = fenced("i-1", "conflict", NOW_MS - 9), fenced("i-2", "conflict", NOW_MS - OVER_MS + 1)
    (finding,) = found([first, second, fenced("i-3", "self")])
    assert (finding.kind, finding.severity) == ("instance_id_conflict", "error")
    assert finding.found == (
        "two programs had the instance id i: i-2 (one at 10.0.0.1) was fenced by i-9 (other at 10.0.0.2)"
    )
    assert (finding.last_at_ms, finding.times) == (second.at_ms, 2)
    assert not found([fenced("i-3", "self")])


def test_a_conflict_that_was_not_seen_for_a_while_is_over() -> None:
    """After OVER_MS without another one, the conflict is only a notice."""
    (finding,) = found([fenced("i-1", "conflict", NOW_MS - OVER_MS)])
    assert (finding.kind, finding.severity) == ("instance_id_conflict", "notice")
    assert finding.found.endswith("was fenced by i-9 (other at 10.0.0.2); not seen for 10 minutes or more")
    assert finding.advice.startswith("nothing needs to be done if one of them was stopped")
    assert (finding.last_at_ms, finding.times) == (NOW_MS - OVER_MS, 1)


def replaced(at_ms: int, client: str, host: str = "/h", instance: str = "i") -> Any:
    """The event of this client taking a seat."""
    return event(
        "member_replaced",
        at_ms,
        member_id=f"{instance}-{at_ms}",
        old_member_id=f"{instance}-before-{at_ms}",
        group_instance_id=instance,
        client_id=client,
        client_host=host,
        state="Stable",
        rebalances=False,
    )


def test_programs_that_take_one_seat_in_turn() -> None:
    """No member is fenced, but two clients, told apart by client id or host, take the seat from each other."""
    turns = [replaced(NOW_MS - 60_000 + 3_000 * number, "xy"[number % 2]) for number in range(5)]
    (finding,) = found(turns)
    assert (finding.kind, finding.severity) == ("instance_id_in_turns", "error")
    assert finding.found == "x at h and y at h took the seat of i from each other in turn, and none was fenced"
    assert (finding.last_at_ms, finding.times) == (turns[-1].at_ms, 4)
    (finding,) = found([but(each, client_id="c", client_host=each.client_id) for each in turns])
    assert finding.found.startswith("c at x and c at y took")
    (finding,) = found([but(each, at_ms=each.at_ms - OVER_MS) for each in turns])
    assert finding.severity is Severity.NOTICE, "it is over"


def test_a_seat_that_moves_is_not_taken_in_turn() -> None:
    """A member may restart, move to other hosts, or change between two now and then. Each seat counts by itself."""
    assert not found([replaced(NOW_MS - number, "x") for number in range(LOOP_MIN - 1, 0, -1)])
    assert not found([replaced(NOW_MS - number, "x", f"/h{number}") for number in range(LOOP_MIN - 1, 0, -1)])
    assert not found([replaced(1_000 * number, "xy"[number % 2]) for number in range(4)])
    (often,) = found([replaced(NOW_MS - number, "x", f"/h{number}") for number in range(LOOP_MIN, 0, -1)])
    assert often.kind == "restarts_in_a_loop"
    assert not found([replaced((TURNS_MS + 1) // 2 * number + number, "xy"[number % 2]) for number in range(99)])
    assert not found([replaced(number, "xy"[number % 2], instance=f"i{number // 3}") for number in range(12)])


def test_turns_that_end_with_a_fencing_do_not_deny_it() -> None:
    """The finding says how many members of this seat were fenced; fencings of other seats don't count."""
    swaps = [replaced(NOW_MS - 60_000 + 3_000 * number, "xy"[number % 2]) for number in range(8)]
    fencing = fenced(swaps[-1].old_member_id, "conflict", NOW_MS)
    conflict, in_turns = found([*swaps, fencing])
    assert (conflict.kind, in_turns.kind) == ("instance_id_conflict", "instance_id_in_turns")
    assert in_turns.found.endswith("took the seat of i from each other in turn, and only 1 of them was fenced")
    in_turns = found([*swaps, fencing, fenced("i-8", "conflict", NOW_MS)])[-1]
    assert in_turns.found.endswith("and only 2 of them were fenced")
    for other in (but(fencing, group_instance_id="j"), fenced("i-1", "self")):
        assert found([*swaps, other])[-1].found.endswith("and none was fenced")


def test_a_seat_that_restarts_in_a_loop() -> None:
    """It means two programs that look alike, or one that crashes. The finding has the newest run and shortest gap."""
    times_ms = [NOW_MS - OVER_MS + 1 + each for each in (0, 300, 530, 900, 1_400, LOOP_MS, LOOP_MS + 100)]
    restarts = [replaced(at_ms, "c") for at_ms in times_ms]
    (finding,) = found(restarts)
    assert (finding.kind, finding.severity) == ("restarts_in_a_loop", "warning")
    assert finding.found == "i restarts in a loop: 7 restarts in 60.1 s, the shortest gap 100 ms, the last by c at h"
    assert "two programs have this instance id" in finding.advice
    assert "its own log says why" in finding.advice
    assert (finding.last_at_ms, finding.times) == (times_ms[-1], 7)
    later = NOW_MS + 2 * OVER_MS
    (finding,) = findings(Case("g", Timeline("g").add_all(restarts).entries, None, {}, later))
    assert finding.severity is Severity.NOTICE, "it is over"
    assert finding.found.endswith("c at h; not seen for 10 minutes or more")
    (finding,) = found([replaced(1, "c"), *restarts, replaced(NOW_MS, "c")])
    assert finding.times == 7, "one before and one after are no part of it"


def test_restarts_of_a_person_and_of_a_roll_are_no_loop() -> None:
    """These are fewer or slower. In a roll of many seats each seat counts by itself."""
    assert not found([replaced(1_000 * number, "c") for number in range(LOOP_MIN - 1)])
    assert not found([replaced((LOOP_MS // (LOOP_MIN - 1) + 1) * number, "c") for number in range(99)])
    rolls = [(roll, seat) for roll in range(LOOP_MIN - 1) for seat in range(20)]
    assert not found([replaced(1_000 * roll + seat, "c", instance=f"i{seat}") for roll, seat in rolls])


def test_a_pending_member_that_holds_the_group() -> None:
    """It is an error while the group waits for it and the id has not lapsed; in the first moments it is a notice."""
    pending = Pending("x", "c", "/h", NOW_MS + 4_000)
    waiting = waits(PENDING_MS, pending=[pending])
    (finding,) = found([], group_of(waiting=waiting))
    assert (finding.kind, finding.severity) == ("pending_member", "error")
    assert "waits for x (c at h), a member id that nobody has used, for 4 s more" in finding.found
    assert not found([], group_of())
    assert not found([], group_of(waiting=structs.replace(waiting, pending=[Pending("x", "c", "/h", NOW_MS)])))
    (finding,) = found([], group_of(waiting=waits(PENDING_MS - 1, pending=[pending])))
    assert finding.severity is Severity.NOTICE, "its client may be about to use it"


def waits(for_ms: int, *members: Member, leader: str | None = None, pending: list[Pending] | None = None) -> Waiting:
    """The wait of a group for these members and pending ids."""
    until_ms = NOW_MS + 9_000
    return Waiting(NOW_MS - for_ms, until_ms, False, leader, list(map(awaited, members)), pending or [])


def awaited(member: Member) -> Awaited:
    """A member for which a group waits."""
    return Awaited(*member.named, member.session_timeout_ms, member.silent_ms)


def test_members_that_have_not_rejoined() -> None:
    """They are a notice at first, and an error after AWAITED_MS. The finding has at most NAMED_MAX names."""
    a, b = member("a"), Member("b-1", None, "c", "/h", None)
    (finding,) = found([], group_of(a, b, state="PreparingRebalance", waiting=waits(AWAITED_MS, a, b)))
    assert (finding.kind, finding.severity) == ("members_not_rejoined", "error")
    assert (
        finding.found == "the group has waited 10 s for a (c at h), b-1 (c at h) to rejoin; "
        "the rebalance timeout ends the wait, in 9 s at the latest"
    )
    assert "the longest rebalance timeout of the group's members" in finding.advice
    (finding,) = found([], group_of(a, b, waiting=waits(AWAITED_MS - 1, a)))
    assert finding.severity is Severity.NOTICE
    many = [member(f"m{number}") for number in range(NAMED_MAX + 2)]
    (finding,) = found([], group_of(*many, waiting=waits(0, *many)))
    assert "m9 (c at h) and 2 more to rejoin" in finding.found


def test_names_beyond_a_number_are_counted() -> None:
    """A text has NAMED_MAX names, and says how many more there are if there is one."""
    names = [f"n{number}" for number in range(NAMED_MAX + 1)]
    assert names_text(names[:-1]) == ", ".join(names[:-1])
    assert names_text(names) == f"{names_text(names[:-1])} and 1 more"
    assert names_text(names, 12_345, most=1) == f"{names[0]} and 12,344 more"


def test_members_that_have_not_synced() -> None:
    """If the leader is missing, the finding names the leader alone, because the others wait for it."""
    a, b = member("a"), member("b")
    (finding,) = found([], group_of(a, b, waiting=waits(0, a, b, leader="a-1")))
    assert (finding.kind, finding.severity) == ("members_not_synced", "notice")
    assert "waited 0 s for a (c at h) to assign;" in finding.found


def test_a_group_that_is_held_open_waits_for_nobody() -> None:
    """The initial delay is no finding."""
    assert not found(
        [], group_of(state="PreparingRebalance", waiting=structs.replace(waits(60_000), is_held_open=True))
    )


def test_restarts_that_take_longer_than_the_session() -> None:
    """The advice has the time by which the session timeout is too short."""
    events = [
        started(1_000, "member_expired", "i", None),
        started(6_500, "member_joined", "i"),
        started(7_000, "member_expired", "j", None),
        started(7_100, "member_joined", "j"),
    ]
    (finding,) = found(events)
    assert finding.kind == "session_timeout_too_short"
    assert finding.found == "i, j expired and came back, up to 5.5 s later"
    assert finding.advice.startswith("see when the process was started")
    assert "raise session.timeout.ms by 6 s or more" in finding.advice
    assert "raise that, or lower max.poll.records" in finding.advice


def test_a_client_that_ran_on_was_not_restarted() -> None:
    """Kafka's Java client gives a reason that proves it: a slow poll loop, or a refused request."""
    for reason in ("consumer pro-actively leaving the group", "encountered UNKNOWN_MEMBER_ID from HEARTBEAT response"):
        silent = [started(1_000, "member_expired", "i", None), started(4_600, "member_joined", "i", reason=reason)]
        (finding,) = found(silent)
        assert (finding.kind, finding.severity) == ("silent_clients", "warning")
        assert finding.found == (
            "i expired and came back, up to 3.6 s later; nothing was restarted, as the client's reason says"
        )
        assert "lower max.poll.records" in finding.advice
        assert "session.timeout.ms" not in finding.advice
        assert (finding.last_at_ms, finding.times) == (4_600, 1)
        other = [started(5_000, "member_expired", "j", None), started(5_100, "member_joined", "j", reason="need to re")]
        kinds = [(each.kind, each.found.split()[0]) for each in found([*silent, *other])]
        assert kinds == [("silent_clients", "i"), ("session_timeout_too_short", "j")]


def dynamic(at_ms: int, kind: str, client: str = "c", host: str = "/h", meaning: str | None = None) -> Any:
    """The event of a rebalance that a dynamic member causes."""
    begun = started(at_ms, kind, None, client=client)
    return but(begun, cause=fields_of(begun.cause) | {"client_host": host, "meaning": meaning})


def test_dynamic_members_that_go_and_come_back() -> None:
    """The finding has the number of such rebalances, the clients, and how many of them reported a slow poll loop."""
    began_ms = NOW_MS - 20_000
    events = [
        dynamic(began_ms, "member_joined", "a"),
        dynamic(began_ms + 1_000, "member_joined", "b"),
        dynamic(began_ms + 2_000, "member_left", "a"),
        dynamic(began_ms + 3_000, "member_joined", "a"),
        dynamic(began_ms + 4_000, "member_expired", "b", meaning=None),
        dynamic(began_ms + 5_000, "member_left", "a", meaning="poll_timeout"),
        dynamic(began_ms + 6_000, "member_joined", "b"),
        dynamic(began_ms + 7_000, "member_joined", "a"),
        dynamic(began_ms + 8_000, "metadata_changed", "a"),
    ]
    (finding,) = found(events)
    assert (finding.kind, finding.severity) == ("dynamic_members_come_back", "notice")
    assert finding.found == (
        "members came back after they left or expired: a at h 2 times, b at h once; 1 of 3 were not polled for "
        "max.poll.interval.ms, as they said. Of this came 6 of 9 rebalances in the last 20.0 s"
    )
    assert (finding.last_at_ms, finding.times) == (began_ms + 7_000, 3)
    shared = dynamic(began_ms, "member_left").cause, dynamic(began_ms, "member_joined").cause
    (finding,) = found([ended(number + 1, number, *shared) for number in (1, 11)])
    assert finding.found.endswith(". Of this came 2 of 2 rebalances in the last 2 hours"), "goes and comes in one"
    killed = dynamic(began_ms, "member_joined").cause, dynamic(began_ms, "member_expired").cause
    (finding,) = found([ended(number + 1, number, *killed) for number in (1, 11)])
    assert (finding.found.partition(". ")[2], finding.times) == (
        "Of this came 2 of 2 rebalances in the last 2 hours",
        2,
    )
    apart = [ended(2, 1, killed[0]), ended(4, 3, killed[0]), ended(12, 11, killed[1]), ended(14, 13, killed[1])]
    assert not found(apart), "who expires later is another one"


@pytest.mark.parametrize(
    ("went", "words"),
    [
        ([("member_expired", None)] * 2, {"group.instance.id", "killed"}),
        ([("member_left", "poll_timeout")] * 2, {"polled"}),
        ([("member_left", "closed")] * 2, {"group.instance.id"}),
        ([("member_left", None)] * 2, {"group.instance.id", "polled"}),
        ([("member_expired", None), ("member_left", "poll_timeout")], {"group.instance.id", "killed", "polled"}),
    ],
)
def test_the_advice_for_members_that_come_back_is_by_why_they_went(
    went: list[tuple[str, str | None]], words: set[str]
) -> None:
    """Who expired sent no heartbeats, so nobody has to raise max.poll.interval.ms for it."""
    events = [dynamic(NOW_MS - 9_000, "member_joined"), dynamic(NOW_MS - 9_000, "member_joined", "d")]
    for number, (kind, meaning) in enumerate(went):
        left_ms = NOW_MS - 8_000 + 2 * number
        events += dynamic(left_ms, kind, meaning=meaning), dynamic(left_ms + 1, "member_joined")
    (finding,) = found(events)
    assert {each for each in ("group.instance.id", "killed", "polled") if each in finding.advice} == words


def test_members_that_go_for_good_do_not_come_back() -> None:
    """These are no finding: one return, another client, a late return, a static member, one that left on purpose."""
    leaves = [dynamic(number, "member_left") for number in (1, 2)]

    def back(at_ms: int, **says: str) -> list[dict[str, Any]]:
        return [dynamic(at_ms + number, "member_joined", **says) for number in (3, 4)]

    assert [each.kind for each in found([*leaves, *back(0)])] == ["dynamic_members_come_back"]
    assert not found([*leaves, back(0)[0]])
    assert not found([*leaves[1:], *back(0)])
    assert not found([*leaves, *back(0, client="other")])
    assert not found([*leaves, *back(0, host="/other")])
    assert not found([*leaves, *back(RETURN_MS)])
    assert [each.kind for each in found([*leaves, *back(RETURN_MS - 3)])] == ["dynamic_members_come_back"]
    assert not found([started(1, "member_left", "i"), started(2, "member_joined", "i")] * 2)
    assert not found([*leaves, *back(0), started(9, "member_joined", "i")]), "its client is static by now"
    assert found([*leaves, *back(0), started(9, "member_left", "i")]), "but not by a static member that goes"
    for meaning in ("unsubscribed", "removed_by_admin"):
        assert not found([*(dynamic(number, "member_left", meaning=meaning) for number in (1, 2)), *back(0)])


def ended(at_ms: int, began_ms: int, *causes: Any) -> Any:
    """The event of a rebalance that ends and began at `began_ms`."""
    return event(
        "rebalance_ended",
        at_ms,
        generation_before=3,
        began_ms=began_ms,
        causes=list(causes),
        outcome="completed",
        preparing_ms=at_ms - began_ms,
    )


def test_an_absence_begins_when_the_member_expires() -> None:
    """It does not begin with the rebalance of that time. If no record has the time, the finding gives a limit."""
    first, expired = (started(1_000, kind, name, None).cause for kind, name in JOINED_AND_EXPIRED)
    back = started(12_500, "member_joined", "i")
    begun, cause = event("rebalance_started", 1_000, cause=first), event("rebalance_cause", 10_100, cause=expired)
    end = ended(11_000, 1_000, first, expired)
    (finding,) = found([begun, cause, end, back])
    assert finding.found == "i expired and came back, up to 2.4 s later"
    assert "by 3 s or more" in finding.advice
    assert (finding.last_at_ms, finding.times) == (12_500, 1)
    (finding,) = found([begun, cause, event("rebalance_cause", 10_200, cause=back.cause)])
    assert finding.found == "i expired and came back, up to 0.1 s later"
    for events in ([end, back], [begun, end, back]):
        (finding,) = found(events)
        assert finding.found == "i expired and came back, at most 11.5 s later"
        assert "by 12 s or less" in finding.advice
    (finding,) = found([ended(11_000, 1_000, expired, back.cause)])
    assert finding.found == "i expired and came back, at most 10.0 s later"


def test_instance_ids_that_never_return() -> None:
    """They expired at least GONE_MIN_MS ago. Members that were removed or are in the group do not count."""
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
        "1 instance id expired and never came back: gone",
    )


def test_clients_that_are_too_old() -> None:
    """The newest JoinGroup version of each present client counts; versions of other requests don't."""
    events = [
        started(1, "member_joined", "old", 4, "old"),
        started(2, "member_joined", "middle", 5, "middle"),
        started(3, "member_joined", "upgraded", 4, "upgraded"),
        started(4, "leader_rejoined", "upgraded", 9, "upgraded"),
        started(5, "member_joined", "gone", 3, "gone"),
        started(6, "member_left", "new", 3, "new"),
    ]
    here = [
        Member(f"{name}-1", None, name, "/h", {}) for name in ("old", "middle", "upgraded", "new", "nothing is told of")
    ]
    assert not found(events)
    assert not found(events, group_of())
    first, second = found(events, group_of(*here))
    assert (first.kind, first.found.split(": ")[1]) == ("client_without_instance_id", "old")
    assert (second.kind, second.found.split(": ")[1]) == ("client_without_reason", "middle, old")
    back = event("member_replaced", 7, member_id="back-1", old_member_id="back-0", group_instance_id="back",
        client_id="back", client_host="/h")  # fmt: skip
    (finding,) = found([but(back, api_version=5)], group_of(Member("back-1", "back", "back", "/h", {})))
    assert (finding.kind, finding.found.split(": ")[1]) == ("client_without_reason", "back")


def test_a_topic_that_nobody_is_assigned() -> None:
    """A member subscribes to a topic with partitions, and no member has one of them (KAFKA-12759)."""
    group = group_of(member("a", {"t", "u", "absent"}, {"t": [0]}), member("b", {"t"}, {"t": [1]}))
    (finding,) = found([], group, t=2, u=1)
    assert finding.kind == "subscribed_but_unassigned"
    assert finding.found == "nobody has a partition of u, which a subscribe to"
    assert not found([], group, t=2)
    assert not found([], group_of(member("a", {"u"}), state="PreparingRebalance"), u=1)
    unreadable = Member("m", None, "c", "/h", None, frozenset({"u"}))
    assert not found([], group_of(unreadable), u=1)


def test_notices_are_no_problems() -> None:
    """A notice needs no action; the worst finding comes first."""
    told = worst_first(
        found(
            [started(1, "member_joined", "i", 4), fenced("i-1", "conflict")],
            group_of(Member("i-1", None, "c", "/h", {})),
        )
    )
    told += found([started(1_000, "member_expired", "i", None), started(6_500, "member_joined", "i")])
    assert [(each.severity.value, each.severity.is_problem, each.kind) for each in told] == [
        ("error", True, "instance_id_conflict"),
        ("notice", False, "client_without_instance_id"),
        ("notice", False, "client_without_reason"),
        ("warning", True, "session_timeout_too_short"),
    ]
    assert worst_first(told)[1].severity is Severity.WARNING


def test_nothing_wrong_is_nothing_found() -> None:
    """A group that is gone has no finding either."""
    assert not found([started(1, "member_joined", "i")])


def test_a_log_that_can_not_be_written() -> None:
    """It is one error, because members were refused; after OVER_MS without a failed write it is a notice."""
    failed = [event("group_loaded", at_ms, members=2, write_failed=True) for at_ms in (NOW_MS - 9, NOW_MS)]
    assert not found([event("group_loaded", NOW_MS, members=2)])
    (finding,) = found(failed)
    assert (finding.kind, finding.severity) == ("writes_failed", "error")
    assert (finding.last_at_ms, finding.times) == (NOW_MS, 2)
    (finding,) = found([event("group_loaded", NOW_MS - OVER_MS, members=2, write_failed=True)])
    assert finding.severity == "notice"
    assert finding.found.endswith("not seen for 10 minutes or more")


def test_events_that_could_not_be_kept() -> None:
    """They may be of any group, so each group has the finding."""
    gaps = [
        told("events_dropped", at_ms=NOW_MS, events=3, first_ms=first_ms, last_ms=last_ms)
        for first_ms, last_ms in ((1, NOW_MS - 9), (2, NOW_MS - OVER_MS))
    ]
    (finding,) = found(gaps)
    assert (finding.kind, finding.severity) == ("events_dropped", "error")
    assert finding.found.startswith("6 events, of this group or others, could not be kept")
    assert (finding.last_at_ms, finding.times) == (NOW_MS - 9, 2)
    (finding,) = found([but(gaps[1], events=1)])
    assert finding.found.startswith("1 event, of this group or others, could not be kept")
    assert finding.severity == "notice"
    assert finding.found.endswith("not seen for 10 minutes or more")


def test_logs_that_fail_for_one_reason_are_one_error() -> None:
    """Logs are named by reason, ten at most; the count covers those that the server didn't name."""
    full = [FailingLog(f"t-{index:02}", 1_000 + index, "No space left on device") for index in range(12)]
    found = list(log_findings([*full, FailingLog("u-0", 9_000, "damaged")], 15, 11_000))
    assert [(each.severity, each.kind, each.group_id) for each in found] == [(Severity.ERROR, "log_fails", None)] * 2
    names = ", ".join(f"t-{index:02}" for index in range(10))
    assert [each.found for each in found] == [
        f"the log of {names} and 4 more can't be used, for 10.0 s and by the last try: No space left on device",
        "the log of u-0 can't be used, for 2.0 s and by the last try: damaged",
    ]
    assert list(log_findings([], 0, 11_000)) == []
