"""Repeated ApiVersions, Metadata, FindCoordinator: a kept answer is the one that the handler would give."""

from __future__ import annotations

import pytest

from coordinator.security.acls import Kind, Operation, Permission
from coordinator.server.faults import plan
from coordinator.server.faults.faults import Faults
from coordinator.server.wire import repeated_questions
from protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    Message,
    MetadataRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, serving
from tests.server.requests.test_acls import STANDARD, create, rule
from tests.server.requests.test_topics import metadata_request, topic
from tests.support.requests import grow_request

VERSIONS = ApiVersionsRequest(client_software_name="app", client_software_version="1")
ALL = MetadataRequest(topics=None)


def kept(server: Serving) -> int:
    """How many answers are kept."""
    return len(server.server._api._questions._kept)


@pytest.mark.parametrize(
    "request_, version",
    [
        (VERSIONS, 3),
        (ApiVersionsRequest(), 0),
        (ALL, 9),
        (ALL, 12),
        (FindCoordinatorRequest(key="g"), 2),
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4),
    ],
)
async def test_a_repeated_question_gets_the_same_answer_and_counts(
    server: Serving, request_: Message, version: int
) -> None:
    """On each connection, under each client id; the correlation ids are those of the requests (`Peer.receive`)."""
    first, second = await server.peer("a"), await server.peer("b")
    answers = [await peer.ask(request_, version) for peer in (first, second, first)]
    assert answers[0] == answers[1] == answers[2]
    assert kept(server) == 1
    assert request_.API_KEY is not None
    assert server.server._api._services.measures.answers[request_.API_KEY, 0] == 3
    assert [each.is_of("b") for each in server.connections()].count(True) == 1


async def test_a_repeated_api_versions_gives_its_client_a_name(server: Serving) -> None:
    """A kept answer does what its handler does; one of version 0 gives no name, whatever its connection's is."""
    first = await server.peer()
    await first.ask(VERSIONS, 3)
    await first.ask(ApiVersionsRequest(), 0)
    second, third = await server.peer("second"), await server.peer("third")
    await second.ask(VERSIONS, 3)
    await third.ask(ApiVersionsRequest(), 0)
    software = {each.software for each in server.connections() if each.is_of("second")}
    assert software == {"app 1"}
    assert {each.software for each in server.connections() if each.is_of("third")} == {""}


async def test_every_change_of_topics_shows_in_the_next_metadata() -> None:
    """A topic that is created, grows and goes; `__transaction_state`, which the first such client brings."""
    async with connected("auto.create.topics.enable=false") as (_, peer):

        async def shown() -> dict[str | None, int]:
            (await peer.ask(ALL, 9), await peer.ask(ALL, 9))
            return {each.name: len(each.partitions) for each in (await peer.ask(ALL, 9)).topics}

        internal = {"__consumer_offsets": 4, "orders": 3}
        assert await shown() == internal
        await peer.ask(CreateTopicsRequest(topics=[topic("fresh", 2)], timeout_ms=1_000), 5)
        assert await shown() == internal | {"fresh": 2}
        (result,) = (await peer.ask(grow_request({"fresh": 5}), 2)).results
        assert result.error_code == ErrorCode.NONE
        assert await shown() == internal | {"fresh": 5}
        await peer.ask(DeleteTopicsRequest(topic_names=["fresh"], timeout_ms=1_000), 5)
        assert await shown() == internal
        await peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
        assert (await shown()).keys() == internal.keys() | {"__transaction_state"}


async def test_a_denial_is_no_kept_answer_and_a_rule_counts_at_once() -> None:
    """Each denied question is in the log; what one address may see, another one doesn't learn."""
    async with serving(STANDARD, "allow.everyone.if.no.acl.found=true") as server:
        peer, other = await server.peer(), await server.peer(source="127.0.0.2")
        for each in (peer, other, peer, other):
            assert (await each.ask(metadata_request("orders"), 9)).topics[0].error_code == ErrorCode.NONE
        deny = rule(Operation.DESCRIBE, Kind.TOPIC, "orders", Permission.DENY)
        deny.host = "127.0.0.2"
        assert await create(peer, deny, rule(Operation.ALL, Kind.TOPIC, "orders")) == [ErrorCode.NONE] * 2
        for _ in range(2):
            assert (await peer.ask(metadata_request("orders"), 9)).topics[0].error_code == ErrorCode.NONE
            (refused,) = (await other.ask(metadata_request("orders"), 9)).topics
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(server.events("authorizer_denied")) == 2


async def test_the_coordinator_of_a_denied_group_is_no_kept_answer() -> None:
    """Each such question is in the log too, in each form of the request."""
    async with connected(STANDARD, "super.users=User:admin") as (server, peer):
        for request, version in (
            (FindCoordinatorRequest(key="g"), 2),
            (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
        ):
            for _ in range(2):
                await peer.ask(request, version)
        assert len(server.events("authorizer_denied")) == 4
        assert kept(server) == 0


async def test_the_coordinator_of_an_id_is_no_kept_answer(peer: Peer, server: Serving) -> None:
    """Its handler opens the log of transactional ids."""
    for _ in range(2):
        await peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
    assert kept(server) == 0


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_question_about_much_is_no_kept_answer(is_long: bool) -> None:
    """Neither one with many parts nor one with many bytes: to keep it would make a turn long."""
    many, size = (10, 4_000) if is_long else (101, 1)
    keys = [str(number).rjust(size, "g") for number in range(1_000, 1_000 + many)]
    async with connected() as (server, peer):
        for _ in range(2):
            await peer.ask(FindCoordinatorRequest(coordinator_keys=keys), 4)
        assert kept(server) == 0


async def test_each_listener_has_its_own_addresses() -> None:
    """A kept answer of one listener is none of another."""
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    async with serving(listeners, protocols) as server:
        peers = [await server.peer(listener=index) for index in (0, 1, 0, 1)]
        ports = [(await peer.ask(ALL, 9)).brokers[0].port for peer in peers]
        assert ports == [port for _, port in server.server.addresses] * 2
        assert len(set(ports)) == 2


async def test_faults_concern_repeated_questions_too() -> None:
    """Planned faults stand before kept answers."""
    faults = Faults()
    async with connected(faults=faults) as (_, peer):
        for _ in range(2):
            await peer.ask(metadata_request("orders"), 9)
        faults.add(plan.disconnect("Metadata"))
        await peer.send(metadata_request("orders"), 9)
        assert await peer.is_closed()


async def test_kept_answers_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can ask for topics in any order. When the answers are too many, all go."""
    monkeypatch.setattr(repeated_questions, "KEPT_BYTES_MAX", 10 * repeated_questions.OVERHEAD)
    async with connected("tenure.topics=a:1,b:1,c:1,d:1,e:1") as (server, peer):
        counts = []
        for first in "abcde":
            for second in "abcde":
                answer = await peer.ask(metadata_request(first, second), 9)
                assert {each.name for each in answer.topics} == {first, second}
                counts.append(kept(server))
        assert max(counts) <= 10
        assert 0 in counts


async def test_each_allowed_question_is_in_the_log_if_asked() -> None:
    """Where the authorizer logs what it allows, each question reaches its handler."""
    async with connected(STANDARD, "super.users=User:ANONYMOUS", "tenure.authorizer.log.allowed=true") as (
        server,
        peer,
    ):
        for count in (1, 2):
            await peer.ask(metadata_request("orders"), 9)
            assert len(server.events("authorizer_allowed")) == count
