"""A partition of the metadata log: its coordinator, and all that carries the coordinator's effects out.

An event goes to the coordinator. Its timers are armed at once; its records go into the outbox, for the next window. Its
notes and responses wait together at the gate until the records of their call, and earlier ones of its group, are
durable.

    AWAY      another node owns it, or none
    LOADING   it is being acquired or read; it becomes ACTIVE with its last group
    ACTIVE    it serves requests
    LEAVING   it is handed over to another node
    REFUSED   its log is damaged, or can't be read at present

A failed append. The coordinator's memory is then ahead of the log, and later calls may rest on it. So the gate drops
its notes, and its requests get COORDINATOR_NOT_AVAILABLE. Each request that waits in the coordinator gets
NOT_COORDINATOR. The partition loads again, so memory holds only what is durable. While the log keeps failing, requests
that would write are refused before the coordinator sees them; heartbeats and reads go on. After a pause, which grows
with each failure, one event may try again. The partition does the same if the coordinator itself breaks (an assertion).

A new owner. When another node owns the partition, each request that waits, for others or for the log, gets
NOT_COORDINATOR, as on Kafka's resignation; the client then looks for the new coordinator.

Handing over. The engine may wish that another node gets the partition. Then it takes no more requests. All that is
under way becomes durable and is answered; requests that wait for others get NOT_COORDINATOR. Then it is released, so
the other node loads all that clients know.

A lapse. While this node can't be sure that it owns the partition (`Ownership.valid`), no answer says yes: requests,
and answers on their way, become NOT_COORDINATOR. If it lasts, those that wait get the same (`refuse_waiting`): another
node may have their group, or the store may be silent for long. But a deletion that has begun goes on; the store refuses
it if another node has the partition. No timer fires into a group. If the node was still the owner, all waits for
members start in full, because no member could reach the group meanwhile.

House rule: no rule of the group protocol is decided here.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Protocol

from coordinator.group.client import Now
from coordinator.group.consumer.steady import Steady
from coordinator.group.effects import Effects, Resolution, TimerKey
from coordinator.group.events import (
    ClientEvent,
    EraseOffsets,
    FetchOffsets,
    Load,
    RegexResolved,
    Remainder,
    Resume,
    TargetMade,
    TimerFired,
    Unload,
)
from coordinator.log.engine import Done, Engine, EngineError, Fenced, Ownership, Unavailable
from coordinator.loop.clock import Alarm, Arguments, Clock, now
from coordinator.loop.lines import Lines
from coordinator.server.runtime.gate import Delivery, Gate, Held
from coordinator.server.runtime.kinds import CoordinatorHost, LogKind
from coordinator.server.runtime.loading import Loading, Unreadable
from coordinator.server.runtime.replies import Errand, RepeatedCommit, Reply
from coordinator.server.runtime.trouble import BACKOFF_MIN_MS, Trouble
from protocol.records.batch import Record
from protocol.speed import new
from schemas.errors import ErrorCode


def _without_commits(held: Held) -> Held:
    """Refuse the repeated commits among held answers."""
    for commit in held.commits:
        commit.refuse(ErrorCode.NOT_COORDINATOR)
    return held._replace(commits=())


class Standing(Enum):
    """Whether a partition serves requests; see the module."""

    AWAY = "away"
    LOADING = "loading"
    ACTIVE = "active"
    LEAVING = "leaving"
    REFUSED = "refused"


ACTIVE = Standing.ACTIVE

REFUSALS = {
    Standing.AWAY: ErrorCode.NOT_COORDINATOR,
    Standing.LEAVING: ErrorCode.NOT_COORDINATOR,
    Standing.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Standing.REFUSED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error of requests while a partition doesn't serve."""


class Chore(Enum):
    """A partition's own timers, beside those of its coordinator."""

    ACQUIRE = "acquire"
    LOAD = "load"
    REMOVE_EXPIRED = "remove_expired"


