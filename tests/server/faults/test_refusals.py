"""Error answers: every API in every version, and where the error is."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.server.faults.refusals import ERROR_FIELDS, as_loading, refusal
from coordinator.server.wire.api import HANDLERS
from protocol.connection import SIZE_BYTES
from protocol.definition import Struct
from protocol.header import decode_response, encode_response
from protocol.messages import (
    API_KEYS,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    api_schema,
    definition,
)
from schemas.errors import ErrorCode
from tests.protocol.strategies import full_message
from tests.support.cases import each
from tests.support.requests import commit_request

EVERY = [
    (api, version)
    for api, key in sorted(API_KEYS.items())
    if key in HANDLERS
    for version in range(api_schema(key).VERSIONS[0], api_schema(key).VERSIONS[1] + 1)
]
NOWHERE = {("DescribeLogDirs", 0), ("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""Answers whose only errors are those of log folders, which the request doesn't name."""


def errors(struct: Struct, message: Any, version: int) -> list[int]:
    """The values of all errors that this version has, at every depth."""
    found = []
    for field in struct.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if field.name in ERROR_FIELDS:
            found.append(value)
        elif field.struct is not None and field.array:
            for element in value or ():
                found += errors(field.struct, element, version)
    return found


@each("api, version", EVERY)
def test_every_request_has_an_error_answer(api: str, version: int) -> None:
    """The answer can be encoded in the request's version, and a client that decodes it finds this error alone."""
    request = full_message(f"{api}Request", version)
    answer = refusal(API_KEYS[api], version, request, ErrorCode.NOT_COORDINATOR)
    frame = encode_response(API_KEYS[api], version, 7, answer)[SIZE_BYTES:]
    correlation_id, decoded = decode_response(API_KEYS[api], version, frame)
    assert correlation_id == 7
    found = errors(definition(f"{api}Response").struct, decoded, version)
    assert set(found) == (set() if (api, version) in NOWHERE else {ErrorCode.NOT_COORDINATOR})


def test_a_commit_has_its_error_at_each_topic_partition() -> None:
    """OffsetCommit has no error on top."""
    committed = commit_request("g", {("orders", index): 0 for index in (0, 3)})
    answer = refusal(8, 7, committed, ErrorCode.NOT_COORDINATOR)
    (answered,) = answer.topics
    assert answered.name == "orders"
    assert [(each.partition_index, each.error_code) for each in answered.partitions] == [(0, 16), (3, 16)]


def test_offset_fetch_has_its_error_where_the_version_has_it() -> None:
    """Version 1 has it at each partition, version 5 on top, version 8 at each group."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[1, 2])]
    old = refusal(9, 1, OffsetFetchRequest(group_id="g", topics=topics), ErrorCode.NOT_COORDINATOR)
    assert [(each.partition_index, each.error_code) for each in old.topics[0].partitions] == [(1, 16), (2, 16)]
    top = refusal(9, 5, OffsetFetchRequest(group_id="g", topics=topics), ErrorCode.NOT_COORDINATOR)
    assert (top.error_code, top.topics) == (16, [])
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in "ab"]
    new = refusal(9, 8, OffsetFetchRequest(groups=groups), ErrorCode.NOT_COORDINATOR)
    assert [(each.group_id, each.error_code, each.topics) for each in new.groups] == [("a", 16, []), ("b", 16, [])]


def test_find_coordinator_has_its_error_on_top_or_at_each_key() -> None:
    """Version 4 asks for many keys."""
    assert refusal(10, 3, FindCoordinatorRequest(key="g"), ErrorCode.NOT_COORDINATOR).error_code == 16
    answer = refusal(10, 4, FindCoordinatorRequest(coordinator_keys=["a", "b"]), ErrorCode.NOT_COORDINATOR)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("a", 16), ("b", 16)]


def test_fetch_has_its_error_on_top_and_below() -> None:
    """As Kafka's own error answer of a Fetch."""
    partition = FetchRequest.FetchPartition(partition=4)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="orders", partitions=[partition])])
    answer = refusal(1, 12, request, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert answer.error_code == 1
    (topic,) = answer.responses
    assert (topic.topic, topic.partitions[0].partition_index, topic.partitions[0].error_code) == ("orders", 4, 1)


def test_a_request_that_names_nothing_gets_an_empty_answer() -> None:
    """Metadata for all topics has no place for an error."""
    assert refusal(3, 9, MetadataRequest(topics=None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).topics == []


@pytest.mark.parametrize("version, name", [(6, ""), (7, None)])
def test_join_group_gives_the_member_id_back(version: int, name: str | None) -> None:
    """As the coordinator's refusals do; up to version 6 a protocol name can't be null."""
    answer = refusal(11, version, JoinGroupRequest(member_id="m"), ErrorCode.UNKNOWN_MEMBER_ID)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (25, "m", -1)
    assert answer.protocol_name == name


def test_a_coordinator_that_loads_says_so_where_old_clients_expect_it() -> None:
    """A heartbeat gets NONE and a sync REBALANCE_IN_PROGRESS; other requests COORDINATOR_LOAD_IN_PROGRESS."""
    assert as_loading(12, 3, HeartbeatRequest()).error_code == ErrorCode.NONE
    assert as_loading(14, 3, SyncGroupRequest()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert as_loading(11, 3, JoinGroupRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
