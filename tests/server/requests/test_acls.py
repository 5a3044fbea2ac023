"""ACLs in a server: every API asks for the rights of its table, changes last and count at once, denials are logged."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.client import ANONYMOUS
from coordinator.log.topics.list import ACLS
from coordinator.security.access import Access
from coordinator.security.acls import Kind, Operation, Pattern, Permission, Rule
from coordinator.server.requests.acls import CREATIONS_MAX, FILTERS_MAX
from protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.oracle.acl_table import EVERYTHING, UNMATCHED
from tests.server.harness import Peer, Serving, connected, heartbeat_request, seat, serving
from tests.server.requests.test_records import fetch_request
from tests.support.batches import batch
from tests.support.requests import (
    acl,
    commit_request,
    first_heartbeat,
    group_offsets_request,
    join_request,
    offsets_request,
    produce_request,
)

STANDARD = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER = f"super.users={ANONYMOUS}"


def rule(
    operation: Operation, kind: Kind = Kind.GROUP, name: str = "g", permission: Permission = Permission.ALLOW
) -> CreateAclsRequest.AclCreation:
    """An ACL for everybody who isn't authenticated."""
    return acl(kind, name, operation, permission, principal=ANONYMOUS)


async def create(peer: Peer, *rules: CreateAclsRequest.AclCreation) -> list[int]:
    """The error codes."""
    return [each.error_code for each in (await peer.ask(CreateAclsRequest(creations=list(rules)), 3)).results]


async def held(peer: Peer) -> list[tuple[int, str, int]]:
    """All ACLs."""
    answer = await peer.ask(DescribeAclsRequest(**EVERYTHING), 3)
    assert answer.error_code == ErrorCode.NONE
    return sorted(
        (each.resource_type, each.resource_name, one.operation) for each in answer.resources for one in each.acls
    )


async def test_without_an_authorizer_there_are_no_acls(peer: Peer) -> None:
    """Kafka has a code for that."""
    assert await create(peer, rule(Operation.READ)) == [ErrorCode.SECURITY_DISABLED]
    assert (await peer.ask(DescribeAclsRequest(**UNMATCHED), 1)).error_code == ErrorCode.SECURITY_DISABLED
    filters = [DeleteAclsRequest.DeleteAclsFilter(**UNMATCHED)]
    (result,) = (await peer.ask(DeleteAclsRequest(filters=filters), 1)).filter_results
    assert result.error_code == ErrorCode.SECURITY_DISABLED


async def test_acls_are_created_described_and_deleted() -> None:
    """An answer comes when the change is in effect."""
    async with connected(STANDARD, SUPER) as (_, peer):
        assert (
            await create(peer, rule(Operation.READ), rule(Operation.READ), rule(Operation.ALL, Kind.TOPIC)) == [0] * 3
        )
        assert await held(peer) == [(Kind.TOPIC, "g", Operation.ALL), (Kind.GROUP, "g", Operation.READ)]
        one = DeleteAclsRequest.DeleteAclsFilter(**EVERYTHING)
        one.resource_type_filter = Kind.TOPIC
        both = DeleteAclsRequest(filters=[one, DeleteAclsRequest.DeleteAclsFilter(**EVERYTHING)])
        assert [len(each.matching_acls) for each in (await peer.ask(both, 3)).filter_results] == [1, 2]
        assert await held(peer) == []


NO_TYPE = "no colon is present separating the principal type from the principal name"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"principal": "alice"}, f"Could not parse principal from `alice` ({NO_TYPE})"),
        ({"host": ""}, "Host pattern cannot be null or empty"),
    ],
)
async def test_an_acl_that_can_never_apply_is_refused(fields: dict[str, str], message: str) -> None:
    """With Kafka's words; the other ACLs of the request are created."""
    async with connected(STANDARD, SUPER) as (_, peer):
        wrong = rule(Operation.ALL)
        for name, value in fields.items():
            setattr(wrong, name, value)
        request = CreateAclsRequest(creations=[wrong, rule(Operation.READ)])
        refused, created = (await peer.ask(request, 3)).results
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)
        assert (created.error_code, created.error_message) == (ErrorCode.NONE, "")
        assert await held(peer) == [(Kind.GROUP, "g", Operation.READ)]


