"""Restarts of one seat soon after each other are a run; the doctor says whether something is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from coordinator.story.diagnosis import Case, findings
from coordinator.story.entries import Timeline
from coordinator.story.events import GroupEvent, MemberReplaced, fields_of
from coordinator.story.folding import PAUSE_MS
from coordinator.story.runs import Run, run_json, runs
from tests.support.told import told

NOW_MS = 1_800_000_000_000


def replaced(at_ms: int, client_id: str = "c", seat: str = "i") -> MemberReplaced:
    """The event of a static member that restarts."""
    event: MemberReplaced = told(
        "member_replaced", at_ms=at_ms, member_id=f"{seat}-{at_ms}", old_member_id=f"{seat}-before-{at_ms}",
        group_instance_id=seat, client_id=client_id, client_host="/h", state="Stable",
    )  # fmt: skip
    return event


def found(events: Sequence[GroupEvent]) -> list[Run]:
    """The runs of these events."""
    return runs("g", Timeline("g").add_all(events).entries, NOW_MS)


def test_restarts_of_one_seat_that_are_near_are_a_run() -> None:
    """Four restarts make a run. Restarts of other seats don't interrupt it, a pause ends it."""
    first = NOW_MS - 30 * PAUSE_MS
    near = [replaced(first + number * PAUSE_MS) for number in range(4)]
    others = [replaced(first + number * PAUSE_MS + 1, seat=f"other-{number}") for number in range(4)]
    later = [replaced(first + 4 * PAUSE_MS + 1 + number) for number in range(3)]
    mixed = sorted([*near, *others, *later], key=lambda event: event.at_ms)
    (run,) = found(mixed)
    assert [entry.at_ms for entry in run.restarts] == [event.at_ms for event in near]
    assert (run.group_instance_id, run.finding) == ("i", None)
    assert found([*near[:3], *later]) == []


def test_what_is_wrong_with_a_run_is_what_the_doctor_says() -> None:
    """Clients that take turns, or one client that restarts too fast, are findings; each run is judged by itself."""
    calm = [replaced(NOW_MS - 2 * PAUSE_MS + number * 20_000) for number in range(4)]
    for names, kind in (("xy", "instance_id_in_turns"), ("xx", "restarts_in_a_loop")):
        swaps = [replaced(NOW_MS - 60_000 + number * 3_000, names[number % 2]) for number in range(20)]
        one, other = found([*calm, *swaps])
        assert one.finding is None
        assert other.finding in list(findings(Case("g", Timeline("g").add_all(swaps).entries, None, {}, NOW_MS)))
        assert other.finding is not None
        assert other.finding.kind == kind


def test_a_fencing_among_swaps_is_not_denied() -> None:
    """The finding does not say that none was fenced."""
    swaps = [replaced(NOW_MS - 60_000 + number * 3_000, "xy"[number % 2]) for number in range(20)]
    former = swaps[10]
    fenced = told(
        "member_fenced", at_ms=former.at_ms, member_id=former.member_id, group_instance_id="i", kind="conflict",
        current_member_id="other", operation="Heartbeat",
    )  # fmt: skip
    (run,) = found([*swaps[:11], fenced, *swaps[11:]])
    assert run.finding is not None
    assert "none was fenced" not in run.finding.found


def test_a_run_says_how_many_from_when_until_when_and_by_whom() -> None:
    """The JSON has numbers, and the text that the command line prints."""
    restarts = [
        replace(replaced(NOW_MS + number * 1_000, "xyy"[number % 3]), rebalances=not number) for number in range(4)
    ]
    (run,) = found(restarts)
    told = fields_of(run_json(run))
    (text,) = told.pop("text")
    assert told == {
        "group_instance_id": "i", "from_ms": NOW_MS, "until_ms": NOW_MS + 3_000, "restarts": 4, "rebalances": 1,
        "finding": None,
    }  # fmt: skip
    assert text.startswith("4 restarts until 2027-01-15 08:00:03.000Z: static member i is back as ")
    assert text.endswith(" at last (x at h: 2; y at h: 2), 1 with a rebalance")
    (run,) = found([replaced(NOW_MS + number, name) for number, name in enumerate("gabcdegh")])
    text, *_finding = run_json(run).text
    most = "g at h: 2; a at h: 1; b at h: 1; c at h: 1; d at h: 1"
    assert text.endswith(f" at last ({most}; and 2 further clients), none with a rebalance")
