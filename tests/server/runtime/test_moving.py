"""A partition moves between nodes, is handed over, and lapses: what members and other clients hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.group.client import NOBODY
from coordinator.group.events import LeaveGroup
from coordinator.group.offsets import REMOVED_AT_ONCE
from coordinator.group.partition import partition_for
from coordinator.log.engine import Fenced, Unavailable
from coordinator.server.runtime.partition import Standing
from coordinator.server.runtime.runtime import LEASE_LOOK_MS, REFUSED_AFTER_MS
from coordinator.server.wire.call import Answers
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock, Peer, Serving, heartbeat_request, join_request, seat, serving
from tests.server.runtime.calls import commit, commit_request, committed
from tests.server.wire.test_repeated_beats import TOPICS
from tests.server.wire.test_repeated_beats import join as join_steady
from tests.support.memory import ManualEngine, ManualLog
from tests.support.requests import group_offsets_request, leave_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.log.engine import Done

COUNT = 4
SESSION_MS = 10_000
ELSEWHERE = next(name for name in "hijklm" if partition_for(name, COUNT) != partition_for("g", COUNT))
BESIDE = next(name for name in "hijklmnopq" if partition_for(name, COUNT) == partition_for("g", COUNT))
"""Groups in another partition than "g", and in the same."""


class Cluster:
    """Two nodes of one log, with the ids 1 and 2. Node 1 owns all partitions at first."""

    def __init__(self, log: ManualLog, clock: ManualClock, nodes: dict[int, Serving]) -> None:
        self.log = log
        self.clock = clock
        self.nodes = nodes

    def hand_over(self, group_id: str, node_id: int) -> None:
        """Let the owner of a group hand it over."""
        self.log.hand_over(partition_for(group_id, COUNT), node_id)

    def standing(self, node_id: int, group_id: str) -> Standing:
        """The standing of a group's partition at a node."""
        return self.nodes[node_id].server.runtime.partition_of(group_id).standing

    async def served_by(self, node_id: int, group_id: str) -> None:
        """Wait until a node serves a group."""
        await self.nodes[node_id].until(lambda: self.standing(node_id, group_id) is Standing.ACTIVE)

    async def advance(self, ms: int) -> None:
        """Let time pass for both nodes, whose clock is one."""
        await self.nodes[1].advance(ms)
        await self.nodes[2].barrier()


@asynccontextmanager
async def cluster(*settings: str) -> AsyncIterator[Cluster]:
    """Two nodes."""
    log, clock = ManualLog([1] * COUNT), ManualClock()
    async with (
        serving("node.id=1", *settings, clock=clock, shared=log) as one,
        serving("node.id=2", *settings, clock=clock, shared=log) as two,
    ):
        await one.loaded()
        yield Cluster(log, clock, {1: one, 2: two})


@pytest.fixture
async def it() -> AsyncIterator[Cluster]:
    """Yield two nodes with the settings of tests."""
    async with cluster() as made:
        yield made


@contextmanager
def held(engine: ManualEngine) -> Iterator[None]:
    """Let appends wait."""
    engine.hold = True
    try:
        yield
    finally:
        engine.hold = False
        engine.flush()


async def beat(peer: Peer, joined: Any, group_id: str = "g", instance: str | None = "i") -> int:
    """The error code of a heartbeat."""
    return int((await peer.ask(heartbeat_request(group_id, joined, instance), 4)).error_code)


async def found(peer: Peer, group_id: str) -> tuple[int, int]:
    """The error code and the node of FindCoordinator."""
    answer = await peer.ask(FindCoordinatorRequest(key=group_id), 2)
    return answer.error_code, answer.node_id


