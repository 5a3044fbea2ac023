"""The time of a server under test: a clock that a test moves, and the members that live through it.

    clock = KitClock(loop)
    server = Server(config, clock=clock, clients_clock=clock.real, faults=faults)
    sessions = Sessions(server, faults, clock)
    await take_turns()
    clock.advance(3_600_000)

A jump is one step: nothing happens on the way. At its end the clock first takes the members whose clients are alive as
heard, and then rings all timers that are due. So a jump expires no live member, and a rebalance that a jump begins
gives its members their full time. The last CATCH_UP_MS of a jump pass timer by timer: `Alarm` takes a large step for a
stall of the process, and waits that long before it rings.

A client is alive if the connection of its last request is open and it has not been silent for INTERVALS of its own
intervals, at least PATIENCE_MIN_MS. Both go by the real time: a jump makes no client older. A request that a fault
swallowed or answered doesn't count. A member that waits in JoinGroup or SyncGroup is alive for the coordinator, as
always.

House rule: everything here runs on the loop's thread, and nothing waits for time to pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from coordinator.group.any_group import AnyGroup
from coordinator.group.client import Client
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.effects import SESSION, TimerKey
from coordinator.group.events import TimerFired
from coordinator.group.turn import Watched
from coordinator.loop.clock import CATCH_UP_MS, Clock, Handle, LoopClock
from coordinator.loop.timers import Timers
from coordinator.server.app import Server
from coordinator.server.faults.faults import Asked, Faults
from coordinator.server.faults.plan import Action, Fault
from coordinator.server.runtime.partition import ACTIVE, Partition
from coordinator.server.wire.connection import Connection

INTERVALS = 2
"""A heartbeat may come late: a client that misses two of its own intervals is not alive."""

PATIENCE_MIN_MS = 1_000
"""No client is given up sooner: a busy machine keeps one with short intervals waiting."""

HEARTBEATS_PER_SESSION = 3
"""Kafka's advice to clients. It stands for the interval of a client that sent less than two heartbeats."""

WALL_MS_MAX = 253_370_764_800_000
"""The begin of the year 9999, Unix time in ms: log lines and answers show times, and deadlines after them, as dates."""

TURNS = 8
"""Turns of the loop before a jump. The end of a connection takes about four from the kernel to `Connections`."""

HEARTBEATS = ("Heartbeat", "ConsumerGroupHeartbeat")
MEMBERS_SAY = (*HEARTBEATS, "JoinGroup", "SyncGroup", "OffsetCommit")
"""The APIs whose requests renew a session."""


class Ahead(NamedTuple):
    """How far a clock is from the real time. stopped_ms: its time if it stands still, in place of `ms`."""

    ms: int = 0
    stopped_ms: int | None = None


AT_REAL_TIME = Ahead()


class KitClock:
    """A server's clock over the real time. It implements `Clock`.

    real: the clock below, which nothing moves; by default the loop's. ahead: of the real time, at the begin.
    on_jump: each is called when the time has jumped, before a timer rings.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, real: Clock | None = None, ahead: Ahead = AT_REAL_TIME) -> None:
        self.real = real or LoopClock(loop)
        self.on_jump: set[Callable[[], None]] = set()
        self._wall_origin_ms = self.real.wall_ms() - self.real.ms()
        self._offset_ms, self._stopped_ms = ahead
        self._timers: Timers[int] = Timers()
        self._calls: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._handle: Handle | None = None

    def ms(self) -> int:
        """As Clock.ms."""
        return self.real.ms() + self._offset_ms if self._stopped_ms is None else self._stopped_ms

    def wall_ms(self) -> int:
        """As Clock.wall_ms: it moves with `ms`, from the time when the clock was made."""
        return self._wall_origin_ms + self.ms()

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        self._next += 1
        self._calls[self._next] = callback
        self._timers.arm(self._next, at_ms)
        self._expect()
        return _Call(partial(self._cancel, self._next))

    def _cancel(self, number: int) -> None:
        self._timers.cancel(number)
        self._calls.pop(number, None)

    @property
    def ahead(self) -> Ahead:
        """For the clock of a server that comes after this one, whose time goes on."""
        return Ahead(self._offset_ms, self._stopped_ms)

    @property
    def is_frozen(self) -> bool:
        """Whether only `advance` moves it."""
        return self._stopped_ms is not None

    def freeze(self) -> None:
        """Stand still until `thaw`."""
        self._stopped_ms = self.ms()
        self._expect()

    def thaw(self) -> None:
        """Go on from the time at which it stands."""
        if self._stopped_ms is not None:
            self._offset_ms = self._stopped_ms - self.real.ms()
            self._stopped_ms = None
            self._expect()

    def advance(self, ms: int) -> None:
        """Jump `ms` ahead; see the module. Raises ValueError if that is negative, or goes beyond WALL_MS_MAX."""
        if ms < 0:
            raise ValueError("time doesn't go back")
        if self.wall_ms() + ms > WALL_MS_MAX:
            raise ValueError("time ends with the year 9998: dates have four digits")
        was_frozen = self.is_frozen
        self.freeze()
        try:
            start_ms = self.ms()
            self._stopped_ms = start_ms + max(ms - CATCH_UP_MS, 0)
            for jumped in self.on_jump:
                jumped()
            self._ring_until(self._stopped_ms)
            self._ring_until(start_ms + ms)
        finally:
            self._stopped_ms = max(self.ms(), start_ms + ms)
            if not was_frozen:
                self.thaw()

    def _ring_until(self, end_ms: int) -> None:
        """Let the time pass until `end_ms`, timer by timer."""
        while (at_ms := self._timers.next_at_ms()) is not None and at_ms <= end_ms:
            self._stopped_ms = max(self.ms(), at_ms)
            self._ring()

    def _ring(self) -> None:
        number = self._timers.due(self.ms())
        assert number is not None
        self._calls.pop(number)()

    def _expect(self) -> None:
        """Ask the loop for a call when the next timer is due, unless the clock stands still."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        at_ms = self._timers.next_at_ms()
        if at_ms is not None and self._stopped_ms is None:
            self._handle = self.real.call_at(at_ms - self._offset_ms, self._wake)

    def _wake(self) -> None:
        """Ring one timer; the loop comes back for the next."""
        self._handle = None
        try:
            at_ms = self._timers.next_at_ms()
            if at_ms is not None and at_ms <= self.ms():
                self._ring()
        finally:
            self._expect()


