"""The runtime: loading, records before answers, failed writes, timers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects, Response
from coordinator.group.events import DescribeGroup, Event, Load, Now
from coordinator.group.group import Group, Member
from coordinator.group.partition import partition_for
from coordinator.group.records import group_record
from coordinator.group.turn import Turn
from coordinator.log.engine import Damaged, Done, EngineError, Fenced, Ownership, Page, Unavailable
from coordinator.log.memory import MemoryEngine
from coordinator.server.runtime.runtime import BACKOFF_MAX_MS, BACKOFF_MIN_MS, DELIVERED_AT_ONCE, Reply, Standing
from coordinator.server.telemetry.lines import Lines
from coordinator.server.wire.call import Call
from coordinator.server.wire.repeated_commits import Commit
from protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    Message,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from protocol.record_batch import Record
from schemas.errors import ErrorCode
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

FULL = Unavailable("No space left on device")


def commit_request(group: str, offset: int, partition: int = 0) -> OffsetCommitRequest:
    """A commit of a simple consumer."""
    asked = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[asked])
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])


async def commit(peer: Peer, group: str, offset: int) -> int:
    """Commit; the error code."""
    answer = await peer.ask(commit_request(group, offset), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer, group: str) -> tuple[int, int]:
    """Error code and the offset that is committed."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    answer = await peer.ask(OffsetFetchRequest(group_id=group, topics=[topic]), 7)
    if answer.error_code:
        return answer.error_code, -1
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


# Loading.


class Loading(MemoryEngine):
    """Holds back what a load has to say until it is told, or makes it fail."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.loads = 0
        self.outcomes: dict[int, EngineError] = {}
        self._stays = True
        self._waiting: list[Callable[[], None]] = []

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """As Engine.load, later."""

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
        """Let every load go on, those to come as well."""
        self._stays = False
        for load in self._waiting:
            load()


async def test_requests_while_loading_are_refused_as_kafka_does() -> None:
    """Join gets COORDINATOR_LOAD_IN_PROGRESS, a heartbeat is told that all is well, a sync to join again."""
    engine = Loading()
    async with serving(engine=engine) as server:
        peer = await server.peer()
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
    """KIP-915: one line for a partition that holds records of other kinds, with their names; its groups are served."""
    engine = MemoryEngine(4, 1)
    engine.records[2] = [Record(b"\0\3" + bytes([n]), b"", 0) for n in range(2)] + [Record(b"\x12\x34", None, 0)]
    async with serving("offsets.topic.num.partitions=4", engine=engine) as server:
        await server.until(lambda: bool(server.events("records_skipped")))
        (line,) = server.events("records_skipped")
        assert line["partition"] == 2
        assert line["records"] == {"consumer_group_metadata": 2, "key version 4660": 1}
        await server.loaded()


async def test_a_damaged_partition_is_refused_and_the_others_serve() -> None:
    """COORDINATOR_NOT_AVAILABLE where the log is damaged, with a line that says where; all else goes on, for good."""
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
        assert 'docs/operations.md, "A partition is refused"' in line["message"]
        assert server.events("partitions_loaded")[0]["partitions"] == 3
        await server.advance(10 * BACKOFF_MAX_MS)
        assert engine.loads == 4


async def test_a_partition_that_can_not_be_read_is_tried_again() -> None:
    """What may work later is refused meanwhile, and served when it works."""
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


async def test_records_that_can_not_be_decoded_refuse_their_partition() -> None:
    """A log in order with a record that makes no sense is refused, not loaded in part."""
    engine = MemoryEngine(4, 1)
    partition = partition_for("g", 4)
    engine.records[partition] = [Record(b"\0\2\0\1g", b"\0\3garbage", 0)]
    async with serving(engine=engine) as server:
        await server.loaded()
        peer = await server.peer()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert server.events("partition_refused")[0]["partition"] == partition


async def test_groups_come_back_from_the_log() -> None:
    """A second server on the same log goes on where the first was: generation, members, offsets."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
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
    """The groups g0, g1, ... of one partition, each with a static member i, and which partition of four that is."""
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


