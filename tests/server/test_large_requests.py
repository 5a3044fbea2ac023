"""A large request holds nobody up: every API, every field that a client can make large, beside another client's member.

Work is counted, not time: `Work` counts the lines that the server runs on the loop's thread, and the server's clock
shows that count. So a turn of the loop is as long on any machine, and `Pace` cuts it by work. What must hold beside
each request:

- no turn of the loop has more than TURN_LINES_MAX lines;
- the other member's heartbeats are answered meanwhile, with NONE;
- the request gets an answer, or its connection ends with one log line, which blames the client.

The requests come from the definitions (tests/support/large.py). It is short in every run. `make fuzz` takes more
numbers of elements, and sends requests of any size, up to the largest frame, to a real server.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from coordinator.server.wire.api import handler
from protocol.connection import SIZE_BYTES
from protocol.header import decode_response
from protocol.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    ListConfigResourcesRequest,
)
from schemas.api_keys import API_KEYS
from schemas.errors import ErrorCode
from tests.protocol.strategies import share
from tests.server.harness import (
    ManualClock,
    Serving,
    connected,
    heartbeat_request,
    join_request,
    seat,
    serving,
    sync_request,
)
from tests.server.nodes.test_topic_data import set_config
from tests.server.requests.test_records import ONE, fetch_request, produce_request
from tests.support.large import (
    CONTENT,
    DISTINCT,
    EMPTY,
    EQUAL,
    HEADER,
    LONG,
    TAGS,
    TEXT_MAX,
    Shape,
    elements_of,
    fitting,
    is_newest,
    request,
    shapes,
)
from tests.support.length import IS_NIGHTLY, most_are_long
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import configs_request, describe_configs_request
from tests.support.tenure import Tenure

LINES_PER_MS = 250
"""Lines of the server that take a millisecond of its clock."""

TURN_LINES_MAX = 2_500
"""The most lines of a turn: five times as many as `Pace` gives to it, because a step is not cut."""

LONG_TEXT_LINES = 2 * 2 * TEXT_MAX
"""Lines of a step with a text of TEXT_MAX bytes, for which Java's hash takes two lines a byte; and of half a step."""

ELEMENTS_MAX = 100_000
"""See tenure.request.max.elements."""