async def test_acls_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules in all, and rules and filters in one request."""
    monkeypatch.setattr("coordinator.server.requests.acls.RULES_MAX", 2)
    async with connected(STANDARD, SUPER) as (_, peer):
        rules = [rule(Operation.READ, name=str(number)) for number in range(3)]
        assert await create(peer, *rules) == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert await create(peer, rules[0], rules[2]) == [0, ErrorCode.POLICY_VIOLATION]
        many = [rule(Operation.READ)] * (CREATIONS_MAX + 1)
        assert set(await create(peer, *many)) == {ErrorCode.POLICY_VIOLATION}
        filters = [DeleteAclsRequest.DeleteAclsFilter(**UNMATCHED)] * (FILTERS_MAX + 1)
        results = (await peer.ask(DeleteAclsRequest(filters=filters), 3)).filter_results
        assert {each.error_code for each in results} == {ErrorCode.POLICY_VIOLATION}


async def test_a_filter_that_comes_many_times_is_answered_by_the_same_bytes() -> None:
    """11 MB take the memory of one result while the client doesn't read them; each filter has all that matched."""
    async with connected(STANDARD, SUPER) as (server, peer):
        await create(peer, *(rule(Operation.READ, name=f"{number:0>100}") for number in range(300)))
        filters = [DeleteAclsRequest.DeleteAclsFilter(**EVERYTHING)] * 300
        await peer.send(DeleteAclsRequest(filters=filters), 3)
        unsent = server.server.connections.unsent
        await server.until(lambda: unsent.counted_bytes > 0)
        assert unsent.counted_bytes < 1024 * 1024
        results = (await peer.receive()).filter_results
        assert {len(each.matching_acls) for each in results} == {300}
        assert len(results) == 300
        assert await held(peer) == []


async def change(server: Serving, *rules: tuple[Kind, str, Operation], host: str = "*") -> None:
    """Have exactly these rules for everybody on a host, as if another client had made them."""
    texts = [
        Rule(kind, Pattern.LITERAL, name, ANONYMOUS, host, operation, Permission.ALLOW).text()
        for kind, name, operation in rules
    ]
    server.server._api._services.access.set_rules(texts)
    server.server._api.forget()
    server.server.connections.forget()


GROUP = (Kind.GROUP, "g", Operation.READ)