async def test_groups_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the many groups of one partition are decoded, requests to others are answered, and to it as in a load."""
    monkeypatch.setattr("coordinator.server.runtime.runtime.LOADED_AT_ONCE", 1)
    engine = Loading()
    index, engine.records[0] = group_records(100)
    engine.records[index], engine.records[0] = engine.records[0], engine.records[index]
    other = next(f"h{n}" for n in range(100) if partition_for(f"h{n}", 4) != index)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        partition = server.server.runtime.partitions[index]
        engine.go()
        await server.until(lambda: server.server.runtime.partition_of(other).standing is Standing.ACTIVE)
        assert (await peer.join(other, instance="i")).error_code == ErrorCode.NONE
        assert (await peer.join("g0", instance="i")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert 0 < len(partition.coordinator.groups) < 100
        await server.loaded()
        assert len(partition.coordinator.groups) == 100
        assert (await peer.join("g0", instance="i")).error_code == ErrorCode.NONE


async def test_sessions_start_in_full_when_all_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a load takes, nobody expires before it could be heard of, and nobody stays for longer either."""
    monkeypatch.setattr("coordinator.server.runtime.runtime.LOADED_AT_ONCE", 1)
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
    """What was still to be taken goes nowhere, as another node serves it. Once it is given up, all is loaded."""
    monkeypatch.setattr("coordinator.server.runtime.runtime.LOADED_AT_ONCE", 1)
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
    """What the clock was asked for on behalf of a coordinator that was thrown away is taken back."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        await seat(peer, "g", "i")
        simple = next(f"h{n}" for n in range(100) if partition_for(f"h{n}", 4) == partition_for("g", 4))
        asked = []
        for _ in range(10):
            engine.fail_next(FULL)
            assert await commit(peer, simple, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.barrier()
            assert await committed(peer, simple) == (ErrorCode.NONE, -1)
            asked.append(len(server.clock._timers))
            server.server.runtime.partition_of("g").retry_ms = 0
        assert asked == asked[:1] * 10


# Records before answers.


async def test_no_answer_before_its_record_is_durable() -> None:
    """A SyncGroup is answered when the group's record is durable, and a read behind it too; other groups go on."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer, reader, other = [await server.peer() for _ in range(3)]
        joined = await peer.join("g", instance="i")
        engine.hold = True
        await peer.send(sync_request("g", joined, "i"), 5)
        await server.barrier()
        await reader.send(DescribeGroupsRequest(groups=["g"]), 4)
        await other.send(ListGroupsRequest(), 4)
        await server.barrier()
        assert peer.is_silent()
        assert reader.is_silent()
        assert other.is_silent()
        elsewhere = await server.peer()
        assert (await elsewhere.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert (await elsewhere.ask(DescribeGroupsRequest(groups=["h"]), 4)).groups[0].group_state == "Dead"
        engine.flush()
        assert (await peer.receive()).error_code == ErrorCode.NONE
        assert (await reader.receive()).groups[0].group_state == "Stable"
        assert [group.group_id for group in (await other.receive()).groups] == ["g"]


def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the server does from now on, in its order: "lines" for each write of log lines, "answer" for each answer."""
    done: list[str] = []
    put, deliver = Lines.put, Call.deliver

    def put_and_tell(lines: Lines, texts: Sequence[str]) -> None:
        done.append("lines")
        put(lines, texts)

    def deliver_and_tell(call: Call, body: Message) -> None:
        done.append("answer")
        deliver(call, body)

    monkeypatch.setattr(Lines, "put", put_and_tell)
    monkeypatch.setattr(Call, "deliver", deliver_and_tell)
    return done


async def test_lines_of_a_turn_are_one_write_before_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups are formed in one turn of the loop: one write has the lines of both, then both are answered."""
    async with serving() as server:
        peers = [await server.peer() for _ in range(2)]
        done = steps(monkeypatch)
        for number, peer in enumerate(peers):
            peer.socket.send(peer.frame(join_request(f"g-{number}", instance="i"), 5))
        for peer in peers:
            assert (await peer.receive()).error_code == ErrorCode.NONE
        assert done == ["lines", "answer", "answer"]
        assert len(server.events("generation_started")) == 2


async def test_an_answer_that_waited_for_the_log_comes_behind_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a join rests on becomes durable before the turn of the join is over: its line is written first."""
    engine = MemoryEngine(4, 1)
    async with serving("offsets.topic.num.partitions=4", engine=engine) as server:
        await server.loaded()
        committing, joining = await server.peer(), await server.peer()
        engine.hold = True
        await committing.send(commit_request("g", 1), 7)
        await server.barrier()
        handle = Coordinator.handle

        def handle_and_flush(coordinator: Coordinator, event: Event, now: Now) -> Effects:
            effects = handle(coordinator, event, now)
            engine.flush()
            return effects

        monkeypatch.setattr(Coordinator, "handle", handle_and_flush)
        done = steps(monkeypatch)
        assert (await joining.join("g", version=4)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert done == ["lines", "answer", "answer"]


async def test_nobody_is_fenced_by_a_replacement_that_is_not_durable() -> None:
    """A static restart whose record is under way: the old member's heartbeat waits, and if the write fails it goes on.

    KAFKA-10284, KAFKA-9659: on a failed append the old member stays the valid one.
    """
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        old, new = await server.peer(), await server.peer()
        joined = await seat(old, "g", "i")
        engine.hold = True
        await new.send(join_request("g", instance="i"), 5)
        await server.until(lambda: server.server.runtime.partition_of("g").gate.busy)
        nameless = await server.peer()
        await old.send(heartbeat_request("g", joined, "i"), 4)
        await nameless.send(heartbeat_request("g", joined), 4)
        await server.barrier()
        assert old.is_silent()
        assert nameless.is_silent()
        assert not server.events("member_replaced")
        engine.fail_next(FULL)
        engine.hold = False
        engine.flush()
        assert (await new.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await old.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await nameless.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.barrier()
        assert (await old.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert not server.events("member_replaced")
        assert not server.events("member_fenced")


# A log that fails.


async def test_a_failed_commit_leaves_no_trace_and_works_again() -> None:
    """15 for the commit, the former offset stays; when the disk works again, so do commits; one line each way."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        engine.fail_next(FULL)
        assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.barrier()
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)
        assert await commit(peer, "g", 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)
        await server.advance(BACKOFF_MIN_MS)
        assert await commit(peer, "g", 4) == ErrorCode.NONE
        assert await commit(peer, "g", 5) == ErrorCode.NONE
        assert await committed(peer, "g") == (ErrorCode.NONE, 5)
        assert server.events("log_failed")[0]["reason"] == "No space left on device"
        assert len(server.events("log_failed")) == len(server.events("log_recovered")) == 1


