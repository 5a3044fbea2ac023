"""Writes events to the internal topic `__rebalance_events`, behind the answers to clients.

The runtime hands durable notes to `take`, which queues those that people ask for and returns. Some 200 ms later all
queued events go to the thread of the topics' logs. It makes records of them (story.making) and appends them, with one
write, to the partition that this node leads; one such write is under way at a time. If the disk is slow, the queue
grows up to a limit. Then events are dropped and counted, and the next write that succeeds has a gap with their number.
No answer waits for any of this.

An event's `at_ms` is when it happened; its record's timestamp is when it was written. Events of several groups become
durable out of order, but the timestamps of a partition never fall.

These get no record:

    the start and the causes of a rebalance that ends before they are written: its end repeats them
    further causes of a longer rebalance, beyond LIVE_CAUSES_MAX; its targets and members that must give up partitions,
        beyond LIVE_STEPS_MAX
    a member id that was given out and used at once
    the fencing of a member that was fenced before
    another try of a client to take the seat of an active member within AGAIN_MS
    the load of a group without members, unless a write of it had failed; loads beyond LOADED_MAX; unloads

House rule: a fault here costs events, and is reported.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar

from coordinator.group import notes
from coordinator.group.client import Client
from coordinator.log.segments.disk import reason
from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import TopicLog
from coordinator.log.topics.partition import TopicPartition
from coordinator.loop.clock import Clock, Handle
from coordinator.loop.lines import Lines
from coordinator.server.nodes.topic_data import TopicData
from coordinator.story.schema import CONFLICT, NOTHING, SELF, Gap, TimedNote
from protocol.records.batch import Record, encode_batch
from protocol.speed import new

BATCH_BYTES = 256 * 1024
"""A batch ends with the record that takes it past this size."""

LINGER_MS = 200
"""How long events gather before a write: a rebalance has several, and each write costs a sync."""

WEIGHT_MAX = 100_000
"""Events and the members in them that may wait to be written: some 30 MB at most."""

LIVE_CAUSES_MAX = 10
"""Further causes of one rebalance that are written before its end."""

LIVE_STEPS_MAX = 20
"""Targets, and members that must give up partitions, of one rebalance that are written before its end."""

FENCED_KEPT = 4_096
"""Fenced members that are remembered, so that each gets one event: some clients go on asking for ever. And as many
clients that were refused.
"""

AGAIN_MS = 60_000
"""A client that is refused again and again gets an event so often. From two of them the doctor sees whether the member
whose seat the client wants still runs.
"""

LOADED_MAX = 1_000
"""The most groups whose loads are written, in the life of a process. The topic, and the newest events that HTTP keeps,
must not fill with loads: neither at a start with a hundred thousand groups, nor while a disk fails and partitions load
again and again.
"""

IN_CLUSTER = {"in_cluster": True}
"""A field of `group_loaded`: in a cluster a node loads groups also when no node starts."""

WriteDone = Callable[[int, "Exception | None"], None]
"""Gets the number of events that could not be written, and the reason for the last of them."""

WriteEvents = Callable[[Sequence[TimedNote | Gap], WriteDone], None]


class Events:
    """The queue of events; see the module.

    dropped: events that could not be written since the start. in_cluster: whether this is a node of a cluster.
    """

    def __init__(self, clock: Clock, lines: Lines) -> None:
        self._clock = clock
        self._lines = lines
        self._write: WriteEvents | None = None
        self._is_connected: Callable[[Client], bool] = lambda _: False
        self._queue: deque[TimedNote] = deque()
        self._weight = self._taken_weight = 0
        self._pending: dict[tuple[str, str], TimedNote] = {}
        self._begun: dict[str, list[TimedNote]] = {}
        self._causes: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._fenced: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._refused: OrderedDict[Hashable, int] = OrderedDict()
        self._alarm: Handle | None = None
        self._is_writing = False
        self._gap: Gap | None = None
        self._on_end: Callable[[], None] | None = None
        self._is_dropping = False
        self._loads = 0
        self.dropped = 0
        self.in_cluster = False

    def start(self, write: WriteEvents, is_connected: Callable[[Client], bool]) -> None:
        """Start to write events, with those that wait already.

        write: writes events in their order, then calls back. is_connected: whether a client's connection is open.
        """
        self._write = write
        self._is_connected = is_connected
        self._arm()

    def take(self, noted: Sequence[notes.Noted]) -> None:
        """Queue the events of durable notes."""
        for _, at_ms, happened in noted:
            for note in happened:
                take = self._TAKES.get(type(note))
                if take is not None:
                    take(self, new(TimedNote, (at_ms, note, NOTHING)), note)

    # One method per note. When many members join, each makes three notes, so a note without a record must cost little.

    def _queued(self, event: TimedNote, _note: notes.Note) -> None:
        if self._has_room(event):  # `_append`, without its call: each restart makes such a note
            self._queue.append(event)

    def _group_loaded(self, event: TimedNote, note: notes.GroupLoaded) -> None:
        self._queue_begun(note.group)
        if (note.members or note.write_failed) and self._loads < LOADED_MAX:
            self._loads += 1
            self._append(event._replace(extra=IN_CLUSTER) if self.in_cluster else event)

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
        self._causes[group] = self._steps[group] = 0
        self._queue_begun(group)
        if self._has_room(event):
            self._begun[group] = [event]

    def _rebalance_cause(self, event: TimedNote, note: notes.RebalanceCause) -> None:
        group = note.group
        count = self._causes[group] = self._causes.get(group, 0) + 1
        if count <= LIVE_CAUSES_MAX and self._has_room(event):
            self._begun.setdefault(group, []).append(event)

    def _step(self, event: TimedNote, note: notes.TargetAssigned | notes.MemberRevoking) -> None:
        """A step of an open rebalance of the consumer protocol."""
        group = note.group
        count = self._steps.get(group)
        if count is not None and count < LIVE_STEPS_MAX and self._has_room(event):
            self._steps[group] = count + 1
            self._begun.setdefault(group, []).append(event)

    def _rebalance_ended(self, event: TimedNote, note: notes.RebalanceEnded) -> None:
        group = note.group
        self._causes.pop(group, None)
        self._steps.pop(group, None)
        self._weight -= len(self._begun.pop(group, ()))
        self._append(event, len(note.before) + len(note.after))

    def _member_fenced(self, event: TimedNote, note: notes.MemberFenced) -> None:
        if not self._was_fenced(note):
            self._append(event._replace(extra={"kind": self._kind(note)}))

    def _unreleased(self, event: TimedNote, note: notes.InstanceIdUnreleased) -> None:
        self._refusal(event, (note.group, note.group_instance_id, note.member_id))

    def _client_refused(self, event: TimedNote, note: notes.ClientRefused) -> None:
        # A client that tries again may have another member id, or none.
        client = note.client
        self._refusal(event, (note.group, note.group_instance_id, note.error, client.id, client.host))

    def _refusal(self, event: TimedNote, key: Hashable) -> None:
        """Queue the event unless the client with this key had one less than AGAIN_MS ago."""
        last_ms = self._refused.get(key)
        if last_ms is None or event.at_ms >= last_ms + AGAIN_MS:
            self._refused[key] = event.at_ms
            if len(self._refused) > FENCED_KEPT:
                self._refused.popitem(last=False)
            self._append(event)

    _TAKES: ClassVar[dict[type[notes.Note], Callable[[Events, TimedNote, Any], None]]] = {
        **dict.fromkeys((each for each in notes.TEXTS if each.IS_EVENT), _queued),
        notes.ClientRefused: _client_refused,
        notes.GroupLoaded: _group_loaded,
        notes.InstanceIdUnreleased: _unreleased,
        notes.MemberFenced: _member_fenced,
        notes.MemberJoined: _member_joined,
        notes.MemberPending: _member_pending,
        notes.MemberRevoking: _step,
        notes.PendingExpired: _pending_expired,
        notes.RebalanceCause: _rebalance_cause,
        notes.RebalanceEnded: _rebalance_ended,
        notes.RebalanceStarted: _rebalance_started,
        notes.TargetAssigned: _step,
    }
    """The notes that become events; those with conditions one by one. MemberJoined takes back a MemberPending."""

    def _queue_begun(self, group: str) -> None:
        """Queue the start of a rebalance that won't end: a write of its log failed, or its coordinator broke."""
        if group in self._begun:
            self._queue.extend(self._begun.pop(group))

    def _append(self, event: TimedNote, members: int = 0) -> None:
        """Queue an event that names so many members, if there is room."""
        if self._has_room(event, members):
            self._queue.append(event)

    def _forget_pending(self, group: str, member_id: str) -> bool:
        """Take back the event of a member id that was given out; returns whether the event still waited."""
        if self._pending.pop((group, member_id), None) is None:
            return False
        self._weight -= 1
        return True

    def _was_fenced(self, note: notes.MemberFenced) -> bool:
        """Whether that member was fenced before. Remembers that it was fenced."""
        key = note.group, note.group_instance_id, note.member_id
        if key in self._fenced:
            return True
        self._fenced[key] = None
        if len(self._fenced) > FENCED_KEPT:
            self._fenced.popitem(last=False)
        return False

    def _kind(self, note: notes.MemberFenced) -> str:
        """CONFLICT if two programs use the same instance id, else SELF.

        If the fenced request came through the connection of the current member, it is one program. A request with the
        old member id comes from a program that got this id and doesn't know the new one: another program. A request
        that waited when the seat was taken may be one that its program gave up, or its process has ended; then its
        connection is closed. A request without a member id doesn't show that its program ever had the seat.
        """
        if not note.member_id or note.client is None or note.client is note.current_client:
            return SELF
        return CONFLICT if not note.waited or self._is_connected(note.client) else SELF

    def _has_room(self, event: TimedNote, members: int = 0) -> bool:
        """Whether there is room for an event with so many members. If so, counts it and plans a write."""
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
        """Write all events that wait, unless a write is under way."""
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
        """Write all events that wait, and call back when that is done or has failed."""
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
        if problem is not None:
            self._drop([event for event in lost if isinstance(event, TimedNote)], reason(problem))
        if not failed:
            self._is_dropping = False
        if self._on_end is not None:
            self._end(may_write=not failed)
        elif self._queue or self._pending or self._begun or self._gap is not None:
            self._arm()


