"""Entries: events (`events`) put together to what a person means by a rebalance, a restart, a fencing.

A rebalance is one entry from begin to end, however many records tell of it. A static restart, a fencing, an unused
member id and a gap are one entry each. An entry is a dictionary with `type` and `at_ms`, when it began; JSON shows it
as it is.

    rebalance        cause (the trigger), further causes, causes_at_ms (when each came, null where no record tells),
                     outcome (null while it is open; "unknown" if no record tells its end, "interrupted" if the server
                     ended before it did, "unloaded" if a write failed before it did), phases, who was waited for,
                     members before and after, what moved; in the consumer protocol also targets (how many there were)
                     and revoking (members that had to give up partitions, as far as records tell)
    static_restart   member_replaced: a static member is back (`counts` has the definition of these three)
    static_rejoin    the same, as the first that the coordinator hears of the seat since it loaded the group
    refused          client_refused: a client wanted to join, and got an error that ends it
    unreleased       instance_id_unreleased: a client wanted a seat whose member was active
    takeover         the same, once a fencing shows that the old member id is still in use: two programs have one name
    fencing          member_fenced, with `kind`
    pending          member_pending: `outcome` is joined, left, lapsed, forgotten (the coordinator started anew), or
                     null while the id is unused
    loaded           group_loaded: the coordinator read the group from its log, at its start, because a write failed, or
                     because another node became the coordinator: then it has `node` and `former_node`. With
                     `in_cluster` it has `node` too; no event tells there whether a node started
    converted        group_converted: the group changed its protocol, with its members
    held             rebalance_held: joins wait for expected members. `outcome` is arrived, timed_out (still_missing has
                     names), interrupted (the coordinator started anew, or the group went), or null while they wait;
                     missing and until_wall_ms are null if no record tells how the wait began
    seat_taken       seat_taken: a standby has the seat of a member that is gone, without a rebalance
    gap              events_dropped
    deleted          group_deleted

House rule: records may be missing at every place; then the timeline says so and doesn't guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from coordinator.story import events
from coordinator.story.counts import RETURNS, TAKEOVER
from coordinator.story.events import RebalanceEvent, fields_of
from coordinator.story.rebalances import is_end_of, return_type
from coordinator.story.schema import CONFLICT, CONSUMER

Entry = dict[str, Any]

COMMON = frozenset({"version", "type", "at_ms", "group", "generation", "node", "after_load"})
"""Fields of events that an entry has in another form."""


REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""States of a group with an open rebalance."""


