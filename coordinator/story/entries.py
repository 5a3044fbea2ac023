"""Entries: events (`events`) put together to what a person means by a rebalance, a restart, a fencing.

A rebalance is one entry from begin to end, however many records tell of it. A static restart, a fencing, an unused
member id and a gap are one entry each. An entry has the event that began it, and what later events add. Its JSON
(`entry_json`) has the fields of these events beside its own; `type` and `at_ms`, when it began, come first.

House rule: records may be missing at every place; then the timeline says so and doesn't guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeGuard

from msgspec import UNSET, Struct, UnsetType, to_builtins

from coordinator.group.course import Outcome
from coordinator.story import events
from coordinator.story.counts import RESTART, RETURN, TAKEOVER
from coordinator.story.events import Cause, RebalanceEnded, RebalanceEvent, UnixMs, one_of, says
from coordinator.story.rebalances import is_end_of, return_type

COMMON = frozenset({"version", "type", "at_ms", "group", "generation", "node", "after_load"})
"""Fields of events that an entry has in another form."""

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""States of a group with an open rebalance."""


class Entry(Struct):
    """Something that happened to a group. event: the one that began it."""

    event: RebalanceEvent

    @property
    def type(self) -> str:
        """The name of its kind."""
        return self.event.entry

    @property
    def at_ms(self) -> int:
        """When it began, Unix time in ms."""
        return self.event.at_ms

    @property
    def generation(self) -> int | None:
        """The group's generation then, or the one to which a rebalance led; None for a gap."""
        return None if isinstance(self.event, events.EventsDropped) else self.event.generation


class Return(Entry):
    """A static member is back (coordinator.story.counts).

    type: a takeover once a fencing shows that the old member id is still in use: two programs have one name.
    """

    event: events.MemberReplaced
    type: str

    @property
    def took_ms(self) -> int | None:
        """How long a restart took that was in time; None for other returns, and where no record has it."""
        took_ms = self.event.silent_ms
        return took_ms if self.type == RESTART and isinstance(took_ms, int) else None


class Pending(Entry):
    """A member id that a client got. outcome: None while the id is unused; forgotten: the coordinator started anew."""

    event: events.MemberPending
    outcome: Annotated[str, one_of(("joined", "left", "lapsed", "forgotten"))] | None = None


class Loaded(Entry):
    """The coordinator read the group from its log: at its start, after a failed write, or because it has the group now.

    With `in_cluster`, `node` read it, and no event tells whether a node started; `former_node`: another one had it.
    """

    event: events.GroupLoaded
    node: int | UnsetType = UNSET
    former_node: int | UnsetType = UNSET


class Held(Entry):
    """Joins waited for expected members.

    outcome: None while they wait; interrupted: the coordinator started anew, or the group went.
    missing, missing_count, until_wall_ms: None if no record tells how the wait began.
    """

    event: events.RebalanceHeld | events.HoldEnded
    missing: list[str] | None = None
    missing_count: int | None = None
    until_wall_ms: UnixMs | None = None
    outcome: Annotated[str, one_of(("arrived", "timed_out", "interrupted"))] | None = None
    joins: Annotated[int, says("how many came in")] | UnsetType = UNSET
    still_missing: list[str] | UnsetType = UNSET
    still_missing_count: int | UnsetType = UNSET
    ended_ms: UnixMs | UnsetType = UNSET


