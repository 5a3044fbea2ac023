"""Findings about expected members that are missing, and about seats and standbys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.story.described import ConsumerState, Expects, Group
from coordinator.story.diagnosis import GONE_MIN_MS, Case, Finding, Severity, findings
from coordinator.story.entries import Timeline
from coordinator.story.events import After
from coordinator.story.seat_diagnosis import seat_findings
from tests.story.test_diagnosis import NOW_MS, group_of, member, started
from tests.support.told import but, event

OLD_MS = NOW_MS - 3 * GONE_MIN_MS


def held(at_ms: int, *missing: str) -> Any:
    """The event of joins that wait for expected members."""
    return event("rebalance_held", at_ms, missing=list(missing), missing_count=len(missing), until_wall_ms=0)


def hold_ended(at_ms: int, *missing: str) -> Any:
    """The event of joins that come in, without these members."""
    return event("hold_ended", at_ms, joins=1, missing=list(missing), missing_count=len(missing))


def found(group: Group | None, *events: Any) -> list[Finding]:
    """The findings after these events."""
    return list(seat_findings(Case("g", Timeline("g").add_all(events).entries, group, {}, NOW_MS)))


def expecting(*missing: str, held: int = 0, until_ms: int | None = None, seats: str = "a") -> Group:
    """A group of these members that expects others."""
    return replace(group_of(*map(member, seats)), expects=Expects(list(missing), held, until_ms))


def with_seats(size: int, seats: str, standbys: str = "") -> Group:
    """A group with so many seats."""
    waiting = [replace(member(name), standby_ms=0) for name in standbys]
    return replace(group_of(*map(member, seats), *waiting), target_size=size)


def test_an_expected_member_that_is_missing_for_long() -> None:
    """It expired, left, or did not come while joins were held for it: the finding says how long ago."""
    for events in (
        [started(OLD_MS, "member_expired", "b")],
        [started(OLD_MS, "member_left", "b")],
        [held(OLD_MS, "b"), hold_ended(OLD_MS + 1, "b")],
    ):
        (finding,) = found(expecting("b"), *events)
        assert (finding.severity, finding.kind, finding.group_id, finding.found) == (
            Severity.WARNING, "expected_members_missing", "g", "1 expected member is missing: b (for 3 min 0 s)"
        )  # fmt: skip
        assert finding.advice.endswith(
            "take the names off expected.instance.ids: while they are on it, the group may hold joins of new members "
            "for them, up to expected.instance.ids.timeout.ms"
        )


def test_the_advice_about_a_group_of_the_consumer_protocol() -> None:
    """No join waits there, so the advice doesn't say that one does."""
    group = replace(expecting("b"), consumer=ConsumerState(group_epoch=3, target_epoch=3))
    (finding,) = found(group, started(OLD_MS, "member_expired", "b"))
    assert finding.severity is Severity.WARNING
    assert finding.advice.endswith("no join waits for them, and the other members have all partitions")
    assert "hold" not in finding.advice


def test_members_that_no_event_tells_of() -> None:
    """It stays unknown since when they are missing. Those that are missing for long come first."""
    (finding,) = found(expecting("a1", "b", "c"), started(OLD_MS, "member_expired", "c"))
    assert finding.found == "3 expected members are missing: c (for 3 min 0 s), a1, b"
    assert finding.severity is Severity.WARNING


def test_a_member_that_came_back_meanwhile() -> None:
    """Only the time since it went last counts: it joined, arrived, or a completed rebalance has it."""
    late_ms = NOW_MS - 1_000
    back = event("rebalance_ended", OLD_MS + 1, began_ms=OLD_MS + 1, generation_before=2, causes=[], further_causes=0,
                 after=[After("b-1", "b", "c", "/h", None)])  # fmt: skip
    for events in (
        [started(OLD_MS, "member_expired", "b"), started(OLD_MS + 1, "member_joined", "b")],
        [held(OLD_MS, "b"), hold_ended(OLD_MS + 1)],
        [started(OLD_MS, "member_expired", "b"), but(back, causes=[started(0, "metadata_changed", "c").cause])],
    ):
        (finding,) = found(expecting("b"), *events, started(late_ms, "member_expired", "b"))
        assert (finding.severity, finding.found) == (Severity.NOTICE, "1 expected member is missing: b (for 1.0 s)")


def test_a_standby_that_takes_a_seat_leaves_a_name_missing_and_brings_its_own() -> None:
    """The name of the former member is missing as of then; the standby's own is there, until it goes."""
    taken = event("seat_taken", OLD_MS, group_instance_id="b", old_group_instance_id="c")
    (finding,) = found(expecting("b", "c"), started(OLD_MS - 1, "member_expired", "b"), taken)
    assert finding.found == "2 expected members are missing: c (for 3 min 0 s), b"


def test_missing_members_that_are_no_problem_yet() -> None:
    """Joins are held for them, or the group is not in use."""
    (finding,) = found(expecting("b", held=2, until_ms=NOW_MS))
    assert finding.severity is Severity.NOTICE
    assert finding.found.endswith("b; 2 joins are held for them until 1970-01-01 02:46:40.000Z")
    (finding,) = found(expecting("b", seats=""))
    assert finding.severity is Severity.NOTICE
    assert not found(expecting())
    assert not found(group_of(member("a")))
    assert not found(None)


def test_an_expected_member_is_not_told_twice() -> None:
    """The finding about instance ids that never came back leaves it out."""
    entries = Timeline("g").add_all([started(OLD_MS, "member_expired", "b")])
    kinds = [[each.kind for each in findings(Case("g", entries.entries, group, {}, NOW_MS))]
             for group in (group_of(member("a")), expecting("b"))]  # fmt: skip
    assert kinds == [["instance_ids_gone"], []]


def test_a_group_without_a_standby() -> None:
    """A notice; a warning once a standby took a seat, because then one was wanted."""
    (finding,) = found(with_seats(2, "ab"))
    assert (finding.severity, finding.kind) == (Severity.NOTICE, "no_standby")
    assert finding.found == "all 2 seats (target.group.size) are taken, and no standby is left"
    taken = event("seat_taken", OLD_MS, member_id="b-1", group_instance_id="b", old_member_id="c-1",
                  old_group_instance_id="c")  # fmt: skip
    (finding,) = found(with_seats(2, "ab"), taken)
    assert (finding.severity, finding.last_at_ms) == (Severity.WARNING, None), "it is so now"
    assert finding.found.endswith("no standby is left: b took a seat at 1970-01-01 02:43:40.000Z")
    assert not found(with_seats(2, "ab", standbys="c"), taken)


def test_a_group_short_of_members() -> None:
    """The advice has the number of programs to start. An empty group is not in use."""
    (finding,) = found(with_seats(5, "abc"))
    assert (finding.severity, finding.kind) == (Severity.WARNING, "seats_free")
    assert finding.found == "3 of 5 seats (target.group.size) are taken, and no standby waits"
    assert finding.advice == "start 2 more programs, and one as a standby; or set target.group.size to 3"
    assert not found(with_seats(5, ""))
    assert not found(with_seats(0, "abc"))