async def test_members_keep_their_seats_while_the_log_fails() -> None:
    """Heartbeats and reads are answered as before; what would write is refused, none of it reaches the log."""
    engine = MemoryEngine(1, 1)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        peer, writer = await server.peer(), await server.peer()
        joined = await seat(peer, "g", "i")
        written = len(engine.records[0])
        engine.fail_next(FULL)
        assert await commit(writer, "h", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.barrier()
        refused = {
            "join": await writer.ask(join_request("h"), 3),
            "sync": await writer.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 3),
            "leave": await writer.ask(LeaveGroupRequest(group_id="g", member_id="m"), 2),
        }
        assert {name: answer.error_code for name, answer in refused.items()} == dict.fromkeys(
            refused, ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        deleted = await writer.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        described = await writer.ask(DescribeGroupsRequest(groups=["g"]), 4)
        assert described.groups[0].group_state == "Stable"
        assert len(engine.records[0]) == written


async def test_the_pause_between_tries_grows() -> None:
    """Each failed try doubles the time until the next, up to the limit; only one is under way at a time."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        pause_ms = BACKOFF_MIN_MS
        for _ in range(7):
            engine.fail_next(FULL)
            assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(pause_ms - 1)
            # Nothing was tried: the failure that is set up is still to come.
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


async def test_whoever_waits_is_answered_when_a_write_fails() -> None:
    """A member that waits in JoinGroup learns at once that its coordinator starts anew, and looks for it again."""
    engine = MemoryEngine(1, 1)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        first, second, writer = [await server.peer() for _ in range(3)]
        member = await seat(first, "g", "a")
        await second.send(join_request("g", instance="b"), 5)
        await server.until(lambda: len(server.events("member_joined")) == 2)
        engine.fail_next(FULL)
        assert await commit(writer, "h", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await second.receive()).error_code == ErrorCode.NOT_COORDINATOR
        await server.barrier()
        # The group is back in its last synced generation: the waiting member never was.
        assert (await first.ask(heartbeat_request("g", member, "a"), 4)).error_code == ErrorCode.NONE
        described = await writer.ask(DescribeGroupsRequest(groups=["g"]), 4)
        assert [each.group_instance_id for each in described.groups[0].members] == ["a"]


async def test_an_expiry_waits_while_the_log_fails() -> None:
    """A session that ends meanwhile ends once writing may be tried again: the group is emptied, durably."""
    engine = MemoryEngine(1, 1)
    settings = ("offsets.topic.num.partitions=1", "group.min.session.timeout.ms=1000")
    async with serving(*settings, engine=engine) as server:
        peer, writer = await server.peer(), await server.peer()
        joined = await peer.ask(join_request("g", instance="a", session_ms=1_300), 5)
        assert (await peer.ask(sync_request("g", joined), 3)).error_code == ErrorCode.NONE
        for pause_ms in (BACKOFF_MIN_MS, 2 * BACKOFF_MIN_MS, 4 * BACKOFF_MIN_MS - 1):
            # Each load starts the session anew; the last one ends within the pause.
            engine.fail_next(FULL)
            assert await commit(writer, "h", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(pause_ms)
        assert server.events("member_expired") == []
        await server.advance(1)
        assert len(server.events("member_expired")) == 1
        assert len(server.events("group_emptied")) == 1
        assert len(server.events("log_recovered")) == 1
        assert engine.records[0][-1].key[4:] == b"g"


async def test_a_fenced_owner_steps_down() -> None:
    """When somebody else owns the partition, its groups are NOT_COORDINATOR here and nothing is tried again."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        engine._failure = Fenced("node 2 owns it")  # type: ignore[assignment]
        assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await commit(peer, "g", 3) == ErrorCode.NOT_COORDINATOR
        assert (await committed(peer, "g"))[0] == ErrorCode.NOT_COORDINATOR
        assert len(server.events("partition_lost")) == 1
        assert server.server.runtime.partition_of("g").standing is Standing.AWAY


async def test_what_another_node_owns_is_refused_by_every_request() -> None:
    """Its groups are NOT_COORDINATOR here, so that the client asks where they are; the rest is served and listed."""
    engine = MemoryEngine(4, 1, owners=[1, 2, 1, 2])
    ours, theirs = (next(name for name in "abcdefgh" if partition_for(name, 4) % 2 == odd) for odd in (0, 1))
    async with serving(engine=engine) as server:
        await server.loaded()
        (line,) = server.events("partitions_loaded")
        assert line["partitions"] == 2
        assert "from 2 of 2 partitions" in line["message"]
        peer = await server.peer()
        await seat(peer, ours, "i")
        joined = await peer.join(theirs, instance="i")
        leave = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i")
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name="orders", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
        )
        described = await peer.ask(DescribeGroupsRequest(groups=[theirs, ours]), 4)
        deleted = await peer.ask(DeleteGroupsRequest(groups_names=[theirs]), 2)
        errors = {
            "JoinGroup": joined.error_code,
            "SyncGroup": (await peer.ask(sync_request(theirs, joined), 4)).error_code,
            "Heartbeat": (await peer.ask(heartbeat_request(theirs, joined), 4)).error_code,
            "LeaveGroup": (await peer.ask(LeaveGroupRequest(group_id=theirs, members=[leave]), 4)).error_code,
            "OffsetCommit": await commit(peer, theirs, 1),
            "OffsetFetch": (await committed(peer, theirs))[0],
            "OffsetDelete": (await peer.ask(OffsetDeleteRequest(group_id=theirs, topics=[topic]), 0)).error_code,
            "DescribeGroups": described.groups[0].error_code,
            "DeleteGroups": deleted.results[0].error_code,
        }
        assert set(errors.values()) == {ErrorCode.NOT_COORDINATOR}, errors
        assert described.groups[1].error_code == ErrorCode.NONE
        listed = await peer.ask(ListGroupsRequest(), 4)
        assert (listed.error_code, [group.group_id for group in listed.groups]) == (ErrorCode.NONE, [ours])
    assert not engine.records[1]
    assert not engine.records[3]


