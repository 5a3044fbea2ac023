"""Large answers that clients don't take have a bound, each and all together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from coordinator.loop.unsent import TAKEN_WITHIN_MS, UNSENT_BYTES_MAX, Unsent
from protocol.compile import encode
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    Message,
)
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock, Peer, Serving, connected, join_request, serving, sync_request
from tests.server.requests.test_records import produce
from tests.server.requests.test_transactions import V1, Producer
from tests.support.batches import batch
from tests.support.requests import (
    commit_request,
    describe_configs_request,
    first_heartbeat,
    group_offsets_request,
    topics_request,
)

MB = 1024 * 1024
PART = bytes(MB)

MEMBERS, PARTITIONS = 100, 1_000


def test_the_oldest_answer_goes_when_all_are_too_large_together() -> None:
    """A part of an answer counts once, and so does an answer of several connections; the newest answer stays."""
    given_up: list[str] = []
    answers: Unsent[str] = Unsent(ManualClock(), lambda source, _: given_up.append(source))
    answers.add("repeats", [PART] * 10_000)
    assert answers.counted_bytes == MB
    for name in ("first", "second"):
        answers.add(name, [bytes(UNSENT_BYTES_MAX // 2)])
    assert given_up == ["repeats"]
    answers.release("first")
    answers.release("first")
    answers.add("third", [bytes(UNSENT_BYTES_MAX + 1)])
    assert given_up == ["repeats", "second"]
    answers.release("third")
    assert answers.counted_bytes == 0
    shared = [bytes(UNSENT_BYTES_MAX)]
    for name in ("one", "other"):
        answers.add(name, shared)
    answers.release("one")
    assert answers.counted_bytes == UNSENT_BYTES_MAX
    answers.release("other")
    assert answers.counted_bytes == 0
    assert given_up == ["repeats", "second"]


async def consumers(peer: Peer) -> None:
    """A group "g" of the consumer protocol."""
    for number in range(MEMBERS):
        assert (await peer.ask(first_heartbeat("g", f"{number:0>36}"), 1)).error_code == ErrorCode.NONE


async def joiners(peer: Peer) -> None:
    """A group "g" of the classic protocol, whose member is large."""
    request = join_request("g", instance="i")
    request.protocols[0].metadata = bytes(8_000)
    joined = await peer.ask(request, 5)
    assert (await peer.ask(sync_request("g", joined, "i"), 5)).error_code == ErrorCode.NONE


async def commits(peer: Peer) -> None:
    """A group "g" with an offset whose metadata is as large as allowed."""
    request = commit_request("g", {("orders", 0): 5})
    request.topics[0].partitions[0].committed_metadata = "m" * 4_096
    answer = await peer.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def transaction(peer: Peer) -> None:
    """A transaction "t" of many partitions."""
    assert not (await peer.ask(topics_request({"wide": PARTITIONS}), 5)).topics[0].error_code
    producer = Producer(peer, V1)
    await producer.init()
    assert not any(await producer.add("wide", *range(PARTITIONS)))


async def producers(peer: Peer) -> None:
    """A partition that many producers have written to."""
    for number in range(MEMBERS):
        data = batch([(b"k", b"v", 1_000)], producer_id=number, producer_epoch=0, sequence=0)
        (answer,) = await produce(peer, ("orders", 0, data))
        assert answer.error_code == ErrorCode.NONE


async def nothing(_: Peer) -> None:
    """No group."""


def fetch_offsets(partitions: list[int] | None, groups: int) -> Message:
    """An OffsetFetch that names one group so often."""
    return group_offsets_request(*["g"] * groups, partitions=None if partitions is None else {"orders": partitions})


def describe_broker(times: int) -> Message:
    """A DescribeConfigs that names the broker so often."""
    return describe_configs_request(4, *["1"] * times, include_synonyms=True, include_documentation=True)


def describe_producers(partitions: list[int], topics: int) -> DescribeProducersRequest:
    """A DescribeProducers that names a topic so often."""
    topic = DescribeProducersRequest.TopicRequest(name="orders", partition_indexes=partitions)
    return DescribeProducersRequest(topics=[topic] * topics)


REPEATING: dict[str, tuple[Callable[[Peer], Awaitable[None]], int, Callable[[int], Message]]] = {
    "ConsumerGroupDescribe": (consumers, 1, lambda times: ConsumerGroupDescribeRequest(group_ids=["g"] * times)),
    "DescribeGroups": (joiners, 5, lambda times: DescribeGroupsRequest(groups=["g"] * times)),
    "OffsetFetch of groups": (commits, 8, lambda times: fetch_offsets(None, times)),
    "OffsetFetch of partitions": (commits, 8, lambda times: fetch_offsets([0] * times, 1)),
    "DescribeConfigs": (nothing, 4, describe_broker),
    "DescribeTransactions": (
        transaction,
        0,
        lambda times: DescribeTransactionsRequest(transactional_ids=["t"] * times),
    ),
    "DescribeProducers": (producers, 0, lambda times: describe_producers([0] * times, 1)),
    "DescribeProducers of topics": (producers, 0, lambda times: describe_producers([0], times)),
}
"""By what it names: what there has to be, the version, and a request that names one thing so often."""


@pytest.mark.parametrize("name", REPEATING)
async def test_an_answer_that_repeats_itself_takes_the_memory_of_one(name: str) -> None:
    """10 MB that a client doesn't read take 1 MB; the client gets all of them."""
    prepare, version, request = REPEATING[name]
    async with connected() as (server, peer):
        await prepare(peer)
        (once,) = [len(encode(answer, version)) for answer in [await peer.ask(request(1), version)]]
        times = 10 * MB // once
        await peer.send(request(times), version)
        await server.until(lambda: server.server.connections.unsent.counted_bytes > 0)
        assert server.server.connections.unsent.counted_bytes < MB
        frame = await peer.receive_frame()
        assert frame is not None
        assert len(frame) > 0.9 * times * once
        assert server.server.connections.unsent.counted_bytes == 0


