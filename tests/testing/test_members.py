"""Members without clients: their group is what the server says it is, and what they are told happens to it.

The server runs in the test's loop, on a clock that stands still unless a test moves it; the members run in a thread of
their own, on the wall clock, with heartbeats every 20 ms. Calls that wait for members go through a thread, as they
block.

House rule: what must hold is read from the server's log lines or from what the members got, never from a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import confluent_kafka
import pytest

from coordinator.client.errors import Refused
from coordinator.testing.member import Doing, NotSeated
from coordinator.testing.members import Members, fill
from tests.server.harness import Serving, serving
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.tenure import Tenure, wait_until

SESSION_MS = 45_000
REBALANCE_MS = 300_000

OPENED: list[Members] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Stop all members, and see that their threads are gone."""
    yield
    while OPENED:
        OPENED.pop().stop()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("members of")] == []


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    """Yield a server in memory, with the settings of tests."""
    async with serving() as made:
        yield made


def members_of(server: Serving, count: int, **options: Any) -> Members:
    """Fill group "g" with members that subscribe to `orders`, which has three partitions."""
    host, port = server.server.address
    options = {"topics": ["orders"], "heartbeat_interval_ms": 20, **options}
    OPENED.append(fill(f"{host}:{port}", "g", count, **options))
    return OPENED[-1]


async def seated(members: Members, generation: int = 0) -> int:
    """Wait until all members are in one generation."""
    return await asyncio.to_thread(members.wait_until_seated, generation, within_s=WITHIN_S)


def seats(members: Members) -> list[tuple[int, ...]]:
    """The partitions of `orders` that each member has."""
    return [tuple(member.assignment.get("orders", ())) for member in members]


def rebalances(server: Serving) -> int:
    """How many rebalances began."""
    return len(server.events("rebalance_started"))


async def test_members_form_a_group(server: Serving) -> None:
    """Static members come to one generation, share the partitions in ranges, and have instance ids by their index."""
    members = members_of(server, 3, client_id="worker")
    generation = await seated(members)
    assert [member.instance_id for member in members] == ["worker-0", "worker-1", "worker-2"]
    assert [member.generation for member in members] == [generation] * 3
    assert seats(members) == [(0,), (1,), (2,)]
    completed = server.events("rebalance_completed")[-1]
    assert (completed["generation"], completed["members"], completed["static_members"]) == (generation, 3, 3)
    assert {event["client_id"] for event in server.events("member_joined")} == {"worker"}


async def test_dynamic_members_form_a_group(server: Serving) -> None:
    """Without instance ids the members join with the ids that the coordinator gives them."""
    members = members_of(server, 4, static=False)
    await seated(members)
    assert [member.instance_id for member in members] == [None] * 4
    assert sorted(seats(members)) == [(), (0,), (1,), (2,)]
    assert server.events("rebalance_completed")[-1]["static_members"] == 0


async def test_a_restart_moves_nothing(server: Serving) -> None:
    """Each static member that restarts, the leader among them, gets a new id and its old seat; no generation ends."""
    members = members_of(server, 3)
    generation = await seated(members)
    before, ids, begun = seats(members), [member.member_id for member in members], rebalances(server)
    for index in range(3):
        await asyncio.to_thread(members.restart, index)
        assert await seated(members) == generation
    assert seats(members) == before
    assert not set(ids) & {member.member_id for member in members}
    assert [event["old_member_id"] for event in server.events("member_replaced")] == ids
    assert rebalances(server) == begun


async def test_a_silent_member_expires(server: Serving) -> None:
    """After its session timeout the others share its partitions; when it speaks, it learns that and joins again."""
    others = members_of(server, 2, session_timeout_ms=2 * SESSION_MS, client_id="other")
    one = members_of(server, 1, session_timeout_ms=SESSION_MS)
    await seated(one)
    generation = await seated(others, one[0].generation)
    assert await seated(one, generation) == generation
    one.fall_silent(0)
    await server.advance(SESSION_MS)
    (expired,) = server.events("member_expired")
    assert expired["group_instance_id"] == "member-0"
    assert await seated(others, generation + 1) == generation + 1
    assert sorted(seats(others)) == [(0, 1), (2,)]
    assert (one[0].is_silent, one[0].generation) == (True, generation)
    one.speak_again(0)
    assert await seated(one, generation + 2) == await seated(others, generation + 2)
    assert not one[0].is_silent


async def test_a_member_that_speaks_again_in_time_keeps_its_seat(server: Serving) -> None:
    """Within its session timeout a silence costs nothing."""
    members = members_of(server, 3)
    generation = await seated(members)
    begun = rebalances(server)
    members.fall_silent(1)
    members.speak_again(1)
    assert await seated(members) == generation
    assert rebalances(server) == begun