COUNTS = (10, 1_000, 3_000, ELEMENTS_MAX // 2) if IS_NIGHTLY else (3_000,)
"""Elements: more than a turn could handle, if each took one line."""


FRAME_BYTES_MAX = 100 * 1024 * 1024 if IS_NIGHTLY else 300_000
"""The largest request to a real server; in a long run it is socket.request.max.bytes."""

MEMORY_FACTOR, ELEMENT_BYTES = 4, 1_100
"""A request may take this many times its size, and this many bytes besides for each element that is allowed."""

SESSION_MS = 6_000
"""The shortest that a server allows by default: a server that stops for longer costs the member its seat."""

SHAPES = list(shapes())

FEW = frozenset(
    [
        *{shape.api: shape for shape in reversed(SHAPES) if shape.kind == EMPTY}.values(),
        *{shape.kind: shape for shape in SHAPES}.values(),
    ]
)
"""Shapes for `make test`: an array of each API that has one, and each kind."""


def is_older(shape: Shape) -> bool:
    """Whether `make nightly` alone tries it: a handler is the same for each version."""
    return not is_newest(shape)


(MOST_MEMORY,) = (
    each for each in SHAPES if is_newest(each) and (each.api, each.kind) == ("ConsumerGroupDescribe", DISTINCT)
)
"""The shape whose elements take the most memory, with their answers."""

GROUP, INSTANCE = "large", "instance"
"""The group of the client that sends large requests, and its instance there."""


class Work:
    """Counts the lines of the server that run on this thread, in each turn of the loop.

    lines: so far. turns: the lines of each turn since `begin`.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.turns: list[int] = []
        self._turn_began = 0
        self._is_counted: dict[str, bool] = {}
        self._counting = False

    def begin(self) -> None:
        """Count from here on."""
        self.turns.clear()
        self._turn_began = self.lines
        self._counting = True
        sys.settrace(self._called)
        asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        """Count no further."""
        sys.settrace(None)
        self._counting = False

    def _turn(self) -> None:
        if self._counting:
            self.turns.append(self.lines - self._turn_began)
            self._turn_began = self.lines
            asyncio.get_running_loop().call_soon(self._turn)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        name = frame.f_code.co_filename
        counted = self._is_counted.get(name)
        if counted is None:
            counted = self._is_counted[name] = is_counted(name)
        return self._ran if counted else None

    def _ran(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.lines += 1
        return self._ran


def is_counted(name: str) -> bool:
    """Whether a file is the server's, or a compiled codec. Compiling a codec happens once, so it doesn't count."""
    if name.endswith(("protocol/source.py", "protocol/definition.py", "protocol/compile.py")):
        return False
    return "/coordinator/" in name or "/protocol/" in name or name.startswith(("<decode ", "<encode "))


class WorkClock(ManualClock):
    """A clock that goes on with work."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def ms(self) -> int:
        """As Clock.ms."""
        return super().ms() + self._work.lines // LINES_PER_MS


@pytest.fixture(autouse=True)
def counting_ends() -> Iterator[None]:
    """A test that fails leaves no count of lines behind."""
    yield
    sys.settrace(None)


def count_of(shape: Shape, count: int) -> int:
    """How many elements a shape may have, if others have `count`: a text of 32 KB is large, and bytes are small.

    Each marker of a transaction is an append: 50,000 take half a minute of CPU while lines are counted.
    """
    if shape.api == "WriteTxnMarkers":
        count = min(count, 5_000)
    if shape.kind == CONTENT:
        return 500 * count
    if shape.kind == LONG:
        return max(1, count // 30)
    return max(1, min(count, (ELEMENTS_MAX - len(shape.path)) // elements_of(shape)))


def turn_lines(shape: Shape) -> int:
    """The most lines that a turn may run for a request of this shape."""
    return TURN_LINES_MAX + (LONG_TEXT_LINES if shape.kind == LONG else 0)


async def beside(server: Serving, work: Work, shape: Shape, count: int) -> bytes | None:
    """Send a request beside a member of another group, and assert that nobody is held up; the answer, if any."""
    victim, sender, other = await server.peer(), await server.peer(), await server.peer()
    joined = await seat(victim, "g", "i")
    own = await seat(other, GROUP, INSTANCE)
    beat = heartbeat_request("g", joined, "i")
    assert (await victim.ask(beat, 4)).error_code == ErrorCode.NONE
    values: dict[str, str | int | None] = {
        "member_id": own.member_id,
        "generation_id": own.generation_id,
        "generation_id_or_member_epoch": own.generation_id,
        "group_instance_id": INSTANCE,
    }
    frame = request(shape, count, values)
    handler(API_KEYS[shape.api])  # imports its module, which happens once
    await server.barrier()
    before = len(server.events())
    work.begin()
    try:
        sending = asyncio.ensure_future(sender.send_bytes(frame))
        receiving = asyncio.ensure_future(sender.receive_frame())
        beats = 0
        while not receiving.done():
            assert (await victim.ask(beat, 4)).error_code == ErrorCode.NONE
            beats += 1
    finally:
        work.end()
    await asyncio.gather(sending, return_exceptions=True)
    answer = receiving.result()
    await server.barrier()
    events = server.events()[before:]
    assert [each for each in events if each["level"] == "error"] == []
    closed = [each for each in events if each["event"] == "connection_closed"]
    assert len(closed) == (answer is None)
    most, all_of_it = max(work.turns), sum(work.turns)
    allowed = turn_lines(shape)
    assert most <= allowed, f"a turn of {most} lines"
    assert beats >= all_of_it // (2 * allowed), f"{beats} heartbeats beside {all_of_it} lines"
    return answer


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", most_are_long(SHAPES, FEW.__contains__, rare=is_older), ids=str)
async def test_a_large_request_holds_nobody_up(shape: Shape, count: int) -> None:
    """Neither decoding nor handling nor answering it makes a turn long."""
    work = Work()
    async with serving(clock=WorkClock(work)) as server:
        await beside(server, work, shape, count_of(shape, count))
        assert max(work.turns) <= turn_lines(shape)


@pytest.mark.parametrize("api", ["OffsetCommit", "FindCoordinator", "JoinGroup", "DescribeGroups"])
async def test_a_thousand_elements_in_a_few_kilobytes_hold_nobody_up(api: str) -> None:
    """Such a request is decoded in steps, and its handler may get it without steps; a join has the most protocols."""
    for shape in shapes(api):
        if shape.kind in {EMPTY, EQUAL}:
            work = Work()
            async with serving(clock=WorkClock(work)) as server:
                await beside(server, work, shape, 1_000)
                assert max(work.turns) <= turn_lines(shape)


@pytest.mark.parametrize(
    "shape",
    most_are_long([each for each in SHAPES if each.kind in {EMPTY, TAGS, HEADER}], FEW.__contains__, rare=is_older),
    ids=str,
)
async def test_more_elements_than_allowed_cost_the_connection(shape: Shape) -> None:
    """One element more than the limit, or as many tagged fields, and the connection ends with one log line."""
    work = Work()
    async with serving(clock=WorkClock(work)) as server:
        assert await beside(server, work, shape, ELEMENTS_MAX + 1) is None


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_very_many_topic_partitions_hold_nobody_up(policy: str) -> None:
    """A request of 50 bytes makes 10,000 of them: looking for old records and for logs to compact is cut, too."""
    work = Work()
    times = ("log.retention.check.interval.ms=1000", "log.cleaner.backoff.ms=1000")
    async with connected(*times, "tenure.topics=many:5000", clock=WorkClock(work)) as (server, peer):
        await set_config(peer, "log.cleanup.policy", policy)
        beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
        work.begin()
        try:
            server.clock.advance(1_000)
            while sum(work.turns) < 5_000 * 5:
                assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE
        finally:
            work.end()
        assert max(work.turns) <= TURN_LINES_MAX, f"a turn of {max(work.turns)} lines"


def _about_settings(groups: list[str]) -> Iterable[tuple[Any, int]]:
    """Requests that set, show, list and remove a setting of these groups, each with its version."""
    setting = "consumer.session.timeout.ms"
    return (
        (configs_request(32, groups, {setting: "50000"}), 1),
        (describe_configs_request(32, *groups, keys=[setting]), 4),
        (ListConfigResourcesRequest(resource_types=[32]), 1),
        (configs_request(32, groups, {setting: None}), 1),
    )


async def test_settings_of_very_many_groups_hold_nobody_up() -> None:
    """They are set, shown, listed and removed by one request each."""
    names = [f"group-{number}" for number in range(1_500)]
    work = Work()
    async with serving(clock=WorkClock(work)) as server:
        victim, peer = await server.peer(), await server.peer()
        beat = heartbeat_request("g", await seat(victim, "g", "i"), "i")
        for asked, version in _about_settings(names[:1]):
            await peer.ask(asked, version)  # what is made once would count in a turn
        for asked, version in _about_settings(names):
            data = peer.frame(asked, version)
            peer._due.clear()
            work.begin()
            try:
                sending = asyncio.ensure_future(peer.send_bytes(data))
                answering = asyncio.ensure_future(peer.receive_frame())
                while not answering.done():
                    assert (await victim.ask(beat, 4)).error_code == ErrorCode.NONE
            finally:
                work.end()
            await sending
            frame = answering.result()
            assert frame is not None
            assert asked.API_KEY is not None
            answer = decode_response(asked.API_KEY, version, frame)[1]
            results = getattr(answer, {32: "results", 44: "responses", 74: "config_resources"}[asked.API_KEY])
            assert len(results) == len(names)
            assert max(work.turns) <= TURN_LINES_MAX, f"a turn of {max(work.turns)} lines for {asked.NAME}"
        assert server.server.runtime.group_configs == {}


async def test_very_many_who_wait_for_the_same_records_hold_nobody_up() -> None:
    """They look again one after the other, and each gets the records that came."""
    work = Work()
    async with connected(clock=WorkClock(work)) as (server, peer):
        beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
        readers = [await server.peer() for _ in range(200)]
        for reader in readers:
            await reader.send(fetch_request(("orders", 0, 0), ("orders", 1, 0), max_wait_ms=2**31 - 1), 11)
        await server.until(lambda: sum(each.waits for each in server.connections()) == len(readers))
        await server.barrier()
        await peer.send(produce_request(("orders", 0, ONE)), 7)
        work.begin()
        try:
            await peer.receive()
            while any(each.waits for each in server.connections()):
                assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE
        finally:
            work.end()
        assert max(work.turns) <= TURN_LINES_MAX, f"a turn of {max(work.turns)} lines"
        for reader in readers:
            assert (await reader.receive()).responses[0].partitions[0].records


def peak_bytes(pid: int) -> int:
    """The most memory of a process since the last call; it is what the process has, if there was none."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return int(found[1]) * 1024


@pytest.mark.long
@example(shape=MOST_MEMORY, bits=21)
@given(shape=st.sampled_from(SHAPES), bits=st.floats(13, FRAME_BYTES_MAX.bit_length()))
@settings(share(100), suppress_health_check=[HealthCheck.too_slow])
def test_a_large_request_to_a_real_server_costs_nobody_a_seat(shape: Shape, bits: float) -> None:
    """Heartbeats of the other member are answered in its session; memory is bounded by the request's size."""
    data = fitting(shape, min(int(2**bits), FRAME_BYTES_MAX), ELEMENTS_MAX)
    with Tenure({"tenure.topics": "orders:3", "offsets.topic.num.partitions": 4}) as tenure:
        victim = Connection(tenure.port)
        joined: JoinGroupResponse = victim.ask(join_request("g", instance="i", session_ms=SESSION_MS), 5)
        assert victim.ask(sync_request("g", joined, "i"), 5).error_code == 0
        mark = tenure.mark()
        peak_bytes(tenure.pid)
        before = peak_bytes(tenure.pid)
        sending = threading.Thread(target=until_answered, args=(tenure.port, data))
        sending.start()
        while sending.is_alive():
            answer: HeartbeatResponse = victim.ask(heartbeat_request("g", joined, "i"), 4)
            assert answer.error_code == ErrorCode.NONE
        sending.join()
        assert [event for event in tenure.events(since=mark) if event["level"] == "error"] == []
        assert peak_bytes(tenure.pid) - before <= MEMORY_FACTOR * len(data) + ELEMENT_BYTES * ELEMENTS_MAX
        victim.close()
        assert tenure.stop() == 0


def until_answered(port: int, data: bytes) -> None:
    """Send a request, and return when the server has answered it or has closed the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as client, suppress(ConnectionError):
        client.sendall(data)
        size = client.recv(SIZE_BYTES, socket.MSG_WAITALL)
        left = int.from_bytes(size)
        while left > 0 and (got := client.recv(min(left, 1 << 20))):
            left -= len(got)