class Rebalance(Entry, kw_only=True):
    """A rebalance. ended: the event of its end, if a record tells it. cause: the trigger.

    causes_at_ms: when each cause came, None where no record tells. outcome: None while it is under way; that of its
    end; "unknown" if no record tells its end, "interrupted" if the server ended before it did, "unloaded" if a write
    failed before it did. In the consumer protocol also targets (how many there were), target (the newest) and revoking
    (members that had to give up partitions), as far as records tell.
    """

    event: events.RebalanceStarted | RebalanceEnded
    causes: list[Cause] = []
    causes_at_ms: list[UnixMs | None] = []
    outcome: Annotated[str, one_of((*(each.value for each in Outcome), "unknown", "interrupted"))] | None = None
    generation_before: int
    is_stuck: bool = False
    targets: int | UnsetType = UNSET
    revoking: list[events.MemberRevoking] | UnsetType = UNSET
    target: events.TargetAssigned | UnsetType = UNSET
    ended: RebalanceEnded | None = None
    ended_ms: UnixMs | UnsetType = UNSET
    cause: Cause

    @property
    def at_ms(self) -> int:
        """When it began, as far as a record tells."""
        return self.event.at_ms if isinstance(self.event, events.RebalanceStarted) else self.event.began_ms

    @property
    def generation(self) -> int:
        """The generation that it led to, once it has ended."""
        return self.event.generation if self.ended is None else self.ended.generation

    @property
    def is_consumer(self) -> bool:
        """Whether the group is of the consumer protocol, or a streams group, which goes on alike."""
        return (self.ended or self.event).group_type is not UNSET


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry as a JSON object."""
    fields: dict[str, Any] = {"type": entry.type, "at_ms": entry.at_ms, "generation": entry.generation}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        match name, value:
            case "event" | "ended", Struct():
                fields |= _said(value)
            case "revoking", list():
                fields[name] = [_said(each) | {"at_ms": each.at_ms} for each in value]
            case "target", events.TargetAssigned():
                fields[name] = _said(value) | {"at_ms": value.at_ms}
            case _ if value is not UNSET and name != "ended":
                fields[name] = to_builtins(value)
    return fields


def _said(event: Struct) -> dict[str, Any]:
    """The fields of an event that its entry has too."""
    return {name: value for name, value in events.fields_of(event).items() if name not in COMMON}


class Timeline:
    """A group's history, event by event. entries: in the order in which they began."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.entries: list[Entry] = []
        self._node: int | UnsetType = UNSET
        self._open: Rebalance | None = None
        self._pending: dict[str, Pending] = {}
        self._replaced: dict[str, Return] = {}
        self._held: Held | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the group: gaps may be of any group."""
        return all(isinstance(entry.event, events.EventsDropped) for entry in self.entries)

    def add_all(self, told: Iterable[RebalanceEvent]) -> Timeline:
        """Add events in the order of time: this group's, and gaps. Others are skipped."""
        for event in told:
            self.add(event)
        return self

    def add(self, event: RebalanceEvent) -> None:
        """Add the next event. Events of other groups are skipped."""
        if isinstance(event, events.EventsDropped):
            self.entries.append(Entry(event))
        elif event.group == self.group_id:
            self._add(event)
            self._node = event.node  # an observer's events have none

    def _add(self, event: RebalanceEvent) -> None:
        match event:
            case events.GroupLoaded():
                self._loaded(event)
            case events.RebalanceStarted():
                self._started(event)
            case events.RebalanceCause():
                self._used(event.cause)
                if self._open is not None:
                    self._open.causes.append(event.cause)
                    self._open.causes_at_ms.append(event.at_ms)
            case events.TargetAssigned() if self._open is not None:
                self._open.targets = (self._open.targets or 0) + 1
                self._open.target = event
            case events.MemberRevoking() if self._open is not None:
                self._open.revoking = [*(self._open.revoking or ()), event]
            case events.RebalanceStuck() if self._open is not None:
                self._open.is_stuck = True
            case RebalanceEnded():
                self._ended(event)
            case events.MemberReplaced():
                self._replaced[event.old_member_id] = entry = Return(event, return_type(event))
                self.entries.append(entry)
            case events.MemberFenced():
                self.entries.append(Entry(event))
                if event.is_conflict and event.member_id in self._replaced:
                    self._replaced[event.member_id].type = TAKEOVER
            case events.MemberPending():
                self._pending[event.member_id] = pending = Pending(event)
                self.entries.append(pending)
            case events.PendingExpired():
                if event.member_id in self._pending:
                    self._pending.pop(event.member_id).outcome = "left" if event.left else "lapsed"
            case events.RebalanceHeld():
                self._end_hold(event, "interrupted")
                self._held = Held(event, event.missing, event.missing_count, event.until_wall_ms)
                self.entries.append(self._held)
            case events.HoldEnded():
                self._hold_ended(event)
            case events.GroupConverted() | events.GroupDeleted():
                self._end_hold(event, "interrupted")
                self.entries.append(Entry(event))
                if isinstance(event, events.GroupDeleted):
                    self._open = None
            case _ if event.entry:
                self.entries.append(Entry(event))

    def _loaded(self, event: events.GroupLoaded) -> None:
        if self._open is not None:
            if not event.write_failed:
                self._open.outcome = "interrupted"
            else:
                # A higher generation is durable, so the rebalance may have completed; no record tells its end.
                is_over = event.generation > self._open.generation_before
                self._open.outcome = "unknown" if is_over else "unloaded"
            self._open = None
        while self._pending:
            self._pending.popitem()[1].outcome = "forgotten"
        self._end_hold(event, "interrupted")
        entry = Loaded(event, event.node if event.in_cluster else UNSET)
        if self._node is not UNSET and self._node != event.node:
            entry.node, entry.former_node = event.node, self._node
        self.entries.append(entry)

    def _started(self, event: events.RebalanceStarted) -> None:
        if self._open is not None:
            self._open.outcome = "unknown"
        self._open = entry = Rebalance(event=event, generation_before=event.generation, cause=event.cause)
        entry.causes.append(event.cause)
        entry.causes_at_ms.append(event.at_ms)
        if entry.is_consumer:
            entry.targets, entry.revoking = 0, []
        self._enter(entry)
        self._used(event.cause)

    def _ended(self, event: RebalanceEnded) -> None:
        entry, self._open = self._open, None
        if entry is not None and not is_end_of(entry.generation_before, event):
            entry.outcome = "unknown"
            entry = None
        if entry is None:
            entry = Rebalance(event=event, generation_before=event.generation_before, cause=event.causes[0])
            self._enter(entry)
        told = list(zip(entry.causes, entry.causes_at_ms, strict=True))[1:]
        entry.ended, entry.ended_ms = event, event.at_ms
        entry.outcome = event.outcome
        entry.causes, entry.cause = event.causes, event.causes[0]
        entry.causes_at_ms = [event.began_ms]
        for cause in entry.causes[1:]:
            entry.causes_at_ms.append(told.pop(0)[1] if told and told[0][0] == cause else None)
        for each in event.causes:
            self._used(each)

    def _enter(self, entry: Rebalance) -> None:
        """A rebalance that only its end tells of began before what happened meanwhile."""
        place = len(self.entries)
        while place and _is_meanwhile(self.entries[place - 1], entry):
            place -= 1
        self.entries.insert(place, entry)

    def _hold_ended(self, event: events.HoldEnded) -> None:
        if self._held is None:
            self._held = Held(event)
            self.entries.append(self._held)
        self._held.joins = event.joins
        self._held.still_missing, self._held.still_missing_count = event.missing, event.missing_count
        self._end_hold(event, "timed_out" if event.missing_count else "arrived")

    def _end_hold(self, event: RebalanceEvent, outcome: str) -> None:
        entry, self._held = self._held, None
        if entry is not None:
            entry.outcome, entry.ended_ms = outcome, event.at_ms

    def _used(self, cause: Cause) -> None:
        for member_id in cause.member_ids:
            if member_id in self._pending:
                self._pending.pop(member_id).outcome = "joined"


