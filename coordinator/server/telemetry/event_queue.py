"""What happened to groups, written to the internal topic `__rebalance_events`, behind the answers and never before one.

The runtime hands notes to `take` once they are durable; `take` puts those that people ask for into a queue and returns.
A moment later all that has gathered goes to the thread of the topics' logs, which makes records of it (timeline.schema)
and appends them with one write. One such writing is under way at a time. If the disk is slow the queue grows up to a
limit; then events are dropped and counted, and a gap with their number is written as soon as anything can be written.
Nobody waits.

An event's `at_ms` is when it happened; its record's timestamp is when it was written. Events of several groups become
durable out of order, but timestamps never fall within a partition.

Not worth a record: the beginning and the causes of a rebalance that is over before they are written, because its end
repeats them; of a longer one, further causes beyond a few; a member id that was given out and used at once; the same
fenced member a second time; the load of a group without members, unless a write had failed; more loads than LOADED_MAX;
unloads.

House rule: whatever goes wrong here costs events, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from coordinator.group import notes
from coordinator.timeline.schema import CONFLICT, NOTHING, SELF, Gap, TimedNote
from protocol.tuples import new

if TYPE_CHECKING:
    from coordinator.group.client import Client
    from coordinator.server.clock import Clock, Handle
    from coordinator.server.telemetry.lines import Lines
    from coordinator.server.telemetry.note_lines import Noted

LINGER_MS = 200
"""How long events gather: a rebalance has several, and each write costs a sync."""

WEIGHT_MAX = 100_000
"""Events and the members in them that may wait to be written: some 30 MB at most."""

LIVE_CAUSES_MAX = 10
"""Further causes of one rebalance that are told before it is over."""

FENCED_KEPT = 4_096
"""Fenced members that are remembered, to tell each once: a client that understands no fencing asks for ever."""

LOADED_MAX = 1_000
"""Groups whose loads are told, in the life of a process: a start with a hundred thousand is not to fill the topic, nor
what HTTP remembers of it, nor is a disk that fails and has partitions loaded again and again."""


Written = Callable[[int, "Exception | None"], None]
"""Told how many events could not be written, and why the last of them couldn't."""

Write = Callable[[Sequence[TimedNote | Gap], Written], None]