async def test_a_leave_rebalances(server: Serving) -> None:
    """The others share the partitions of a member that leaves; a restart brings it back."""
    members = members_of(server, 3)
    generation = await seated(members)
    await asyncio.to_thread(members.leave, 1)
    assert members[1].doing is Doing.LEFT
    assert await seated(members, generation + 1) == generation + 1
    assert [seats(members)[index] for index in (0, 2)] == [(0, 1), (2,)]
    assert [event["group_instance_id"] for event in server.events("member_left")] == ["member-1"]
    await asyncio.to_thread(members.restart, 1)
    assert await seated(members, generation + 2) == generation + 2
    assert seats(members) == [(0,), (1,), (2,)]


async def test_no_rebalance_waits_for_the_interval(server: Serving) -> None:
    """Members with heartbeats once an hour form their group at once, and rebalance at once when one leaves."""
    members = members_of(server, 5, heartbeat_interval_ms=3_600_000)
    generation = await seated(members)
    await asyncio.to_thread(members.leave, 1)
    assert await seated(members, generation + 1) == generation + 1


async def test_a_member_that_left_cannot_leave_again(server: Serving) -> None:
    """A refused LeaveGroup is an error for its caller."""
    members = members_of(server, 2)
    await seated(members)
    await asyncio.to_thread(members.leave, 1)
    with pytest.raises(Refused, match="LeaveGroup of member-1: UNKNOWN_MEMBER_ID"):
        await asyncio.to_thread(members.leave, 1)


async def test_a_slow_member_is_waited_for_until_the_rebalance_timeout(server: Serving) -> None:
    """A slow member goes on with heartbeats and doesn't join; the others go on without it, and it joins anew."""
    members = members_of(server, 3, static=False, session_timeout_ms=2 * REBALANCE_MS)
    generation = await seated(members)
    members.be_slow(0, 3_600)
    await asyncio.to_thread(members.leave, 2)
    await server.until(lambda: wait_in_join(server) == 1)
    assert members[0].doing is Doing.SEATED
    await server.advance(REBALANCE_MS)
    assert await seated(members, generation + 2) == generation + 2
    sizes = {event["generation"]: event["members"] for event in server.events("generation_started")}
    assert (sizes[generation + 1], sizes[generation + 2]) == (1, 2)
    assert sorted(seats(members)[:2]) == [(0, 1), (2,)]


async def test_a_slow_member_joins_when_it_is_slow_no_more(server: Serving) -> None:
    """The group waits for a slow member alone, and ends its rebalance with it."""
    members = members_of(server, 3)
    generation = await seated(members)
    slow = members[0].member_id
    members.be_slow(0, 3_600)
    await asyncio.to_thread(members.leave, 2)
    await server.until(lambda: wait_in_join(server) == 1)
    await server.advance(1_000)
    members.be_slow(0, 0)
    assert await seated(members, generation + 1) == generation + 1
    ended = server.events("rebalance_ended")[-1]
    assert (ended["waited_for"]["member_id"], ended["waited_for"]["ms"], ended["after"]) == (slow, 1_000, 2)


def wait_in_join(server: Serving) -> int:
    """How many members of group "g" wait for the answer to their JoinGroup."""
    found = [partition.coordinator.groups.get("g") for partition in server.server.runtime.partitions]
    (group,) = (group for group in found if group is not None)
    return sum(member.awaiting_join is not None for member in group.members.values())


async def test_a_fenced_member_ends(server: Serving) -> None:
    """Members with the same instance ids take the seats; the first ones end, and nobody waits for them."""
    first = members_of(server, 2)
    generation = await seated(first)
    second = members_of(server, 2)
    assert await seated(second) == generation
    await server.until(lambda: all(member.doing is Doing.ENDED for member in first))
    assert {member.trouble for member in first} == {"Heartbeat: FENCED_INSTANCE_ID"}
    with pytest.raises(NotSeated, match="no member takes part"):
        await asyncio.to_thread(first.wait_until_seated, within_s=0)


async def test_a_refused_member_is_named() -> None:
    """A member that the coordinator doesn't take ends, and the wait says so at once."""
    async with serving("group.max.size=2") as server:
        members = members_of(server, 3)
        with pytest.raises(NotSeated, match=r"member-\d: JoinGroup: GROUP_MAX_SIZE_REACHED"):
            await seated(members)


