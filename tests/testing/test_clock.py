"""The kit's clock, and the members that live through its jumps."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import Consumer

from coordinator.group.effects import SESSION, TimerKey
from coordinator.loop.clock import CATCH_UP_MS, Alarm
from coordinator.server.app import Server
from coordinator.server.faults import plan
from coordinator.server.faults.faults import Faults
from coordinator.testing.clock import INTERVALS, PATIENCE_MIN_MS, KitClock, Sessions, take_turns
from protocol.messages import ConsumerGroupHeartbeatRequest
from schemas.errors import ErrorCode
from tests.server.harness import (
    ManualClock,
    Peer,
    Serving,
    config_of,
    heartbeat_request,
    join_request,
    memory,
    sync_request,
)
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request, fetch_request, first_heartbeat, offsets_request
from tests.support.threaded import Threaded, until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INTERVAL_MS = 3_000
SESSION_MS = 10_000
CONSUMER_SESSION_MS = 45_000


class RealTime:
    """The real time in a test's hand; timers of the kit's clock wait for the loop in vain."""

    def __init__(self) -> None:
        self.now_ms = 5_000

    def ms(self) -> int:
        """As Clock.ms."""
        return self.now_ms

    def wall_ms(self) -> int:
        """As Clock.wall_ms."""
        return 1_700_000_000_000 + self.now_ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Any:
        """As Clock.call_at."""
        return asyncio.get_running_loop().call_later(WITHIN_S, callback)


Seats = list[tuple[Peer, Any, str]]
"""Connection, JoinGroup's answer and instance id of each."""


