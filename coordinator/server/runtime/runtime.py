"""The runtime: owns the partitions, calls their coordinators, and carries out what they want done.

Theory of operation. Each partition of `__consumer_offsets` that belongs to no other node is acquired and loaded at
start, in the background; until then, and whenever it can't be served, its requests are refused
(`coordinator.group.refuse`). An event goes to the coordinator of its group's partition. Of the effects, the timers are
armed at once and the records appended with the next window. Notes and responses wait together at the partition's gate
until the records of their call, and earlier ones of its group, are durable; then the notes are written, and the
responses go. Where no such record is under way, the notes are written at the end of this turn of the loop, those of all
calls with one write, and their responses go behind them; a response without either goes at once.

The engine calls back on a thread of its own. `_hop` takes these calls over to the loop, as many as there are with one
wake-up of the loop; everything else here runs on the loop's thread.

A failed append. The coordinator's memory is ahead of the log then, and later calls may have built on it. So the gate's
notes are dropped, its requests get COORDINATOR_NOT_AVAILABLE, each request that waits in the coordinator gets
NOT_COORDINATOR, and the partition is loaded anew: memory holds only what is durable. While the log is known to fail,
requests that would write are refused before the coordinator sees them, so that heartbeats and reads go on; after a
pause, which grows, one event is let through to try. The same way out is taken if the coordinator itself breaks down (an
assertion).

House rule: no rule of the group protocol is decided here.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects, TimerKey
from coordinator.group.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Event,
    JoinGroup,
    LeaveGroup,
    Load,
    Now,
    RemoveExpired,
    RemoveTopic,
    RequestEvent,
    SyncGroup,
    TimerFired,
    Unload,
)
from coordinator.group.partition import partition_for
from coordinator.group.records import NEWER_KINDS, Replay
from coordinator.group.refuse import refuse
from coordinator.group.tuples import new
from coordinator.log.engine import Damaged, EngineError, Fenced, Unavailable
from coordinator.server.runtime.clock import Alarm, now
from coordinator.server.runtime.gate import Gate
from coordinator.server.telemetry.measures import Loads
from coordinator.server.telemetry.note_lines import Noted
from protocol.errors import ProtocolError
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.group.effects import Response
    from coordinator.group.group import Group
    from coordinator.group.notes import Note
    from coordinator.group.offsets import Habit
    from coordinator.log.engine import Engine, Ownership
    from coordinator.server.runtime.clock import Clock
    from coordinator.server.runtime.pace import Pace
    from coordinator.server.telemetry.lines import Lines
    from coordinator.server.telemetry.note_lines import NoteLines
    from protocol.record_batch import Record

GROUP_ID_CACHED_MAX = 128
"""Longer group ids, in characters, are not remembered: they are rare, and a client can make up any number of them."""

GROUPS_CACHED_MAX = 131_072
"""Group ids whose partition is remembered; hashing one as Java does costs more than all the rest of a heartbeat. When
there are more, all are forgotten."""

BACKOFF_MIN_MS = 500
BACKOFF_MAX_MS = 10_000
"""How long the log is left alone after a failure; doubles up to the second, because each try reads the partition."""

DELIVERED_AT_ONCE = 8
"""Responses that go between two looks at the clock."""

HELD_MAX_MS = 2
"""How long appends are held for others to come with them, on top of the turn of the loop that they were made in."""

LOADED_AT_ONCE = 100
"""Groups, members and offsets that a load hands over in one go: one or two ms, in which nobody else is answered."""

WRITES = (JoinGroup, SyncGroup, LeaveGroup, CommitOffsets, DeleteOffsets, DeleteGroup)
"""Events of which some append records: refused while the log is known to fail."""


class Standing(Enum):
    """Whether a partition can be served."""

    AWAY = "away"
    """Somebody else owns it."""
    LOADING = "loading"
    """Being acquired, or read."""
    ACTIVE = "active"
    """Served."""
    REFUSED = "refused"
    """What is stored is damaged, or can't be read now."""


ACTIVE = Standing.ACTIVE

