"""Loads: a loading partition refuses as Kafka does, takes some groups at a time, and leaves damage to a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.any_group import CommittedOffset
from coordinator.group.group import Group, Member
from coordinator.group.partition import partition_for
from coordinator.group.records import group_record, offset_record
from coordinator.group.replay import DECODED_AT_ONCE, Replay
from coordinator.log.engine import Damaged, Done, EngineError, Fenced, Ownership, Page, Unavailable
from coordinator.loop.clock import Arguments
from coordinator.server.runtime.partition import Standing
from coordinator.server.runtime.trouble import BACKOFF_MAX_MS, BACKOFF_MIN_MS
from protocol.messages import (
    HeartbeatRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.server.harness import (
    connected,
    heartbeat_request,
    seat,
    serving,
)
from tests.server.runtime.calls import FULL, commit, committed
from tests.support.memory import ManualEngine


class Loading(ManualEngine):
    """An engine that holds back its loads until `go`, or lets them fail."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.loads = 0
        self.outcomes: dict[int, EngineError] = {}
        self._stays = True
        self._waiting: list[Callable[[], None]] = []

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """Load later, or at once after `go`."""

        def go() -> None:
            outcome = self.outcomes.pop(own.partition, None)
            if outcome is None:
                super(Loading, self).load(own, page, done)
            else:
                done(outcome)

        self.loads += 1
        if self._stays:
            self._waiting.append(go)
        else:
            go()

    def go(self) -> None:
        """Let all loads go on, also later ones."""
        self._stays = False
        for load in self._waiting:
            load()


def test_a_group_with_very_many_offsets_is_decoded_in_steps() -> None:
    """No step decodes more than DECODED_AT_ONCE of them: a load would hold up other groups' heartbeats otherwise."""
    count = 50 * DECODED_AT_ONCE
    offset = CommittedOffset(7, -1, "", 1_000, None)
    replay = Replay()
    replay.add([offset_record("g", f"t{number % 3}", number, offset, 1_000) for number in range(count)])
    replay.add([group_record(Group("h", None), None, 1_000)])
    steps = list(replay.groups_in_steps())
    group, other = (step for step in steps if step is not None)
    assert steps[-2:] == [group, other]
    assert len(steps) == 1 + count // DECODED_AT_ONCE
    assert (group.group_id, sum(map(len, group.offsets.values()))) == ("g", count)
    assert group.offsets["t1"][1] == offset