class Kit:
    """A server with the kit's clock."""

    def __init__(self, serving: Serving, clock: KitClock, real: RealTime, faults: Faults) -> None:
        self.serving = serving
        self.clock = clock
        self.real = real
        self.faults = faults
        self.sessions = Sessions(serving.server, faults, clock)

    def member(self, group: str, instance: str) -> Any:
        """A member of a group by its instance id; None if there is none."""
        found = self.serving.server.runtime.partition_of(group).coordinator.groups[group]
        return found.members.get(found.static_members.get(instance, ""))

    def alarm(self, group: str) -> Alarm[Any]:
        """The timers of a group's partition."""
        return self.serving.server.runtime.partition_of(group).alarm

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of this name."""
        return self.serving.events(name)

    async def advance(self, ms: int, unheard: list[tuple[str, str]] | None = None) -> None:
        """Jump, and let the server do what it has to do then."""
        await jump(self.sessions, self.clock, ms, unheard or [])
        await self.serving.barrier()


async def jump(sessions: Sessions, clock: KitClock, ms: int, unheard: Collection[tuple[str, str]] = ()) -> None:
    """Jump `ms` ahead, as Tenure does. unheard: members that the jump may expire although they live."""
    await take_turns()
    with sessions.without(unheard):
        clock.advance(ms)


@asynccontextmanager
async def running(*settings: str) -> AsyncIterator[Kit]:
    """A server whose time and real time stand still until the test moves them."""
    config, log, faults, real = config_of(*settings), io.StringIO(), Faults(), RealTime()
    clock = KitClock(asyncio.get_running_loop(), real)
    clock.freeze()
    server = Server(config, clock=clock, opened=memory(config), log=log, faults=faults)
    await server.start()
    serving = Serving(server, cast("ManualClock", clock), log)
    kit = Kit(serving, clock, real, faults)
    try:
        await serving.loaded()
        yield kit
    finally:
        kit.sessions.close()
        serving.close_peers()
        await server.stop()


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    """Yield such a server, with the settings of tests."""
    async with running() as made:
        yield made


async def three_seats(kit: Kit) -> Seats:
    """Three static members of a Stable group."""
    instances = ["i-0", "i-1", "i-2"]
    peers = [await kit.serving.peer() for _ in instances]
    joined: list[Any] = []
    await peers[0].send(join_request("g", instance=instances[0]), 5)
    joined.append(await peers[0].receive())
    for peer, instance in zip(peers[1:], instances[1:], strict=True):
        await peer.send(join_request("g", instance=instance), 5)
    await kit.serving.barrier()
    await peers[0].send(join_request("g", joined[0].member_id, instance=instances[0]), 5)
    joined = [await peer.receive() for peer in peers]
    for peer, answer, instance in zip(peers, joined, instances, strict=True):
        await peer.send(sync_request("g", answer, instance), 3)
    for peer in peers:
        assert (await peer.receive()).error_code == ErrorCode.NONE
    return list(zip(peers, joined, instances, strict=True))


@pytest.fixture
async def seats(kit: Kit) -> Seats:
    """Return three seats of such a server."""
    return await three_seats(kit)


async def beat(kit: Kit, seats: Seats, group: str = "g") -> list[int]:
    """A heartbeat interval of real time, and each member's heartbeat at its end. Returns the answers' errors."""
    kit.real.now_ms += INTERVAL_MS
    return [
        (await peer.ask(heartbeat_request(group, joined, instance), 3)).error_code for peer, joined, instance in seats
    ]


# Jumps and members.


async def test_live_members_survive_an_hour(seats: Seats, kit: Kit) -> None:
    """No rebalance, no expiry, and the next heartbeats are answered with NONE."""
    assert await beat(kit, seats) == [0, 0, 0]
    before = len(kit.events("rebalance_started"))
    for _ in range(3):
        await kit.advance(HOUR_MS)
    assert await beat(kit, seats) == [0, 0, 0]
    assert len(kit.events("rebalance_started")) == before
    assert kit.events("member_expired") == []


async def two_heartbeats(kit: Kit) -> list[tuple[Peer, str]]:
    """Two static members of a group of the consumer protocol, i-0 and i-1: connection and member id."""
    peers = [(await kit.serving.peer(), f"m-{number}") for number in range(2)]
    for number, (peer, member_id) in enumerate(peers):
        joining = first_heartbeat("c", member_id, ["t"], f"i-{number}")
        assert (await peer.ask(joining, 1)).error_code == ErrorCode.NONE
    return peers


async def beat_on(kit: Kit, peers: list[tuple[Peer, str]]) -> list[int]:
    """As `beat`, for members of the consumer protocol."""
    kit.real.now_ms += INTERVAL_MS
    members = kit.serving.server.runtime.partition_of("c").coordinator.groups["c"].members
    request = partial(ConsumerGroupHeartbeatRequest, group_id="c")
    return [
        (await peer.ask(request(member_id=member_id, member_epoch=members[member_id].epoch), 1)).error_code
        for peer, member_id in peers
    ]


async def test_live_members_of_the_consumer_protocol_survive_an_hour() -> None:
    """Their sessions are the group's; one that a jump names expires, and so does one whose connection is gone."""
    async with running("group.consumer.assignment.interval.ms=0") as kit:
        peers = await two_heartbeats(kit)
        assert await beat_on(kit, peers) == [0, 0]
        await kit.advance(HOUR_MS)
        assert kit.events("member_expired") == []
        assert await beat_on(kit, peers) == [0, 0]
        await kit.advance(HOUR_MS, [("c", "i-1")])
        assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-1"]
        assert await beat_on(kit, peers[:1]) == [0]
        peers[0][0].close()
        await kit.serving.barrier()
        await kit.advance(HOUR_MS)
        assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-1", "i-0"]


async def test_members_of_the_consumer_protocol_expire_when_they_are_told() -> None:
    """One at once; a silenced one, whose heartbeats are answered, after its session; another is heard again."""
    async with running("group.consumer.assignment.interval.ms=0") as kit:
        peers = await two_heartbeats(kit)
        assert await beat_on(kit, peers) == [0, 0]
        kit.sessions.silence("c", "i-0")
        kit.sessions.silence("c", "i-1")
        kit.sessions.hear("c", "i-1")
        assert await beat_on(kit, peers) == [0, 0]
        await kit.advance(CONSUMER_SESSION_MS)
        await kit.serving.barrier()
        assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-0"]
        kit.sessions.expire("c", "i-1")
        await kit.serving.barrier()
        assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-0", "i-1"]
        with pytest.raises(LookupError, match="it has none"):
            kit.sessions.expire("c", "i-1")


async def test_a_member_that_a_jump_names_expires(seats: Seats, kit: Kit) -> None:
    """The others learn it with their next heartbeat, and have their full time to rejoin."""
    await beat(kit, seats)
    await kit.advance(HOUR_MS, [("g", "i-1")])
    (line,) = kit.events("member_expired")
    assert line["group_instance_id"] == "i-1"
    others = [seats[0], seats[2]]
    assert await beat(kit, others) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert [kit.member("g", instance) is None for _, _, instance in seats] == [False, True, False]


