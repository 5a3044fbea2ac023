"""The runtime: windows of appends, wake-ups of the loop, and freed memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

from coordinator.log.engine import Fenced
from coordinator.loop.pace import Pace
from coordinator.server.runtime.loading import Loading
from coordinator.server.runtime.replies import Reply
from coordinator.server.runtime.runtime import HELD_MAX_MS
from coordinator.server.wire.repeated_commits import Commit
from protocol.messages import DescribeGroupsRequest
from schemas.errors import ErrorCode
from tests.server.harness import (
    Peer,
    Serving,
    serving,
    sync_request,
)
from tests.server.runtime.calls import commit, commit_request, committed
from tests.support.memory import ManualEngine


async def test_one_wake_up_serves_many_outcomes() -> None:
    """However many outcomes the engine reports between two turns, it wakes the loop once."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine) as server:
        peers = [await server.peer() for _ in range(5)]
        for peer in peers:
            await committed(peer, "g")
        engine.hold = True
        for index, connection in enumerate(server.connections()):
            connection.data_received(peers[index].frame(commit_request(f"g{index}", index), 7))
        await server.until(lambda: len(engine._held) > 1)
        woken = 0
        wake = server.server.runtime._wake

        def count(function: Callable[[], None]) -> object:
            nonlocal woken
            woken += 1
            return wake(function)

        server.server.runtime._wake = count
        engine.flush()
        for peer in peers:
            assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert woken == 1


async def test_what_comes_while_a_window_is_under_way_goes_with_the_next_one() -> None:
    """The log gets one window at a time: the first append alone, then the others together."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine) as server:
        peers = [await server.peer() for _ in range(4)]
        for peer in peers:
            await committed(peer, "g")
        engine.hold = True
        for offset, peer in enumerate(peers):
            await peer.send(commit_request("g", offset), 7)
            await server.barrier()
            await server.until(lambda: bool(engine._held))
        assert len(engine._held) == 1
        for answered in (1, 3):
            (append,) = engine._held
            assert isinstance(append, partial)
            assert len(append.args[1]) == answered
            engine.flush()
            for peer in peers[:answered]:
                assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE
            del peers[:answered]
            await server.until(lambda: bool(engine._held) or not peers)


async def test_a_window_waits_for_company_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the engine after HELD_MAX_MS, even if each turn of the loop adds to it."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine) as server:
        peers = [await server.peer() for _ in range(HELD_MAX_MS + 2)]
        for peer in peers:
            await committed(peer, "g")
        engine.hold = True
        turns: list[Callable[[], None]] = []
        with monkeypatch.context() as patched:
            patched.setattr(server.server.runtime, "_soon", turns.append)
            patched.setattr(Pace, "has_time", lambda _: True)
            taken = 0
            for peer, connection in zip(peers, server.connections(), strict=True):
                connection.data_received(peer.frame(commit_request(f"g{taken}", 1), 7))
                if engine._held:
                    break
                turns.pop()()
                taken += 1
                server.clock.advance(1)
        for turn in turns:
            turn()
        engine.hold = False
        engine.flush()
        assert taken == HELD_MAX_MS + 1
        for peer in peers:
            assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_a_member_id_is_made_from_the_ids_that_are_handed_in(server: Serving) -> None:
    """Ids come from the server's source, so a test can predict them."""
    peer = await server.peer("client")
    joined = await peer.join("g")
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert joined.member_id.startswith("client-00000000-0000-0000-0000-")


async def test_nothing_of_an_answered_request_is_left_to_the_garbage_collector(server: Serving) -> None:
    """A request is freed with its answer, whether the answer waited for records or not."""
    await server.loaded()
    peer = await server.peer()
    gc.collect()
    gc.disable()
    try:
        joined = await peer.join("g", instance="i")
        assert (await peer.ask(sync_request("g", joined, "i"), 3)).error_code == ErrorCode.NONE
        assert await commit(peer, "other", 1) == ErrorCode.NONE
        # The connection keeps its last commit, which is a Commit.
        assert [each for each in gc.get_objects() if isinstance(each, Reply) and type(each) is not Commit] == []
    finally:
        gc.enable()


async def test_nothing_of_a_load_is_left_to_a_partition_that_serves(server: Serving) -> None:
    """The records that it has read are freed."""
    await server.loaded()
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Loading)] == []


async def test_the_end_waits_for_no_window_of_a_partition_that_was_lost(peer: Peer, server: Serving) -> None:
    """A commit waits for the next window when its partition is lost. It is refused, and the end waits for nothing."""
    await committed(peer, "g")
    (connection,) = server.connections()
    connection.data_received(peer.frame(commit_request("g", 1), 7))
    runtime = server.server.runtime
    runtime.partition_of("g").step_down(Fenced("another node"))
    ended: list[bool] = []
    runtime.when_idle(lambda: ended.append(True))
    assert not ended
    await server.until(lambda: bool(ended))
    assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_ids_of_absent_groups_are_not_remembered(peer: Peer, server: Serving) -> None:
    """Anybody may ask for any number of groups that don't exist: only the ids of those that do stay in memory."""
    assert await commit(peer, "there", 1) == ErrorCode.NONE
    absent = [f"absent-{number}" for number in range(100)]
    answer = await peer.ask(DescribeGroupsRequest(groups=["there", *absent]), 5)
    assert [group.group_id for group in answer.groups] == ["there", *absent]
    assert await committed(peer, absent[0]) == (ErrorCode.NONE, -1)
    assert list(server.server.runtime._partition_of) == ["there"]
