"""A partition: a log that fails, a coordinator that fails, timers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from coordinator.group.client import Now
from coordinator.group.consumer.assignors import subscriber
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects
from coordinator.group.events import DescribeGroup, Event, Load
from coordinator.group.partition import partition_for
from coordinator.group.turn import Turn
from coordinator.log.engine import Acquired, Fenced, Unavailable
from coordinator.server.runtime.partition import Standing
from coordinator.server.runtime.trouble import BACKOFF_MIN_MS
from coordinator.story.diagnosis import LOG_FAILED, LOG_RECOVERED
from protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import (
    Serving,
    connected,
    heartbeat_request,
    join_request,
    seat,
    serving,
    sync_request,
)
from tests.server.requests.test_consumer_groups import join as join_consumers
from tests.server.runtime.calls import FULL, commit, commit_request, committed
from tests.support.memory import ManualEngine, ManualLog
from tests.support.requests import delete_offsets_request


async def test_nobody_is_fenced_by_a_replacement_that_is_not_durable() -> None:
    """While a static restart is not durable, the old member's heartbeat waits; if the write fails, it stays a member.

    KAFKA-10284, KAFKA-9659: after a failed append the old member id is valid.
    """
    engine = ManualEngine(4, 1)
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


class ClaimsLate(ManualEngine):
    """Its first claim of each partition fails; its store then asks for another one. claims: so far, by partition."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.claims = [0] * 4

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine."""
        self.claims[partition] += 1
        if self.claims[partition] == 1:
            done(Unavailable("etcdserver: requested lease not found"))
            self.on_ownership(partition, None, -1)
        else:
            super().acquire(partition, done)


async def test_a_claim_that_the_engine_asks_for_replaces_the_one_that_failed() -> None:
    """The pause after a failed claim must not lead to a claim of a partition that was acquired meanwhile."""
    engine = ClaimsLate()
    async with serving(engine=engine) as server:
        await server.until(lambda: all(each.standing is Standing.ACTIVE for each in server.server.runtime.partitions))
        await server.advance(2 * BACKOFF_MIN_MS)
        assert engine.claims == [2] * 4
        await seat(await server.peer(), "g", "i")
        assert not server.events("coordinator_broke")


async def test_a_load_that_works_ends_the_trouble_of_a_claim() -> None:
    """A partition that is served has no trouble, also if nobody writes to it; one line says so."""
    engine = ClaimsLate()
    async with serving(engine=engine) as server:
        partitions = server.server.runtime.partitions
        await server.until(lambda: all(each.standing is Standing.ACTIVE for each in partitions))
        assert [each.trouble.reason for each in partitions] == [""] * 4
        assert [each.trouble.failures for each in partitions] == [0] * 4
        names = ["partition_refused", "log_recovered"]
        lines = [line for line in server.events() if line.get("partition") == 0 and line["event"] in names]
        assert [line["event"] for line in lines] == names
        assert lines[1]["message"] == "__consumer_offsets-0 is served again"
        await seat(await server.peer(), "g", "i")
        assert len(server.events("log_recovered")) == 4


async def test_a_load_that_works_does_not_show_that_writes_do() -> None:
    """On a full disk a partition loads. Its trouble ends with a write; a load with a claim in a cluster has one."""
    engine = ManualEngine(1, 1)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        runtime = server.server.runtime
        partition = runtime.partitions[0]
        for lease, reason in ((None, str(FULL)), (lambda: True, "")):
            runtime.lease = lease
            engine.fail_next(FULL)
            peer = await server.peer()
            assert await commit(peer, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await server.until(lambda: partition.standing is Standing.ACTIVE)
            assert partition.trouble.reason == str(FULL)
            partition.step_down(Fenced("a newer owner"))
            partition.acquire()
            await server.until(lambda: partition.standing is Standing.ACTIVE)
            assert partition.trouble.reason == reason
            await server.advance(BACKOFF_MIN_MS)
            assert await commit(peer, "g", 2) == ErrorCode.NONE
            assert partition.trouble.reason == ""
        recovered = [line["message"] for line in server.events("log_recovered")]
        assert recovered == [f"__consumer_offsets-0 {what} again" for what in ("can be written", "is served")]


async def test_a_failed_commit_leaves_no_trace_and_works_again() -> None:
    """The commit gets COORDINATOR_NOT_AVAILABLE and the old offset stays. Failure and recovery have one line each."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
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
        (failed,), (recovered,) = server.events("log_failed"), server.events("log_recovered")
        # The doctor names the lines by words in quotes.
        assert LOG_FAILED.split('"')[1] in failed["message"]
        assert LOG_RECOVERED.split('"')[1] in recovered["message"]


