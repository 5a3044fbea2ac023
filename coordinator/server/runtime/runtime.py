"""The runtime of a log: owns the partitions, routes events to them, and hands windows of appends to the engine.

Theory of operation. At the start the runtime acquires and loads each partition of its log that no other node owns, in
the background. An event goes to the partition of its group (`partition`), which carries out the
coordinator's effects. All that goes out to clients and people goes through one `Delivery`.

A window costs the same for one append as for many, above all two writes to the disk. So one window is under way at a
time, for all partitions. Clients that get their answers from a window may send the next request a turn later; so the
next window starts when a turn of the loop has added nothing to it, or at once if it has one thing, as the last one had.

The engine calls back on a thread of its own. `hop` takes these calls to the loop, with one wake-up for all that came.
Everything else here runs on the loop's thread.

House rule: no rule of the group protocol is decided here, and no state of a partition is kept here.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from coordinator.config import Config, GroupSettings
from coordinator.group.effects import Resolution
from coordinator.group.events import ClientEvent, GroupSettingsChanged, RegexResolved, TopicsChanged
from coordinator.group.group import Group
from coordinator.group.partition import partition_for
from coordinator.group.topics import NO_TOPICS, Topics
from coordinator.group.turn import NO_CONFIGS
from coordinator.log.engine import NOBODY, Done, Engine, EngineError, Fenced, Ownership
from coordinator.loop.clock import Arguments, Clock
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.runtime.gate import Delivery, TakeNotes
from coordinator.server.runtime.kinds import GROUPS, LogKind
from coordinator.server.runtime.partition import ACTIVE, Partition, Standing
from coordinator.server.telemetry.measures import Loads
from protocol.records.batch import Record

GROUP_ID_CACHED_MAX = 128
"""Longest group id in the cache, in characters. Longer ones are rare, and a client can make and delete any number of
such groups.
"""

GROUPS_CACHED_MAX = 131_072
"""Ids of groups whose partition the cache has. Java's hash of one takes longer than the rest of a heartbeat. When the
cache is full, it is emptied. A group that doesn't exist never gets in: anybody can ask for any number of them.
"""

LEASE_LOOK_MS, REFUSED_AFTER_MS = 500, 1_000
"""How often a node looks at its lease, and how long it may be over before requests that wait are refused. A short
silence of the store shall cost them nothing; and with tenure.store.lease.ms at its default of 3 s, all of them have
their answer within 5 s.
"""

HELD_MAX_MS = 2
"""How long appends wait for others to share their window, beside the turn of the loop that made them."""

Search = Callable[[Resolution, Callable[[RegexResolved], None]], None]
"""Finds the topics that regular expressions match, and calls back on the loop's thread."""


