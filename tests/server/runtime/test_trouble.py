"""A failing log is tried again after longer and longer pauses, and each trouble has one line."""

from __future__ import annotations

from coordinator.server.runtime.trouble import BACKOFF_MAX_MS, BACKOFF_MIN_MS
from schemas.errors import ErrorCode
from tests.server.harness import (
    connected,
)
from tests.server.runtime.calls import FULL, commit, commit_request
from tests.support.memory import ManualEngine


async def test_the_pause_between_tries_grows() -> None:
    """Each failed try doubles the pause, up to BACKOFF_MAX_MS; only one try runs at a time."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        pause_ms = BACKOFF_MIN_MS
        for _ in range(7):
            engine.fail_next(FULL)
            assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(pause_ms - 1)
            # The log was not tried: the prepared failure has not happened yet.
            assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(1)
            pause_ms = min(2 * pause_ms, BACKOFF_MAX_MS)
        assert len(server.events("log_failed")) == 1
        engine.hold = True
        trying, second = await server.peer(), await server.peer()
        await trying.send(commit_request("g", 3), 7)
        await server.barrier()
        assert trying.is_silent()
        assert await commit(second, "g", 4) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        engine.flush()
        assert (await trying.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_each_failure_of_the_log_is_told_of_once() -> None:
    """After a recovery the next failure has a line again."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        for number in (1, 2):
            engine.fail_next(FULL)
            assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(BACKOFF_MIN_MS)
            assert await commit(peer, "g", 2) == ErrorCode.NONE
            assert len(server.events("log_failed")) == len(server.events("log_recovered")) == number


async def test_a_trouble_has_the_time_of_its_first_failure() -> None:
    """A further failure doesn't move the time; the next trouble after a recovery has its own."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        trouble = server.server.runtime.partition_of("g").trouble
        for _ in range(2):
            began_ms = server.clock.wall_ms()
            for _ in range(2):
                engine.fail_next(FULL)
                assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert (trouble.since_ms, trouble.reason) == (began_ms, str(FULL))
                await server.advance(BACKOFF_MAX_MS)
            assert await commit(peer, "g", 2) == ErrorCode.NONE
            assert trouble.reason == ""
