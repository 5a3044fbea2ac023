"""Reference cycles: no work of a server leaves any, and one that comes about all the same is freed."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import count

import pytest

from coordinator.group.client import Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects
from coordinator.group.events import Event, Load
from coordinator.log.engine import Unavailable
from coordinator.loop import cycles
from coordinator.security.acls import Kind
from coordinator.server.wire.api import HANDLERS
from coordinator.server.wire.authentication import AUTHENTICATE_WITHIN_MS, REAUTHENTICATION_PAUSE_MS
from protocol.header import encode_request
from protocol.messages import (
    ApiVersionsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    SaslHandshakeRequest,
)
from schemas.api import SERVED
from schemas.errors import ErrorCode
from tests.oracle.acl_table import CASES, NEWER, NO_ID
from tests.server.harness import (
    ManualClock,
    Peer,
    Serving,
    heartbeat_request,
    join_request,
    seat,
    serving,
    sync_request,
)
from tests.server.requests.test_records import ONE, fetch_request, is_held, produce
from tests.server.requests.test_rights import Recording
from tests.server.tls_peer import greeted
from tests.server.wire.test_authentication import HANDSHAKE, METADATA, SASL, SETTINGS, TIMED, WRONG, log_in
from tests.server.wire.test_tls import serving_tls
from tests.support.certificates import Certificates, client_context
from tests.support.large import is_newest, request, shapes
from tests.support.left import left
from tests.support.length import IS_NIGHTLY, most_are_long
from tests.support.memory import ManualEngine
from tests.support.requests import commit_request, leave_request

# Requests.

COUNTS = (3, 300)
"""Elements of each array of a request: a few, and so many that the request is decoded and handled in steps."""

OTHERS = {
    "SaslHandshake": encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 7, "x"),
    "ApiVersions": encode_request(ApiVersionsRequest(), 0, 7, "x"),
}
"""Requests of APIs that need no right, and name nothing."""

WAITED_MS = 70_000
"""Longer than any of the requests waits for its answer."""


@cache
def requests(api: str) -> list[bytes]:
    """Requests of an API that a server carries out, and others that have several elements in one of their arrays."""
    found = [
        encode_request(case.make(NO_ID), case.version, 7, "x")
        for case in (*CASES, *NEWER)
        if case.name.partition(" ")[0] == api
    ]
    sent = [shape for shape in shapes(api) if IS_NIGHTLY or is_newest(shape)]
    found += [request(shape, count, length=100) for shape in sent for count in COUNTS]
    return found + [data for name, data in OTHERS.items() if name == api]


async def answered(server: Serving, api: str) -> None:
    """Each request of an API is answered, at once or when its wait is over, or costs its connection."""
    peers = [await asked(server, data) for data in requests(api)]
    await server.advance(WAITED_MS)
    await gone(server, peers)


async def cut_off(server: Serving, api: str) -> None:
    """The clients are gone before the server has done anything of their requests but the first step."""
    await gone(server, [await asked(server, data) for data in requests(api)])
    await server.advance(WAITED_MS)


async def asked(server: Serving, data: bytes) -> Peer:
    """A client that has sent a request."""
    peer = await server.peer()
    await peer.send_bytes(data)
    return peer


async def gone(server: Serving, peers: list[Peer]) -> None:
    """The clients close their connections."""
    for peer in peers:
        peer.close()
    await server.until(lambda: not server.connections())


def allowed(_: Serving) -> None:
    """Each client may do everything."""


def refused(server: Serving) -> None:
    """No client may do anything."""
    server.server._api._services.access = Recording(denied=frozenset(Kind))


def in_turns(server: Serving) -> None:
    """A turn of the loop has time for a few steps: each question about the time takes a part of a millisecond."""
    asked_ms = count()
    server.server._api._services.pace.ms = lambda: next(asked_ms) // 8


FEW_APIS = {"Fetch", "JoinGroup", "OffsetCommit", "ConsumerGroupHeartbeat"}
"""For `make test`: those that wait, change something, or come most often."""


@pytest.mark.parametrize("api", most_are_long(SERVED, FEW_APIS.__contains__))
async def test_no_answer_leaves_a_cycle(api: str) -> None:
    """Requests of every API leave nothing that only a look of the collector could free. None is a fault of ours.

    They name several things, are refused or allowed, wait, and lose their clients.
    """
    assert SERVED[api] in HANDLERS
    assert requests(api)
    async with serving() as server:
        await answered(server, api)  # imports modules and makes codecs
        for how, ends in ((allowed, answered), (in_turns, answered), (in_turns, cut_off), (refused, answered)):
            how(server)
            with left() as found:
                await ends(server, api)
                await server.barrier()
            assert not found, how
        assert not server.events("connection_failed")


# Whole stories.


async def restarts(server: Serving, _engine: ManualEngine) -> None:
    """A static member joins, commits, restarts and leaves; its former process is fenced."""
    peer, other = await server.peer(), await server.peer()
    former = await seat(peer, "g", "a")
    for offset in range(3):
        assert not (await peer.ask(heartbeat_request("g", former, "a"), 3)).error_code
        await peer.ask(commit_request("simple", {("orders", 0): offset}), 8)
    joined = await seat(other, "g", "a")
    assert (await peer.ask(heartbeat_request("g", former, "a"), 3)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not (await other.ask(leave_request("g", (joined.member_id, "a")), 4)).error_code


async def rebalances(server: Serving, _engine: ManualEngine) -> None:
    """A second member joins a group; both sync, and then both expire."""
    one, two = await server.peer(), await server.peer()
    first = await one.join("g", version=3)
    await one.ask(sync_request("g", first), 5)
    await two.send(join_request("g"), 3)
    await server.barrier()
    assert (await one.ask(heartbeat_request("g", first), 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first = await one.join("g", first.member_id, version=3)
    second = await two.receive()
    await two.send(sync_request("g", second), 5)
    await one.ask(sync_request("g", first), 5)
    await two.receive()
    await server.advance(20_000)
    assert len(server.events("member_expired")) == 2


async def waits_for_records(server: Serving, _engine: ManualEngine) -> None:
    """One Fetch waits until its time is up, one until there is a record, one until its client is gone."""
    peer, gone, producer = [await server.peer() for _ in range(3)]
    assert await is_held(server, peer, fetch_request(("orders", 0, 0)), 12)
    await peer.receive()
    await peer.send(fetch_request(("orders", 0, 0)), 12)
    await server.barrier()
    await produce(producer, ("orders", 0, ONE))
    await peer.receive()
    await gone.send(fetch_request(("orders", 1, 0)), 12)
    await server.barrier()
    gone.close()
    await server.until(lambda: len(server.connections()) == 2)


async def hangs_up(server: Serving, _engine: ManualEngine) -> None:
    """Clients close their connections while one waits in JoinGroup, and after unreadable bytes."""
    one, two, broken = [await server.peer() for _ in range(3)]
    await seat(one, "g", "a")
    await two.send(join_request("g", instance="b"), 5)
    await server.barrier()
    two.close()
    await broken.send_bytes(b"\0\0\0\x0c\0\x0b\0\5\0\0\0\1\xff\xff\xff\xff")
    assert await broken.is_closed()
    broken.close()
    await server.until(lambda: len(server.connections()) == 1)


async def deletes(server: Serving, _engine: ManualEngine) -> None:
    """A client deletes a group with an offset, and a topic with a record."""
    peer = await server.peer()
    await peer.ask(commit_request("simple", {("orders", 0): 5}), 8)
    await produce(peer, ("orders", 0, ONE))
    assert not (await peer.ask(DeleteGroupsRequest(groups_names=["simple"]), 2)).results[0].error_code
    assert not (await peer.ask(DeleteTopicsRequest(topic_names=["orders"]), 3)).responses[0].error_code


async def fails_to_write(server: Serving, engine: ManualEngine) -> None:
    """A member's restart can't be written, the partition loads again, and the member keeps its seat."""
    peer, other = await server.peer(), await server.peer()
    await seat(peer, "g", "a")
    engine.fail_next(Unavailable("No space left on device"))
    assert (await other.join("g", instance="a")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await server.until(lambda: bool(server.events("group_loaded")))


async def breaks_at_the_end_of_a_load(server: Serving, engine: ManualEngine) -> None:
    """Our own code fails at the end of a load, and the partition's groups are dropped."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not isinstance(event, Load) or not event.is_last, "it cannot be"
        return handle(self, event, now)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Coordinator, "handle", break_down)
        await fails_to_write(server, engine)