async def test_an_answer_of_hundreds_of_megabytes_costs_the_connection(peer: Peer, server: Serving) -> None:
    """It isn't built: its connection ends with one log line, of the client, the API and the limit."""
    await consumers(peer)
    await peer.send(ConsumerGroupDescribeRequest(group_ids=["g"] * 30_000), 1)
    assert await peer.is_closed()
    (line,) = server.events("connection_closed")
    assert line["reason"] == (
        f"ConsumerGroupDescribeResponse would have more than {155 * MB} bytes, as socket.request.max.bytes and "
        "fetch.max.bytes have together (client id 'test', User:ANONYMOUS)"
    )
    assert line["peer"]
    assert server.events("connection_failed") == []


@pytest.mark.parametrize("idle", ["600000", "-1"])
async def test_an_answer_that_its_client_does_not_take_goes(idle: str) -> None:
    """It holds its memory for TAKEN_WITHIN_MS at most, also as the only one, whatever its client sends meanwhile."""
    async with serving(f"connections.max.idle.ms={idle}") as server:
        unsent = server.server.connections.unsent
        peer = await server.peer()
        await joiners(peer)
        await peer.send(DescribeGroupsRequest(groups=["g"] * 6_000), 5)
        await server.until(lambda: unsent.counted_bytes > 0)
        for _ in range(10):
            assert unsent.counted_bytes > 0
            await peer.send_bytes(peer.frame(DescribeGroupsRequest(groups=[]), 5))
            await server.advance(TAKEN_WITHIN_MS // 10)
        await server.until(lambda: not server.connections())
        assert unsent.counted_bytes == 0
        (line,) = server.events("connection_closed")
        assert "hasn't taken all of an answer" in line["reason"]