REFUSALS = {
    Standing.AWAY: ErrorCode.NOT_COORDINATOR,
    Standing.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Standing.REFUSED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a request gets that can't be served."""


WHAT_TO_DO = 'what to do: docs/operations.md, "A partition is refused"'
"""For whoever reads the line of a damaged partition: nothing mends it by itself."""


class Chore(Enum):
    """What the runtime itself has timers for."""

    ACQUIRE = "acquire"
    LOAD = "load"
    REMOVE_EXPIRED = "remove_expired"


class Reply:
    """Where the answer of an event goes: the event's `request`."""

    __slots__ = ()

    def deliver(self, body: Any) -> None:
        """Take the answer, once. What goes wrong must not reach who delivers: there are other answers to give."""
        # Abstract, but no ABC: each delivery asks isinstance, which takes an ABC several times as long.
        raise NotImplementedError


class Again(Reply):
    """A commit like one before, and where its answer goes.

    habit, offsets: what is to be stored.
    """

    __slots__ = ("habit", "offsets")

    habit: Habit
    offsets: Sequence[int]

    def event(self) -> CommitOffsets:
        """The same as an event, whose answer comes to `deliver`."""
        # Abstract, as Reply is, and no ABC for the same reason.
        raise NotImplementedError

    def done(self) -> None:
        """All went well: as `deliver`, faster."""
        # Abstract, likewise.
        raise NotImplementedError


class Held(NamedTuple):
    """What waits at the gate: the notes and the responses of one call, and its time (Unix time in ms)."""

    wall_ms: int
    notes: Sequence[Note]
    responses: Sequence[Response]


class Partition:
    """A partition of the metadata log, as the runtime sees it.

    life: grows whenever the coordinator is thrown away, so that what was meant for a former one is recognised.
    load_began_ms: when its load that is under way began, or the last one. alarm: its timers, thrown away with it.
    failures: of the log, one after the other. retry_ms: when it may be tried again. trouble: what the last log line
    about it said, "" if all is well. unanswered: the requests that its coordinator has got, in their order.
    outbox: batches that the engine gets with the next window. commits: those to be taken then. windows: commits that
    were, with the number of their append, oldest first.
    """

    __slots__ = (
        "alarm",
        "commits",
        "coordinator",
        "failures",
        "gate",
        "index",
        "life",
        "load_began_ms",
        "outbox",
        "ownership",
        "retry_ms",
        "standing",
        "trouble",
        "unanswered",
        "windows",
    )

    alarm: Alarm[TimerKey | Chore]
    coordinator: Coordinator

    def __init__(self, index: int) -> None:
        self.index = index
        self.standing = Standing.LOADING
        self.gate: Gate[Held] = Gate()
        self.ownership: Ownership | None = None
        self.life = 0
        self.load_began_ms = 0
        self.failures = 0
        self.retry_ms = 0
        self.trouble = ""
        self.unanswered: dict[Reply, RequestEvent] = {}
        self.outbox: list[list[Record]] = []
        self.commits: list[Again] = []
        self.windows: deque[tuple[int, list[Again]]] = deque()

    @property
    def name(self) -> str:
        """As Kafka writes it."""
        return f"__consumer_offsets-{self.index}"


class Runtime:
    """See the module.

    soon: lets the loop call back in its next turn. wake: the same from any thread (call_soon_threadsafe). pace: how
    much is done before that. ms: the clock's.
    on_loaded: called once, when no partition loads any more after the start. loads: of partitions, so far.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        lines: Lines,
        notes: NoteLines,
        soon: Callable[[Callable[[], None]], object],
        wake: Callable[[Callable[[], None]], object],
        pace: Pace,
        on_loaded: Callable[[], None],
    ) -> None:
        self._config = config
        self._engine = engine
        self._clock = clock
        self.ms = clock.ms
        self._wall_ms = clock.wall_ms
        self._lines = lines
        self._notes = notes
        self._soon = soon
        self._wake = wake
        self._pace = pace
        self._on_loaded = on_loaded
        self._put_off = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._woken = False
        # The partitions that have something for the next window, how much that was a turn ago, and how long it waits.
        self._expected: dict[Partition, None] = {}
        self._size = 0
        self._until_ms = 0
        # Appends of the window before, whose outcome is still to come.
        self._under_way = 0
        # What happened in this turn of the loop, and who is answered when that is written.
        self._noted: list[Noted] = []
        self._answers: deque[tuple[Partition, Sequence[Response]]] = deque()
        self._turn_ends = False
        self._started_ms = 0
        self._to_load = set(range(config.offsets_topic_num_partitions))
        self._on_idle: Callable[[], None] | None = None
        self._ending = False
        self.loads = Loads()
        self.partitions = [Partition(index) for index in range(config.offsets_topic_num_partitions)]
        for partition in self.partitions:
            self._make_coordinator(partition)
        self._partition_of: dict[str, Partition] = {}

    def partition_of(self, group_id: str) -> Partition:
        """The partition that a group lives on, or would."""
        return self._partition_of.get(group_id) or self._find_partition(group_id)

    def _find_partition(self, group_id: str) -> Partition:
        found = self.partitions[partition_for(group_id, len(self.partitions))]
        if len(group_id) <= GROUP_ID_CACHED_MAX:
            if len(self._partition_of) >= GROUPS_CACHED_MAX:
                self._partition_of.clear()
            self._partition_of[group_id] = found
        return found

    # Requests.

    def heartbeat(
        self, partition: Partition, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> int | None:
        """The error code that answers a heartbeat of a group in `partition`; None if it has to be handled as an event.

        That is so where the partition isn't served, where the answer rests on records that aren't durable yet, and
        where a member is fenced, which is noted.
        """
        if partition.standing is not ACTIVE:
            return None
        error = partition.coordinator.heartbeat(group_id, member_id, instance_id, generation, self.ms())
        if error and (error == ErrorCode.FENCED_INSTANCE_ID or partition.gate.holds(group_id)):
            return None
        return error

    def commit(self, partition: Partition, commit: Again) -> None:
        """Take a commit with the others of this turn of the loop: it is answered as if it were an event."""
        if not partition.commits:
            self._expect(partition)
        partition.commits.append(commit)

    def submit(self, group_id: str, event: RequestEvent) -> None:
        """Hand a request about `group_id` to its coordinator; `event.request` is a Reply, which gets the answer."""
        self._submit(self.partition_of(group_id), group_id, event)

    def submit_to(self, partition: Partition, event: RequestEvent) -> None:
        """Hand in a request about all groups of a partition."""
        self._submit(partition, None, event)

    def _submit(self, partition: Partition, group_id: str | None, event: RequestEvent) -> None:
        error = None if partition.standing is ACTIVE else REFUSALS[partition.standing]
        if error is None and partition.failures and isinstance(event, WRITES) and not self._may_write(partition):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        reply = event.request
        assert isinstance(reply, Reply)
        if error is not None:
            reply.deliver(refuse(event, error))
        else:
            partition.unanswered[reply] = event
            self._handle(partition, group_id, event)

    def _may_write(self, partition: Partition) -> bool:
        """Whether a write may be tried on a log that failed: one at a time, and not right after a failure."""
        return self._clock.ms() >= partition.retry_ms and not partition.gate.busy

    # Events and their effects.

    def _handle(self, partition: Partition, group_id: str | None, event: Event) -> None:
        assert partition.standing is ACTIVE or isinstance(event, Load)
        try:
            wall_ms = self._wall_ms()
            effects = partition.coordinator.handle(event, new(Now, (self.ms(), wall_ms)))
            self._carry_out(partition, group_id, effects, wall_ms)
        except Exception:  # noqa: BLE001 - "It cannot be" is caught here and nowhere below
            self._broke(partition, event)

    def _carry_out(self, partition: Partition, group_id: str | None, effects: Effects, wall_ms: int) -> None:
        """Do what the coordinator wants done. group_id: what the event of `wall_ms` was about, None: several groups."""
        if effects.records:
            partition.gate.appended(*(() if group_id is None else (group_id,)))
            self._append(partition, effects.records)
        for key, at_ms in effects.timers:
            if at_ms is None:
                partition.alarm.cancel(key)
            else:
                partition.alarm.arm(key, at_ms)
        # Last, because whoever gets an answer may have the next request at hand.
        if partition.gate.holds(group_id):
            partition.gate.hold(group_id, (new(Held, (wall_ms, effects.notes, effects.responses)),))
        elif effects.notes:
            # No line comes behind the answer that it is about.
            self._noted.append(new(Noted, (partition.index, wall_ms, effects.notes)))
            self._answers.append((partition, effects.responses))
            self._at_end_of_turn()
        else:
            self._deliver_all(partition, effects.responses)

    def _deliver_all(self, partition: Partition, responses: Sequence[Response], first: int = 0) -> None:
        """Deliver responses from the first on; those that this turn of the loop has no time for in the next ones.

        A rebalance of a thousand members is answered a thousand times.
        """
        for number in range(first, len(responses)):
            self._deliver(partition, *responses[number])
            if number % DELIVERED_AT_ONCE == 0 and number + 1 < len(responses) and not self._pace.has_time():
                self._put_off_answers(partial(self._deliver_all, partition, responses, number + 1))
                return

    def _put_off_answers(self, work: Callable[[], None]) -> None:
        """Let the next turn begin with them: who was heard is answered before others are heard."""
        self._put_off += 1
        self._pace.first(partial(self._go_on, work))

    def _go_on(self, work: Callable[[], None]) -> None:
        self._put_off -= 1
        work()
        self._tell_if_idle()

    def _deliver(self, partition: Partition, reply: Hashable, body: Any) -> None:
        """Answer a request, unless it was answered meanwhile, as all are when their partition is unloaded."""
        assert isinstance(reply, Reply)
        if partition.unanswered.pop(reply, None) is not None:
            reply.deliver(body)

    # The end of a turn.

    def _at_end_of_turn(self) -> None:
        """Have `_end_turn` called when this turn of the loop is over."""
        if not self._turn_ends:
            self._turn_ends = True
            self._soon(self._end_turn)

    def _end_turn(self) -> None:
        """Write what happened in this turn of the loop, all of it with one write, and answer who waited for that."""
        self._turn_ends = False
        self._tell()
        answers, self._answers = self._answers, deque()
        self._deliver_each(answers)
        self._tell_if_idle()

    def _deliver_each(self, answers: deque[tuple[Partition, Sequence[Response]]]) -> None:
        """Deliver the responses of several calls, as `_deliver_all` does; each has few, but a turn has many calls."""
        count = 0
        while answers:
            partition, responses = answers.popleft()
            self._deliver_all(partition, responses)
            count += 1
            if count % DELIVERED_AT_ONCE == 0 and answers and not self._pace.has_time():
                self._put_off_answers(partial(self._deliver_each, answers))
                return

    def _tell(self) -> None:
        """Write what happened up to now."""
        noted, self._noted = self._noted, []
        if noted:
            self._notes.take(noted)

    # Appends.

    def _append(self, partition: Partition, records: list[Record]) -> None:
        """Append with the next window; the gate knows of it."""
        if not partition.outbox:
            self._expect(partition)
        partition.outbox.append(records)

    def _expect(self, partition: Partition) -> None:
        """A partition has something for the next window."""
        if not self._expected and not self._under_way:
            self._expect_window()
        self._expected[partition] = None

    def _hand_over(self) -> None:
        """Give the engine its next window, once nothing is added to it in a turn of the loop.

        A window costs the same for one append as for many, two writes of the disk above all. So there is one under way
        at a time; and when its answers are out, whoever got them may be back with the next request a turn later.
        """
        if self._under_way:
            return
        size = sum(len(each.outbox) + len(each.commits) for each in self._expected)
        if size > self._size and self.ms() < self._until_ms:
            self._size = size
            self._soon(self._hand_over)
            return
        for partition in list(self._expected):
            if partition.commits:
                self._take_commits(partition)
        partitions, self._expected = self._expected, {}
        for partition in partitions:
            self._hand_over_of(partition)
        self._tell_if_idle()

    def _expect_window(self) -> None:
        self._size = 0
        self._until_ms = self.ms() + HELD_MAX_MS
        self._soon(self._hand_over)

    def _take_commits(self, partition: Partition) -> None:
        """Append what commits store that are like those before; what has to be an event becomes one."""
        commits, partition.commits = partition.commits, []
        others = commits
        if partition.standing is ACTIVE and not partition.failures:
            try:
                window = partition.coordinator.commit_again(commits, Now(self.ms(), self._wall_ms()))
            except Exception:  # noqa: BLE001 - as in _handle
                self._broke(partition, commits[0].event())
            else:
                others = window.others
                if window.commits:
                    partition.windows.append((partition.gate.appended(*window.group_ids), window.commits))
                    partition.outbox.append(window.records)
        for commit in others:
            self.submit(commit.habit.group_id, commit.event())

    def _hand_over_of(self, partition: Partition) -> None:
        batches, partition.outbox = partition.outbox, []
        if batches:
            assert partition.ownership is not None
            before = partition.gate.number - len(batches)
            done = partial(self._hop, self._appended, partition, partition.life, before)
            self._under_way += 1
            self._engine.append(partition.ownership, batches, done)

    def _appended(self, partition: Partition, life: int, before: int, durable: int, error: EngineError | None) -> None:
        """Of the appends behind number `before`, so many are durable; and if that isn't all of them, why."""
        self._under_way -= 1
        if self._expected and not self._under_way:
            self._expect_window()
        if partition.life == life:
            if durable:
                if partition.failures:
                    self._recovered(partition)
                number = before + durable
                self._release(partition, partition.gate.durable(number))
                while partition.windows and partition.windows[0][0] <= number:
                    self._tell_done(partition.windows.popleft()[1])
            if isinstance(error, Fenced):
                self._step_down(partition, error)
            elif error is not None:
                self._write_failed(partition, error)
        self._tell_if_idle()

    def _release(self, partition: Partition, held: Sequence[Held]) -> None:
        """Write what is durable now, behind what else happened in this very turn, and answer."""
        self._noted += [new(Noted, (partition.index, wall_ms, notes)) for wall_ms, notes, _ in held if notes]
        self._tell()
        self._deliver_each(deque([(partition, each.responses) for each in held]))

    def _tell_done(self, commits: Sequence[Again], first: int = 0) -> None:
        """Answer commits that are durable, from the first on, as `_deliver_all` does."""
        for start in range(first, len(commits), DELIVERED_AT_ONCE):
            end = start + DELIVERED_AT_ONCE
            for commit in commits[start:end]:
                commit.done()
            if end < len(commits) and not self._pace.has_time():
                self._put_off_answers(partial(self._tell_done, commits, end))
                return

    def _tell_if_idle(self) -> None:
        if self._on_idle is not None and not self.busy:
            self._on_idle()

    # What goes wrong.

    def _write_failed(self, partition: Partition, error: EngineError) -> None:
        text = f"{partition.name} can't be written, its groups go back to what is durable: {error}"
        self._tell_trouble(partition, "log_failed", text, reason=str(error))
        self._pause(partition)
        before = list(partition.coordinator.groups)
        self._unload(partition)
        self._load(partition, write_failed=True, before=before)

    def _pause(self, partition: Partition) -> None:
        """Leave the log alone for a while, the longer the more often it failed."""
        pause_ms = min(BACKOFF_MIN_MS << min(partition.failures, 16), BACKOFF_MAX_MS)
        partition.failures += 1
        partition.retry_ms = self._clock.ms() + pause_ms

    def _tell_trouble(self, partition: Partition, event: str, text: str, **fields: object) -> None:
        """Log it, unless that was the last that was said of this partition."""
        if partition.trouble != event:
            partition.trouble = event
            self._lines.error(event, text, partition=partition.index, **fields)

    def _recovered(self, partition: Partition) -> None:
        partition.failures = 0
        partition.trouble = ""
        self._lines.info("log_recovered", f"{partition.name} can be written again", partition=partition.index)

    def _broke(self, partition: Partition, event: Event) -> None:
        """The coordinator met something that cannot be; called while that is being handled."""
        trace = traceback.format_exc()
        text = f"{partition.name} met a {type(event).__name__} that broke a rule of its own, it starts anew: {trace}"
        self._lines.error("coordinator_broke", text, partition=partition.index)
        if isinstance(event, Load):
            partition.coordinator.close()
            self._start_anew(partition)
            self._refuse_partition(partition, Unreadable("what is stored broke the coordinator"), Chore.LOAD)
            return
        if isinstance(event, RequestEvent):
            self._deliver(partition, event.request, refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR))
        self._unload(partition)
        self._load(partition)

    def _step_down(self, partition: Partition, error: EngineError) -> None:
        self._lines.warn(
            "partition_lost", f"{partition.name} is somebody else's now: {error}", partition=partition.index
        )
        self._unload(partition)
        partition.standing = Standing.AWAY
        partition.ownership = None

    def _unload(self, partition: Partition) -> None:
        """Throw the coordinator away; each request that waits for an answer gets one."""
        coordinator = partition.coordinator
        partition.standing = Standing.LOADING
        windows, partition.windows = partition.windows, deque()
        self._start_anew(partition)
        try:
            time = now(self._clock)
            effects = coordinator.handle(Unload(), time)
        except Exception:  # noqa: BLE001 - as in _handle
            text = f"{partition.name}: those who wait could not be told that it goes: {traceback.format_exc()}"
            self._lines.error("coordinator_broke", text, partition=partition.index)
        else:
            self._noted.append(Noted(partition.index, time.wall_ms, effects.notes))
            self._tell()
            for reply, body in effects.responses:
                self._deliver(partition, reply, body)
        for _, commits in windows:
            for commit in commits:
                commit.deliver(refuse(commit.event(), ErrorCode.COORDINATOR_NOT_AVAILABLE))
        # What the gate held, and what a coordinator that broke had taken out of its groups already.
        for reply, event in list(partition.unanswered.items()):
            self._deliver(partition, reply, refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        coordinator.close()

    def _start_anew(self, partition: Partition) -> None:
        """A coordinator without groups; what was under way for the former one finds nobody."""
        # An append that came behind the load that follows would be in the log and not in memory.
        self._hand_over_of(partition)
        partition.life += 1
        partition.gate = Gate()
        partition.alarm.stop()
        self._make_coordinator(partition)

    def _make_coordinator(self, partition: Partition) -> None:
        partition.coordinator = Coordinator(partition.index, self._config.group)
        partition.alarm = Alarm(self._clock, partial(self._ring, partition))

    # From nothing to a loaded partition.

    def start(self) -> None:
        """Acquire and load every partition that is nobody's. Raises EngineError if the engine can't work at all."""
        self._started_ms = self._clock.ms()
        self._engine.start(partial(self._hop, self._ownership_changed))

    def _ownership_changed(self, index: int, owner: int | None, epoch: int) -> None:
        partition = self.partitions[index]
        own = partition.ownership
        if owner is None:
            if own is None and not self._ending:
                self._acquire(partition)
        elif own is not None:
            if owner != self._config.node_id and epoch > own.epoch:
                self._step_down(partition, Fenced(f"node {owner} owns it in epoch {epoch}"))
        elif owner != self._config.node_id:
            partition.standing = Standing.AWAY
            self._settled(partition)

    def _acquire(self, partition: Partition) -> None:
        self._engine.acquire(partition.index, partial(self._hop, self._acquired, partition))

    def _acquired(self, partition: Partition, outcome: Ownership | EngineError) -> None:
        if self._ending:
            return
        if isinstance(outcome, EngineError):
            self._refuse_partition(partition, outcome, Chore.ACQUIRE)
        else:
            partition.ownership = outcome
            self._load(partition)

    def _load(self, partition: Partition, *, write_failed: bool = False, before: Collection[str] = ()) -> None:
        """Read the partition: its records on the engine's thread, then its groups on this one, some at a time.

        write_failed, before: as of `Load`.
        """
        assert partition.ownership is not None
        assert not partition.outbox
        partition.standing = Standing.LOADING
        partition.load_began_ms = self.ms()
        loading = _Loading(write_failed=write_failed, before=before)
        done = partial(self._hop, self._loaded, partition, partition.life, loading)
        self._engine.load(partition.ownership, loading.page, done)

    def _loaded(self, partition: Partition, life: int, loading: _Loading, error: EngineError | None) -> None:
        if partition.life != life or self._ending:
            return
        if error is not None:
            self._refuse_partition(partition, error, Chore.LOAD)
        else:
            self._take_groups(partition, life, loading)

    def _take_groups(self, partition: Partition, life: int, loading: _Loading) -> None:
        """Hand the next groups to the coordinator; the loop gets its turn before those that follow."""
        if partition.life != life or self._ending:
            return
        try:
            groups = loading.next_groups()
        except ProtocolError as error:
            partition.coordinator.close()
            self._start_anew(partition)
            reason = Unreadable(f"{partition.name} holds a record that can't be read: {error}")
            self._refuse_partition(partition, reason, Chore.LOAD)
            return
        if groups:
            self._handle(partition, None, Load(groups, is_last=False, write_failed=loading.write_failed))
            self._hop(self._take_groups, partition, life, loading)
            return
        if loading.skipped:
            self._tell_skipped(partition, loading.skipped)
        partition.standing = Standing.ACTIVE
        self._handle(partition, None, Load({}, write_failed=loading.write_failed, before=loading.before))
        if partition.standing is Standing.ACTIVE:
            self.loads.add(self.ms(), self.ms() - partition.load_began_ms)
            self._arm(partition, Chore.REMOVE_EXPIRED, self._config.offsets_retention_check_interval_ms)
        self._settled(partition)

    def _tell_skipped(self, partition: Partition, skipped: dict[int, int]) -> None:
        """Records of other kinds of groups are no business of this coordinator, but of whoever looks for them."""
        counts = {NEWER_KINDS.get(version, f"key version {version}"): skipped[version] for version in sorted(skipped)}
        text = f"{partition.name}: skipped {sum(counts.values())} records that aren't of the classic protocol: " + (
            ", ".join(f"{count} {kind}" for kind, count in counts.items())
        )
        self._lines.warn("records_skipped", text, partition=partition.index, records=counts)

    def _refuse_partition(self, partition: Partition, error: EngineError, chore: Chore) -> None:
        """It can't be served. What may work later is tried again; damage is left to a person."""
        partition.standing = Standing.AWAY if isinstance(error, Fenced) else Standing.REFUSED
        text = f"{partition.name} is not served: {error}"
        if isinstance(error, Damaged):
            where = {"file": error.file, "position": error.position, "reason": error.reason}
            self._tell_trouble(partition, "partition_damaged", f"{text} ({WHAT_TO_DO})", **where)
        else:
            self._tell_trouble(partition, "partition_refused", text, reason=str(error))
        if isinstance(error, Unavailable):
            self._pause(partition)
            partition.alarm.arm(chore, partition.retry_ms)
        self._settled(partition)

    def _settled(self, partition: Partition) -> None:
        """A partition is served, or known not to be; when that is so for all of them after the start, say it."""
        if partition.index not in self._to_load:
            return
        self._to_load.remove(partition.index)
        if not self._to_load:
            groups = sum(len(each.coordinator.groups) for each in self.partitions)
            served = sum(1 for _ in self.served())
            own = sum(1 for each in self.partitions if each.standing is not Standing.AWAY)
            took_ms = self._clock.ms() - self._started_ms
            text = (
                f"Finished loading offsets and group metadata from {served} of {own} partitions in "
                f"{took_ms} milliseconds: {groups} groups"
            )
            self._lines.info("partitions_loaded", text, partitions=served, groups=groups, took_ms=took_ms)
            self._on_loaded()

    # Timers.

    def _arm(self, partition: Partition, chore: Chore, within_ms: int) -> None:
        partition.alarm.arm(chore, self._clock.ms() + within_ms)

    def _ring(self, partition: Partition, what: TimerKey | Chore) -> None:
        if isinstance(what, TimerKey):
            if partition.standing is not ACTIVE or (partition.failures and not self._may_write(partition)):
                # Of a group that waits for others to be loaded; or what a timer changes is written like anything else.
                partition.alarm.arm(what, max(partition.retry_ms, self._clock.ms() + BACKOFF_MIN_MS))
            else:
                self._handle(partition, what.group_id, TimerFired(what))
        elif what is Chore.ACQUIRE:
            self._acquire(partition)
        elif what is Chore.LOAD:
            self._load(partition)
        else:
            life = partition.life
            if not partition.failures:
                self._handle(partition, None, RemoveExpired())
            if partition.life == life:
                self._arm(partition, Chore.REMOVE_EXPIRED, self._config.offsets_retention_check_interval_ms)

    # The engine's thread.

    def _hop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Let the loop's thread call `function`; one wake-up serves all that comes until it takes place."""
        self._inbox.append(partial(function, *arguments))
        if not self._woken:
            self._woken = True
            self._wake(self._land)

    def _land(self) -> None:
        # First: whoever appends from here on wakes the loop again, so nothing is left lying.
        self._woken = False
        for _ in range(len(self._inbox)):
            try:
                self._inbox.popleft()()
            except Exception:  # noqa: BLE001 - those behind it are about other partitions
                self._lines.error("runtime_broke", f"An outcome of the log was lost: {traceback.format_exc()}")
            if self._inbox and not self._pace.has_time():
                self._woken = True
                self._pace.later(self._land)
                break

    # The end.

    @property
    def busy(self) -> bool:
        """Whether an append is under way, or an answer was put off."""
        waiting = self._put_off or self._answers or self._expected
        return bool(waiting) or any(partition.gate.busy for partition in self.partitions)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when nothing is under way that an answer waits for."""
        self._on_idle = callback
        if not self.busy:
            callback()

    def remove_topic(self, topic: str) -> None:
        """A topic is no more: no group of the partitions that are served here keeps offsets in it."""
        for partition in list(self.served()):
            if not partition.failures:
                self._handle(partition, None, RemoveTopic(topic))

    def wind_down(self) -> None:
        """Nothing expires from here on, and what the engine is about to take away was not lost."""
        self._ending = True
        for partition in self.partitions:
            partition.alarm.stop()

    def served(self) -> Iterator[Partition]:
        """The partitions that are served now."""
        return (partition for partition in self.partitions if partition.standing is Standing.ACTIVE)


class _Loading:
    """What is being loaded: `page` on the engine's thread, where nothing may be raised; the rest on the loop's.

    write_failed, before: as of `Load`.
    """

    def __init__(self, *, write_failed: bool, before: Collection[str]) -> None:
        self.write_failed = write_failed
        self.before = before
        self._replay = Replay()
        self._error: ProtocolError | None = None
        self._groups: Iterator[Group] | None = None

    @property
    def skipped(self) -> dict[int, int]:
        """See Replay."""
        return self._replay.skipped

    def page(self, records: list[Record]) -> None:
        if self._error is None:
            try:
                self._replay.add(records)
            except ProtocolError as error:
                self._error = error

    def next_groups(self) -> dict[str, Group]:
        """The next groups by id, as many as have LOADED_AT_ONCE parts; none behind the last. Raises ProtocolError."""
        if self._error is not None:
            raise self._error
        if self._groups is None:
            self._groups = self._replay.groups()
        groups: dict[str, Group] = {}
        parts = 0
        while parts < LOADED_AT_ONCE and (group := next(self._groups, None)) is not None:
            groups[group.group_id] = group
            parts += 1 + len(group.members) + sum(map(len, group.offsets.values()))
        return groups


class Unreadable(EngineError):
    """The log is in order, but not what is in it."""