class Events:
    """The queue of events; see the module.

    dropped: events that could not be written, since the start.
    """

    def __init__(self, clock: Clock, lines: Lines) -> None:
        self._clock = clock
        self._lines = lines
        self._write: Write | None = None
        self._is_connected: Callable[[Client], bool] = lambda _: False
        self._queue: deque[TimedNote] = deque()
        self._weight = self._taken_weight = 0
        self._pending: dict[tuple[str, str], TimedNote] = {}
        self._begun: dict[str, list[TimedNote]] = {}
        self._causes: dict[str, int] = {}
        self._fenced: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._alarm: Handle | None = None
        self._is_writing = False
        self._gap: Gap | None = None
        self._on_end: Callable[[], None] | None = None
        self._is_dropping = False
        self._loads = 0
        self.dropped = 0

    def start(self, write: Write, is_connected: Callable[[Client], bool]) -> None:
        """Have events written from here on, also those that wait already.

        write: writes them, in order, and calls back. is_connected: whether a client's connection is open.
        """
        self._write = write
        self._is_connected = is_connected
        self._arm()

    def take(self, noted: Sequence[Noted]) -> None:
        """Take notes that are durable."""
        for _, at_ms, happened in noted:
            for note in happened:
                take = self._TAKES.get(type(note))
                if take is not None:
                    take(self, new(TimedNote, (at_ms, note, NOTHING)), note)

    # One method per note. Of a crowd that joins, each member has three: so what is dropped later costs little now.

    def _queued(self, event: TimedNote, _note: notes.Note) -> None:
        self._append(event)

    def _group_loaded(self, event: TimedNote, note: notes.GroupLoaded) -> None:
        self._queue_begun(note.group)
        if (note.members or note.write_failed) and self._loads < LOADED_MAX:
            self._loads += 1
            self._append(event)

    def _member_pending(self, event: TimedNote, note: notes.MemberPending) -> None:
        if self._has_room(event):
            self._pending[note.group, note.member_id] = event

    def _member_joined(self, _event: TimedNote, note: notes.MemberJoined) -> None:
        if self._pending:
            self._forget_pending(note.group, note.member_id)

    def _pending_expired(self, event: TimedNote, note: notes.PendingExpired) -> None:
        if not self._forget_pending(note.group, note.member_id):
            self._append(event)

    def _rebalance_started(self, event: TimedNote, note: notes.RebalanceStarted) -> None:
        group = note.group
        self._causes[group] = 0
        self._queue_begun(group)
        if self._has_room(event):
            self._begun[group] = [event]

    def _rebalance_cause(self, event: TimedNote, note: notes.RebalanceCause) -> None:
        group = note.group
        count = self._causes[group] = self._causes.get(group, 0) + 1
        if count <= LIVE_CAUSES_MAX and self._has_room(event):
            self._begun.setdefault(group, []).append(event)

    def _rebalance_ended(self, event: TimedNote, note: notes.RebalanceEnded) -> None:
        group = note.group
        self._causes.pop(group, None)
        self._weight -= len(self._begun.pop(group, ()))
        self._append(event, len(note.before) + len(note.after))

    def _member_fenced(self, event: TimedNote, note: notes.MemberFenced) -> None:
        if not self._is_known(note):
            self._append(event._replace(extra={"kind": self._kind(note)}))

    _TAKES: ClassVar[dict[type[notes.Note], Callable[[Events, TimedNote, Any], None]]] = {
        notes.GroupDeleted: _queued,
        notes.GroupLoaded: _group_loaded,
        notes.LeaderElected: _queued,
        notes.MemberFenced: _member_fenced,
        notes.MemberJoined: _member_joined,
        notes.MemberPending: _member_pending,
        notes.MemberReplaced: _queued,
        notes.PendingExpired: _pending_expired,
        notes.RebalanceCause: _rebalance_cause,
        notes.RebalanceEnded: _rebalance_ended,
        notes.RebalanceStarted: _rebalance_started,
        notes.RebalanceStuck: _queued,
    }
    """The notes that become events, and the one that makes another none."""

    def _queue_begun(self, group: str) -> None:
        """Keep what is known of a rebalance that has no end: a write of its log failed, or its coordinator broke."""
        if group in self._begun:
            self._queue.extend(self._begun.pop(group))

    def _append(self, event: TimedNote, members: int = 0) -> None:
        """Put an event that names so many members into the queue, if it has room."""
        if self._has_room(event, members):
            self._queue.append(event)

    def _forget_pending(self, group: str, member_id: str) -> bool:
        """Whether a member id's being given out was still to be told; then it isn't any more."""
        if self._pending.pop((group, member_id), None) is None:
            return False
        self._weight -= 1
        return True

    def _is_known(self, note: notes.MemberFenced) -> bool:
        """Whether that member's fencing was told before."""
        key = note.group, note.group_instance_id, note.member_id
        if key in self._fenced:
            return True
        self._fenced[key] = None
        if len(self._fenced) > FENCED_KEPT:
            self._fenced.popitem(last=False)
        return False

    def _kind(self, note: notes.MemberFenced) -> str:
        """Whether two programs have the same instance id.

        Not if one connection has both ids. A request that names the old id comes from somebody who was told it, and who
        doesn't know of the new one: another program. A request that waited when the seat was taken may be one that its
        own client gave up, or that of a process which is gone; then its connection is no more.
        """
        if note.client is None or note.client is note.current_client:
            return SELF
        return CONFLICT if not note.waited or self._is_connected(note.client) else SELF

    def _has_room(self, event: TimedNote, members: int = 0) -> bool:
        """Whether an event with so many members may wait to be written; it is counted, and will be written soon."""
        weight = self._weight + 1 + members
        if weight > WEIGHT_MAX:
            self._drop([event], "too many events wait to be written")
            return False
        self._weight = weight
        if self._alarm is None:
            self._arm()
        return True

    def _drop(self, events: Sequence[TimedNote], reason: str) -> None:
        if events and not self._is_dropping:
            self._is_dropping = True
            text = f"What happens to groups is not kept in __rebalance_events for now: {reason}"
            self._lines.warn("events_dropped", text, reason=reason)
        self.dropped += len(events)
        for event in events:
            gap = self._gap or Gap(0, event.at_ms, event.at_ms)
            self._gap = Gap(gap.events + 1, min(gap.first_ms, event.at_ms), max(gap.last_ms, event.at_ms))

    # Writing.

    def _arm(self) -> None:
        if self._alarm is None and not self._is_writing and self._write is not None:
            self._alarm = self._clock.call_at(self._clock.ms() + LINGER_MS, self.flush)

    def flush(self) -> None:
        """Have written what has gathered."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._write is None or self._is_writing:
            return
        waiting = chain(self._queue, self._pending.values(), *self._begun.values())
        events = sorted(waiting, key=_at_ms)
        self._pending.clear()
        self._begun.clear()
        self._queue.clear()
        self._taken_weight = self._weight
        gap, self._gap = self._gap, None
        taken: list[TimedNote | Gap] = [*events] if gap is None else [*events, gap]
        if taken:
            self._is_writing = True
            self._write(taken, lambda failed, problem: self._written(taken, failed, problem))

    def stop(self, done: Callable[[], None]) -> None:
        """Write what has gathered, and call back when it is written, or can't be."""
        self._on_end = done
        if not self._is_writing:
            self._end(may_write=True)

    def _end(self, *, may_write: bool) -> None:
        assert self._on_end is not None
        if may_write:
            self.flush()
        if not self._is_writing:
            self._on_end()

    def _written(self, taken: Sequence[TimedNote | Gap], failed: int, problem: Exception | None) -> None:
        self._is_writing = False
        self._weight -= self._taken_weight
        lost = taken[len(taken) - failed :]
        for former in lost:
            if isinstance(former, Gap):
                mine = self._gap or Gap(0, former.first_ms, former.last_ms)
                self._gap = Gap(mine.events + former.events, min(mine.first_ms, former.first_ms), mine.last_ms)
        self._drop([event for event in lost if isinstance(event, TimedNote)], str(problem))
        if not failed:
            self._is_dropping = False
        if self._on_end is not None:
            self._end(may_write=not failed)
        elif self._queue or self._pending or self._begun or self._gap is not None:
            self._arm()


_at_ms = itemgetter(0)
