"""Error messages have a length, so that each answer can be encoded."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.text import MESSAGE_MAX, cut_text
from protocol.messages import (
    MetadataRequest,
)
from protocol.primitives import STRING_SIZE_MAX
from schemas.errors import ErrorCode
from tests.server.harness import Peer
from tests.support.requests import configs_request, describe_configs_request, request

TOPIC, BROKER = 2, 4
SET, APPEND, SUBTRACT = 0, 2, 3
LONGEST = "x" * STRING_SIZE_MAX
LIST = "follower.replication.throttled.replicas"


def test_a_message_is_cut_to_its_length() -> None:
    """A shorter one stays as it is."""
    assert cut_text("a" * MESSAGE_MAX) == "a" * MESSAGE_MAX
    cut = cut_text("é" * (MESSAGE_MAX + 1))
    assert (len(cut), cut[-5:]) == (MESSAGE_MAX, "é ...")
    assert len(cut.encode()) <= STRING_SIZE_MAX


@pytest.mark.parametrize("version", [4, 7])
async def test_a_topic_beside_one_with_the_longest_name_is_created_and_answered(peer: Peer, version: int) -> None:
    """Names, names of settings and values of 32,767 bytes are refused; the topic beside them is created."""
    bad = [(LONGEST, "1"), ("retention.ms", LONGEST), ("retention.ms", "9" * 5_000)]
    named: list[tuple[str, list[Any]]] = [("good", []), (LONGEST, [])]
    named += [(f"bad{number}", [{"name": name, "value": value}]) for number, (name, value) in enumerate(bad)]
    one = {"num_partitions": 1, "replication_factor": 1}
    asked = [{"name": name, "configs": configs, **one} for name, configs in named]
    answer = await peer.ask(request("CreateTopics", topics=asked, timeout_ms=1_000), version)
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *[ErrorCode.INVALID_CONFIG] * 3,
    ]
    assert all(len(topic.error_message or "") <= MESSAGE_MAX for topic in answer.topics)
    shown = await peer.ask(MetadataRequest(topics=None), 9)
    assert "good" in [topic.name for topic in shown.topics]


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
async def test_the_longest_name_of_a_resource_is_refused_with_an_answer(peer: Peer, kind: int) -> None:
    """By DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""
    answer = await peer.ask(describe_configs_request(kind, LONGEST), 4)
    assert answer.results[0].error_code
    whole = {"resource_type": kind, "resource_name": LONGEST, "configs": []}
    answer = await peer.ask(request("AlterConfigs", resources=[whole], validate_only=False), 2)
    assert answer.responses[0].error_code
    answer = await peer.ask(configs_request(kind, [LONGEST], []), 1)
    assert answer.responses[0].error_code


async def change(peer: Peer, name: str, operation: int, value: str) -> Any:
    """The answer to one change of the topic `orders`."""
    answer = await peer.ask(configs_request(TOPIC, ["orders"], [(name, operation, value)]), 1)
    return answer.responses[0]


async def test_a_value_that_no_answer_can_carry_is_refused(peer: Peer) -> None:
    """APPEND makes no value of more than 32,767 bytes; DescribeConfigs shows the former one."""
    first = ",".join(f"0:{index}" for index in range(4_000))
    second = ",".join(f"1:{index}" for index in range(4_000))
    assert (await change(peer, LIST, APPEND, first)).error_code == ErrorCode.NONE
    refused = await change(peer, LIST, APPEND, second)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "more than 32767 bytes" in refused.error_message
    assert (await change(peer, LIST, SUBTRACT, second)).error_code == ErrorCode.NONE
    answer = await peer.ask(describe_configs_request(TOPIC, "orders", keys=[LIST]), 4)
    assert answer.results[0].configs[0].value == first


async def test_the_longest_name_of_a_setting_is_refused_with_an_answer(peer: Peer) -> None:
    """Its message quotes the name, cut."""
    answer = await change(peer, LONGEST, SET, "1")
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.error_message) == MESSAGE_MAX