@pytest.mark.parametrize(
    "happens", [restarts, rebalances, waits_for_records, hangs_up, deletes, fails_to_write, breaks_at_the_end_of_a_load]
)
async def test_what_is_over_is_freed_without_the_collector(
    happens: Callable[[Serving, ManualEngine], Awaitable[None]],
) -> None:
    """No work leaves reference cycles: the collector would free them late."""
    for is_first in (True, False):
        engine = ManualEngine(4, 1)
        async with serving(engine=engine) as server:
            await server.barrier()
            with left() as found:
                await happens(server, engine)
                await server.barrier()
            assert is_first or not found  # the first one imports modules and makes codecs


async def logs_in(server: Serving) -> None:
    """Clients log in, again before their session ends, wrongly, with other bytes, or never."""
    member, again, wrong, other, early, broken, half, silent = [
        await server.peer(listener=TIMED if number == 1 else SASL) for number in range(8)
    ]
    await log_in(member)
    await member.ask(METADATA, 4)
    await log_in(again)
    await server.advance(REAUTHENTICATION_PAUSE_MS)
    await log_in(again)
    await wrong.ask(HANDSHAKE, 1)
    await wrong.send(WRONG, 2)
    await other.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-1"), 1)
    await early.send(METADATA, 4)
    await broken.send_bytes(b"\xff" * 50)
    await half.ask(HANDSHAKE, 1)
    half.close()
    await server.advance(AUTHENTICATE_WITHIN_MS)
    assert await silent.is_closed()
    await gone(server, [member, again, wrong, other, early, broken, silent])


