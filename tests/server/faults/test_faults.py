"""Faults on real sockets: what each kind does to a request, which requests get it, and what is left when it is over."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from coordinator.server.faults import plan
from coordinator.server.faults.faults import REPEATED, Asked, Faults
from coordinator.server.faults.plan import Action, Fault
from coordinator.server.nodes.topic_data import Budget
from coordinator.server.wire.connection import QUEUED_BYTES_MAX, Connection
from protocol.connection import SIZE_BYTES
from protocol.header import decode_request_header, encode_request
from protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, heartbeat_request, join_request, seat, serving
from tests.support import requests
from tests.support.batches import batch
from tests.support.memory import ManualEngine
from tests.support.patience import WITHIN_S


def commit_request(group: str, offset: int, joined: Any = None, instance: str | None = None) -> OffsetCommitRequest:
    """A commit for partition 0 of orders."""
    who = () if joined is None else (joined.generation_id, joined.member_id, instance)
    return requests.commit_request(group, {("orders", 0): offset}, *who)


async def committed(peer: Peer, group: str) -> int:
    """The committed offset of partition 0 of orders; -1 if there is none."""
    answer = await peer.ask(requests.offsets_request(group, {"orders": [0]}), 5)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def error_of(answer: OffsetCommitResponse) -> int:
    """The error of a commit for one topic partition."""
    code: int = answer.topics[0].partitions[0].error_code
    return code


# Errors.


async def test_an_error_takes_the_place_of_the_answer() -> None:
    """The coordinator doesn't see the request, and the next one is answered as always."""
    fault = plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", group="g")
    async with connected(faults=Faults([fault])) as (server, peer):
        joined = await seat(peer, "g", "i")
        beat = heartbeat_request("g", joined, "i")
        group = server.server.runtime.partition_of("g").coordinator.groups["g"]
        deadline_ms = group.members[joined.member_id].deadline_ms
        await server.advance(1_000)
        assert (await peer.ask(beat, 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert group.members[joined.member_id].deadline_ms == deadline_ms
        assert (await peer.ask(beat, 3)).error_code == ErrorCode.NONE
        assert group.members[joined.member_id].deadline_ms == deadline_ms + 1_000
        assert (fault.seen, fault.fired) == (1, 1)


async def test_an_error_of_a_commit_stores_nothing() -> None:
    """The answer has the error at the topic partition; the offset stays."""
    faults = Faults([plan.move("g")])
    async with connected(faults=faults) as (_, peer):
        assert error_of(await peer.ask(commit_request("g", 5), 7)) == ErrorCode.NOT_COORDINATOR
        assert await committed(peer, "g") == -1
        assert error_of(await peer.ask(commit_request("g", 6), 7)) == ErrorCode.NONE
        assert await committed(peer, "g") == 6


async def test_a_produce_that_wants_no_answer_gets_none() -> None:
    """With acks=0 an error has no way to the client; the next request has its answer."""
    faults = Faults([plan.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Produce", times=2)])
    async with connected(faults=faults) as (_, peer):
        await peer.send_bytes(encode_request(ProduceRequest(acks=0, topic_data=[]), 8, 1, "test"))
        assert (await peer.ask(ProduceRequest(acks=1, topic_data=[]), 8)).responses == []
        assert [fault.fired for fault in faults] == [2]


async def test_a_group_that_loads_answers_as_kafka_does() -> None:
    """Joins and commits are told to come back, a heartbeat is not; other groups are served."""
    fault = plan.loading("g")
    faults = Faults()
    async with connected(faults=faults) as (_, peer):
        joined = await seat(peer, "g", "i")
        faults.add(fault)
        assert (await peer.ask(heartbeat_request("g", joined), 3)).error_code == ErrorCode.NONE
        assert error_of(await peer.ask(commit_request("g", 1), 7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await peer.join("g", "m")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert error_of(await peer.ask(commit_request("other", 1), 7)) == ErrorCode.NONE
        faults.remove(fault)
        assert error_of(await peer.ask(commit_request("g", 1, joined, "i"), 7)) == ErrorCode.NONE
        assert fault.fired == 3


async def test_a_group_without_a_coordinator_is_not_found() -> None:
    """FindCoordinator says it too, for this group only."""
    async with connected(faults=Faults([plan.not_available("g")])) as (_, peer):
        asked = FindCoordinatorRequest(coordinator_keys=["g"])
        (found,) = (await peer.ask(asked, 4)).coordinators
        assert (found.key, found.error_code) == ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert (await peer.ask(FindCoordinatorRequest(key="g"), 2)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await peer.ask(FindCoordinatorRequest(key="h"), 2)).error_code == ErrorCode.NONE
        assert (await peer.join("g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# Requests without an answer.


async def test_a_delay_goes_by_the_servers_clock() -> None:
    """The request is handled when the time has come; until then the connection's later requests wait, in order."""
    async with serving(faults=Faults([plan.delay(500, "OffsetCommit")])) as server:
        peer, other = await server.peer(), await server.peer()
        await peer.send(commit_request("g", 5), 7)
        await peer.send(ApiVersionsRequest(), 0)
        await server.advance(499)
        assert peer.is_silent()
        assert await committed(other, "g") == -1
        await server.advance(1)
        assert error_of(await peer.receive()) == ErrorCode.NONE
        assert (await peer.receive()).error_code == ErrorCode.NONE
        assert await committed(other, "g") == 5


async def test_a_delayed_join_waits_for_its_group_then() -> None:
    """A request may wait further in the core."""
    settings = "group.initial.rebalance.delay.ms=3000"
    async with connected(settings, faults=Faults([plan.delay(500, "JoinGroup")])) as (server, peer):
        await peer.send(join_request("g"), 3)
        await server.advance(500)
        assert peer.is_silent()
        await server.advance(3_000)
        assert (await peer.receive()).generation_id == 1


async def test_a_delayed_request_of_a_closed_connection_is_not_handled() -> None:
    """Its client is gone when the time comes."""
    async with serving(faults=Faults([plan.delay(500, "OffsetCommit")])) as server:
        peer, other = await server.peer(), await server.peer()
        await peer.send(commit_request("g", 5), 7)
        await server.barrier()
        peer.close()
        await server.until(lambda: len(server.connections()) == 1)
        await server.advance(500)
        assert await committed(other, "g") == -1


async def test_a_delayed_request_with_broken_bytes_costs_its_connection() -> None:
    """As without a delay; the log has one line."""
    async with connected(faults=Faults([plan.delay(500, "OffsetCommit")])) as (server, peer):
        whole = encode_request(commit_request("g", 5), 7, 1, "test")[SIZE_BYTES:-3]
        await peer.send_bytes(len(whole).to_bytes(4) + whole)
        await server.advance(500)
        assert await peer.is_closed()
        assert len(server.events("connection_closed")) == 1


async def test_a_dropped_request_has_no_effect_and_no_answer() -> None:
    """Later requests of the connection wait behind it for ever, as answers come in order; other connections go on."""
    async with serving(faults=Faults([plan.drop_request("OffsetCommit")])) as server:
        peer, other = await server.peer(), await server.peer()
        await peer.send(ApiVersionsRequest(), 0)
        await peer.send(commit_request("g", 5), 7)
        await peer.send(ApiVersionsRequest(), 0)
        assert (await peer.receive()).error_code == ErrorCode.NONE
        await server.at_rest()
        assert peer.is_silent()
        assert await committed(other, "g") == -1
        assert error_of(await other.ask(commit_request("g", 6), 7)) == ErrorCode.NONE


async def test_a_dropped_response_has_its_effect() -> None:
    """The offset is stored; the client hears nothing."""
    async with serving(faults=Faults([plan.drop_response("OffsetCommit")])) as server:
        peer, other = await server.peer(), await server.peer()
        await peer.send(commit_request("g", 5), 7)
        await server.at_rest()
        assert peer.is_silent()
        assert await committed(other, "g") == 5


async def test_a_dropped_response_gives_its_memory_back() -> None:
    """The server holds the bytes of an answer until the client takes them; this one never does."""
    async with serving(faults=Faults([plan.drop_response("Fetch")])) as server:
        peer, data = await server.peer(), server.server.data
        assert data is not None
        answer = await peer.ask(requests.produce_request({("orders", 0): batch([(None, b"x" * 1_000, 1)])}), 8)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        lefts = list[int]()

        class Watched(Budget):
            def give(self, size: int) -> None:
                super().give(size)
                lefts.append(self.left)

        data.budget = Watched(5_000)
        await peer.send(requests.fetch_request({("orders", 0): 0}, 10_000, max_wait_ms=500), 11)
        await server.until(lambda: bool(lefts) and lefts[-1] == 5_000)
        await server.at_rest()
        assert peer.is_silent()


async def test_a_disconnect_comes_before_the_request_or_after_it() -> None:
    """Both close the connection; the second one has its effect. Earlier answers still go out."""
    faults = Faults([plan.disconnect("OffsetCommit", group="a"), plan.disconnect_after("OffsetCommit", group="b")])
    async with serving(faults=faults) as server:
        for group in "ab":
            peer = await server.peer()
            data = peer.frame(ApiVersionsRequest(), 0) + peer.frame(commit_request(group, 5), 7)
            await peer.send_bytes(data + peer.frame(commit_request(group, 6), 7))
            assert (await peer.receive()).error_code == ErrorCode.NONE
            assert await peer.is_closed()
        other = await server.peer()
        assert await committed(other, "a") == -1
        assert await committed(other, "b") == 5


async def test_a_disconnect_after_waits_for_the_record() -> None:
    """The connection closes when the answer would go out: the record is durable then."""
    engine = ManualEngine(4, 0)
    async with serving(engine=engine, faults=Faults([plan.disconnect_after("OffsetCommit")])) as server:
        await server.loaded()
        peer = await server.peer()
        engine.hold = True
        await peer.send(commit_request("g", 5), 7)
        await server.at_rest()
        assert peer.is_silent()
        engine.hold = False
        engine.flush()
        assert await peer.is_closed()


async def test_a_client_that_goes_while_its_answer_is_dropped_is_forgotten() -> None:
    """A muted connection that its client closes leaves nothing behind."""
    faults = Faults([plan.drop_response("JoinGroup", times=None)])
    async with connected("group.initial.rebalance.delay.ms=3000", faults=faults) as (server, peer):
        await peer.send(join_request("g"), 3)
        await peer.send_bytes(b"x" * 100_000)
        await server.barrier()
        peer.close()
        await server.until(lambda: not server.connections())
        await server.advance(3_000)
        assert faults._muted == {}


# Black holes.


async def test_a_black_hole_swallows_what_is_under_way() -> None:
    """A client that waits in JoinGroup hears nothing of its end, nor do its other connections; others do."""
    faults = Faults()
    async with serving("group.initial.rebalance.delay.ms=3000", faults=faults) as server:
        waiting, idle, other = await server.peer("a"), await server.peer("a"), await server.peer("b")
        await waiting.send(join_request("g"), 3)
        await idle.ask(ApiVersionsRequest(), 0)
        await other.send(join_request("h"), 3)
        await server.barrier()
        fault = plan.blackhole("a")
        faults.add(fault)
        assert fault.fired == 2
        await idle.send(ApiVersionsRequest(), 0)
        late = await server.peer("a")
        await late.send(ApiVersionsRequest(), 0)
        await server.advance(3_000)
        assert (await other.receive()).error_code == ErrorCode.NONE
        assert [peer.is_silent() for peer in (waiting, idle, late)] == [True] * 3
        assert fault.fired == 3


async def test_a_black_hole_reads_on_where_reading_had_stopped() -> None:
    """A client that sent too much ahead may close, and is forgotten."""
    faults = Faults()
    async with serving("group.initial.rebalance.delay.ms=3000", faults=faults) as server:
        peer = await server.peer("a")
        await peer.send(join_request("g"), 3)
        sent = peer.frame(ApiVersionsRequest(), 0)
        await peer.send_bytes(sent * (2 * QUEUED_BYTES_MAX // len(sent)))
        await server.until(lambda: not server.connections()[0].is_reading)
        faults.add(plan.blackhole("a"))
        peer.close()
        await server.until(lambda: not server.connections())
        assert server.connections() == []


async def test_a_black_hole_that_ends_closes_its_connections() -> None:
    """So the client connects again, and is served."""
    faults = Faults([plan.blackhole("a"), plan.blackhole("b")])
    hole, _ = faults
    async with serving(faults=faults) as server:
        peer, other = await server.peer("a"), await server.peer("b")
        await peer.send(ApiVersionsRequest(), 0)
        await other.send(ApiVersionsRequest(), 0)
        await server.barrier()
        faults.remove(hole)
        assert await peer.is_closed()
        again = await server.peer("a")
        assert (await again.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
        assert other.is_silent()
        faults.clear()
        assert await other.is_closed()


async def test_a_server_stops_in_spite_of_a_black_hole() -> None:
    """Muted connections close with the others, delayed requests are dropped."""
    faults = Faults([plan.blackhole("a"), plan.delay(10_000, client_id="b")])
    async with serving(faults=faults, stop=False) as server:
        peer, other = await server.peer("a"), await server.peer("b")
        await peer.send_bytes(peer.frame(MetadataRequest(topics=None), 1) * 3)
        await other.send(ApiVersionsRequest(), 0)
        await server.until(lambda: [fault.fired for fault in faults] == [1, 1])
        await server.server.stop()
        assert await peer.is_closed()
        assert await other.is_closed()


# Which requests get a fault.


async def test_the_nth_request_gets_it_and_so_many() -> None:
    """nth and times count the requests that meet the conditions; the first fault in the plan comes first."""
    errors = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS]
    first = plan.error(errors[0], "Heartbeat", nth=3, times=2)
    second = plan.error(errors[1], "Heartbeat", nth=2, times=2)
    async with connected(faults=Faults([first, second])) as (_, peer):
        beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
        answers = [(await peer.ask(beat, 3)).error_code for _ in range(7)]
        assert answers == [0, errors[1], errors[0], errors[0], errors[1], 0, 0]
        assert [(fault.seen, fault.fired) for fault in (first, second)] == [(4, 2), (5, 2)]


async def test_a_fault_for_a_version_or_a_client_is_for_no_other() -> None:
    """Each condition has to be met."""
    conditions: list[plan.Conditions] = [
        {"version": 2},
        {"client_id": "a"},
        {"member_id": "m"},
        {"instance_id": "i"},
    ]
    faults = [plan.error(ErrorCode.INVALID_REQUEST, "Heartbeat", **each) for each in conditions]
    async with serving(faults=Faults(faults)) as server:
        for client_id, version, member_id, instance_id, expected in (
            ("a", 3, "x", None, [0, 1, 0, 0]),
            ("b", 2, "x", None, [1, 0, 0, 0]),
            ("b", 3, "m", None, [0, 0, 1, 0]),
            ("b", 3, "x", "i", [0, 0, 0, 1]),
            ("b", 3, "x", "j", [0, 0, 0, 0]),
        ):
            before = [fault.fired for fault in faults]
            peer = await server.peer(client_id)
            request = HeartbeatRequest(group_id="g", member_id=member_id, group_instance_id=instance_id)
            answer = await peer.ask(request, version)
            assert answer.error_code == (ErrorCode.INVALID_REQUEST if any(expected) else ErrorCode.UNKNOWN_MEMBER_ID)
            assert [fault.fired - fired for fault, fired in zip(faults, before, strict=True)] == expected


async def test_an_instance_id_stands_for_its_member() -> None:
    """Heartbeats up to version 2 have no instance id; the fault is for them too, and for no other member."""
    fault = plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", "OffsetCommit", instance_id="i", times=None)
    async with connected(faults=Faults([fault])) as (_, peer):
        joined, other = await seat(peer, "g", "i"), await seat(peer, "h", "j")
        assert (await peer.ask(heartbeat_request("g", joined), 2)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await peer.ask(heartbeat_request("h", other), 2)).error_code == ErrorCode.NONE
        assert error_of(await peer.ask(commit_request("g", 1, joined), 6)) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await peer.ask(HeartbeatRequest(group_id="k"), 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


NAMES = {UUID(int=1): "orders"}


def asked(request: Message, version: int) -> Asked:
    """A request as conditions see it."""
    assert request.API_KEY is not None
    frame = encode_request(request, version, 1, "test")[SIZE_BYTES:]
    api_key, version, _, client_id, offset = decode_request_header(frame)
    return Asked(api_key, version, client_id, frame, offset, lambda _group_id, _member_id: None, NAMES.get)


@pytest.mark.parametrize(
    "request_, version, groups",
    [
        (HeartbeatRequest(group_id="g"), 0, ["g"]),
        (OffsetFetchRequest(group_id="g", topics=[]), 7, ["g"]),
        (requests.group_offsets_request("g", "h"), 8, ["g", "h"]),
        (DescribeGroupsRequest(groups=["g", "h"]), 4, ["g", "h"]),
        (ConsumerGroupDescribeRequest(group_ids=["g", "h"]), 0, ["g", "h"]),
        (ConsumerGroupHeartbeatRequest(group_id="g"), 1, ["g"]),
        (DeleteGroupsRequest(groups_names=["g", "h"]), 2, ["g", "h"]),
        (FindCoordinatorRequest(key="g"), 1, ["g"]),
        (FindCoordinatorRequest(key="g", key_type=1), 1, []),
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, ["g", "h"]),
        (MetadataRequest(topics=None), 1, []),
        (ListGroupsRequest(), 0, []),
    ],
)
def test_a_request_names_groups(request_: Message, version: int, groups: list[str]) -> None:
    """In each form that a version has."""
    assert asked(request_, version).groups == groups


ADDED = {"name": "orders", "partitions": [2]}


@pytest.mark.parametrize(
    "request_, version, ids",
    [
        (InitProducerIdRequest(transactional_id="t"), 4, ["t"]),
        (ProduceRequest(transactional_id="t"), 9, ["t"]),
        (AddOffsetsToTxnRequest(transactional_id="t"), 3, ["t"]),
        (TxnOffsetCommitRequest(transactional_id="t"), 3, ["t"]),
        (EndTxnRequest(transactional_id="t"), 3, ["t"]),
        (AddPartitionsToTxnRequest(v3_and_below_transactional_id="t"), 3, ["t"]),
        (
            requests.request("AddPartitionsToTxn", transactions=[{"transactional_id": "u", "topics": [ADDED]}]),
            4,
            ["u", ""],
        ),
        (DescribeTransactionsRequest(transactional_ids=["t", "u"]), 0, ["t", "u"]),
        (FindCoordinatorRequest(key="t", key_type=1), 1, ["t"]),
        (FindCoordinatorRequest(key="t"), 1, []),
        (HeartbeatRequest(group_id="t"), 0, []),
    ],
)
def test_a_request_names_transactional_ids(request_: Message, version: int, ids: list[str]) -> None:
    """In each form that a version has."""
    assert asked(request_, version).transactional_ids == ids
    fault = plan.disconnect(transactional_id="t")
    assert asked(request_, version).meets(fault) == ("t" in ids)


PRODUCED = {"topic_id": UUID(int=1), "partition_data": [{"index": 2, "records": None}]}
FETCHED = {"topic_id": UUID(int=1), "partitions": [{"partition": 2}]}


@pytest.mark.parametrize(
    "request_, version",
    [
        (requests.produce_request({("orders", 2): None}), 12),
        (requests.request("Produce", topic_data=[PRODUCED]), 13),
        (requests.fetch_request({("orders", 2): 0}), 12),
        (requests.request("Fetch", topics=[FETCHED]), 13),
        (requests.group_offsets_request("g", partitions={"orders": [2]}), 8),
        (requests.request("AddPartitionsToTxn", transactions=[{"topics": [ADDED]}]), 4),
        (requests.request("AddPartitionsToTxn", v3_and_below_topics=[ADDED]), 3),
    ],
)
def test_a_request_names_topic_partitions(request_: Message, version: int) -> None:
    """By names or by ids. A fault may be for a topic, for a partition, or for both."""
    named = asked(request_, version)
    assert named.topic_partitions == [("orders", 2)]
    for fault, is_met in (
        (plan.disconnect(topic="orders"), True),
        (plan.disconnect(partition=2), True),
        (plan.disconnect(topic="orders", partition=2), True),
        (plan.disconnect(topic="orders", partition=0), False),
        (plan.disconnect(topic="prices"), False),
    ):
        assert named.meets(fault) == is_met


def test_a_commit_names_its_topic() -> None:
    """A request for all offsets of a group names none, and neither does a heartbeat."""
    assert asked(commit_request("g", 1), 8).topic_partitions == [("orders", 0)]
    assert asked(requests.group_offsets_request("g"), 8).topic_partitions == []
    assert asked(HeartbeatRequest(group_id="g"), 0).topic_partitions == []


def test_a_leave_names_all_members_that_leave() -> None:
    """Up to version 2 one, on top; then many."""
    members = [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}]
    many = asked(requests.request("LeaveGroup", group_id="g", members=members), 3)
    assert (many.member_ids, many.instance_ids) == (["m"], ["i"])
    one = asked(LeaveGroupRequest(group_id="g", member_id="m"), 2)
    assert (one.member_ids, one.instance_ids) == (["m"], [])
    assert asked(JoinGroupRequest(group_id="g"), 5).member_ids == []


async def test_heartbeats_of_the_consumer_protocol_name_their_member() -> None:
    """By member id and instance id; most carry no instance id, so it is that of the member that the group knows."""
    fault = plan.error(ErrorCode.UNKNOWN_SERVER_ERROR, "ConsumerGroupHeartbeat", instance_id="i", version=1, times=None)
    async with connected(faults=Faults([fault])) as (_, peer):
        for member_id, instance_id in (("m", "i"), ("n", "j")):
            joining = requests.first_heartbeat("g", member_id, (), instance_id)
            assert (await peer.ask(joining, 0)).error_code == ErrorCode.NONE
        beat = partial(ConsumerGroupHeartbeatRequest, group_id="g", member_epoch=1)
        assert (await peer.ask(beat(member_id="m"), 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await peer.ask(beat(member_id="n"), 1)).error_code == ErrorCode.NONE
    named = asked(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", instance_id="i"), 1)
    assert (named.member_ids, named.instance_ids) == (["m"], ["i"])


async def test_an_unknown_version_of_api_versions_has_no_fault() -> None:
    """Its body can't be read, so no condition is asked; the client gets the versions (KIP-511)."""
    faults = Faults([plan.disconnect()])
    async with connected(faults=faults) as (_, peer):
        content = b"\0\x12\0\x63" + (77).to_bytes(4) + b"\0\1c\0"
        await peer.send_bytes(len(content).to_bytes(4) + content)
        assert await peer.receive_frame() is not None
        assert [fault.seen for fault in faults] == [0]


# What it costs.


def short_cuts(server: Serving) -> list[bool]:
    """Whether the connections may take short cuts."""
    return [connection.may_short_cut for connection in server.connections()]


async def test_short_cuts_are_off_while_a_fault_could_concern_them() -> None:
    """A heartbeat that would be answered by its bytes gets its fault; when the last one is spent, they are back."""
    faults = Faults()
    async with connected(faults=faults) as (server, peer):
        beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
        for _ in range(3):
            await peer.ask(beat, 3)
        assert (short_cuts(server), server.server._api.faults) == ([True], None)
        faults.add(plan.error(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", nth=2))
        assert short_cuts(server) == [False]
        answers = [(await peer.ask(beat, 3)).error_code for _ in range(3)]
        assert answers == [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE]
        assert (short_cuts(server), server.server._api.faults) == ([True], None)
        before = server.server._api._services.measures.repeated_heartbeats
        await peer.ask(beat, 3)
        assert server.server._api._services.measures.repeated_heartbeats == before + 1


@pytest.mark.parametrize("api", REPEATED)
async def test_short_cuts_are_off_for_every_api_that_has_one(api: str) -> None:
    """A fault of any request that connections answer by themselves."""
    faults = Faults()
    async with connected(faults=faults) as (server, peer):
        await seat(peer, "g", "i")
        faults.add(plan.error(ErrorCode.NOT_COORDINATOR, api))
        assert short_cuts(server) == [False]


async def test_a_fault_for_joins_leaves_the_short_cuts_on() -> None:
    """Repeated heartbeats don't pass dispatch, and needn't."""
    async with connected(faults=Faults([plan.disconnect("JoinGroup", group="h")])) as (server, peer):
        await seat(peer, "g", "i")
        assert short_cuts(server) == [True]
        assert server.server._api.faults is not None


async def test_repeated_commits_get_their_fault_too() -> None:
    """A commit that its connection would take by its bytes passes dispatch again."""
    faults = Faults()
    async with connected(faults=faults) as (_, peer):
        for offset in range(3):
            assert error_of(await peer.ask(commit_request("g", offset), 7)) == ErrorCode.NONE
        faults.add(plan.move("g"))
        assert error_of(await peer.ask(commit_request("g", 3), 7)) == ErrorCode.NOT_COORDINATOR
        assert error_of(await peer.ask(commit_request("g", 4), 7)) == ErrorCode.NONE
        assert await committed(peer, "g") == 4


async def test_a_watch_sees_every_request() -> None:
    """Also those that would take short cuts, and which fault each gets; when it ends, short cuts are back."""
    faults, seen = Faults(), list[tuple[str, str | None, Fault | None]]()
    async with serving(faults=faults) as server:
        peer = await server.peer("a")
        beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
        await peer.ask(beat, 3)

        def watch(connection: Connection, asked: Asked, fault: Fault | None) -> None:
            assert connection in server.server.connections
            seen.append((asked.api, asked.client_id, fault))

        end = faults.watch(watch)
        for _ in range(3):
            await peer.ask(beat, 3)
        fault = plan.error(ErrorCode.REBALANCE_IN_PROGRESS)
        faults.add(fault)
        await peer.ask(beat, 3)
        assert seen == [*[("Heartbeat", "a", None)] * 3, ("Heartbeat", "a", fault)]
        end()
        await peer.ask(beat, 3)
        assert short_cuts(server) == [True]
        assert len(seen) == 4


# The plan while a server runs, and after it.


async def test_faults_are_planned_from_another_thread() -> None:
    """Through the loop; the counts may be read anywhere."""
    faults = Faults()
    async with serving(faults=faults) as server:
        loop, fault = asyncio.get_running_loop(), plan.move("g")
        await asyncio.to_thread(loop.call_soon_threadsafe, partial(faults.add, fault))
        peer = await server.peer()
        assert (await peer.join("g")).error_code == ErrorCode.NOT_COORDINATOR
        assert await asyncio.to_thread(getattr, fault, "fired") == 1


async def test_faults_that_never_fired_are_known() -> None:
    """By the plan, whatever became of the others."""
    faults = Faults([plan.move("g"), plan.move("h"), plan.loading("g")])
    async with connected(faults=faults) as (_, peer):
        await peer.join("g")
        assert [str(fault) for fault in faults.never_fired] == [str(plan.move("h")), str(plan.loading("g"))]


async def test_each_fault_is_a_log_line() -> None:
    """Which fault, for which request of which client."""
    async with serving(faults=Faults([plan.move("g")])) as server:
        peer = await server.peer("worker-1")
        await peer.join("g")
        (line,) = server.events("fault_fired")
        assert line["fault"] == str(plan.move("g"))
        assert "JoinGroup of worker-1 at 127.0.0.1:" in line["message"]


async def test_a_plan_goes_on_with_the_next_server() -> None:
    """A test that starts its server again keeps its faults, and their counts."""
    faults = Faults([plan.move("g", times=2)])
    for fired in (1, 2):
        async with connected(faults=faults) as (_, peer):
            assert (await peer.join("g")).error_code == ErrorCode.NOT_COORDINATOR
        assert [fault.fired for fault in faults] == [fired]
    faults.add(plan.move("h"))
    async with connected(faults=faults) as (_, peer):
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE


async def test_a_kill_comes_between_the_record_and_the_answer() -> None:
    """The record is durable, nobody hears anything any more, and then the test's own kill is called."""
    engine, killed = ManualEngine(4, 0), asyncio.Event()
    faults = Faults([plan.kill("OffsetCommit", nth=2)], killed.set)
    async with serving(engine=engine, faults=faults) as server:
        await server.loaded()
        peer, other = await server.peer(), await server.peer()
        assert error_of(await peer.ask(commit_request("g", 5), 7)) == ErrorCode.NONE
        engine.hold = True
        await peer.send(commit_request("g", 6), 7)
        await server.at_rest()
        assert not killed.is_set()
        engine.hold = False
        records = sum(map(len, engine.records.values()))
        engine.flush()
        await asyncio.wait_for(killed.wait(), WITHIN_S)
        assert sum(map(len, engine.records.values())) == records + 1
        await other.send(ApiVersionsRequest(), 0)
        for each in (peer, other):
            each.socket.shutdown(socket.SHUT_WR)
            assert await each.is_closed()


def test_a_plan_can_be_looked_at_without_a_server() -> None:
    """A kit plans before its server runs."""
    faults = Faults()
    faults.add(plan.move("g"))
    faults.remove(Fault(Action.DISCONNECT))
    assert [str(fault) for fault in faults] == [str(plan.move("g"))]
    faults.clear()
    assert list(faults) == []