class Timeline:
    """A group's history, event by event. entries: in the order in which they began."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.entries: list[Entry] = []
        self._node: int | UnsetType = UNSET
        self._open: Entry | None = None
        self._pending: dict[str, Entry] = {}
        self._replaced: dict[str, Entry] = {}
        self._held: Entry | None = None

    def add_all(self, events: Iterable[RebalanceEvent]) -> Timeline:
        """Add events in the order of time: this group's, and gaps. Others are skipped."""
        for event in events:
            self.add(event)
        return self

    def add(self, event: RebalanceEvent) -> None:
        """Add the next event. Events of other groups are skipped."""
        if isinstance(event, events.EventsDropped):
            self._enter("gap", event)
        elif event.group == self.group_id:
            add: Callable[[Any], None] | None = getattr(self, f"_{event.type}", None)
            if add is not None:
                add(event)
            self._node = event.node  # an observer's events have none

    def _enter(self, kind: str, event: RebalanceEvent, **fields: Any) -> Entry:
        generation = None if isinstance(event, events.EventsDropped) else event.generation
        entry = {"type": kind, "at_ms": event.at_ms, "generation": generation} | _said(event) | fields
        place = len(self.entries)
        if kind == "rebalance":
            # A rebalance that only its end tells of began before what happened meanwhile.
            while place and _is_meanwhile(self.entries[place - 1], entry):
                place -= 1
        self.entries.insert(place, entry)
        return entry

    # One method per type of event.

    def _group_loaded(self, event: events.GroupLoaded) -> None:
        if self._open is not None:
            if not event.write_failed:
                self._open["outcome"] = "interrupted"
            else:
                # A higher generation is durable, so the rebalance may have completed; no record tells its end.
                is_over = event.generation > self._open["generation_before"]
                self._open["outcome"] = "unknown" if is_over else "unloaded"
            self._open = None
        while self._pending:
            self._pending.popitem()[1]["outcome"] = "forgotten"
        self._end_hold(event, "interrupted")
        nodes = {"node": event.node} if event.in_cluster else {}
        if self._node is not UNSET and self._node != event.node:
            nodes = {"node": event.node, "former_node": self._node}
        self._enter("loaded", event, **nodes)

    def _rebalance_started(self, event: events.RebalanceStarted) -> None:
        if self._open is not None:
            self._open["outcome"] = "unknown"
        self._open = self._enter(
            "rebalance",
            event,
            causes=[fields_of(event.cause)],
            causes_at_ms=[event.at_ms],
            outcome=None,
            generation_before=event.generation,
            members_before=event.members_before,
            is_stuck=False,
            **({"targets": 0, "revoking": []} if event.group_type == CONSUMER else {}),
        )
        self._used(event.cause)

    def _rebalance_cause(self, event: events.RebalanceCause) -> None:
        self._used(event.cause)
        if self._open is not None:
            self._open["causes"].append(fields_of(event.cause))
            self._open["causes_at_ms"].append(event.at_ms)

    def _target_assigned(self, event: events.TargetAssigned) -> None:
        if self._open is not None:
            self._open["targets"] = self._open.get("targets", 0) + 1
            self._open["target"] = _said(event) | {"at_ms": event.at_ms}

    def _member_revoking(self, event: events.MemberRevoking) -> None:
        if self._open is not None:
            self._open.setdefault("revoking", []).append(_said(event) | {"at_ms": event.at_ms})

    def _client_refused(self, event: events.ClientRefused) -> None:
        self._enter("refused", event)

    def _instance_id_unreleased(self, event: events.InstanceIdUnreleased) -> None:
        self._enter("unreleased", event)

    def _rebalance_stuck(self, _event: events.RebalanceStuck) -> None:
        if self._open is not None:
            self._open["is_stuck"] = True

    def _rebalance_ended(self, event: events.RebalanceEnded) -> None:
        entry, self._open = self._open, None
        if entry is not None and not is_end_of(entry["generation_before"], event):
            entry["outcome"] = "unknown"
            entry = None
        if entry is None:
            entry = self._enter("rebalance", event, at_ms=event.began_ms, is_stuck=False, causes_at_ms=[])
        told = list(zip(entry["causes"], entry["causes_at_ms"], strict=False))[1:]
        entry |= _said(event)
        entry["causes_at_ms"] = [event.began_ms]
        for cause in entry["causes"][1:]:
            entry["causes_at_ms"].append(told.pop(0)[1] if told and told[0][0] == cause else None)
        for each in event.causes:
            self._used(each)
        entry["generation"] = event.generation
        entry["ended_ms"] = event.at_ms
        entry["cause"] = entry["causes"][0]

    def _member_replaced(self, event: events.MemberReplaced) -> None:
        self._replaced[event.old_member_id] = self._enter(return_type(event), event)

    def _member_fenced(self, event: events.MemberFenced) -> None:
        self._enter("fencing", event)
        replaced = self._replaced.get(event.member_id)
        if event.kind == CONFLICT and replaced is not None:
            replaced["type"] = TAKEOVER

    def _member_pending(self, event: events.MemberPending) -> None:
        self._pending[event.member_id] = self._enter("pending", event, outcome=None)

    def _pending_expired(self, event: events.PendingExpired) -> None:
        entry = self._pending.pop(event.member_id, None)
        if entry is not None:
            entry["outcome"] = "left" if event.left else "lapsed"

    def _rebalance_held(self, event: events.RebalanceHeld) -> None:
        self._end_hold(event, "interrupted")
        self._held = self._enter("held", event, outcome=None)

    def _hold_ended(self, event: events.HoldEnded) -> None:
        if self._held is None:
            began = {"missing": None, "missing_count": None, "until_wall_ms": None}
            self._held = self._enter("held", event, **began, outcome=None)
        self._held |= {
            "joins": event.joins,
            "still_missing": event.missing,
            "still_missing_count": event.missing_count,
        }
        self._end_hold(event, "timed_out" if event.missing_count else "arrived")

    def _end_hold(self, event: RebalanceEvent, outcome: str) -> None:
        entry, self._held = self._held, None
        if entry is not None:
            entry |= {"outcome": outcome, "ended_ms": event.at_ms}

    def _seat_taken(self, event: events.SeatTaken) -> None:
        self._enter("seat_taken", event)

    def _group_converted(self, event: events.GroupConverted) -> None:
        self._end_hold(event, "interrupted")
        self._enter("converted", event)

    def _group_deleted(self, event: events.GroupDeleted) -> None:
        self._end_hold(event, "interrupted")
        self._enter("deleted", event)
        self._open = None

    def _used(self, cause: events.Cause) -> None:
        for member_id in cause.member_ids:
            entry = self._pending.pop(member_id, None)
            if entry is not None:
                entry["outcome"] = "joined"


def timelines(names: Iterable[str], events: Iterable[RebalanceEvent]) -> dict[str, Timeline]:
    """The timelines of these groups, by group. Events of no group, such as gaps, belong to each of them."""
    made = {name: Timeline(name) for name in names}
    for event in events:
        if event.group is None:
            for timeline in made.values():
                timeline.add(event)
        elif event.group in made:
            made[event.group].add(event)
    return made


def _said(event: RebalanceEvent) -> Entry:
    """The fields of an event that its entry has too."""
    return {name: value for name, value in fields_of(event).items() if name not in COMMON}


def _is_meanwhile(former: Entry, entry: Entry) -> bool:
    """Whether `former`, which stands before the rebalance `entry`, happened while it was open.

    In the millisecond in which the rebalance began, a restart shows it by the group's state, and a fencing by a request
    that
    waited: requests wait for a rebalance.
    """
    if _led_to(former, entry):
        return False
    began_ms: int = entry["at_ms"]
    at_ms: int = former["at_ms"]
    if at_ms != began_ms:
        return at_ms > began_ms
    return former.get("state") in REBALANCING if former["type"] in RETURNS else former.get("waited", False)


def _led_to(former: Entry, entry: Entry) -> bool:
    """Whether a restart started the rebalance, or a fencing came from that restart.

    Then it stands before the rebalance, although its time is that of the restart's record.
    """
    if former["type"] in RETURNS:
        member_id = former["member_id"]
    elif former.get("waited"):
        member_id = former["current_member_id"]
    else:
        return False
    return member_id in entry["causes"][0]["member_ids"]