async def test_a_node_that_does_not_know_the_owners_yet_says_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may be there before the engine has said who owns what: another node may have the group."""
    starts: list[Callable[[], None]] = []
    start = ManualEngine.start
    monkeypatch.setattr(ManualEngine, "start", lambda *arguments: starts.append(partial(start, *arguments)))
    beat_of_another = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    async with serving("node.id=1", shared=ManualLog([2] * COUNT)) as node:
        peer = await node.peer()
        assert (await peer.ask(beat_of_another, 3)).error_code == ErrorCode.NOT_COORDINATOR
        (go_on,) = starts
        go_on()
        await node.loaded()
        assert (await peer.ask(beat_of_another, 3)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_handed_over_member_keeps_its_seat(it: Cluster) -> None:
    """Generation and member id stay, nobody rebalances, and the session starts in full at the new owner."""
    one, two = await it.nodes[1].peer(), await it.nodes[2].peer()
    joined = await seat(one, "g", "i")
    assert await commit(one, "h", 5) == ErrorCode.NONE
    await it.advance(SESSION_MS - 1)
    it.hand_over("g", 2)
    await it.served_by(2, "g")
    assert await beat(one, joined) == ErrorCode.NOT_COORDINATOR
    assert await found(one, "g") == (ErrorCode.NONE, 2)
    await it.advance(SESSION_MS - 1)
    assert await beat(two, joined) == ErrorCode.NONE
    assert not it.nodes[1].events("partition_lost")
    assert len(it.nodes[1].events("partition_handed_over")) == 1
    names = [line["event"] for node in it.nodes.values() for line in node.events()]
    assert "rebalance_started" in names  # the first one, of the join
    assert names.count("rebalance_started") == 1
    if partition_for("h", COUNT) == partition_for("g", COUNT):
        assert await committed(two, "h") == (ErrorCode.NONE, 5)


async def test_a_node_is_ready_once_it_has_its_share_and_while_it_has_its_lease(it: Cluster) -> None:
    """Later partitions on the way to it don't count: if a node dies, all the others get some and stay ready."""
    one, two = (it.nodes[node_id].server for node_id in (1, 2))
    first, second = "g", ELSEWHERE
    peer = await it.nodes[1].peer()

    async def hand_over_slowly(group_id: str) -> None:
        await peer.send(commit_request(group_id, 7), 7)
        it.log.engines[1].hold = True
        it.hand_over(group_id, 2)

    async def go_on(group_id: str) -> None:
        it.log.engines[1].hold = False
        it.log.engines[1].flush()
        await it.served_by(2, group_id)

    await hand_over_slowly(first)
    assert (one.not_ready, two.not_ready) == ("", "1 partition of groups on the way to this node")
    await go_on(first)
    assert (one.not_ready, two.not_ready) == ("", "")
    await hand_over_slowly(second)
    assert it.log.engines[2].cluster.share().missing == {partition_for(second, COUNT)}
    assert (one.not_ready, two.not_ready) == ("", "")
    it.log.engines[2].lapse()
    assert two.not_ready == "the store doesn't answer in time"
    it.log.engines[2].come_back()
    assert two.not_ready == "1 partition of groups on the way to this node"
    await go_on(second)
    assert (one.not_ready, two.not_ready) == ("", "")
    it.log.nodes.pop(2)
    assert two.not_ready == "this node isn't registered"


