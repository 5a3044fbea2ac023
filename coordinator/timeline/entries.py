"""What happened to a group, in order: events (events.py) put together to what a person means by a rebalance.

A rebalance is one entry, from its beginning to its end, whatever records tell of it; a static restart, a fencing, a
member id that nobody used and a gap are one each. An entry is a dictionary with `type` and `at_ms`, when it began; it
goes out as JSON as it is.

    rebalance        cause (the trigger), further causes, causes_at_ms (when each came, null where no record tells),
                     outcome (null while it is open; "unknown" if no record tells its end, "interrupted" if the server
                     ended before it did, "unloaded" if a write failed before it did), phases, who was waited for,
                     members before and after, what moved
    static_restart   member_replaced
    takeover         likewise, once a fencing says that the old member id is still in use: a second program has its name
    fencing          member_fenced, with `kind`
    pending          member_pending: `outcome` is joined, left, lapsed, forgotten (the coordinator started anew), or
                     null while the id is not used
    loaded           group_loaded: the coordinator started anew, or a write failed, and read the group from its log
    gap              events_dropped
    deleted          group_deleted

House rule: records may be missing at every place, and the timeline says so rather than guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.timeline.schema import RebalanceEvent

Entry = dict[str, Any]

COMMON = frozenset({"version", "type", "at_ms", "group", "generation", "node"})
"""Fields of every event, which are the entry's own affair."""


RESTARTS = frozenset({"static_restart", "takeover"})
"""A seat that another member id took."""

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})
"""States of a group whose rebalance is open."""


class Timeline:
    """A group's history, event by event. entries: in the order of their beginning."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.entries: list[Entry] = []
        self._open: Entry | None = None
        self._pending: dict[str, Entry] = {}
        self._replaced: dict[str, Entry] = {}

    def add_all(self, events: Iterable[RebalanceEvent]) -> Timeline:
        """Those of this group, and gaps, in the order of time."""
        for event in events:
            self.add(event)
        return self

    def add(self, event: RebalanceEvent) -> None:
        """The next event; those of other groups are passed over."""
        if event["type"] == "events_dropped":
            self._enter("gap", event)
        elif event["group"] == self.group_id:
            add = getattr(self, f"_{event['type']}", None)
            if add is not None:
                add(event)

    def _enter(self, kind: str, event: RebalanceEvent, **fields: Any) -> Entry:
        said = {name: value for name, value in event.items() if name not in COMMON}
        entry = {
            "type": kind,
            "at_ms": event["at_ms"],
            "generation": event.get("generation"),
        }
        entry |= said | fields
        place = len(self.entries)
        if kind == "rebalance":
            # One that is told by its end alone began before what happened meanwhile.
            while place and _is_meanwhile(self.entries[place - 1], entry):
                place -= 1
        self.entries.insert(place, entry)
        return entry

    # One method per type of event.

    def _group_loaded(self, event: RebalanceEvent) -> None:
        if self._open is not None:
            if not event.get("write_failed"):
                self._open["outcome"] = "interrupted"
            else:
                # A higher generation is durable: the rebalance may have completed, and its end is not told.
                is_over = event["generation"] > self._open["generation_before"]
                self._open["outcome"] = "unknown" if is_over else "unloaded"
            self._open = None
        while self._pending:
            self._pending.popitem()[1]["outcome"] = "forgotten"
        self._enter("loaded", event)

    def _rebalance_started(self, event: RebalanceEvent) -> None:
        if self._open is not None:
            self._open["outcome"] = "unknown"
        cause = event["cause"]
        self._open = self._enter(
            "rebalance",
            event,
            causes=[cause],
            causes_at_ms=[event["at_ms"]],
            outcome=None,
            generation_before=event["generation"],
            members_before=event.get("members_before"),
            is_stuck=False,
        )
        self._used(cause)

    def _rebalance_cause(self, event: RebalanceEvent) -> None:
        self._used(event["cause"])
        if self._open is not None:
            self._open["causes"].append(event["cause"])
            self._open["causes_at_ms"].append(event["at_ms"])

    def _rebalance_stuck(self, _event: RebalanceEvent) -> None:
        if self._open is not None:
            self._open["is_stuck"] = True

    def _rebalance_ended(self, event: RebalanceEvent) -> None:
        entry, self._open = self._open, None
        if entry is None or entry["generation_before"] != event["generation_before"]:
            entry = self._enter("rebalance", event, at_ms=event["began_ms"], is_stuck=False, causes_at_ms=[])
        told = list(zip(entry["causes"], entry["causes_at_ms"], strict=False))[1:]
        entry["causes_at_ms"] = [event["began_ms"]]
        for cause in event["causes"][1:]:
            entry["causes_at_ms"].append(told.pop(0)[1] if told and told[0][0] == cause else None)
        for cause in event["causes"]:
            self._used(cause)
        entry |= {name: value for name, value in event.items() if name not in COMMON}
        entry["generation"] = event["generation"]
        entry["ended_ms"] = event["at_ms"]
        entry["cause"] = event["causes"][0]

    def _member_replaced(self, event: RebalanceEvent) -> None:
        self._replaced[event["old_member_id"]] = self._enter("static_restart", event)

    def _member_fenced(self, event: RebalanceEvent) -> None:
        self._enter("fencing", event)
        replaced = self._replaced.get(event["member_id"])
        if event["kind"] == "conflict" and replaced is not None:
            replaced["type"] = "takeover"

    def _member_pending(self, event: RebalanceEvent) -> None:
        self._pending[event["member_id"]] = self._enter("pending", event, outcome=None)

    def _pending_expired(self, event: RebalanceEvent) -> None:
        entry = self._pending.pop(event["member_id"], None)
        if entry is not None:
            entry["outcome"] = "left" if event["left"] else "lapsed"

    def _group_deleted(self, event: RebalanceEvent) -> None:
        self._enter("deleted", event)
        self._open = None

    def _used(self, cause: dict[str, Any]) -> None:
        for member_id in cause["member_ids"]:
            entry = self._pending.pop(member_id, None)
            if entry is not None:
                entry["outcome"] = "joined"


def _is_meanwhile(former: Entry, entry: Entry) -> bool:
    """Whether something told before a rebalance happened while it was under way.

    Of what happened in the millisecond in which it began, a restart says so by the group's state, and a fencing by the
    request that waited: requests wait for a rebalance.
    """
    if _led_to(former, entry):
        return False
    began_ms: int = entry["at_ms"]
    at_ms: int = former["at_ms"]
    if at_ms != began_ms:
        return at_ms > began_ms
    return former.get("state") in REBALANCING if former["type"] in RESTARTS else former.get("waited", False)


def _led_to(former: Entry, entry: Entry) -> bool:
    """Whether a restart is what started a rebalance, or a fencing came from that: then it is told first.

    Though its time is that of the restart's record.
    """
    if former["type"] in RESTARTS:
        member_id = former["member_id"]
    elif former.get("waited"):
        member_id = former["current_member_id"]
    else:
        return False
    return member_id in entry["causes"][0]["member_ids"]
