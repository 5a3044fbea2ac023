"""Findings about expected members (docs/run/group-settings.md) and about seats with standbys (docs/run/seats.md).

A group's description says which expected members are missing, how many seats there are, and which members are standbys.
Events say since when a member is missing, as far as records tell. `diagnosis` says what a finding is.

House rule: as in `diagnosis`: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.group.causes import GONE
from coordinator.story.described import Group, seated
from coordinator.story.diagnosis import GONE_MIN_MS, Case, Finding, Severity, causes_of
from coordinator.story.entries import Entry, Held, Rebalance
from coordinator.story.events import SeatTaken
from coordinator.text import NAMED_MAX, duration_text, names_text, time_text

WAITS = "while they are on it, the group may hold joins of new members for them, up to expected.instance.ids.timeout.ms"
"""In the classic protocol. A group that gave a missing member up holds nothing for it; no description says so."""

WAITS_NOT = "in the consumer protocol no join waits for them, and the other members have all partitions"


def seat_findings(case: Case) -> Iterator[Finding]:
    """Findings about expected members and seats; none about a group without settings for them."""
    if case.group is not None:
        yield from _missing(case.entries, case.group, case.now_ms)
        yield from _seats(case.entries, case.group)


def _missing(entries: Sequence[Entry], group: Group, now_ms: int) -> Iterator[Finding]:
    """Expected members that are not there. It is no problem while the group waits, or if it has no members."""
    expects = group.expects
    if expects is None or not expects.missing:
        return
    since_ms = _missing_since(entries)
    shown = sorted(expects.missing, key=lambda name: (since_ms.get(name, now_ms), name))[:NAMED_MAX]
    names = names_text(
        [
            f"{name} (for {duration_text(max(now_ms - since_ms[name], 0))})" if name in since_ms else name
            for name in shown
        ],
        len(expects.missing),
    )
    is_fresh = all(now_ms - since_ms.get(name, 0) < GONE_MIN_MS for name in expects.missing)
    held = ""
    if expects.until_ms is not None:
        joins = "1 join is" if expects.held == 1 else f"{expects.held} joins are"
        held = f"; {joins} held for them until {time_text(expects.until_ms)}"
    count = len(expects.missing)
    yield Finding(
        Severity.NOTICE if held or is_fresh or not group.members else Severity.WARNING,
        "expected_members_missing",
        group.group_id,
        f"{count} expected {'member is' if count == 1 else 'members are'} missing: {names}{held}",
        "start the programs that have these names as group.instance.id; or take the names off expected.instance.ids: "
        + (WAITS if group.consumer is None else WAITS_NOT),
    )


def _missing_since(entries: Sequence[Entry]) -> dict[str, int]:
    """Instance ids that are missing as far as events tell, and since when (Unix time in ms)."""
    since_ms: dict[str, int] = {}
    for entry in entries:
        match entry:
            case Held():
                for name in entry.missing or ():
                    since_ms.setdefault(name, entry.at_ms)
                if entry.outcome in {"arrived", "timed_out"}:
                    for name in set(entry.missing or ()).difference(entry.still_missing or ()):
                        del since_ms[name]
            case Rebalance():
                for cause in causes_of(entry):
                    if cause.said.kind in GONE:
                        since_ms.setdefault(cause.said.group_instance_id or "", cause.latest_ms)
                    else:
                        since_ms.pop(cause.said.group_instance_id or "", None)
                for seat in entry.ended.after if entry.ended is not None else ():
                    since_ms.pop(seat.group_instance_id or "", None)
            case Entry(event=SeatTaken() as event):
                since_ms.setdefault(event.old_group_instance_id or "", entry.at_ms)
                since_ms.pop(event.group_instance_id or "", None)
    return since_ms


def _seats(entries: Sequence[Entry], group: Group) -> Iterator[Finding]:
    """Seats that nobody has, and a group without a standby. A group without members is not in use."""
    taken = len(seated(group.members))
    if not group.target_size or not group.members:
        return
    if taken < group.target_size:
        yield Finding(
            Severity.WARNING,
            "seats_free",
            group.group_id,
            f"{taken} of {group.target_size} seats (target.group.size) {'is' if taken == 1 else 'are'} taken, and no "
            "standby waits",
            f"start {group.target_size - taken} more "
            f"{'program' if group.target_size - taken == 1 else 'programs'}, and one as a standby; or set "
            f"target.group.size to {taken}",
        )
    elif taken == len(group.members):
        last = next((entry.event for entry in reversed(entries) if isinstance(entry.event, SeatTaken)), None)
        yield Finding(
            Severity.NOTICE if last is None else Severity.WARNING,
            "no_standby",
            group.group_id,
            f"all {taken} seats (target.group.size) are taken, and no standby is left"
            + (
                ""
                if last is None
                else f": {last.group_instance_id or last.member_id} took a seat at {time_text(last.at_ms)}"
            ),
            "start one more program, which waits as a standby: without one, the loss of a member is a rebalance",
        )