async def test_what_is_under_way_is_answered_before_the_release(it: Cluster) -> None:
    """A commit that the disk has not written yet gets its yes, and the new owner knows it; later ones are refused."""
    one, late, two = await it.nodes[1].peer(), await it.nodes[1].peer(), await it.nodes[2].peer()
    engine = it.log.engines[1]
    engine.hold = True
    await one.send(commit_request("g", 7), 7)
    await it.nodes[1].until(lambda: it.nodes[1].server.runtime.partition_of("g").gate.busy)
    it.hand_over("g", 2)
    await it.nodes[1].until(lambda: it.standing(1, "g") is Standing.LEAVING)
    assert await commit(late, "g", 8) == ErrorCode.NOT_COORDINATOR
    assert one.is_silent()
    assert it.standing(2, "g") is Standing.AWAY
    engine.hold = False
    engine.flush()
    assert (await one.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE
    await it.served_by(2, "g")
    assert await committed(two, "g") == (ErrorCode.NONE, 7)


async def test_answers_of_this_turn_go_out_before_the_release(it: Cluster) -> None:
    """A join that was read in the turn of the hand-over gets its own answer, not NOT_COORDINATOR."""
    peer = await it.nodes[1].peer()
    await seat(peer, "g", "i")
    (connection,) = it.nodes[1].connections()
    connection.data_received(peer.frame(join_request("g"), 5))
    it.nodes[1].server.runtime.partition_of("g").hand_off()
    assert it.standing(1, "g") is Standing.LEAVING
    assert (await peer.receive()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert it.standing(1, "g") is not Standing.LEAVING


async def test_an_answer_about_two_groups_is_true_of_both_when_it_leaves() -> None:
    """One group waits for the store. The other one moves meanwhile: its old offset, and its old state, aren't told."""
    async with cluster(TOPICS) as it:
        one, two, *readers = [await it.nodes[node_id].peer() for node_id in (1, 2, 1, 1, 1)]
        assert await commit(one, "g", 5) == ErrorCode.NONE
        await join_steady(one, group=BESIDE)
        names = ["g", ELSEWHERE]
        engine = it.log.engines[1]
        with held(engine):
            await one.send(commit_request(ELSEWHERE, 7), 7)
            await it.nodes[1].until(lambda: it.nodes[1].server.runtime.partition_of(ELSEWHERE).gate.busy)
            await readers[0].send(group_offsets_request(*names, partitions={"orders": [0]}), 8)
            await readers[1].send(DescribeGroupsRequest(groups=names), 4)
            await readers[2].send(ConsumerGroupDescribeRequest(group_ids=[BESIDE, ELSEWHERE]), 0)
            await it.nodes[1].barrier()
            it.log.orphan(partition_for("g", COUNT))
            it.log.move(partition_for("g", COUNT), 2)
            await it.served_by(2, "g")
            assert await commit(two, "g", 6) == ErrorCode.NONE
            assert all(reader.is_silent() for reader in readers)
        answers = [(await reader.receive()).groups for reader in readers]
        assert [moved.error_code for moved, _ in answers] == [ErrorCode.NOT_COORDINATOR] * 3
        # The last answer is right: the group is none of the consumer protocol.
        assert [there.error_code for _, there in answers] == [0, 0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert answers[0][1].topics[0].partitions[0].committed_offset == 7


async def test_members_that_wait_for_others_are_sent_to_the_new_owner(it: Cluster) -> None:
    """A JoinGroup that waits gets NOT_COORDINATOR at the hand-over, so that its client joins there."""
    one, other = await it.nodes[1].peer(), await it.nodes[1].peer()
    joined = await seat(one, "g", "i")
    await other.send(join_request("g", instance="j"), 5)
    await it.nodes[1].barrier()
    it.hand_over("g", 2)
    assert (await other.receive()).error_code == ErrorCode.NOT_COORDINATOR
    await it.served_by(2, "g")
    two = await it.nodes[2].peer()
    assert await beat(two, joined) == ErrorCode.NONE


async def test_a_partition_of_nobody_has_no_coordinator(it: Cluster) -> None:
    """FindCoordinator says COORDINATOR_NOT_AVAILABLE, requests NOT_COORDINATOR, and the next owner goes on."""
    one, two = await it.nodes[1].peer(), await it.nodes[2].peer()
    joined = await seat(one, "g", "i")
    it.log.orphan(partition_for("g", COUNT))
    await it.nodes[1].until(lambda: it.standing(1, "g") is Standing.AWAY)
    for peer in (one, two):
        assert await found(peer, "g") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert await beat(peer, joined) == ErrorCode.NOT_COORDINATOR
    it.log.move(partition_for("g", COUNT), 2)
    await it.served_by(2, "g")
    assert await found(one, "g") == (ErrorCode.NONE, 2)
    assert await beat(two, joined) == ErrorCode.NONE


async def test_a_node_that_stops_hands_over_first() -> None:
    """All partitions are at the other node when the stop is done, and no member lost its seat."""
    async with AsyncExitStack() as stack:
        log, clock = ManualLog([1] * COUNT), ManualClock()
        two = await stack.enter_async_context(serving("node.id=2", clock=clock, shared=log))
        async with serving("node.id=1", clock=clock, shared=log) as one:
            await one.loaded()
            joined = await seat(await one.peer(), "g", "i")
        assert {each.standing for each in two.server.runtime.partitions} <= {Standing.ACTIVE, Standing.LOADING}
        assert [own.node_id for own in log.owned.values()] == [2] * COUNT
        await two.until(lambda: two.server.runtime.partition_of("g").standing is Standing.ACTIVE)
        assert await beat(await two.peer(), joined) == ErrorCode.NONE


async def test_a_lapsed_node_says_no_yes(it: Cluster) -> None:
    """Heartbeats and commits, repeated or not, reads, lists, and who coordinates: all are refused until it ends."""
    member, committer, reader = [await it.nodes[1].peer() for _ in range(3)]
    joined = await seat(member, "g", "i")
    for _ in range(3):
        assert await beat(member, joined) == ErrorCode.NONE
        assert await commit(committer, "h", 5) == ErrorCode.NONE
    assert it.nodes[1].server._api._services.measures.repeated_heartbeats == 2
    engine = it.log.engines[1]
    engine.lapse()
    found = await reader.ask(FindCoordinatorRequest(key="g"), 2)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await beat(member, joined) == ErrorCode.NOT_COORDINATOR
    assert await commit(committer, "h", 6) == ErrorCode.NOT_COORDINATOR
    assert await commit(reader, "h", 6) == ErrorCode.NOT_COORDINATOR
    assert (await committed(reader, "h"))[0] == ErrorCode.NOT_COORDINATOR
    described = await reader.ask(DescribeGroupsRequest(groups=["g"]), 4)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert (await reader.ask(ListGroupsRequest(), 3)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await reader.ask(join_request("k"), 3)).error_code == ErrorCode.NOT_COORDINATOR
    sync = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert (await reader.ask(sync, 3)).error_code == ErrorCode.NOT_COORDINATOR
    engine.come_back()
    assert await beat(member, joined) == ErrorCode.NONE
    assert await committed(reader, "h") == (ErrorCode.NONE, 5)
    assert await commit(committer, "h", 6) == ErrorCode.NONE


async def test_an_answer_on_its_way_into_a_lapse_says_no(it: Cluster) -> None:
    """A commit that becomes durable during the lapse gets NOT_COORDINATOR, repeated or not; it may be repeated."""
    repeating, other = await it.nodes[1].peer(), await it.nodes[1].peer()
    for offset in (1, 2):
        assert await commit(repeating, "g", offset) == ErrorCode.NONE
    engine = it.log.engines[1]
    engine.hold = True
    for peer, offset in ((repeating, 3), (other, 4)):
        await peer.send(commit_request("g", offset), 7)
    await it.nodes[1].until(lambda: it.nodes[1].server.runtime.partition_of("g").gate.number >= 4)
    engine.lapse()
    engine.hold = False
    engine.flush()
    for peer in (repeating, other):
        assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    engine.come_back()
    assert (await committed(other, "g"))[0] == ErrorCode.NONE


async def test_a_lapse_that_lasts_ends_all_waits(it: Cluster) -> None:
    """Requests that wait for the log or for other members get NOT_COORDINATOR; the group goes on afterwards."""
    repeating, other, reader, first, second = [await it.nodes[1].peer() for _ in range(5)]
    for offset in (1, 2):
        assert await commit(repeating, "g", offset) == ErrorCode.NONE
    joined = await seat(first, BESIDE, "i")
    await second.send(join_request(BESIDE, instance="j"), 5)
    engine = it.log.engines[1]
    engine.hold = True
    await repeating.send(commit_request("g", 3), 7)
    await it.nodes[1].until(lambda: bool(engine._held))
    await other.send(commit_request("g", 4), 7)
    await reader.send(OffsetFetchRequest(group_id="g", topics=None), 7)
    await it.nodes[1].barrier()
    engine.lapse()
    for _ in range(REFUSED_AFTER_MS // LEASE_LOOK_MS):
        it.clock.advance(LEASE_LOOK_MS)
        await it.nodes[1].barrier()
    assert all(peer.is_silent() for peer in (repeating, other, reader, second))
    it.clock.advance(2 * LEASE_LOOK_MS)
    for peer in (repeating, other):
        assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    for peer in (reader, second):
        assert (await peer.receive()).error_code == ErrorCode.NOT_COORDINATOR
    engine.hold = False
    engine.flush()
    engine.come_back()
    await it.nodes[1].barrier()
    assert all(peer.is_silent() for peer in (repeating, other, reader, second))
    assert await committed(reader, "g") == (ErrorCode.NONE, 4)
    assert await commit(repeating, "g", 5) == ErrorCode.NONE
    await second.send(join_request(BESIDE, instance="j"), 5)
    rejoined = await first.ask(join_request(BESIDE, instance="i", member_id=joined.member_id), 5)
    assert {rejoined.error_code, (await second.receive()).error_code} == {ErrorCode.NONE}


async def test_a_part_of_a_request_that_was_refused_is_not_answered_again(it: Cluster) -> None:
    """Its record becomes durable afterwards. A second answer would stand for that of another part, which is to come."""
    node, engine = it.nodes[1], it.log.engines[1]
    await seat(await node.peer(), "g", "i")
    answers = Answers(2)
    reply, _ = answers
    engine.hold = True
    body = leave_request("g", ("", "i"))
    node.server.runtime.submit("g", LeaveGroup(reply, 5, NOBODY, body))
    await node.until(lambda: bool(engine._held))
    engine.lapse()
    for _ in range(REFUSED_AFTER_MS // LEASE_LOOK_MS + 2):
        it.clock.advance(LEASE_LOOK_MS)
        await node.barrier()
    assert answers.found[0].error_code == ErrorCode.NOT_COORDINATOR
    engine.hold = False
    engine.flush()
    engine.come_back()
    await node.barrier()
    assert answers.found[0].error_code == ErrorCode.NOT_COORDINATOR
    assert answers.is_missing


async def test_a_deletion_that_a_lapse_meets_leaves_no_offsets() -> None:
    """A large group goes in pieces. If some stayed, the next owner would load offsets of a group that is gone."""
    async with cluster(f"tenure.topics=orders:{REMOVED_AT_ONCE + 1}") as it:
        one, two = await it.nodes[1].peer(), await it.nodes[2].peer()
        request = commit_request("g", 5)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        request.topics[0].partitions = [
            partition(partition_index=index, committed_offset=5, committed_metadata="")
            for index in range(REMOVED_AT_ONCE + 1)
        ]
        assert (await one.ask(request, 7)).topics[0].partitions[0].error_code == ErrorCode.NONE
        engine = it.log.engines[1]
        with held(engine):
            await one.send(DeleteGroupsRequest(groups_names=["g"]), 2)
            await it.nodes[1].until(lambda: bool(engine._held))
            engine.lapse()
            for _ in range(5):
                it.clock.advance(REFUSED_AFTER_MS)  # it goes on, however long the lapse lasts
                await it.nodes[1].barrier()
        assert (await one.receive()).results[0].error_code == ErrorCode.NOT_COORDINATOR
        engine.come_back()
        again = await one.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert again.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        it.hand_over("g", 2)
        await it.served_by(2, "g")
        at_next_owner = await two.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert (at_next_owner.error_code, at_next_owner.topics) == (ErrorCode.NONE, [])


async def test_a_list_that_a_lapse_has_cut_says_so(it: Cluster) -> None:
    """A part of it is refused in the lapse, and the rest comes behind it: without an error, groups would be missing."""
    one, other, reader = [await it.nodes[1].peer() for _ in range(3)]
    for name in ("g", ELSEWHERE):
        assert await commit(one, name, 5) == ErrorCode.NONE
    engine = it.log.engines[1]
    with held(engine):
        await one.send(commit_request("g", 6), 7)
        await it.nodes[1].until(lambda: bool(engine._held))
        await other.send(commit_request(ELSEWHERE, 6), 7)
        await it.nodes[1].until(lambda: it.nodes[1].server.runtime.partition_of(ELSEWHERE).gate.busy)
        await reader.send(ListGroupsRequest(), 3)
        await it.nodes[1].barrier()
        engine.lapse()
        engine._held.popleft()()
        assert (await one.receive()).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        engine.come_back()
        assert reader.is_silent()
    assert (await reader.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = await reader.ask(ListGroupsRequest(), 3)
    assert (again.error_code, {each.group_id for each in again.groups}) == (ErrorCode.NONE, {"g", ELSEWHERE})


async def test_no_session_ends_in_a_lapse_and_all_start_in_full_behind_it(it: Cluster) -> None:
    """However long a lapse lasts, its end gives each member its whole session timeout; then it expires as ever."""
    member = await it.nodes[1].peer()
    joined = await seat(member, "g", "i")
    engine = it.log.engines[1]
    engine.lapse()
    await it.advance(5 * SESSION_MS)
    assert not it.nodes[1].events("member_expired")
    engine.come_back()
    await it.advance(SESSION_MS - 1)
    assert not it.nodes[1].events("member_expired")
    assert await beat(member, joined) == ErrorCode.NONE
    await it.advance(SESSION_MS)
    assert not it.nodes[1].events("member_replaced")
    assert len(it.nodes[1].events("member_expired")) == 1


async def test_a_lapse_that_nobody_saw_renews_sessions_too(it: Cluster) -> None:
    """A process that was frozen finds its lease in order again: the sessions that seem over start in full."""
    member = await it.nodes[1].peer()
    joined = await seat(member, "g", "i")
    await it.advance(SESSION_MS - 1)
    engine = it.log.engines[1]
    engine.lapse()
    engine.come_back()
    await it.advance(SESSION_MS - 1)
    assert not it.nodes[1].events("member_expired")
    assert await beat(member, joined) == ErrorCode.NONE


async def test_nodes_come_and_go_in_metadata(it: Cluster) -> None:
    """Metadata and DescribeCluster show the nodes that are registered; the owner of partition 0 is the controller."""
    one = await it.nodes[1].peer()
    ports = {node_id: node.server.address[1] for node_id, node in it.nodes.items()}
    offsets = MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    answer = await one.ask(MetadataRequest(topics=[offsets]), 8)
    assert {each.node_id: each.port for each in answer.brokers} == ports
    assert answer.controller_id == 1
    assert {each.leader_id for each in answer.topics[0].partitions} == {1}
    it.log.hand_over(0, 2)
    await it.nodes[2].until(lambda: it.nodes[2].server.runtime.partitions[0].standing is Standing.ACTIVE)
    described = await one.ask(DescribeClusterRequest(), 0)
    assert described.controller_id == 2
    assert {each.broker_id: each.port for each in described.brokers} == ports
    it.log.orphan(0)
    del it.log.nodes[2]
    answer = await one.ask(MetadataRequest(topics=[offsets]), 8)
    assert [each.node_id for each in answer.brokers] == [1]
    assert answer.controller_id == -1
    lost = answer.topics[0].partitions[0]
    assert (lost.error_code, lost.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_a_verified_read_asks_the_store() -> None:
    """With tenure.offset.fetch.verify, offsets are read once the store has said that the node still owns the group."""
    async with cluster("tenure.offset.fetch.verify=quorum") as it:
        one = await it.nodes[1].peer()
        assert await commit(one, "g", 3) == ErrorCode.NONE
        assert await committed(one, "g") == (ErrorCode.NONE, 3)
        asked: list[Done] = []
        it.nodes[1].server.runtime.verify = lambda _, done: asked.append(done)
        for outcome, expected in (
            (None, (ErrorCode.NONE, 3)),
            (Unavailable("etcd doesn't answer"), (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)),
            (Fenced("another node has it"), (ErrorCode.NOT_COORDINATOR, -1)),
        ):
            reading = asyncio.ensure_future(committed(one, "g"))
            await it.nodes[1].until(lambda: bool(asked))
            assert not reading.done()
            asked.pop()(outcome)
            assert await reading == expected
        reading = asyncio.ensure_future(committed(one, "g"))
        await it.nodes[1].until(lambda: bool(asked))
        it.log.orphan(partition_for("g", COUNT))
        assert await reading == (ErrorCode.NOT_COORDINATOR, -1)
        asked.pop()(None)


async def test_a_store_without_room_takes_no_new_group(it: Cluster) -> None:
    """Neither by a join nor by a commit, until there is room again; groups that exist commit and get members."""
    one = await it.nodes[1].peer()
    assert await commit(one, "old", 3) == ErrorCode.NONE
    runtime = it.nodes[1].server.runtime
    runtime.has_room = lambda: False
    assert await commit(one, "new", 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = await one.ask(join_request("new", instance="i"), 5)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await commit(one, "old", 4) == ErrorCode.NONE
    assert await committed(one, "old") == (ErrorCode.NONE, 4)
    assert (await seat(one, "old", "i")).generation_id == 1
    runtime.has_room = lambda: True
    assert await commit(one, "new", 3) == ErrorCode.NONE