class _Call(NamedTuple):
    cancel: Callable[[], None]


class _Heard(NamedTuple):
    """The last request of a member.

    at_ms: when it came, by the real time. beat_ms: when the last heartbeat came. interval_ms: between the last two
    heartbeats, None before the second one.
    """

    connection: Connection
    at_ms: int
    beat_ms: int | None
    interval_ms: int | None


class _Seat(NamedTuple):
    """A member of a group of either protocol, as its time sees it.

    session: the member itself, or, in the consumer protocol, its session. waits: in JoinGroup or SyncGroup.
    is_new: it waits in its first JoinGroup. joined_by: the client that joined, as long as the server runs.
    """

    member_id: str
    instance_id: str | None
    session: Watched
    waits: bool = False
    is_new: bool = False
    joined_by: Client | None = None


class Sessions:
    """The members of a server and their time. A member is named by its group and its instance id or member id.

    Methods raise LookupError if the group has no such member.
    """

    def __init__(self, server: Server, faults: Faults, clock: KitClock) -> None:
        self._server = server
        self._faults = faults
        self._clock = clock
        self._heard: dict[tuple[str, str], _Heard] = {}
        self._silent: dict[tuple[str, str], Handle] = {}
        self._unheard: Collection[tuple[str, str]] = ()
        self._end = faults.watch(self._see)
        clock.on_jump.add(self._hear_the_living)

    def close(self) -> None:
        """Stop to look at requests."""
        self._end()
        self.hear_all()
        self._clock.on_jump.discard(self._hear_the_living)

    @contextmanager
    def without(self, unheard: Collection[tuple[str, str]]) -> Iterator[None]:
        """Let jumps of the clock expire these members, as (group, member), although they live."""
        self._unheard = [(group_id, self._find(group_id, name)[2].member_id) for group_id, name in unheard]
        try:
            yield
        finally:
            self._unheard = ()

    def expire(self, group_id: str, name: str) -> None:
        """Expire a member now. Raises ValueError if it waits in JoinGroup or SyncGroup: a session can't end there."""
        partition, group, seat = self._find(group_id, name)
        if seat.waits and not seat.is_new:
            raise ValueError(f"{name} waits in a request, so its session can't end")
        self._expire(partition, group, seat)

    def silence(self, group_id: str, name: str) -> None:
        """Count no request of a member from now on: it expires one session timeout after the last that counted.

        The client gets its answers. A member that waits in JoinGroup or SyncGroup expires when that is over.
        """
        _, _, seat = self._find(group_id, name)
        self._lapse_at(group_id, seat, seat.session.deadline_ms)

    def hear(self, group_id: str, name: str) -> None:
        """Count the requests of a silenced member again."""
        _, _, seat = self._find(group_id, name)
        handle = self._silent.pop((group_id, seat.member_id), None)
        if handle is not None:
            handle.cancel()

    def hear_all(self) -> None:
        """Count the requests of all silenced members again."""
        for handle in self._silent.values():
            handle.cancel()
        self._silent.clear()

    # Members.

    def _find(self, group_id: str, name: str) -> tuple[Partition, AnyGroup, _Seat]:
        partition = self._server.runtime.partition_of(group_id)
        group = partition.coordinator.groups.get(group_id)
        if group is None or partition.standing is not ACTIVE:
            raise LookupError(f"there is no group {group_id}")
        member_id = group.static_members.get(name, name)
        if member_id not in group.members:
            known = sorted(each.instance_id or each.member_id for each in _seats(group))
            raise LookupError(f"group {group_id} has no member {name}: it has {', '.join(known) or 'none'}")
        return partition, group, _seat(group, member_id)

    def _expire(self, partition: Partition, group: AnyGroup, seat: _Seat) -> None:
        """Let the session timer of a member find that its deadline has passed."""
        key = TimerKey(SESSION, group.group_id, seat.member_id)
        partition.alarm.cancel(key)
        seat.session.deadline_ms = self._clock.ms()
        partition.handle(group.group_id, TimerFired(key))

    def _lapse_at(self, group_id: str, seat: _Seat, at_ms: int) -> None:
        key = (group_id, seat.member_id)
        if key in self._silent:
            self._silent[key].cancel()
        self._silent[key] = self._clock.call_at(at_ms, partial(self._lapse, group_id, seat.member_id))

    def _lapse(self, group_id: str, member_id: str) -> None:
        """The deadline of a silenced member has passed."""
        del self._silent[group_id, member_id]
        try:
            partition, group, seat = self._find(group_id, member_id)
        except LookupError:  # it left, or a restart has its seat
            return
        if seat.waits:
            self._lapse_at(group_id, seat, self._clock.ms() + seat.session.session_timeout_ms)
        else:
            self._expire(partition, group, seat)

    # Members whose clients are alive.

    def _see(self, connection: Connection, asked: Asked, fault: Fault | None) -> None:
        """A request came."""
        is_late = fault is not None and fault.action is Action.DELAY
        if asked.api not in MEMBERS_SAY or not (fault is None or is_late):
            return
        now_ms = self._clock.real.ms()
        for group_id in asked.groups:
            for member_id in asked.member_ids:
                key = (group_id, member_id)
                last = self._heard.get(key)
                beat_ms, interval_ms = (None, None) if last is None else (last.beat_ms, last.interval_ms)
                if asked.api in HEARTBEATS:
                    interval_ms = interval_ms if beat_ms is None else now_ms - beat_ms
                    beat_ms = now_ms
                self._heard[key] = _Heard(connection, now_ms, beat_ms, interval_ms)

    def _hear_the_living(self) -> None:
        """The time has jumped: renew the sessions of the members whose clients are alive.

        A member that waits keeps its deadline: a first join may wait longer than a session. A silenced one expires by
        `_lapse`, whatever its deadline is.
        """
        now_ms = self._clock.ms()
        heard: dict[tuple[str, str], _Heard] = {}
        for partition in self._server.runtime.served():
            for group_id, group in partition.coordinator.groups.items():
                for seat in _seats(group):
                    key = (group_id, seat.member_id)
                    if key in self._heard:
                        heard[key] = self._heard[key]
                    if key in self._unheard or seat.waits:
                        continue
                    if self._is_alive(seat, heard.get(key)):
                        # As a heartbeat does: the timer finds out when it rings.
                        seat.session.deadline_ms = now_ms + seat.session.session_timeout_ms
        self._heard = heard

    def _is_alive(self, seat: _Seat, heard: _Heard | None) -> bool:
        connections = self._server.connections
        if heard is None:  # it has joined and said nothing since
            return seat.joined_by is not None and connections.has(seat.joined_by)
        interval_ms = heard.interval_ms or seat.session.session_timeout_ms // HEARTBEATS_PER_SESSION
        silent_ms = self._clock.real.ms() - heard.at_ms
        is_connected = heard.connection in connections and not self._faults.is_muted(heard.connection)
        return is_connected and silent_ms < max(INTERVALS * interval_ms, PATIENCE_MIN_MS)


async def take_turns() -> None:
    """Let the loop learn before a jump which connections have ended."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _seats(group: AnyGroup) -> Iterator[_Seat]:
    return (_seat(group, member_id) for member_id in group.members)


def _seat(group: AnyGroup, member_id: str) -> _Seat:
    member = group.members[member_id]
    if isinstance(group, ConsumerGroup):
        return _Seat(member_id, member.instance_id, group.sessions[member_id])
    waits = member.awaiting_join is not None or member.awaiting_sync is not None
    return _Seat(member_id, member.group_instance_id, member, waits, member.is_new, member.joined_by)