# A coordinator that breaks down.


async def test_a_coordinator_that_breaks_down_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion in the core: the request is answered -1, who waits is told, and the log says what is true."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not (isinstance(event, DescribeGroup) and event.group_id == "bad"), "it cannot be"
        return handle(self, event, now)

    monkeypatch.setattr(Coordinator, "handle", break_down)
    async with serving("offsets.topic.num.partitions=1", engine=MemoryEngine(1, 1)) as server:
        first, second, admin = [await server.peer() for _ in range(3)]
        member = await seat(first, "g", "a")
        await second.send(join_request("g", instance="b"), 5)
        await server.until(lambda: len(server.events("member_joined")) == 2)
        described = await admin.ask(DescribeGroupsRequest(groups=["bad", "g"]), 4)
        assert described.groups[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await second.receive()).error_code == ErrorCode.NOT_COORDINATOR
        (line,) = server.events("coordinator_broke")
        assert "it cannot be" in line["message"]
        await server.barrier()
        assert (await first.ask(heartbeat_request("g", member, "a"), 4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_what_is_appended_in_one_turn_goes_to_the_log_before_a_load(
    monkeypatch: pytest.MonkeyPatch, *, is_repeated: bool
) -> None:
    """A commit and an event that breaks the coordinator come in one turn: the commit is loaded, though refused.

    One like the commit before is only looked at behind that, and refused.
    """
    real = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not isinstance(event, DescribeGroup), "cannot be"
        return real(self, event, now)

    monkeypatch.setattr(Coordinator, "handle", break_down)
    async with serving() as server:
        first, second = await server.peer(), await server.peer()
        await first.ask(commit_request("g", 1, partition=0 if is_repeated else 1), 7)
        assert await commit(second, "g", 1) == ErrorCode.NONE
        connections = {connection.peer: connection for connection in server.connections()}
        for peer, frame in (
            (first, first.frame(commit_request("g", 2), 7)),
            (second, second.frame(DescribeGroupsRequest(groups=["g"]), 4)),
        ):
            host, port = peer.socket.getsockname()
            connections[f"{host}:{port}"].data_received(frame)
        await server.until(lambda: len(server.events("coordinator_broke")) == 1)
        answer = await first.receive()
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_repeated else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answer.topics[0].partitions[0].error_code == error
        third = await server.peer()
        assert await committed(third, "g") == (ErrorCode.NONE, 1 if is_repeated else 2)


async def test_a_log_that_breaks_the_coordinator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If already the load breaks it, the partition is refused instead of loaded over and over."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not isinstance(event, Load), "it cannot be"
        return handle(self, event, now)

    monkeypatch.setattr(Coordinator, "handle", break_down)
    async with serving("offsets.retention.check.interval.ms=1000") as server:
        await server.loaded()
        peer = await server.peer()
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(server.events("coordinator_broke")) == len(server.events("partition_refused")) == 4
        # Nothing of the coordinator that broke is left: no group, and no chore that finds a partition in no state.
        await server.advance(2_000)
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_whoever_a_broken_event_had_taken_out_of_its_group_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is told to try again even if the coordinator lost it before it broke."""

    def break_down(_: Turn, answers: Sequence[object]) -> None:
        assert len(answers) != 3, "it cannot be"

    monkeypatch.setattr(Turn, "answer_all", break_down)
    async with serving("group.initial.rebalance.delay.ms=100", engine=MemoryEngine(4, 1)) as server:
        peers = [await server.peer() for _ in "abc"]
        for peer, instance in zip(peers, "abc", strict=True):
            await peer.send(join_request("g", instance=instance), 5)
        await server.until(lambda: len(server.events("member_joined")) == 3)
        await server.advance(200)
        for peer in peers:
            error = (await peer.receive()).error_code
            assert error in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


async def test_each_failure_of_the_log_is_told_of_once() -> None:
    """And the next one again, after it recovered."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        for number in (1, 2):
            engine.fail_next(FULL)
            assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.advance(BACKOFF_MIN_MS)
            assert await commit(peer, "g", 2) == ErrorCode.NONE
            assert len(server.events("log_failed")) == len(server.events("log_recovered")) == number


async def test_a_full_disk_under_the_log_lines_costs_no_answer() -> None:
    """What is to be said about a failure must not keep it from being dealt with."""
    engine = MemoryEngine(4, 1)
    async with serving(engine=engine) as server:
        peer = await server.peer()
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        server._log.close()
        engine.fail_next(FULL)
        assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.barrier()
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)


# Timers.


async def test_a_silent_member_expires_and_one_with_heartbeats_does_not() -> None:
    """Session timeouts run on the server's clock; a heartbeat moves them."""
    async with serving() as server:
        alive, silent = await server.peer(), await server.peer()
        joined = await seat(alive, "alive", "a")
        await seat(silent, "silent", "a")
        for _ in range(4):
            await server.advance(4_000)
            assert (await alive.ask(heartbeat_request("alive", joined, "a"), 4)).error_code == ErrorCode.NONE
        assert [line["group"] for line in server.events("member_expired")] == ["silent"]


async def test_expired_offsets_are_removed_at_the_interval() -> None:
    """Every offsets.retention.check.interval.ms the partitions look for what is over, again and again."""
    async with serving("offsets.retention.minutes=1", "offsets.retention.check.interval.ms=10000") as server:
        peer = await server.peer()
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        await server.advance(50_000)
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)
        await server.advance(20_000)
        assert await committed(peer, "g") == (ErrorCode.NONE, -1)
        (line,) = server.events("offsets_removed")
        assert line["expired"]