class PartitionHost(CoordinatorHost, Protocol):
    """The methods of the runtime that a partition calls. is_ending: the server stops; nothing new begins."""

    engine: Engine
    kind: LogKind
    lines: Lines
    clock: Clock
    delivery: Delivery
    is_ending: bool
    search: Callable[[Resolution, Callable[[RegexResolved], None]], None]
    lease: Callable[[], bool] | None
    verify: Callable[[Ownership, Done], None] | None
    has_room: Callable[[], bool] | None

    def expect(self, partition: Partition) -> None:
        """The partition has something for the next window."""

    def append(self, partition: Partition, batches: list[list[Record]]) -> None:
        """Hand batches to the engine now. `Partition.appended` gets the outcome."""

    def leaves(self, partition: Partition) -> None:
        """Call `Partition.release` when no append is under way for it, and no answer is deferred."""

    def hop(self, function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Have the loop's thread call `function`. Any thread may call this."""

    def work(self, steps: Iterator[None]) -> None:
        """Do `steps` while this turn has time, and the rest in further turns."""

    def settled(self, partition: Partition) -> None:
        """The partition serves requests, or it has found out that it can't."""

    def loaded(self, took_ms: int) -> None:
        """The partition has loaded all its groups. took_ms: since the wish to acquire it."""


class Partition:
    """See the module.

    index: its number. name: as Kafka writes it.
    ownership: None while the partition belongs to another node, or to none.
    life: grows with each new coordinator, so that outcomes for a former one are recognised.
    outbox, commits: batches for the next window, and repeated commits that become a batch then.
    trouble: with its log. alarm: its timers; a new coordinator starts without any.
    """

    alarm: Alarm[TimerKey | Chore]
    coordinator: Any

    def __init__(self, index: int, host: PartitionHost) -> None:
        self.index = index
        self.name = f"{host.kind.log}-{index}"
        self.standing = Standing.LOADING
        self.gate: Gate[Held] = Gate()
        self.ownership: Ownership | None = None
        self.life = 0
        self.trouble = Trouble(index, self.name, host.clock, host.lines)
        self._host = host
        self._ms = host.clock.ms
        self._wall_ms = host.clock.wall_ms
        self._load_began_ms = 0
        self._loading: Loading | None = None
        self._is_acquiring = False
        # The ended lapses of the ownership, as of when the waits for members began.
        self._lapses = 0
        # Requests that the coordinator has and that have no answer yet, in order.
        self._unanswered: dict[Reply, ClientEvent] = {}
        self.outbox: list[list[Record]] = []
        self.commits: list[RepeatedCommit] = []
        self._make_coordinator()

    def _make_coordinator(self) -> None:
        self.coordinator = self._host.kind.coordinator(self.index, self._host)
        self.alarm = Alarm(self._host.clock, self._ring)

    # Requests.

    @property
    def is_sure(self) -> bool:
        """Whether this node is sure that it owns the partition."""
        # Without a lease there is no doubt, and this is asked often.
        return self._host.lease is None or (self.ownership is not None and self.ownership.valid())

    def has_stayed(self, own: Ownership | None) -> bool:
        """Whether this node is sure that it has owned the partition all the time since `ownership` was `own`."""
        return self.ownership is own and self.is_sure

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int | None:
        """The error code of a heartbeat; None if it needs an event.

        It needs one if the partition doesn't serve or isn't sure, if the answer rests on records that aren't durable
        yet, if the member is fenced, because that makes a note, or if the coordinator says so.
        """
        if self.standing is not ACTIVE or (self._host.lease is not None and not self.is_sure):
            return None
        error: int | None = self.coordinator.heartbeat(group_id, member_id, instance_id, generation, self._ms())
        if error and (error == ErrorCode.FENCED_INSTANCE_ID or self.gate.behind(group_id)):
            return None
        return error

    def steady(self, group_id: str, member_id: str) -> Steady | None:
        """See `Coordinator.steady`."""
        found: Steady | None = self.coordinator.steady(group_id, member_id, Now(self._ms(), self._wall_ms()))
        return found

    def commit(self, commit: RepeatedCommit) -> None:
        """Take a repeated commit with the next window. Its answer is that of an event."""
        if not self.commits:
            self._host.expect(self)
        self.commits.append(commit)

    def submit(self, group_id: str | None, event: ClientEvent) -> None:
        """Hand a request to the coordinator. `event.request` is a Reply. group_id: None for all groups."""
        if self.commits and event.flags.follows_commits:
            self.take_commits()  # they came earlier
        error = None if self.standing is ACTIVE else REFUSALS[self.standing]
        if error is None and self.trouble.failures and event.flags.writes and not self._may_write:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._host.lease is not None:
            error = self._refusal_in_a_cluster(group_id, event) or error
        reply = event.request
        assert isinstance(reply, Reply)
        if error is not None:
            reply.deliver(event.refused(error))
        else:
            self._unanswered[reply] = event
            verify = self._host.verify
            if verify is not None and isinstance(event, FetchOffsets):
                assert self.ownership is not None
                verify(self.ownership, lambda error: self._host.hop(self._verified, group_id, event, error))
            else:
                self.handle(group_id, event)

    def _verified(self, group_id: str | None, event: FetchOffsets, error: EngineError | None) -> None:
        """The store has said whether this node still owns the partition: read the offsets."""
        if event.request not in self._unanswered:
            return  # an unload has answered it
        if error is None and self.standing is ACTIVE:
            self.handle(group_id, event)
        else:
            unsaid = isinstance(error, Unavailable)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if unsaid else ErrorCode.NOT_COORDINATOR
            self.answer(event.request, event.refused(code))

    def _refusal_in_a_cluster(self, group_id: str | None, event: ClientEvent) -> ErrorCode | None:
        """The error while this node isn't sure of the partition, or if the store is too full for a new group."""
        if isinstance(event, EraseOffsets):
            return None  # the group is deleted: memory has these offsets no more, so they must leave the log too
        if (self.ownership is not None or self.standing is Standing.LOADING) and not self.is_sure:
            # Also at the start, until the engine has named the owner: while a partition loads, a heartbeat gets a yes.
            return ErrorCode.NOT_COORDINATOR
        has_room = self._host.has_room
        is_new = self.standing is ACTIVE and group_id not in self.coordinator.groups
        if has_room is not None and is_new and event.flags.makes_group and not has_room():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    @property
    def _may_write(self) -> bool:
        """Whether an event may write to a log that failed: one at a time, and after a pause."""
        return self._ms() >= self.trouble.retry_ms and not self.gate.busy

    def answer(self, reply: object, body: Any) -> None:
        """Answer a request, unless it has its answer already: an unload answers all of them."""
        assert isinstance(reply, Reply)
        event = self._unanswered.pop(reply, None)
        if event is not None:
            # A Remainder is no answer for a client: the handler goes on with it.
            is_true = self._host.lease is None or self.is_sure or isinstance(body, Remainder)
            reply.deliver(body if is_true else event.refused(ErrorCode.NOT_COORDINATOR))
        elif isinstance(reply, Errand):
            reply.deliver(body)

    def refuse_waiting(self) -> None:
        """This node hasn't been sure of the partition for a while: answer all requests that wait, for whatever.

        Their events go on: appends under way may become durable, and then their notes go out. The deletion of a large
        group answers later, because its handler has to go on too.
        """
        self.take_commits()
        self.gate.change(_without_commits)
        goes_on = {reply for held in self.gate.held() for reply, body in held.responses if isinstance(body, Remainder)}
        for reply, event in list(self._unanswered.items()):
            if reply not in goes_on and not isinstance(event, EraseOffsets):
                self.answer(reply, event.refused(ErrorCode.NOT_COORDINATOR))

    # Events and their effects.

    def handle(self, group_id: str | None, event: Any) -> None:
        """Hand an event to the coordinator and carry its effects out. group_id: None for one of several groups."""
        assert self.standing is ACTIVE or isinstance(event, Load)
        try:
            wall_ms = self._wall_ms()
            effects = self.coordinator.handle(event, new(Now, (self._ms(), wall_ms)))
            self._carry_out(group_id, effects, wall_ms)
        except Exception:  # noqa: BLE001 - "It cannot be" is caught here and nowhere below
            self._broke(event)

    def _carry_out(self, group_id: str | None, effects: Effects, wall_ms: int) -> None:
        if effects.records:
            behind = self.gate.appended(*(() if group_id is None else (group_id,)))
            if not self.outbox:
                self._host.expect(self)
            self.outbox.append(effects.records)
        else:
            behind = self.gate.behind(group_id)
        for key, at_ms in effects.timers:
            if at_ms is None:
                self.alarm.cancel(key)
            else:
                self.alarm.arm(key, at_ms)
        for resolution in effects.resolutions:
            self._host.search(resolution, partial(self._resolved, self.life))
        # Late, because the next request of a client that gets its answer may be here already.
        responses = effects.responses
        if behind:
            self.gate.hold(behind, new(Held, (self, wall_ms, effects.notes, responses, ())))
        elif effects.notes:
            self._host.delivery.at_end_of_turn(new(Held, (self, wall_ms, effects.notes, responses, ())))
        elif len(responses) == 1:
            self.answer(*responses[0])
        elif responses:
            self._host.delivery.answer((Held(self, wall_ms, (), responses),))
        for assigning in effects.assigning:
            self._host.work(self._make_target(assigning))

    def _make_target(self, group_id: str) -> Iterator[None]:
        """Make the target of a group, and hand it to the coordinator. Yields where the caller may pause."""
        coordinator = self.coordinator
        yield  # the heartbeat has done its part of this turn
        try:
            for event in coordinator.target_of(group_id):
                if self.coordinator is not coordinator or self.standing is not ACTIVE:
                    return
                if event is not None:
                    self.handle(group_id, event)
                yield
        except Exception:  # noqa: BLE001 - as in handle
            if self.coordinator is coordinator:
                self._broke(TargetMade(group_id, 0, {}, {}))

    def _resolved(self, life: int, found: RegexResolved) -> None:
        """The topics that regular expressions match are known."""
        if self.life == life and self.standing is ACTIVE:
            self.handle(found.group_id, found)

    def remove_offsets(self, topics: Collection[str] | None) -> Iterator[None]:
        """Remove the offsets in deleted topics, some at a time. Yields where the caller may pause.

        topics: None to remove the expired offsets of all topics.
        """
        coordinator = self.coordinator
        for event in coordinator.offsets_in(topics):
            if self.coordinator is not coordinator or self.standing is not ACTIVE or self.trouble.failures:
                return
            if event is not None:
                self.handle(next(iter(event.group_ids)) if len(event.group_ids) == 1 else None, event)
            yield

    def _ring(self, what: TimerKey | Chore) -> None:
        """A timer fires."""
        if isinstance(what, TimerKey):
            if self.standing is not ACTIVE or not self.is_sure or (self.trouble.failures and not self._may_write):
                # The partition is loading or not sure, or its log fails and the expiry would have to be written.
                self.alarm.arm(what, max(self.trouble.retry_ms, self._ms() + BACKOFF_MIN_MS))
            else:
                self._resume()
                if what not in self.alarm:
                    self.handle(what.group_id, TimerFired(what))
        elif what is Chore.ACQUIRE:
            self.acquire()
        elif what is Chore.LOAD:
            self._load()
        else:
            self._host.work(self._remove_expired())

    def _resume(self) -> None:
        """If a lapse has ended, let all waits for members start in full."""
        assert self.ownership is not None
        if self.ownership.lapses != self._lapses:
            self._lapses = self.ownership.lapses
            self.handle(None, Resume())

    def _remove_expired(self) -> Iterator[None]:
        life = self.life
        if not self.trouble.failures and self.is_sure:
            yield from self.remove_offsets(None)
        if self.life == life:
            self._look_for_expired_later()

    def _look_for_expired_later(self) -> None:
        self.alarm.arm(Chore.REMOVE_EXPIRED, self._ms() + self._host.config.offsets_retention_check_interval_ms)

    # Appends.

    def take_commits(self) -> None:
        """Make one batch of the waiting commits. Commits that need more than that become events."""
        commits, self.commits = self.commits, []
        others = commits
        is_sure = self._host.lease is None or self.is_sure
        if commits and self.standing is ACTIVE and is_sure and not self.trouble.failures:
            try:
                window = self.coordinator.commit_repeated(commits, new(Now, (self._ms(), self._wall_ms())))
            except Exception:  # noqa: BLE001 - as in handle
                self._broke(commits[0].event())
            else:
                others = window.others
                if window.commits:
                    number = self.gate.appended(*window.group_ids)
                    self.gate.hold(number, new(Held, (self, 0, (), (), window.commits)))
                    self.outbox.append(window.records)
        for commit in others:
            self.submit(commit.template.group_id, commit.event())

    def hand_over(self) -> None:
        """Hand the outbox to the engine."""
        batches, self.outbox = self.outbox, []
        if batches:
            self._host.append(self, batches)

    def appended(self, life: int, before: int, durable: int, error: EngineError | None) -> None:
        """The outcome of appends: `durable` of those behind number `before` are durable. error: why not all."""
        if self.life != life:
            return
        if durable:
            if self.trouble.failures:
                self.trouble.written()
            self._host.delivery.release(self.gate.durable(before + durable))
        if isinstance(error, Fenced):
            self.step_down(error)
        elif error is not None:
            self._write_failed(error)

    # What goes wrong.

    def _write_failed(self, error: EngineError) -> None:
        if self.standing is Standing.LEAVING:
            self.unload()
            self.release()
            return
        text = f"{self.name} can't be written, its groups go back to what is durable: {error}"
        self.trouble.say("log_failed", text, reason=str(error))
        self.trouble.write_failed(error)
        self.trouble.pause()
        before = list(self.coordinator.groups)
        self.unload()
        self._load(write_failed=True, before=before)

    def _broke(self, event: Any) -> None:
        """The coordinator broke an assertion while it handled `event`."""
        trace = traceback.format_exc()
        by = ""
        if isinstance(event, ClientEvent):
            client = event.client
            by = f" of {client.id} at {client.host} ({client.principal}, through {client.listener})"
        text = f"{self.name} met a {type(event).__name__}{by} that broke a rule of its own, it starts anew: {trace}"
        self._host.lines.error("coordinator_broke", text, partition=self.index)
        if isinstance(event, Load):
            self._can_not_load(Unreadable("what is stored broke the coordinator"))
            return
        if isinstance(event, ClientEvent):
            self.answer(event.request, event.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        self.unload()
        self._load()

    def step_down(self, error: EngineError) -> None:
        """Another node owns the partition now."""
        text = f"{self.name} is somebody else's now: {error}"
        self._host.lines.warn("partition_lost", text, partition=self.index)
        self.unload(ErrorCode.NOT_COORDINATOR)
        self._lose()

    def unload(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Drop the coordinator. Each waiting request gets an answer; those that wait for the log get `error`."""
        coordinator, gate = self.coordinator, self.gate
        self.standing = Standing.LOADING
        self._start_anew()
        time = now(self._host.clock)
        try:
            effects = coordinator.handle(Unload(), time)
        except Exception:  # noqa: BLE001 - as in handle
            text = f"{self.name}: requests that wait could not be answered when it went: {traceback.format_exc()}"
            self._host.lines.error("coordinator_broke", text, partition=self.index)
        else:
            self._host.delivery.write((Held(self, time.wall_ms, effects.notes, ()),))
            for reply, body in effects.responses:
                self.answer(reply, body)
        for held in gate.held():
            for commit in held.commits:
                commit.refuse(error)
        # Requests that the gate held, and requests that a broken coordinator had already taken out of its groups.
        for reply, event in list(self._unanswered.items()):
            self.answer(reply, event.refused(error))
        coordinator.close()

    def _start_anew(self) -> None:
        """Start a coordinator without groups. Outcomes for the former one are ignored."""
        # An append behind the load that follows would be in the log and not in memory.
        self.hand_over()
        self.life += 1
        self._loading = None
        self.gate = Gate()
        self.alarm.stop()
        self._make_coordinator()

    # To another node.

    def hand_off(self) -> None:
        """Another node is to own the partition: release it when what is under way is answered."""
        if self.standing is ACTIVE:
            self.take_commits()
        if self.standing is ACTIVE:
            self.standing = Standing.LEAVING
            self.alarm.stop()
            self.hand_over()
            self._host.leaves(self)
        elif self.standing is not Standing.LEAVING:
            self.release()

    def release(self) -> None:
        """Give the partition up: nothing is under way any more."""
        own = self.ownership
        assert own is not None
        self.unload(ErrorCode.NOT_COORDINATOR)
        self._lose()
        self._host.lines.info("partition_handed_over", f"{self.name} goes to another node", partition=self.index)
        self._host.engine.release(own, lambda _: None)

    def stay_away(self) -> None:
        """Another node owns the partition, or none: it isn't this node's."""
        self.alarm.cancel(Chore.ACQUIRE)
        self.standing = Standing.AWAY
        self._host.settled(self)

    def _lose(self) -> None:
        self.standing = Standing.AWAY
        self.ownership = None
        self._host.settled(self)

    # From nothing to a loaded partition.

    def acquire(self) -> None:
        """Become the owner, then load."""
        if self._is_acquiring:
            return
        self._is_acquiring = True
        # The engine may ask for a claim before a failed one is due again; a second claim would fence the first.
        self.alarm.cancel(Chore.ACQUIRE)
        self._host.engine.acquire(self.index, lambda outcome: self._host.hop(self._acquired, outcome))

    def _acquired(self, outcome: Ownership | EngineError) -> None:
        self._is_acquiring = False
        if self._host.is_ending:
            return
        if isinstance(outcome, Fenced):
            self.stay_away()  # another node was faster
        elif isinstance(outcome, EngineError):
            self._refuse(outcome, Chore.ACQUIRE)
        else:
            self.ownership = outcome
            if self._host.lease is not None:
                self.trouble.claimed()
            self._load()

    def _load(self, *, write_failed: bool = False, before: Collection[str] = ()) -> None:
        """Read the partition. write_failed, before: as in the event `Load`."""
        assert self.ownership is not None
        assert not self.outbox
        self.standing = Standing.LOADING
        self._load_began_ms = self._ms()
        loading = self._loading = Loading(self._host.kind.reader(), write_failed=write_failed, before=before)
        self._host.engine.load(self.ownership, loading.page, lambda error: self._host.hop(self._go_on, loading, error))

    def _go_on(self, loading: Loading, error: EngineError | None = None) -> None:
        """Take the next groups of a load, then let the loop have its turn. error: of the engine."""
        if self._loading is not loading or self._host.is_ending:
            return
        load = None
        if error is None:
            try:
                load = loading.next()
            except Unreadable as unreadable:
                error = unreadable
        if error is not None:
            self._can_not_load(error)
        elif load is not None and load.is_last:
            self._say_skipped(loading.skipped)
            self._end_load(load)
        else:
            if load is not None:
                self.handle(None, load)
            self._host.hop(self._go_on, loading)

    def _say_skipped(self, skipped: Mapping[str, int]) -> None:
        """Log which records were skipped: this coordinator doesn't know their kind, but a person may look for them."""
        if skipped:
            counts = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
            text = f"skipped {sum(skipped.values())} records of groups that this coordinator doesn't serve: {counts}"
            self._host.lines.warn("records_skipped", f"{self.name}: {text}", partition=self.index, records=skipped)

    def _end_load(self, load: Load) -> None:
        """Hand the end of a load to the coordinator, and serve requests."""
        self._loading = None
        self.standing = ACTIVE
        assert self.ownership is not None
        self._lapses = self.ownership.lapses
        self.handle(None, load)
        if self.standing is ACTIVE:
            self.trouble.loaded()
            self._host.loaded(self._ms() - self._load_began_ms)
            self._look_for_expired_later()
        self._host.settled(self)

    def _can_not_load(self, error: EngineError) -> None:
        """The log, or a record in it, can't be read, or the coordinator breaks over it."""
        self.coordinator.close()
        self._start_anew()
        self._refuse(error, Chore.LOAD)

    def _refuse(self, error: EngineError, chore: Chore) -> None:
        """Refuse requests. The partition tries again later, unless its log is damaged: that needs a person."""
        if isinstance(error, Fenced):
            self._lose()
        else:
            self.standing = Standing.REFUSED
        self.trouble.refused(error)
        if isinstance(error, Unavailable):
            self.alarm.arm(chore, self.trouble.retry_ms)
        self._host.settled(self)