_at_ms = itemgetter(0)


def into_topic(data: TopicData, topic: Topic, clock: Clock, node_id: int) -> WriteEvents:
    """A function that writes events to the first partition of `topic` that this node leads."""

    def write(events: Sequence[TimedNote | Gap], written: WriteDone) -> None:
        topic_partition = data.own_topic_partition(topic)

        def append(open_log: Callable[[TopicPartition], TopicLog]) -> tuple[int, Exception | None]:
            from coordinator.story.making import record_of  # noqa: PLC0415 - a start has no time for it

            log = open_log(topic_partition)
            log.claim()
            limits = topic_partition.limits
            now_ms = clock.wall_ms()
            for done, batch in _batches([record_of(event, node_id, now_ms) for event in events]):
                (outcome,) = log.append_batches([batch], limits, now_ms)
                if isinstance(outcome, Exception):
                    return len(events) - done, outcome
            return 0, None

        def over(outcome: Any) -> None:
            written(*((len(events), outcome) if isinstance(outcome, Exception) else outcome))
            data.wake(topic_partition.key)

        data.write(append, over)

    return write


def _batches(records: Sequence[Record]) -> list[tuple[int, bytes]]:
    """Batches of records, each with the number of records before it."""
    batches: list[tuple[int, bytes]] = []
    first = size = 0
    for index, record in enumerate(records):
        size += len(record.value or b"")
        if size > BATCH_BYTES or index == len(records) - 1:
            batches.append((first, encode_batch(records[first : index + 1], 0, 0)))
            first, size = index + 1, 0
    return batches