async def test_no_login_leaves_a_cycle() -> None:
    """However the login of a client ends, nothing of its connection stays: strangers could fill the server."""
    async with serving(*SETTINGS) as server:
        await logs_in(server)
        with left() as found:
            await logs_in(server)
            await server.barrier()
        assert not found


async def test_no_connection_over_tls_leaves_a_cycle(certificates: Certificates) -> None:
    """A client makes a handshake, sends something else, or is gone before."""

    async def connects() -> None:
        peer = await greeted(server, client_context(certificates.ca))
        await peer.ask(ApiVersionsRequest(), 0)
        plain, early = [await server.peer(listener=1) for _ in range(2)]
        await plain.send_bytes(b"no TLS at all" * 10)
        await server.barrier()
        await gone(server, [peer, plain, early])

    async with serving_tls(certificates) as server:
        await connects()
        with left() as found:
            await connects()
            await server.barrier()
        assert not found


# Looks.


KEEPS_MUCH = """
import gc
from coordinator.loop.cycles import GC_OBJECTS, YOUNG_LOOKS, settle
sizes = []
gc.callbacks.append(lambda phase, info: sizes.append(sum(map(len, map(gc.get_objects, range(info["generation"] + 1))))))
settle()
sizes.clear()
kept = [[] for _ in range(40 * GC_OBJECTS)]
print(gc.get_stats()[0]["collections"], max(sizes) / GC_OBJECTS / (YOUNG_LOOKS + 2))
"""


def test_old_objects_are_not_looked_at_again() -> None:
    """A look has new and young objects only: the objects of ten thousand groups would hold up every request."""
    done = subprocess.run([sys.executable, "-c", KEEPS_MUCH], capture_output=True, check=True)
    looks, largest = map(float, done.stdout.split())
    assert looks >= 30
    assert largest <= 1.1


LEAVES_CYCLES = """
import gc
from coordinator.loop.cycles import GC_OBJECTS, settle
settle()
class Cycle:
    def __init__(self):
        self.itself = self
        self.more = [self]
under_way = []
for _ in range(20 * GC_OBJECTS):
    under_way.append(Cycle())
    del under_way[:-500]
print(sum(isinstance(each, Cycle) for each in gc.get_objects()))
"""


def test_cycles_of_requests_are_freed() -> None:
    """Objects that refer to themselves are freed soon after their use, though 500 of them are in use in each look."""
    done = subprocess.run([sys.executable, "-c", LEAVES_CYCLES], capture_output=True, check=True)
    assert int(done.stdout) <= 5 * cycles.GC_OBJECTS


def test_old_objects_are_looked_at_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in which nothing becomes old has no such look; another one has one a minute, and one after much growth.

    A look that takes long comes less often.
    """
    clock, became_old, blocks, looks, took_ms = ManualClock(), [10], [cycles.GROWN_BLOCKS], [], [0.5]

    def look() -> float:
        looks.append(clock.ms())
        return took_ms[0]

    monkeypatch.setattr(cycles, "_look", look)
    monkeypatch.setattr(cycles, "_looks_at_young", lambda: became_old[0])
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks[0])
    server = cycles.Looks(clock)

    def looks_within(wait_ms: int) -> int:
        """How many looks there are in that time, if objects have just become old."""
        became_old[0] += 1
        before = len(looks)
        clock.advance(wait_ms)
        return len(looks) - before

    clock.advance(10 * cycles.REST_MS)
    assert not looks
    took_ms[0] = 100.0
    assert looks_within(10 * cycles.REST_MS) == 1
    assert looks_within(100 * cycles.REST_FACTOR - 10 * cycles.REST_MS) == 0
    took_ms[0] = 0.5
    assert looks_within(2 * cycles.CHECK_MS) == 1
    assert looks_within(cycles.REST_MS // 2) == 0
    blocks[0] *= cycles.GROWN_FACTOR
    assert looks_within(cycles.CHECK_MS) == 0
    blocks[0] += 1
    assert looks_within(cycles.CHECK_MS) == 1
    server.end()
    assert looks_within(10 * cycles.REST_MS) == 0


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_a_look_frees_what_became_old() -> None:
    """A cycle that was in use until it was old is freed, and the time of the look comes back."""
    used = Cycle()
    gc.collect()
    over = weakref.ref(used)
    del used
    gc.collect(1)
    assert over() is not None
    assert cycles._look() > 0
    assert over() is None