class Runtime:
    """See the module.

    soon: has the loop call back in its next turn. wake: the same from any thread (call_soon_threadsafe).
    pace: how much is done before that. kind: of the log.
    topics: as groups of the consumer protocol see them. search: finds the topics that regular expressions match.
    group_configs: of groups that have settings of their own.
    on_loaded: called once, when after the start no partition loads any more.
    loads: how many partitions have loaded so far.
    lease: whether this node's lease holds; None if no other node could own anything. verify: asks the store whether
    an ownership is the newest, before offsets are read; None to trust the lease. has_room: whether the store has room
    for new groups; None: it never says. on_durable: called with a partition's number after it has new durable records.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        lines: Lines,
        take_notes: Sequence[TakeNotes],
        soon: Callable[[Callable[[], None]], object],
        wake: Callable[[Callable[[], None]], object],
        pace: Pace,
        on_loaded: Callable[[], None],
        kind: LogKind = GROUPS,
    ) -> None:
        self.config = config
        self.engine = engine
        self.kind = kind
        self.clock = clock
        self.lines = lines
        self.ms = clock.ms
        self.delivery = Delivery(take_notes, pace, soon, self._check_idle)
        self.is_ending = False
        self.loads = Loads()
        self._soon = soon
        self._wake = wake
        self._pace = pace
        self.work = pace.work
        self._on_loaded = on_loaded
        self._inbox: deque[Callable[[], object]] = deque()
        self._woken = False
        # Partitions with something for the next window; the number of those things a turn ago; and
        # until when it waits for more of them, None before a turn has counted them.
        self._expected: dict[Partition, None] = {}
        self._size = 0
        self._until_ms: int | None = None
        # Appends of the last window without an outcome yet.
        self._under_way = 0
        # Changes of ownerships: how many the engine has told, and how many of them the partitions know of. Two counts,
        # because each has one thread that raises it.
        self._changes = 0
        self._known_changes = 0
        self._started_ms = 0
        # When the lease was seen to be over; None while it holds.
        self._unsure_since_ms: int | None = None
        count = kind.partition_count(config)
        self._to_load = set(range(count))
        self._leaving: set[Partition] = set()
        self._on_left: Callable[[], None] | None = None
        self._on_idle: Callable[[], None] | None = None
        self.lease: Callable[[], bool] | None = None
        self.verify: Callable[[Ownership, Done], None] | None = None
        self.has_room: Callable[[], bool] | None = None
        self.on_durable: Callable[[int], None] | None = None
        self.topics: Topics = NO_TOPICS
        self.group_configs: Mapping[str, GroupSettings] = NO_CONFIGS
        # Without topics there is nothing to find.
        self.search: Search = lambda _what, _done: None
        self.partitions = [Partition(index, self) for index in range(count)]
        self._partition_of: dict[str, Partition] = {}

    def reconfigure(self, config: Config) -> None:
        """Use other settings."""
        self.config = config
        for partition in self.partitions:
            partition.coordinator.config = config.group

    # Routing.

    def partition_of(self, group_id: str) -> Partition:
        """The partition of a group, whether the group exists or not."""
        return self._partition_of.get(group_id) or self._find_partition(group_id)

    def instance_of(self, group_id: str, member_id: str) -> str | None:
        """The instance id of a member; None without one, or if there is no such member."""
        group = self.partition_of(group_id).coordinator.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return None
        found: str | None = member.group_instance_id if isinstance(group, Group) else member.instance_id
        return found

    def _find_partition(self, group_id: str) -> Partition:
        found = self.partitions[partition_for(group_id, len(self.partitions))]
        if len(group_id) <= GROUP_ID_CACHED_MAX and group_id in found.coordinator.groups:
            if len(self._partition_of) >= GROUPS_CACHED_MAX:
                self._partition_of.clear()
            self._partition_of[group_id] = found
        return found

    def submit(self, group_id: str, event: ClientEvent) -> None:
        """Hand a request about `group_id` to its partition. `event.request` is a Reply."""
        (self._partition_of.get(group_id) or self._find_partition(group_id)).submit(group_id, event)

    def served(self) -> Iterator[Partition]:
        """The partitions that serve requests now."""
        return (partition for partition in self.partitions if partition.standing is ACTIVE)

    def remove_topics(self, topics: Collection[str]) -> Iterator[None]:
        """Topics were deleted: the groups served here drop their offsets in them. Yields where the caller may pause."""
        for partition in list(self.served()):
            yield from partition.remove_offsets(topics)

    def topics_changed(self, topics: Topics, changed: Collection[str] | None) -> None:
        """Tell the groups served here that topics changed. changed: see the event `TopicsChanged`."""
        self.topics = topics
        for partition in self.partitions:
            partition.coordinator.topics = topics
        self.work(self._tell(TopicsChanged(topics, changed), list(self.served())))

    def _tell(self, event: TopicsChanged | GroupSettingsChanged, partitions: Iterable[Partition]) -> Iterator[None]:
        """Hand an event to those of these partitions that are served. Yields where the caller may pause."""
        for partition in partitions:
            if partition.standing is ACTIVE:
                partition.handle(None, event)
            yield

    def group_configs_changed(self, configs: Mapping[str, GroupSettings], changed: Collection[str]) -> None:
        """Use other settings of groups. changed: the ids of the groups whose settings differ from before."""
        before, self.group_configs = self.group_configs, configs
        for partition in self.partitions:
            partition.coordinator.group_configs = configs
        if changed:
            self.work(self._tell_of_settings(before, configs, changed))

    def _tell_of_settings(
        self, before: Mapping[str, GroupSettings], configs: Mapping[str, GroupSettings], changed: Collection[str]
    ) -> Iterator[None]:
        """Tell each group of its changed settings; the partition that serves it has them already."""
        for group_id in changed:
            was, own = before.get(group_id), configs.get(group_id)
            dropped = set(was.expected).difference(own.expected) if was and own and own.expected else ()
            yield from self._tell(GroupSettingsChanged(group_id, dropped), [self.partition_of(group_id)])

    # Windows of appends.

    def expect(self, partition: Partition) -> None:
        """A partition has something for the next window."""
        if not self._expected and not self._under_way:
            self._soon(self._hand_over)
        self._expected[partition] = None

    def _hand_over(self) -> None:
        """Hand the next window to the engine, once a turn of the loop has added nothing to it."""
        if self._under_way:
            return
        size = 0
        for partition in self._expected:
            size += len(partition.outbox) + len(partition.commits)
        if size > self._size:
            now_ms = self.ms()
            if self._until_ms is None:
                self._until_ms = now_ms + HELD_MAX_MS
            if now_ms < self._until_ms:
                self._size = size
                self._soon(self._hand_over)
                return
        # Behind a window of one, the next one of one waits for no company.
        self._size = 1 if size == 1 else 0
        self._until_ms = None
        for partition in list(self._expected):
            if partition.commits:
                partition.take_commits()
        partitions, self._expected = self._expected, {}
        for partition in partitions:
            partition.hand_over()
        if self._leaving or self._on_idle is not None:
            self._check_idle()

    def append(self, partition: Partition, batches: list[list[Record]]) -> None:
        """Hand batches of a partition to the engine."""
        assert partition.ownership is not None
        before = partition.gate.number - len(batches)
        self._under_way += 1
        self.engine.append(
            partition.ownership,
            batches,
            partial(self.hop, self._appended, partition, partition.life, before),  # type: ignore[arg-type]  # two follow
        )

    def _appended(self, partition: Partition, life: int, before: int, durable: int, error: EngineError | None) -> None:
        self._under_way -= 1
        if self._expected and not self._under_way:
            self._soon(self._hand_over)
        partition.appended(life, before, durable, error)
        if durable and self.on_durable is not None:
            self.on_durable(partition.index)
        if self._leaving or self._on_idle is not None:
            self._check_idle()

    # From the start until all is loaded.

    def start(self) -> None:
        """Acquire and load every partition that no node owns. Raises EngineError if the engine can't work at all."""
        self._started_ms = self.ms()
        self.engine.start(self._on_ownership)
        if self.lease is not None:
            self._look_at_lease(self.lease)

    def _look_at_lease(self, lease: Callable[[], bool]) -> None:
        """Refuse requests that wait once the lease has been over for a while, and look again later."""
        if self.is_ending:
            return
        now_ms = self.ms()
        if lease():
            self._unsure_since_ms = None
        elif self._unsure_since_ms is None:
            self._unsure_since_ms = now_ms
        elif now_ms >= self._unsure_since_ms + REFUSED_AFTER_MS and not self.delivery.busy:
            for partition in self.partitions:
                partition.refuse_waiting()
        self.clock.call_at(now_ms + LEASE_LOOK_MS, partial(self._look_at_lease, lease))

    def _on_ownership(self, index: int, owner: int | None, epoch: int) -> None:
        """Called on the engine's thread."""
        self._changes += 1
        self.hop(self._ownership_changed, index, owner, epoch)

    def is_sure(self) -> bool:
        """Whether this node is sure of every group that it has in memory. Only with a lease.

        After a lease was lost, a new one can be there before the partitions have dropped their groups.
        """
        assert self.lease is not None
        # In this order: the engine tells what it has lost before it asks for a new lease.
        return self.lease() and self._known_changes == self._changes

    def _ownership_changed(self, index: int, owner: int | None, epoch: int) -> None:
        self._change(self.partitions[index], owner, epoch)
        self._known_changes += 1

    def _change(self, partition: Partition, owner: int | None, epoch: int) -> None:
        own = partition.ownership
        if owner is None:
            if own is None and not self.is_ending:
                partition.acquire()
        elif owner == self.config.node_id:
            return
        elif own is None:
            partition.stay_away()
        elif epoch > own.epoch:
            who = "no node owns it" if owner == NOBODY else f"node {owner} owns it in epoch {epoch}"
            partition.step_down(Fenced(who))
        elif epoch == own.epoch:
            partition.hand_off()

    def leaves(self, partition: Partition) -> None:
        """See Host."""
        self._leaving.add(partition)
        self._check_idle()

    def loaded(self, took_ms: int) -> None:
        """A partition has loaded all its groups."""
        self.loads.add(self.ms(), took_ms)

    def settled(self, partition: Partition) -> None:
        """A partition serves requests, or it has found out that it can't. Calls `on_loaded` after the last one."""
        self._check_left()
        if partition.index not in self._to_load:
            return
        self._to_load.remove(partition.index)
        if not self._to_load:
            groups = sum(len(each.coordinator.groups) for each in self.partitions)
            served = sum(1 for _ in self.served())
            own = sum(1 for each in self.partitions if each.standing is not Standing.AWAY)
            took_ms = self.ms() - self._started_ms
            text = (
                f"Finished loading {self.kind.contents} from {served} of {own} partitions in "
                f"{took_ms} milliseconds: {groups} {self.kind.items}"
            )
            self.lines.info("partitions_loaded", text, partitions=served, groups=groups, took_ms=took_ms)
            self._on_loaded()

    # The engine's thread.

    def hop(self, function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Have the loop's thread call `function`. One wake-up serves all calls that come before it."""
        self._inbox.append(partial(function, *arguments))
        if not self._woken:
            self._woken = True
            self._wake(self._land)

    def _land(self) -> None:
        # First: a call that comes from here on wakes the loop again, so none is left behind.
        self._woken = False
        for _ in range(len(self._inbox)):
            try:
                self._inbox.popleft()()
            except Exception:  # noqa: BLE001 - those behind it are about other partitions
                self.lines.error("runtime_broke", f"An outcome of the log was lost: {traceback.format_exc()}")
            if self._inbox and not self._pace.has_time():
                self._woken = True
                self._pace.later(self._land)
                break

    # The end.

    @property
    def busy(self) -> bool:
        """Whether an append is under way, or an answer is deferred."""
        return self.delivery.busy or bool(self._expected) or any(each.gate.busy for each in self.partitions)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when no append is under way and no answer is deferred."""
        self._on_idle = callback
        self._check_idle()

    def _check_idle(self) -> None:
        """Go on with what waits until no answer waits for anything: partitions that leave, and the end."""
        if self._leaving and not self.delivery.busy:
            for partition in [each for each in self._leaving if not each.gate.busy]:
                self._leaving.discard(partition)
                if partition.standing is Standing.LEAVING:
                    partition.release()
        if self._on_idle is not None and not self.busy:
            self._on_idle()

    def when_left(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when this node owns no partition."""
        self._on_left = callback
        self._check_left()

    def _check_left(self) -> None:
        if self._on_left is not None and not any(each.ownership for each in self.partitions):
            self._on_left()

    def wind_down(self) -> None:
        """Begin the end: from here on no timer fires, and it is no fault if the engine takes a partition away."""
        self.is_ending = True
        for partition in self.partitions:
            partition.alarm.stop()