async def test_a_fenced_heartbeat_is_noted() -> None:
    """The short cut of heartbeats takes no notes, so a fenced one goes the long way."""
    async with serving() as server:
        old, new = await server.peer(), await server.peer()
        joined = await seat(old, "g", "i")
        assert (await new.join("g", instance="i")).error_code == ErrorCode.NONE
        answer = await old.ask(heartbeat_request("g", joined, "i"), 4)
        assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
        (line,) = server.events("member_fenced")
        assert (line["operation"], line["group_instance_id"]) == ("heartbeat", "i")


async def test_one_wake_up_serves_many_outcomes() -> None:
    """However many outcomes the engine reports before the loop comes round, the loop is woken once."""
    engine = MemoryEngine(4, 1)
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
    """The log gets one window at a time: the first append alone, those behind it together when that is durable."""
    engine = MemoryEngine(4, 1)
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


async def test_a_member_id_is_made_from_the_ids_that_are_handed_in() -> None:
    """Ids come from the server's source, so a test can foresee them."""
    async with serving() as server:
        peer = await server.peer("client")
        joined = await peer.join("g")
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert joined.member_id.startswith("client-00000000-0000-0000-0000-")


# What stays behind.


async def test_nothing_of_an_answered_request_is_left_to_the_garbage_collector() -> None:
    """A request that was answered, at once or behind its records, is gone with its answer."""
    async with serving() as server:
        await server.loaded()
        peer = await server.peer()
        gc.collect()
        gc.disable()
        try:
            joined = await peer.join("g", instance="i")
            assert (await peer.ask(sync_request("g", joined, "i"), 3)).error_code == ErrorCode.NONE
            assert await commit(peer, "other", 1) == ErrorCode.NONE
            # A commit that the connection remembers is its own.
            assert [each for each in gc.get_objects() if isinstance(each, Reply) and type(each) is not Commit] == []
        finally:
            gc.enable()