@pytest.mark.parametrize("intervals, expired", [(INTERVALS - 1, False), (INTERVALS, True)])
async def test_a_client_that_missed_its_heartbeats_is_not_alive(
    seats: Seats, kit: Kit, intervals: int, expired: bool
) -> None:
    """By its own interval: the time between its last two heartbeats."""
    await beat(kit, seats)
    await beat(kit, seats)
    for _ in range(intervals):
        await beat(kit, seats[1:])
    await kit.advance(SESSION_MS)
    assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-0"] * expired


async def test_a_client_with_short_intervals_may_be_late(seats: Seats, kit: Kit) -> None:
    """A second is always allowed: a busy machine is no dead client."""
    for _ in range(2):
        kit.real.now_ms += 100 - INTERVAL_MS
        await beat(kit, seats)
    kit.real.now_ms += PATIENCE_MIN_MS - 1
    await kit.advance(SESSION_MS)
    assert kit.events("member_expired") == []
    kit.real.now_ms += 1
    await kit.advance(SESSION_MS)
    assert len(kit.events("member_expired")) == 3


async def test_a_client_whose_connection_is_gone_is_not_alive(seats: Seats, kit: Kit) -> None:
    """A killed program expires in the next jump, although its last heartbeat is young."""
    await beat(kit, seats)
    seats[2][0].close()
    await kit.advance(SESSION_MS)
    assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-2"]


async def test_a_client_that_connected_again_is_alive(seats: Seats, kit: Kit) -> None:
    """The connection of its last request counts, not that of its JoinGroup."""
    await beat(kit, seats)
    seats[2][0].close()
    peer = await kit.serving.peer()
    await beat(kit, [*seats[:2], (peer, *seats[2][1:])])
    await kit.advance(HOUR_MS)
    assert kit.events("member_expired") == []