def timelines(names: Iterable[str], told: Iterable[RebalanceEvent]) -> dict[str, Timeline]:
    """The timelines of these groups, by group. Events of no group, such as gaps, belong to each of them."""
    made = {name: Timeline(name) for name in names}
    for event in told:
        if event.group is None:
            for timeline in made.values():
                timeline.add(event)
        elif event.group in made:
            made[event.group].add(event)
    return made


def counts(entries: Iterable[Entry]) -> Counter[str]:
    """The number of entries by type."""
    return Counter(entry.type for entry in entries)


def is_restart(entry: Entry) -> TypeGuard[Return]:
    """Whether a static member took its own seat again, as far as anybody knows."""
    return isinstance(entry, Return) and entry.type in {RESTART, RETURN}


def _is_meanwhile(former: Entry, entry: Rebalance) -> bool:
    """Whether `former`, which stands before the rebalance `entry`, happened while it was open.

    In the millisecond in which the rebalance began, a restart shows it by the group's state, and a fencing by a request
    that waited: requests wait for a rebalance.
    """
    if _led_to(former, entry):
        return False
    if former.at_ms != entry.at_ms:
        return former.at_ms > entry.at_ms
    if isinstance(former, Return):
        return former.event.state in REBALANCING
    return isinstance(former.event, events.MemberFenced) and former.event.waited


def _led_to(former: Entry, entry: Rebalance) -> bool:
    """Whether a restart started the rebalance, or a fencing came from that restart.

    Then it stands before the rebalance, although its time is that of the restart's record.
    """
    match former.event:
        case events.MemberReplaced(member_id=member_id):
            return member_id in entry.cause.member_ids
        case events.MemberFenced(current_member_id=member_id, waited=True):
            return member_id in entry.cause.member_ids
    return False