async def test_members_keep_their_seats_while_the_log_fails() -> None:
    """Heartbeats and reads are answered; requests that would write are refused, and the log gets nothing."""
    engine = ManualEngine(1, 1)
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


async def test_whoever_waits_is_answered_when_a_write_fails() -> None:
    """A member that waits in JoinGroup gets NOT_COORDINATOR at once, so that it looks for its coordinator again."""
    engine = ManualEngine(1, 1)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        first, second, writer = [await server.peer() for _ in range(3)]
        member = await seat(first, "g", "a")
        await second.send(join_request("g", instance="b"), 5)
        await server.until(lambda: len(server.events("member_joined")) == 2)
        engine.fail_next(FULL)
        assert await commit(writer, "h", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await second.receive()).error_code == ErrorCode.NOT_COORDINATOR
        await server.barrier()
        # The group is back in its last synced generation, without the member that waited.
        assert (await first.ask(heartbeat_request("g", member, "a"), 4)).error_code == ErrorCode.NONE
        described = await writer.ask(DescribeGroupsRequest(groups=["g"]), 4)
        assert [each.group_instance_id for each in described.groups[0].members] == ["a"]


async def test_an_expiry_waits_while_the_log_fails() -> None:
    """A session that ends during the pause expires after it, and the emptied group is durable."""
    engine = ManualEngine(1, 1)
    settings = ("offsets.topic.num.partitions=1", "group.min.session.timeout.ms=1000")
    async with serving(*settings, engine=engine) as server:
        peer, writer = await server.peer(), await server.peer()
        joined = await peer.ask(join_request("g", instance="a", session_ms=1_300), 5)
        assert (await peer.ask(sync_request("g", joined), 3)).error_code == ErrorCode.NONE
        for pause_ms in (BACKOFF_MIN_MS, 2 * BACKOFF_MIN_MS, 4 * BACKOFF_MIN_MS - 1):
            # Each load restarts the session; the last session ends within the pause.
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
    """If another node owns the partition, its groups get NOT_COORDINATOR here, and the log is not tried again.

    So does the commit that found out (Kafka 3.9: NOT_LEADER_OR_FOLLOWER of its append becomes NOT_COORDINATOR).
    """
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        engine.fail_next(Fenced("node 2 owns it"))
        assert await commit(peer, "g", 2) == ErrorCode.NOT_COORDINATOR
        assert await commit(peer, "g", 3) == ErrorCode.NOT_COORDINATOR
        assert (await committed(peer, "g"))[0] == ErrorCode.NOT_COORDINATOR
        assert len(server.events("partition_lost")) == 1
        assert server.server.runtime.partition_of("g").standing is Standing.AWAY


async def test_what_another_node_owns_is_refused_by_every_request() -> None:
    """Groups of another node get NOT_COORDINATOR, so that the client looks for their node; the others are served."""
    engine = ManualLog([1, 2, 1, 2]).engine(1)
    ours, theirs = (next(name for name in "abcdefgh" if partition_for(name, 4) % 2 == odd) for odd in (0, 1))
    async with serving(engine=engine) as server:
        await server.loaded()
        (line,) = server.events("partitions_loaded")
        assert (line["partitions"], line["took_ms"]) == (2, 0)  # the clock of this test stands still
        assert "from 2 of 2 partitions in 0 milliseconds" in line["message"]
        peer = await server.peer()
        await seat(peer, ours, "i")
        joined = await peer.join(theirs, instance="i")
        leave = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i")
        described = await peer.ask(DescribeGroupsRequest(groups=[theirs, ours]), 4)
        deleted = await peer.ask(DeleteGroupsRequest(groups_names=[theirs]), 2)
        errors = {
            "JoinGroup": joined.error_code,
            "SyncGroup": (await peer.ask(sync_request(theirs, joined), 4)).error_code,
            "Heartbeat": (await peer.ask(heartbeat_request(theirs, joined), 4)).error_code,
            "LeaveGroup": (await peer.ask(LeaveGroupRequest(group_id=theirs, members=[leave]), 4)).error_code,
            "OffsetCommit": await commit(peer, theirs, 1),
            "OffsetFetch": (await committed(peer, theirs))[0],
            "OffsetDelete": (await peer.ask(delete_offsets_request(theirs, {"orders": [0]}), 0)).error_code,
            "DescribeGroups": described.groups[0].error_code,
            "DeleteGroups": deleted.results[0].error_code,
        }
        assert set(errors.values()) == {ErrorCode.NOT_COORDINATOR}, errors
        assert described.groups[1].error_code == ErrorCode.NONE
        listed = await peer.ask(ListGroupsRequest(), 4)
        assert (listed.error_code, [group.group_id for group in listed.groups]) == (ErrorCode.NONE, [ours])
    assert not engine.records[1]
    assert not engine.records[3]