async def test_a_remembered_heartbeat_is_refused_as_soon_as_its_rule_is_gone() -> None:
    """And answered again as soon as there is one."""
    async with serving(STANDARD) as server:
        await change(server, GROUP)
        peer = await server.peer()
        joined = await seat(peer, "g", "one")
        beat = heartbeat_request("g", joined, "one")
        assert [(await peer.ask(beat, 4)).error_code for _ in range(3)] == [0, 0, 0]
        assert server.server._api._services.measures.repeated_heartbeats > 0
        await change(server)
        assert [(await peer.ask(beat, 4)).error_code for _ in range(2)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
        await change(server, GROUP)
        assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE


async def test_a_remembered_heartbeat_is_refused_from_a_host_without_the_right() -> None:
    """Even if a client of the same user had the same bytes answered."""
    async with serving(STANDARD) as server:
        await change(server, GROUP, host="127.0.0.1")
        peer, stranger = await server.peer(source="127.0.0.1"), await server.peer(source="127.0.0.2")
        beat = heartbeat_request("g", await seat(peer, "g", "one"), "one")
        assert (await stranger.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
        assert [(await peer.ask(beat, 4)).error_code for _ in range(3)] == [0, 0, 0]
        assert server.server._api._services.measures.repeated_heartbeats > 0
        assert (await stranger.ask(beat, 4)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_remembered_heartbeat_of_the_consumer_protocol_is_refused_as_soon_as_its_rule_is_gone() -> None:
    """The same for members whose heartbeats a connection keeps."""
    topic = (Kind.TOPIC, "orders", Operation.DESCRIBE)
    async with serving(STANDARD, "tenure.topics=orders:1") as server:
        await change(server, GROUP, topic)
        peer = await server.peer()
        epoch = (await peer.ask(first_heartbeat("g", "m"), 1)).member_epoch
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        assert [(await peer.ask(beat, 1)).error_code for _ in range(3)] == [0, 0, 0]
        assert server.server._api._services.measures.repeated_beats > 0
        await change(server)
        assert [(await peer.ask(beat, 1)).error_code for _ in range(2)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
        await change(server, GROUP)
        assert (await peer.ask(beat, 1)).error_code == ErrorCode.NONE


async def test_a_refused_heartbeat_does_not_keep_the_session() -> None:
    """The member expires as if it had been silent."""
    async with serving(STANDARD, "group.min.session.timeout.ms=1") as server:
        await change(server, GROUP)
        peer = await server.peer()
        joined = await seat(peer, "g", "one")
        await change(server)
        for _ in range(7):
            await server.advance(2_000)
            refused = await peer.ask(heartbeat_request("g", joined, "one"), 4)
            assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert server.events("member_expired")


async def test_a_remembered_commit_is_refused_as_soon_as_its_rule_is_gone() -> None:
    """The right on the topic as well as that on the group."""
    topic = (Kind.TOPIC, "orders", Operation.READ)
    async with connected(STANDARD) as (server, peer):
        commit = commit_request("g", {("orders", 0): 7})

        async def code() -> int:
            answer = await peer.ask(commit, 8)
            return int(answer.topics[0].partitions[0].error_code)

        await change(server, GROUP, topic)
        assert [await code() for _ in range(4)] == [0] * 4
        await change(server, GROUP)
        assert await code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await change(server, topic)
        assert await code() == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await change(server, GROUP, topic)
        assert await code() == ErrorCode.NONE


async def test_a_refused_commit_is_refused_again_when_it_is_repeated() -> None:
    """Without the right on the group, the topic, or both: nothing is kept of it that would take the next one."""
    topic = (Kind.TOPIC, "orders", Operation.READ)
    async with serving(STANDARD) as server:
        commit = commit_request("g", {("orders", 0): 7})
        for allowed, error in (
            ((), ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ((topic,), ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ((GROUP,), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ):
            await change(server, *allowed)
            peer = await server.peer()
            answers = [await peer.ask(commit, 8) for _ in range(4)]
            assert [answer.topics[0].partitions[0].error_code for answer in answers] == [error] * 4
        assert not server.events("group_created")
        assert not any("g" in partition.coordinator.groups for partition in server.server.runtime.partitions)


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_of_a_topic_without_a_right_are_refused_in_every_version(version: int) -> None:
    """One group up to version 7, several from 8 on: the topic has an error, and the connection goes on."""
    async with serving(STANDARD) as server:
        await change(server, (Kind.GROUP, "g", Operation.DESCRIBE))
        peer = await server.peer()
        is_one, partitions = version < 8, {"orders": [0]}
        request = offsets_request("g", partitions) if is_one else group_offsets_request("g", partitions=partitions)
        answer = await peer.ask(request, version)
        (topic,) = answer.topics if is_one else answer.groups[0].topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_a_rule_for_an_ipv6_address_counts_on_the_short_ways_too() -> None:
    """A rule has the address in Kafka's long form; a denial refuses heartbeats and repeated commits as any request."""
    settings = ("listeners=PLAINTEXT://127.0.0.1:0,SIX://[::1]:0", "listener.security.protocol.map=SIX:PLAINTEXT")
    everybody = "allow.everyone.if.no.acl.found=true"
    async with serving(*settings, STANDARD, everybody) as server:
        admin, member = await server.peer(), await server.peer(listener=1)
        joined = await seat(member, "g", "one")
        beat = heartbeat_request("g", joined, "one")
        commit = commit_request("h", {("orders", 0): 7})
        denied = [rule(Operation.READ, name=name, permission=Permission.DENY) for name in "gh"]
        for each in denied:
            each.host = "0:0:0:0:0:0:0:1"
        for error in (ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            for _ in range(3):
                assert (await member.ask(beat, 4)).error_code == error
                (topic,) = (await member.ask(commit, 8)).topics
                assert [each.error_code for each in topic.partitions] == [error]
            await create(admin, *(rule(Operation.ALL, name=name) for name in "gh"), *denied)


@pytest.mark.parametrize("is_produced", [True, False])
async def test_a_fetch_that_waits_is_refused_once_its_rule_is_gone(is_produced: bool) -> None:
    """Whether a record or the end of its time ends the wait: neither records nor the end of the log go out."""
    may_read, may_write = (Kind.TOPIC, "orders", Operation.READ), (Kind.TOPIC, "orders", Operation.WRITE)
    async with serving(STANDARD) as server:
        await change(server, may_read, may_write)
        reader, writer = await server.peer(), await server.peer()
        request = fetch_request(("orders", 0, 0))
        await reader.send(request, 11)
        await server.barrier()
        await change(server, may_write)
        assert reader.is_silent()
        if is_produced:
            await writer.ask(produce_request({("orders", 0): batch([(b"k", b"secret", 1_000)])}), 9)
        else:
            await server.advance(request.max_wait_ms)
        (partition,) = (await reader.receive()).responses[0].partitions
        assert (partition.error_code, partition.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
        assert (partition.high_watermark, partition.log_start_offset) == (-1, -1)
        assert server.events("authorizer_denied")


async def test_a_join_that_waits_is_answered_though_its_rule_is_gone() -> None:
    """Kafka looks at rules when a request comes, not when it is answered."""
    async with serving(STANDARD, "group.initial.rebalance.delay.ms=1000") as server:
        await change(server, GROUP)
        peer = await server.peer()
        await peer.send(join_request("g", instance="one"), 5)
        await server.barrier()
        await change(server)
        await server.advance(1_000)
        assert (await peer.receive()).error_code == ErrorCode.NONE


async def test_nobody_learns_whether_a_topic_exists() -> None:
    """Answers about a topic that exists and one that doesn't are the same, but for the name."""
    async with connected(STANDARD) as (_, peer):
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("orders", "absent")]
        known, absent = (await peer.ask(MetadataRequest(topics=names), 12)).topics
        assert known.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        known.name = absent.name
        assert known == absent


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_of_a_hidden_topic(version: int) -> None:
    """Its name or id is answered with TOPIC_AUTHORIZATION_FAILED beside the others, in every version."""
    async with connected(STANDARD, SUPER, "tenure.topics=orders:1,hidden:1") as (server, peer):
        await create(
            peer,
            rule(Operation.DESCRIBE),
            rule(Operation.DESCRIBE, Kind.TOPIC, "orders"),
            rule(Operation.DESCRIBE, Kind.TOPIC, "hidden", Permission.DENY),
        )
        services = server.server._api._services
        services.access = Access(is_open=False)
        services.access.set_rules(dict.fromkeys(services.discovery.topics.entry(ACLS).configs, ""))
        named = [(topic.name, topic.topic_id) for topic in services.discovery.topics]
        if version < 8:
            asked: list[Any] = [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name, _ in named
            ]
            found = (await peer.ask(OffsetFetchRequest(group_id="g", topics=asked), version)).topics
        else:
            fields = [{"topic_id": each} if version >= 10 else {"name": name} for name, each in named]
            asked = [OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=[0], **each) for each in fields]
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=asked)
            (answered,) = (await peer.ask(OffsetFetchRequest(groups=[group]), version)).groups
            found = answered.topics
        key = "topic_id" if version >= 10 else "name"
        errors = {getattr(topic, key): topic.partitions[0].error_code for topic in found}
        assert errors == {
            each if version >= 10 else name: 0 if name == "orders" else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for name, each in named
        }