# In turns.


class Hurried(ManualClock):
    """Each look at it takes a millisecond: whatever can be put off is."""

    def ms(self) -> int:
        """As Clock.ms."""
        self._ms += 1
        return super().ms()


async def crowd(server: Serving, members: int) -> tuple[list[Peer], JoinGroupRequest]:
    """A group of so many, which wait in JoinGroup for the first to rejoin, and with which request it does."""
    peers = [await server.peer() for _ in range(members)]
    first = await peers[0].join("g", instance="0")
    for number, peer in enumerate(peers[1:], 1):
        await peer.send(join_request("g", instance=str(number)), 5)
        await server.barrier()
    return peers, join_request("g", first.member_id, instance="0")


async def test_many_answers_to_one_request_all_come() -> None:
    """However short the turns are: each member is answered, a request behind that too, and a stop waits for it."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers, last = await crowd(server, 12)
        await peers[0].send(last, 5)
        joined = [await peer.receive() for peer in peers]
        assert {answer.generation_id for answer in joined} == {2}
        for number in reversed(range(12)):
            await peers[number].send(sync_request("g", joined[number], str(number)), 3)
        assert {(await peer.receive()).error_code for peer in peers} == {ErrorCode.NONE}


class Noted(Reply):
    """Where an answer goes: into a list."""

    def __init__(self, answers: list[object]) -> None:
        self._answers = answers

    def deliver(self, body: object) -> None:
        """As Reply.deliver."""
        self._answers.append(body)


async def test_answers_to_many_requests_of_a_turn_take_turns_before_others_are_heard() -> None:
    """As many wait for the lines of a turn as it has requests: no turn takes twice as long for them."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        runtime = server.server.runtime
        partition, happened = runtime.partition_of("g"), list[object]()
        for number in range(3 * DELIVERED_AT_ONCE):
            reply = Noted(happened)
            partition.unanswered[reply] = DescribeGroup(reply, 5, "g")
            runtime._answers.append((partition, [Response(reply, number)]))
        while runtime._pace.has_time():
            pass
        runtime._pace.later(lambda: happened.append("another is heard"))
        runtime._end_turn()
        assert happened == list(range(DELIVERED_AT_ONCE))
        assert runtime.busy
        await server.until(lambda: "another is heard" in happened)
        assert happened == [*range(3 * DELIVERED_AT_ONCE), "another is heard"]
        assert not runtime.busy