async def test_a_load_of_one_large_group_lets_the_loop_have_its_turns() -> None:
    """Between the steps of one group other requests are answered; then its offsets are all there."""
    engine = Loading()
    offset = CommittedOffset(7, -1, "", 1_000, None)
    partition = partition_for("g", 4)
    records = [offset_record("g", "orders", number, offset, 1_000) for number in range(30 * DECODED_AT_ONCE)]
    engine.records[partition] = records
    async with serving("tenure.topics=orders:3000", engine=engine) as server:
        hops = 0
        hop = server.server.runtime.hop

        def counted(function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
            nonlocal hops
            hops += 1
            hop(function, *arguments)

        server.server.runtime.hop = counted  # type: ignore[method-assign]
        engine.go()
        await server.loaded()
        assert hops >= 29
        group = server.server.runtime.partitions[partition].coordinator.groups["g"]
        assert len(group.offsets["orders"]) == 30 * DECODED_AT_ONCE


async def test_requests_while_loading_are_refused_as_kafka_does() -> None:
    """JoinGroup gets COORDINATOR_LOAD_IN_PROGRESS, Heartbeat NONE, SyncGroup REBALANCE_IN_PROGRESS."""
    engine = Loading()
    async with connected(engine=engine) as (server, peer):
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert (await peer.ask(heartbeat, 4)).error_code == ErrorCode.NONE
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
        assert (await peer.ask(sync, 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await peer.ask(ListGroupsRequest(), 4)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await committed(peer, "g"))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        engine.go()
        await server.loaded()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE
        assert (await peer.ask(ListGroupsRequest(), 4)).error_code == ErrorCode.NONE


async def test_records_of_newer_protocols_are_counted() -> None:
    """One line names the other kinds of records in a partition; the partition's groups are served (KIP-915)."""
    engine = ManualEngine(4, 1)
    engine.records[2] = [Record(b"\0\x0b" + bytes([n]), b"", 0) for n in range(2)] + [Record(b"\x12\x34", None, 0)]
    async with serving("offsets.topic.num.partitions=4", engine=engine) as server:
        await server.until(lambda: bool(server.events("records_skipped")))
        (line,) = server.events("records_skipped")
        assert line["partition"] == 2
        assert line["records"] == {"share_group_metadata": 2, "key version 4660": 1}
        await server.loaded()


async def test_a_damaged_partition_is_refused_and_the_others_serve() -> None:
    """Its groups get COORDINATOR_NOT_AVAILABLE, a line names file and position, and the partition never loads again."""
    engine = Loading()
    damaged = partition_for("g", 4)
    other = next(f"g{n}" for n in range(100) if partition_for(f"g{n}", 4) != damaged)
    engine.outcomes[damaged] = Damaged("00000.log", 77, "a checksum is wrong")
    async with serving(engine=engine) as server:
        engine.go()
        await server.loaded()
        peer = await server.peer()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert (await peer.ask(heartbeat, 4)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await peer.join(other, instance="i")).error_code == ErrorCode.NONE
        (line,) = server.events("partition_damaged")
        assert (line["partition"], line["file"], line["position"]) == (damaged, "00000.log", 77)
        assert line["level"] == "error"
        assert "docs/run/disk-trouble.md#a-partition-is-refused" in line["message"]
        assert server.events("partitions_loaded")[0]["partitions"] == 3
        await server.advance(10 * BACKOFF_MAX_MS)
        assert engine.loads == 4


async def test_a_load_that_finds_another_owner_leaves_the_partition_to_it() -> None:
    """If the engine learns in a load that another node owns the partition, its groups get NOT_COORDINATOR here."""
    engine = Loading()
    engine.outcomes[partition_for("g", 4)] = Fenced("node 2 owns it")
    async with serving(engine=engine) as server:
        engine.go()
        peer = await server.peer()
        partition = server.server.runtime.partition_of("g")
        await server.until(lambda: bool(server.events("partition_refused")))
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NOT_COORDINATOR
        assert (partition.standing, partition.ownership) == (Standing.AWAY, None)
        await server.advance(10 * BACKOFF_MAX_MS)
        assert engine.loads == 4


async def test_a_partition_that_can_not_be_read_is_tried_again() -> None:
    """A read error that may pass is COORDINATOR_NOT_AVAILABLE until a later load succeeds."""
    engine = Loading()
    engine.outcomes[partition_for("g", 4)] = Unavailable("Input/output error")
    async with serving(engine=engine) as server:
        engine.go()
        await server.loaded()
        peer = await server.peer()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert server.events("partition_refused")[0]["reason"] == "Input/output error"
        await server.advance(BACKOFF_MAX_MS)
        await server.barrier()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "record", [Record(b"\0\2\0\1g", b"\0\3garbage", 0), Record(b"\0", b"", 0)], ids=["value", "key"]
)
async def test_records_that_can_not_be_decoded_refuse_their_partition(record: Record) -> None:
    """A record that can't be decoded refuses the whole partition; it is not loaded in part."""
    engine = ManualEngine(4, 1)
    partition = partition_for("g", 4)
    engine.records[partition] = [record]
    async with serving(engine=engine) as server:
        await server.loaded()
        peer = await server.peer()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert server.events("partition_refused")[0]["partition"] == partition


async def test_groups_come_back_from_the_log() -> None:
    """A second server on the same log has the generation, members and offsets of the first."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (_, peer):
        joined = await seat(peer, "g", "i")
        assert await commit(peer, "other", 42) == ErrorCode.NONE
    async with serving(engine=engine) as server:
        await server.loaded()
        peer = await server.peer()
        assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert await committed(peer, "other") == (ErrorCode.NONE, 42)
        assert sorted(line["group"] for line in server.events("group_loaded")) == ["g", "other"]
        assert server.events("partitions_loaded")[0]["groups"] == 2


def group_records(count: int) -> tuple[int, list[Record]]:
    """The number of a partition (of four), and records of its groups g0, g1, ..., each with a static member i."""
    partition = partition_for("g0", 4)
    made: list[Record] = []
    for group_id in (f"g{number}" for number in range(20 * count)):
        if partition_for(group_id, 4) == partition and len(made) < count:
            group = Group(group_id, 0)
            group.generation = 1
            group.protocol_type, group.protocol_name = "consumer", "range"
            member = Member("m", "i", "c", "/127.0.0.1", 60_000, 10_000, [("range", b"")], b"")
            group.add(member)
            made.append(group_record(group, 0, 0))
    return partition, made


GROUPS = 500
"""Groups that take so many turns of the loop that two joins are answered meanwhile."""


async def test_groups_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the groups of one partition are decoded, other partitions serve, and this one answers as in a load."""
    monkeypatch.setattr("coordinator.server.runtime.loading.LOADED_AT_ONCE", 1)
    engine = Loading()
    index, engine.records[0] = group_records(GROUPS)
    engine.records[index], engine.records[0] = engine.records[0], engine.records[index]
    other = next(f"h{n}" for n in range(100) if partition_for(f"h{n}", 4) != index)
    async with connected(engine=engine) as (server, peer):
        partition = server.server.runtime.partitions[index]
        engine.go()
        await server.until(lambda: server.server.runtime.partition_of(other).standing is Standing.ACTIVE)
        assert (await peer.join(other, instance="i")).error_code == ErrorCode.NONE
        assert (await peer.join("g0", instance="i")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert 0 < len(partition.coordinator.groups) < GROUPS
        await server.loaded()
        assert len(partition.coordinator.groups) == GROUPS
        assert (await peer.join("g0", instance="i")).error_code == ErrorCode.NONE


async def test_sessions_start_in_full_when_all_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a load takes, each session starts at its end, with its full timeout."""
    monkeypatch.setattr("coordinator.server.runtime.loading.LOADED_AT_ONCE", 1)
    engine = Loading()
    index, records = group_records(3)
    engine.records[index] = records
    async with serving(engine=engine) as server:
        await server.barrier()
        runtime = server.server.runtime
        held: list[Callable[[], None]] = []
        wake, runtime._wake = runtime._wake, held.append
        engine.go()
        held.pop()()
        while runtime.partitions[index].standing is Standing.LOADING:
            await server.advance(11_000)
            held.pop()()
        runtime._wake = wake
        assert len(runtime.partitions[index].coordinator.groups) == 3
        await server.advance(9_999)
        assert server.events("member_expired") == []
        await server.advance(2 * BACKOFF_MIN_MS)
        assert len(server.events("member_expired")) == 3


async def test_a_partition_that_is_lost_in_the_middle_of_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node owns it, so the load stops. When the partition comes back, all groups are loaded."""
    monkeypatch.setattr("coordinator.server.runtime.loading.LOADED_AT_ONCE", 1)
    engine = Loading()
    index, records = group_records(3)
    engine.records[index] = records
    async with serving(engine=engine) as server:
        await server.barrier()
        runtime = server.server.runtime
        partition = runtime.partitions[index]
        held: list[Callable[[], None]] = []
        wake, runtime._wake = runtime._wake, held.append
        engine.go()
        held.pop()()
        assert len(partition.coordinator.groups) == 1
        assert partition.ownership is not None
        runtime._ownership_changed(index, 2, partition.ownership.epoch + 1)
        while held:
            held.pop()()
        assert runtime.partitions[index].standing is Standing.AWAY
        assert partition.coordinator.groups == {}
        runtime._ownership_changed(index, None, partition.life)
        while held:
            held.pop()()
        runtime._wake = wake
        assert runtime.partitions[index].standing is Standing.ACTIVE
        assert len(partition.coordinator.groups) == 3


async def test_loading_again_and_again_leaves_no_timers() -> None:
    """A coordinator that is replaced takes its timers back from the clock."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        await seat(peer, "g", "i")
        simple = next(f"h{n}" for n in range(100) if partition_for(f"h{n}", 4) == partition_for("g", 4))
        asked = []
        for _ in range(10):
            engine.fail_next(FULL)
            assert await commit(peer, simple, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.barrier()
            assert await committed(peer, simple) == (ErrorCode.NONE, -1)
            asked.append(len(server.clock._timers))
            server.server.runtime.partition_of("g").trouble.retry_ms = 0
        assert asked == asked[:1] * 10