async def test_a_member_that_can_not_be_encoded_is_named(server: Serving) -> None:
    """A request that has no bytes ends its member, the wait says so, and a stop still ends the others."""
    members = members_of(server, 2, session_timeout_ms=2**31)
    with pytest.raises(NotSeated, match=r"member-\d: AssertionError.*JoinGroupRequest"):
        await seated(members)
    await asyncio.to_thread(members.stop)
    await server.until(lambda: not server.connections())


def test_a_server_that_is_not_there_is_named() -> None:
    """Without a server the wait ends in time, and says why the first member has no seat."""
    with refusing_port() as port, fill(f"127.0.0.1:{port}", "g", 2) as members:
        refused = (
            f"2 of 2 members have no seat in generation 0: member-0 is joining, .*127.0.0.1:{port}: Conn.* refused"
        )
        wait_until(lambda: bool(members[0].trouble), "a refused connection", WITHIN_S)
        with pytest.raises(NotSeated, match=refused):
            members.wait_until_seated(within_s=0)


async def test_a_lost_connection_costs_no_seat(server: Serving) -> None:
    """A member whose connection is cut connects again and goes on with heartbeats; it doesn't join again."""
    members = members_of(server, 3)
    generation = await seated(members)
    before, begun = server.connections(), rebalances(server)
    ids = [member.member_id for member in members]
    for connection in before:
        connection.abort()
    await server.until(lambda: len(server.connections()) == 3 and not set(server.connections()) & set(before))
    assert await seated(members) == generation
    assert rebalances(server) == begun
    await asyncio.to_thread(members.leave, 2)
    await seated(members, generation + 1)
    assert [member.member_id for member in members] == ids


async def test_a_hundred_members_with_one_flapping(server: Serving) -> None:
    """A static member that restarts again and again moves nobody; one that leaves each time moves all each time."""
    members = members_of(server, 100)
    generation = await seated(members)
    before = seats(members)
    for _ in range(5):
        await asyncio.to_thread(members.restart, 50)
        assert await seated(members) == generation
    assert seats(members) == before
    for flap in range(1, 6, 2):
        await asyncio.to_thread(members.leave, 0)
        assert await seated(members, generation + flap) == generation + flap
        await asyncio.to_thread(members.restart, 0)
        assert await seated(members, generation + flap + 1) == generation + flap + 1
    assert seats(members) == before


async def test_any_thread_may_call(server: Serving) -> None:
    """Calls of many threads at once all happen."""
    members = members_of(server, 10)
    generation = await seated(members)
    indexes = [*range(10), *([0] * 5)]
    await asyncio.gather(*(asyncio.to_thread(members.restart, index) for index in indexes))
    assert await seated(members) == generation
    replaced = {event["group_instance_id"] for event in server.events("member_replaced")}
    assert replaced == {f"member-{index}" for index in range(10)}
    await server.until(lambda: len(server.connections()) == 10)


async def test_stop_leaves_nothing(server: Serving) -> None:
    """After `stop` the thread and the connections are gone, nobody left the group, and another `stop` does nothing."""
    members = members_of(server, 3)
    await seated(members)
    await asyncio.to_thread(members.stop)
    members.stop()
    with pytest.raises(RuntimeError, match="were stopped"):
        members.restart(0)
    await server.until(lambda: not server.connections())
    assert not server.events("member_left")


def test_wrong_arguments_are_refused() -> None:
    """No thread begins for a group of nobody or an address that is none."""
    with pytest.raises(ValueError, match="1 to 10000 members, not 10001"):
        fill("127.0.0.1:9092", "g", 10_001)
    with pytest.raises(ValueError, match="1 to 10000 members, not 0"):
        fill("127.0.0.1:9092", "g", 0)
    with pytest.raises(ValueError, match="'nowhere' is not HOST:PORT"):
        fill("nowhere", "g", 1)


@pytest.mark.interop
def test_they_share_a_group_with_a_real_consumer() -> None:
    """A consumer of librdkafka and two members have a part of the partitions each, whichever leads."""
    settings = {"group.initial.rebalance.delay.ms": "0", "tenure.topics": "orders:12"}
    with Tenure(settings) as tenure, fill(tenure.bootstrap, "g", 2, topics=["orders"]) as members:
        generation = members.wait_until_seated(within_s=WITHIN_S)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": tenure.bootstrap, "group.id": "g"})
        consumer.subscribe(["orders"])
        try:
            while not consumer.assignment():
                consumer.poll(0.1)
            members.wait_until_seated(generation + 1, within_s=WITHIN_S)
            given = [partition.partition for partition in consumer.assignment()]
            assert sorted([*given, *seats(members)[0], *seats(members)[1]]) == list(range(12))
            assert {len(given), *map(len, seats(members))} == {4}
        finally:
            consumer.close()