async def test_many_outcomes_of_the_log_are_all_taken() -> None:
    """Appends that become durable at the same time, of many groups, are each answered, in however many turns."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers = [await server.peer() for _ in range(12)]
        for number, peer in enumerate(peers):
            await peer.send(commit_request(f"g{number}", 1), 7)
        answers = [await peer.receive() for peer in peers]
        assert {answer.topics[0].partitions[0].error_code for answer in answers} == {ErrorCode.NONE}


async def test_an_answer_that_was_put_off_does_not_outlive_its_partition() -> None:
    """Who was not answered when the partition is unloaded is told that, and told once."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers, last = await crowd(server, 6)
        runtime = server.server.runtime
        pace = runtime._pace
        while pace._until_ms is not None:
            turned = asyncio.Event()
            asyncio.get_running_loop().call_soon(turned.set)
            await turned.wait()
        turns: list[Callable[[], None]] = []
        soon, pace._soon = pace._soon, turns.append
        await peers[0].send(last, 5)
        assert (await peers[0].receive()).error_code == ErrorCode.NONE
        assert runtime.busy
        runtime._unload(runtime.partition_of("g"))
        pace._soon = soon
        turns.pop()()
        errors = [(await peer.receive()).error_code for peer in peers[1:]]
        assert set(errors) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        await server.until(lambda: not runtime.busy)
