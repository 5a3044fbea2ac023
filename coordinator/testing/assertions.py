"""Assertions about a group since a moment, as plain functions: for pytest, unittest, or none.

    since = group.mark()
    ...
    assert_no_rebalance(group, since)

The blocks of `Group` (`with group.no_rebalance():`) call these functions. Each raises AssertionError, in the words of
`tenure explain`: which member, which request or timer, the client's reason, the member that was waited for.

House rule: these functions count and judge; texts about causes and entries are coordinator.story's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from coordinator.group.causes import HEARTBEAT, NO_REQUEST, CauseKind
from coordinator.story.entries import REBALANCING, Entry, Rebalance
from coordinator.story.events import Cause
from coordinator.story.words import clients_of, folded_lines, with_client
from coordinator.testing.values import Look, TopicPartition

ENTRIES_SHOWN = 30
"""Entries of a timeline that an error shows, the newest."""

RECONCILING = "Reconciling"
"""The state of a group of the consumer protocol on its way to a target; also while a static member is only away."""

MOVES_SHOWN = 20
"""Moves that an error shows."""


class Subject(Protocol):
    """The part of a `Group` that an assertion needs."""

    group_id: str

    @property
    def waiting(self) -> list[str]:
        """See Group."""

    def look(self) -> Look:
        """See Group."""

    def new_entries(self, since: int) -> list[Entry]:
        """See Group."""

    def trails(self, since: int) -> dict[TopicPartition, list[str | None]] | None:
        """See Group."""


def check_cause(cause: str | None) -> None:
    """Raise ValueError if no rebalance can have this cause."""
    known = sorted(kind.value for kind in CauseKind)
    if cause is not None and cause not in known:
        raise ValueError(f"there is no cause {cause!r}; causes are {', '.join(known)}")


def assert_at_rest(group: Subject) -> None:
    """No rebalance is under way."""
    __tracebackhide__ = True
    look = group.look()
    if look.state in REBALANCING and not (look.state == RECONCILING and not _is_rebalancing(group)):
        text = f"group {group.group_id} rebalances already; wait first: wait_until_stable(members=...)"
        raise AssertionError("\n".join([text, *look.waiting, *look.lines]))


def assert_no_rebalance(group: Subject, since: int) -> None:
    """No rebalance began. since: a `Group.mark`."""
    __tracebackhide__ = True
    found = _rebalances(group, since)
    if found:
        raise AssertionError(_text(group, f"rebalanced {_times(len(found))}, expected none", found))


def assert_rebalances(
    group: Subject,
    since: int,
    *,
    exactly: int | None = None,
    at_least: int = 0,
    at_most: int | None = None,
    cause: str | None = None,
) -> None:
    """So many rebalances began, and `cause` (docs/run/events.md#a-cause) started each of them, if it is given.

    Raises ValueError for an unknown cause.
    """
    __tracebackhide__ = True
    check_cause(cause)
    found = _rebalances(group, since)
    least = at_least if exactly is None else exactly
    most = at_most if exactly is None else exactly
    if len(found) < least or (most is not None and len(found) > most):
        wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise AssertionError(_text(group, f"rebalanced {_times(len(found))}, expected {wanted}", found))
    others = [entry for entry in found if cause not in {None, entry.causes[0].kind}]
    if others:
        kinds_found = ", ".join(dict.fromkeys(entry.causes[0].kind for entry in others))
        raise AssertionError(_text(group, f"rebalanced because of {kinds_found}, expected {cause}", others))


def assert_nothing_moved(group: Subject, since: int) -> None:
    """No topic partition moved; see `assert_moved_at_most`."""
    __tracebackhide__ = True
    assert_moved_at_most(group, since, 0)


def assert_moved_at_most(group: Subject, since: int, most: int) -> None:
    """At most so many topic partitions moved.

    A topic partition moved if two members or more had it one after the other, also if the first one has it again, or if
    it had a member and has none. A static member is the same after a restart, a dynamic one is not.
    """
    __tracebackhide__ = True
    trails = group.trails(since)
    if trails is None:
        raise AssertionError(f"group {group.group_id}: its assignments are not a consumer's, so nobody can read them")
    moved = {place: trail for place, trail in sorted(trails.items()) if _moved(trail)}
    if len(moved) > most:
        clients = _clients(group)
        lines = [f"    {topic}-{index} {_trail(trail, clients)}" for (topic, index), trail in moved.items()][
            :MOVES_SHOWN
        ]
        more = [f"    and {len(moved) - MOVES_SHOWN} more"] if len(moved) > MOVES_SHOWN else []
        what = "1 topic partition" if len(moved) == 1 else f"{len(moved)} topic partitions"
        head = f"moved {what}, expected {f'at most {most}' if most else 'none'}"
        found = _rebalances(group, since)
        raise AssertionError("\n".join([_text(group, head, found), *lines, *more]))


def assert_same_seats(group: Subject, before: Mapping[str, Mapping[str, list[int]]]) -> None:
    """The members are the same as `before` (a `Group.assignment`), each with the same topic partitions."""
    __tracebackhide__ = True
    look = group.look()
    after = look.assignment
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    clients = _clients(group) if before != after else {}
    lines = [f"    {with_client(name, clients)} is gone; it had {before[name]}" for name in gone]
    lines += [f"    {with_client(name, clients)} is new; it has {after[name]}" for name in new]
    lines += [
        f"    {with_client(name, clients)} has {after[name]}; it had {before[name]}"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    if lines:
        head = f"group {group.group_id}: other seats than before; it is {look.state} in generation {look.generation}"
        raise AssertionError("\n".join([head, *look.waiting, *lines]))


def _rebalances(group: Subject, since: int) -> list[Rebalance]:
    return [entry for entry in group.new_entries(since) if isinstance(entry, Rebalance)]


def _is_rebalancing(group: Subject) -> bool:
    """Whether the last rebalance has no end yet."""
    found = _rebalances(group, 0)
    return bool(found) and found[-1].outcome is None


def _moved(trail: list[str | None]) -> bool:
    return trail[-1] is None or len(set(trail) - {None}) > 1


def _trail(trail: list[str | None], clients: Mapping[str, str]) -> str:
    return " -> ".join("nobody" if name is None else with_client(name, clients) for name in trail)


def _clients(group: Subject) -> dict[str, str]:
    """See `words.clients_of`: of all that happened to the group."""
    found: dict[str, str] = {}
    for entry in group.new_entries(0):
        found |= clients_of(entry)
    return found


def _text(group: Subject, head: str, entries: list[Rebalance]) -> str:
    """The text of a failure: what was found, each rebalance as `tenure explain` has it, and its request."""
    lines = [f"group {group.group_id} {head}"]
    for entry, told in zip(entries, folded_lines(entries), strict=True):
        lines += [told[0], f"    {_origins(entry)}", *told[1:]]
    return "\n".join([*lines, *group.waiting])


def _origins(entry: Rebalance) -> str:
    """The causes of a rebalance: requests, or the coordinator."""
    return ", ".join(dict.fromkeys(_origin(cause, is_consumer=entry.is_consumer) for cause in entry.causes))


def _origin(cause: Cause, *, is_consumer: bool) -> str:
    """The request behind a cause, with its version if the server noted it. is_consumer: in the consumer protocol."""
    kind = CauseKind(cause.kind)
    if is_consumer and kind.words.also_by_heartbeat:
        return f"on {HEARTBEAT}"
    request = kind.words.request
    if request == NO_REQUEST:
        return request
    return f"on {request}" if cause.api_version is None else f"on {request} v{cause.api_version}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