async def test_requests_that_a_fault_takes_keep_nobody_alive(seats: Seats, kit: Kit) -> None:
    """An error in place of the coordinator's answer, or a black hole; a request that is only late does."""
    await beat(kit, seats)
    await beat(kit, seats)
    kit.faults.add(plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", instance_id="i-0", times=None))
    kit.faults.add(plan.delay(0, "Heartbeat", instance_id="i-1", times=None))
    for _ in range(INTERVALS):
        kit.real.now_ms += INTERVAL_MS
        await seats[0][0].ask(heartbeat_request("g", *seats[0][1:]), 3)
        await seats[1][0].send(heartbeat_request("g", *seats[1][1:]), 3)
        await kit.advance(0)
        assert (await seats[1][0].receive()).error_code == ErrorCode.NONE
        await seats[2][0].ask(heartbeat_request("g", *seats[2][1:]), 3)
    kit.faults.add(plan.drop_request("Heartbeat", instance_id="i-2"))
    await seats[2][0].send(heartbeat_request("g", *seats[2][1:]), 3)
    await kit.advance(SESSION_MS)
    assert sorted(line["group_instance_id"] for line in kit.events("member_expired")) == ["i-0", "i-2"]


async def test_a_member_that_has_only_joined_is_alive_while_it_is_connected(kit: Kit) -> None:
    """It has sent nothing with its member id yet."""
    peer = await kit.serving.peer()
    await peer.ask(join_request("g", instance="i"), 5)
    await kit.advance(SESSION_MS)
    assert kit.member("g", "i") is not None
    peer.close()
    await kit.advance(SESSION_MS)
    assert kit.member("g", "i") is None


async def test_a_first_join_waits_as_long_as_without_a_jump(seats: Seats, kit: Kit) -> None:
    """The coordinator gives it five minutes; a jump doesn't make a session timeout of that."""
    await beat(kit, seats)
    new = await kit.serving.peer()
    await new.send(join_request("g", instance="i-3"), 5)
    await kit.advance(1_000)
    kit.clock.on_jump.clear()
    for _ in range(4):
        kit.clock.advance(SESSION_MS // 2)
        assert await beat(kit, seats) == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    assert kit.member("g", "i-3") is not None
    assert new.is_silent()


async def test_small_jumps_add_up_and_expire_nobody(seats: Seats, kit: Kit) -> None:
    """Also those that are shorter than CATCH_UP_MS."""
    await beat(kit, seats)
    for _ in range(2 * SESSION_MS // CATCH_UP_MS):
        await jump(kit.sessions, kit.clock, CATCH_UP_MS)
    assert kit.events("member_expired") == []


# One member.


async def test_a_member_expires_when_it_is_told(seats: Seats, kit: Kit) -> None:
    """At once, by its instance id or its member id; the time doesn't move."""
    at_ms = kit.clock.ms()
    kit.sessions.expire("g", "i-0")
    kit.sessions.expire("g", seats[1][1].member_id)
    await kit.serving.barrier()
    assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-0", "i-1"]
    assert kit.clock.ms() == at_ms
    assert all(TimerKey(SESSION, "g", joined.member_id) not in kit.alarm("g") for _, joined, _ in seats[:2])
    assert TimerKey(SESSION, "g", seats[2][1].member_id) in kit.alarm("g")


async def test_a_silenced_member_expires_after_its_session_timeout(seats: Seats, kit: Kit) -> None:
    """Its client gets its answers, but no heartbeat counts; the others stay alive."""
    await beat(kit, seats)
    kit.sessions.silence("g", "i-0")
    await kit.advance(SESSION_MS - 1)
    assert await beat(kit, seats) == [0, 0, 0]
    assert kit.member("g", "i-0") is not None
    await kit.advance(1)
    assert [line["group_instance_id"] for line in kit.events("member_expired")] == ["i-0"]
    assert (await beat(kit, seats[:1])) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_a_silenced_member_can_be_heard_again(seats: Seats, kit: Kit) -> None:
    """Then it lives on; to hear a member that isn't silent changes nothing."""
    await beat(kit, seats)
    kit.sessions.silence("g", "i-0")
    kit.sessions.silence("g", "i-0")
    kit.sessions.hear("g", "i-0")
    kit.sessions.hear("g", "i-1")
    await kit.advance(HOUR_MS)
    assert kit.events("member_expired") == []


async def test_silence_ends_with_the_member(seats: Seats, kit: Kit) -> None:
    """A restart takes the seat under another member id, and is heard."""
    await beat(kit, seats)
    kit.sessions.silence("g", "i-0")
    again = (await seats[0][0].join("g", instance="i-0")).member_id
    assert again != seats[0][1].member_id
    await kit.advance(HOUR_MS)
    assert kit.member("g", "i-0").member_id == again


async def test_a_member_that_waits_can_not_expire() -> None:
    """A silenced one expires when its request has its answer; `expire` says so."""
    async with running("group.initial.rebalance.delay.ms=0") as kit:
        seats = await three_seats(kit)
        await beat(kit, seats)
        kit.sessions.silence("g", "i-0")
        waiting = seats[0][0]
        await waiting.send(join_request("g", seats[0][1].member_id, instance="i-0"), 5)
        await kit.serving.barrier()
        assert kit.member("g", "i-0").awaiting_join is not None
        with pytest.raises(ValueError, match="i-0 waits in a request"):
            kit.sessions.expire("g", "i-0")
        await kit.advance(SESSION_MS)
        assert kit.member("g", "i-0") is not None
        for peer, joined, instance in seats[1:]:
            await peer.send(join_request("g", joined.member_id, instance=instance), 5)
        for peer, _, _ in seats:
            assert (await peer.receive()).error_code == ErrorCode.NONE
        await kit.advance(SESSION_MS)
        assert kit.member("g", "i-0") is None


async def test_a_name_that_is_no_member_is_refused(kit: Kit) -> None:
    """The error says who is there."""
    await three_seats(kit)
    with pytest.raises(LookupError, match="group g has no member x: it has i-0, i-1, i-2"):
        kit.sessions.expire("g", "x")
    for call in (kit.sessions.expire, kit.sessions.silence, kit.sessions.hear):
        with pytest.raises(LookupError, match="there is no group h"):
            call("h", "i-0")
    with pytest.raises(LookupError):
        await jump(kit.sessions, kit.clock, 1, [("g", "x")])


# What else moves with the clock, and what doesn't.


async def test_the_initial_delay_ends_in_a_jump() -> None:
    """The first generation of an empty group."""
    async with running("group.initial.rebalance.delay.ms=3000") as kit:
        peer = await kit.serving.peer()
        await peer.send(join_request("g"), 3)
        await kit.serving.barrier()
        assert peer.is_silent()
        await kit.advance(3_000)
        assert (await peer.receive()).generation_id == 1


async def test_a_member_id_that_nobody_uses_lapses_in_a_jump(kit: Kit) -> None:
    """KIP-394: the coordinator waits one session timeout for it."""
    peer = await kit.serving.peer()
    given = (await peer.join("g", version=5)).member_id
    group = kit.serving.server.runtime.partition_of("g").coordinator.groups["g"]
    assert list(group.pending) == [given]
    await kit.advance(SESSION_MS)
    assert list(group.pending) == []


async def test_a_rebalance_that_a_jump_begins_has_its_full_time(seats: Seats, kit: Kit) -> None:
    """It waits for the members from the end of the jump on: 60 s, as they asked for."""
    await beat(kit, seats)
    await kit.advance(HOUR_MS, [("g", "i-0")])
    peer, joined, instance = seats[1]
    await peer.send(join_request("g", joined.member_id, instance=instance), 5)
    await beat(kit, seats[2:])
    await kit.advance(59_000)
    assert peer.is_silent()
    await kit.advance(1_000)
    assert (await peer.receive()).error_code == ErrorCode.NONE


async def test_offsets_expire_after_their_retention(kit: Kit) -> None:
    """Those of a group without members, seven days by default; the check comes within ten minutes."""
    peer = await kit.serving.peer()
    await peer.ask(commit_request("g", {("orders", 0): 7}), 7)

    async def committed() -> int:
        answer = await peer.ask(offsets_request("g", {"orders": [0]}), 5)
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset

    await kit.advance(6 * DAY_MS)
    assert await committed() == 7
    await kit.advance(DAY_MS + HOUR_MS)
    assert await committed() == -1


async def test_waits_that_clients_ask_for_go_by_the_real_time() -> None:
    """A Fetch waits as long as its client thinks, whatever the kit's clock does; idle connections stay open."""
    loop, log, config = asyncio.get_running_loop(), io.StringIO(), config_of("connections.max.idle.ms=1000")
    clock, real = KitClock(loop), ManualClock()
    clock.freeze()
    server = Server(config, clock=clock, clients_clock=real, opened=memory(config), log=log)
    await server.start()
    serving = Serving(server, real, log)
    try:
        await serving.loaded()
        peer = await serving.peer()
        await peer.send(fetch_request({("orders", 0): 0}, max_wait_ms=500), 11)
        await serving.barrier()
        for _ in range(30):
            clock.advance(HOUR_MS)
        await serving.barrier()
        assert peer.is_silent()
        assert len(serving.connections()) == 1
        await serving.advance(500)
        assert (await peer.receive()).error_code == ErrorCode.NONE
    finally:
        serving.close_peers()
        await server.stop()


# The clock itself.


async def test_a_frozen_clock_moves_by_its_jumps_alone() -> None:
    """Both of its times, by the same."""
    clock = KitClock(asyncio.get_running_loop())
    clock.freeze()
    at_ms, wall_ms = clock.ms(), clock.wall_ms()
    real_ms = clock.real.ms()
    await passed(lambda: clock.real.ms() > real_ms + 2)
    assert (clock.ms(), clock.wall_ms()) == (at_ms, wall_ms)
    clock.advance(HOUR_MS)
    assert (clock.ms(), clock.wall_ms()) == (at_ms + HOUR_MS, wall_ms + HOUR_MS)
    with pytest.raises(ValueError, match="time doesn't go back"):
        clock.advance(-1)


async def passed(condition: Callable[[], bool]) -> None:
    """Go round the loop until it is so."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await turn()


def turn() -> Awaitable[None]:
    """A turn of the loop."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    return future


async def test_a_clock_that_runs_goes_on_from_where_it_stands() -> None:
    """After a thaw and after a jump, as the real time does; neither steps back."""
    clock = KitClock(asyncio.get_running_loop())
    clock.freeze()
    real_ms = clock.real.ms()
    await passed(lambda: clock.real.ms() > real_ms + 2)
    at_ms = clock.ms()
    clock.thaw()
    clock.thaw()
    assert not clock.is_frozen
    assert at_ms <= clock.ms() < at_ms + WITHIN_S * 1_000
    await passed(lambda: clock.ms() > at_ms + 2)
    now_ms = clock.ms()
    clock.advance(HOUR_MS)
    assert not clock.is_frozen
    assert clock.ms() >= now_ms + HOUR_MS
    assert clock.ms() - clock.real.ms() >= HOUR_MS - (clock.real.ms() - real_ms)


async def test_timers_ring_by_the_clock_that_runs() -> None:
    """In order, and never early; a cancelled one not at all; none while the clock stands still."""
    clock, rung = KitClock(asyncio.get_running_loop()), list[tuple[str, bool]]()
    start_ms = clock.ms()

    def ring(name: str, at_ms: int) -> None:
        rung.append((name, clock.ms() >= at_ms))

    handles = [
        clock.call_at(start_ms + wait_ms, partial(ring, name, start_ms + wait_ms))
        for name, wait_ms in (("b", 4), ("a", 2), ("never", 3))
    ]
    handles[2].cancel()
    clock.freeze()
    await passed(lambda: clock.real.ms() > start_ms + 8)
    assert rung == []
    clock.thaw()
    await passed(lambda: len(rung) == 2)
    assert rung == [("a", True), ("b", True)]


async def test_an_alarm_rings_at_the_end_of_a_jump() -> None:
    """However far it went: a jump is no stall of the process. Alarms ring in the order of their times."""
    clock, rung = KitClock(asyncio.get_running_loop()), list[tuple[str, int]]()
    clock.freeze()
    start_ms = clock.ms()
    alarm: Alarm[str] = Alarm(clock, lambda key: rung.append((key, clock.ms() - start_ms)))
    alarm.arm("late", start_ms + HOUR_MS - 50)
    alarm.arm("early", start_ms + 10)
    alarm.arm("after", start_ms + HOUR_MS + 1)
    clock.advance(HOUR_MS)
    assert rung == [("early", HOUR_MS), ("late", HOUR_MS)]
    clock.advance(1)
    assert rung[2:] == [("after", HOUR_MS + 1)]


async def test_a_timer_that_fails_stops_no_other() -> None:
    """The loop reports the first; the second rings."""
    loop, reported, rung = asyncio.get_running_loop(), list[Any](), list[int]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    clock = KitClock(loop)

    def fail() -> None:
        raise RuntimeError("broken")

    clock.call_at(clock.ms(), fail)
    clock.call_at(clock.ms(), lambda: rung.append(1))
    await passed(lambda: bool(rung))
    assert [str(each) for each in reported] == ["broken"]


# A real client.


@pytest.mark.interop
def test_confluent_kafka_lives_through_an_hour() -> None:
    """Three static consumers: no rebalance in an hour; one that is named expires, and comes back by itself."""
    made: dict[str, Any] = {}
    faults = Faults()

    def make(config: Any, log: io.StringIO) -> Server:
        clock = made["clock"] = KitClock(asyncio.get_running_loop())
        return Server(config, clock=clock, clients_clock=clock.real, opened=memory(config), log=log, faults=faults)

    with Threaded("group.initial.rebalance.delay.ms=500", make=make) as server:
        sessions = server.call(lambda: Sessions(server.server, faults, made["clock"]))
        consumers = [consumer(server.bootstrap, f"i-{number}") for number in range(3)]
        try:

            def poll() -> None:
                for each in consumers:
                    each.poll(0.01)

            until(lambda: sum(len(each.assignment()) for each in consumers) == 3, poll)
            before = len(server.events("rebalance_started"))
            for _ in range(3):
                server.wait_for(lambda: jump(sessions, made["clock"], HOUR_MS))
                poll()
            assert server.events("member_expired") == []
            assert len(server.events("rebalance_started")) == before
            server.wait_for(lambda: jump(sessions, made["clock"], HOUR_MS, [("g", "i-1")]))
            until(lambda: server.events("member_expired", group_instance_id="i-1"), poll)
            until(lambda: sorted(len(each.assignment()) for each in consumers) == [1, 1, 1], poll)
            assert len(server.events("member_expired")) == 1
        finally:
            for each in consumers:
                each.close()
            server.call(sessions.close)


def consumer(bootstrap: str, instance: str) -> Consumer:
    """A static consumer of orders."""
    found = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.instance.id": instance,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found.subscribe(["orders"])
    return found