async def test_a_coordinator_that_breaks_down_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an assertion in the core its request gets UNKNOWN_SERVER_ERROR, and the partition loads from its log."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not (isinstance(event, DescribeGroup) and event.group_id == "bad"), "it cannot be"
        return handle(self, event, now)

    monkeypatch.setattr(Coordinator, "handle", break_down)
    async with serving("offsets.topic.num.partitions=1", engine=ManualEngine(1, 1)) as server:
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
    """A commit and an event that breaks the coordinator come in one turn: the commit is refused, but loaded again.

    A repeated commit is handled after the other event, so it is refused and not in the log.
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


async def test_a_target_that_breaks_the_coordinator_takes_its_partition_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made behind the heartbeat that asked for it. The partition loads again, and its groups go on."""

    def break_down(_self: Coordinator, group_id: str) -> Iterator[Event | None]:
        yield None
        raise AssertionError(f"{group_id} cannot have a target")

    async with connected("offsets.topic.num.partitions=1") as (server, peer):
        with monkeypatch.context() as patched:
            patched.setattr(subscriber, "UNITS_PER_PAUSE", 1)
            patched.setattr(Coordinator, "target_of", break_down)
            await join_consumers(peer, ["orders"])
            await server.until(lambda: bool(server.events("coordinator_broke")))
        (line,) = server.events("coordinator_broke")
        assert "g cannot have a target" in line["message"]
        await server.barrier()
        assert (await join_consumers(peer, ["orders"])).error_code == ErrorCode.NONE


async def test_a_log_that_breaks_the_coordinator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If even the load breaks the coordinator, the partition is refused and does not load over and over."""
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
        # Nothing of the broken coordinator remains: no group, and no chore that would run on it.
        await server.advance(2_000)
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_whoever_a_broken_event_had_taken_out_of_its_group_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request gets an error to try again, even if the broken event had already taken it out of its group."""

    def break_down(_: Turn, answers: Sequence[object]) -> None:
        assert len(answers) != 3, "it cannot be"

    monkeypatch.setattr(Turn, "answer_all", break_down)
    async with serving("group.initial.rebalance.delay.ms=100", engine=ManualEngine(4, 1)) as server:
        peers = [await server.peer() for _ in "abc"]
        for peer, instance in zip(peers, "abc", strict=True):
            await peer.send(join_request("g", instance=instance), 5)
        await server.until(lambda: len(server.events("member_joined")) == 3)
        await server.advance(200)
        for peer in peers:
            error = (await peer.receive()).error_code
            assert error in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


async def test_a_full_disk_under_the_log_lines_costs_no_answer() -> None:
    """A log line that can't be written does not stop the server from handling the failure."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        server._log.close()
        engine.fail_next(FULL)
        assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.barrier()
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)


async def test_a_silent_member_expires_and_one_with_heartbeats_does_not(server: Serving) -> None:
    """Session timeouts run on the server's clock; a heartbeat renews the session."""
    alive, silent = await server.peer(), await server.peer()
    joined = await seat(alive, "alive", "a")
    await seat(silent, "silent", "a")
    for _ in range(4):
        await server.advance(4_000)
        assert (await alive.ask(heartbeat_request("alive", joined, "a"), 4)).error_code == ErrorCode.NONE
    assert [line["group"] for line in server.events("member_expired")] == ["silent"]


async def test_expired_offsets_are_removed_at_the_interval() -> None:
    """Every offsets.retention.check.interval.ms the partitions remove expired offsets."""
    async with connected("offsets.retention.minutes=1", "offsets.retention.check.interval.ms=10000") as (server, peer):
        assert await commit(peer, "g", 1) == ErrorCode.NONE
        await server.advance(50_000)
        assert await committed(peer, "g") == (ErrorCode.NONE, 1)
        await server.advance(20_000)
        assert await committed(peer, "g") == (ErrorCode.NONE, -1)
        (line,) = server.events("offsets_removed")
        assert line["expired"]


async def test_a_fenced_heartbeat_is_noted(server: Serving) -> None:
    """The short cut of heartbeats makes no notes, so dispatch handles a fenced one."""
    old, new = await server.peer(), await server.peer()
    joined = await seat(old, "g", "i")
    assert (await new.join("g", instance="i")).error_code == ErrorCode.NONE
    answer = await old.ask(heartbeat_request("g", joined, "i"), 4)
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    (line,) = server.events("member_fenced")
    assert (line["operation"], line["group_instance_id"]) == ("heartbeat", "i")
