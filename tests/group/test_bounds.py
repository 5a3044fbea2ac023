"""What comes behind the last number that a record can have: the same as in Apache Kafka 3.9.1, 4.3.1 and 4.4.0.

The expected answers were measured there, on a log with these records.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config import INT32_MAX, INT64_MAX
from coordinator.group import records
from coordinator.group.bounds import (
    INT32_MIN,
    epoch_at_bound,
    following,
    group_at_bound,
    offset_at_bound,
)
from coordinator.group.consumer import records as consumer_records
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.invariants import broken_rules
from coordinator.group.consumer.records import LastRecords
from coordinator.group.coordinator import Coordinator
from coordinator.group.events import ConsumerHeartbeat, Load, TopicsChanged
from coordinator.group.replay import Replay
from coordinator.group.topics import TopicImage, TopicTable
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
    OffsetCommitValue,
    encode,
)
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.group.consumer.play import CLIENT, FRESH, Play, topic_id
from tests.group.harness import GROUP, WALL_MS, Bench
from tests.support.requests import first_heartbeat


def value_of(generation: int, *member_ids: str) -> GroupMetadataValue:
    """The value of a group with dynamic members."""
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if member_ids else None,
        leader=member_ids[0] if member_ids else None,
        current_state_timestamp=WALL_MS,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member_id,
                group_instance_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=b"",
                assignment=b"",
            )
            for member_id in member_ids
        ],
    )


def loaded(generation: int, *member_ids: str) -> Bench:
    """A bench that has loaded such a group, and another one."""
    bench = Bench(group_initial_rebalance_delay_ms=0)
    value = value_of(generation, *member_ids)
    bench.records.append(Record(records.group_key(GROUP), b"\0\3" + encode(value, 3), WALL_MS))
    bench.records.append(Record(records.group_key("other"), b"\0\3" + encode(value_of(4), 3), WALL_MS))
    bench.restart()
    return bench


@pytest.mark.parametrize("generation, then", [(INT32_MAX, INT32_MIN), (INT32_MIN, INT32_MIN + 1), (-5, -4)])
def test_generation_behind_the_last(generation: int, then: int) -> None:
    """Behind the last generation comes the first negative one. The group goes on with it, and over a restart."""
    bench = loaded(generation)
    member = bench.static("a")
    assert (member.enter().error, member.generation) == (ErrorCode.NONE, then)
    assert member.sync().error is ErrorCode.NONE
    assert member.heartbeat().error is ErrorCode.NONE
    assert member.commit(7).errors == [ErrorCode.NONE]
    assert bench.commit(offsets={("t", 0): 8}).errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    bench.restart()
    assert (bench.group().generation, bench.state()) == (then, "Stable")
    assert member.restart().response.generation_id == then
    assert member.leave().error is ErrorCode.NONE
    bench.advance(20_000)
    assert (bench.state(), bench.group().generation) == ("Empty", then + 1)
    assert bench.delete().error is ErrorCode.NONE
    bench.restart()
    assert GROUP not in bench.coordinator.groups
    assert bench.group("other").generation == 4


def test_generation_behind_the_last_by_an_expiry() -> None:
    """A member of the last generation that expires leaves its group empty, in the first negative one."""
    bench = loaded(INT32_MAX, "m")
    bench.advance(20_000)
    assert (bench.state(), bench.group().generation) == ("Empty", INT32_MIN)


def consumer_group(*member_ids: str) -> Coordinator:
    """A coordinator with a group of the consumer protocol at the last epoch; its members have partitions of t."""
    play = Play()
    for member_id in member_ids:
        play.join(member_id)
    group = play.coordinator.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    written = [
        consumer_records.epoch_record(GROUP, INT32_MAX, group.metadata_hash, WALL_MS),
        consumer_records.target_epoch_record(GROUP, INT32_MAX, WALL_MS, WALL_MS),
    ]
    for record in play.log:
        version = record.key[1]
        value = record.value
        if version == 8 and value is not None:  # the member is at the last epoch
            value = value[:2] + INT32_MAX.to_bytes(4) * 2 + value[10:]
        if version in {5, 7, 8}:
            written.append(record._replace(value=value))
    replay = Replay()
    replay.add(written)
    coordinator = Coordinator(0, play.config)
    coordinator.handle(TopicsChanged(TopicTable([TopicImage(topic_id("t"), "t", 4)], 1, 1), {"t"}), play.now())
    coordinator.handle(Load({group.group_id: group for group in replay.groups()}), play.now())
    return coordinator


def beat(coordinator: Coordinator, member_id: str, epoch: int) -> Any:
    """Send a heartbeat of a consumer of t; its answer."""
    if epoch == 0:
        body = first_heartbeat(GROUP, member_id, ["t"], rebalance_timeout_ms=10_000)
    else:
        body = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
    effects = coordinator.handle(ConsumerHeartbeat("r", 1, CLIENT, body, FRESH), Play().now())
    (response,) = effects.responses
    return response.body


def test_epoch_behind_the_last() -> None:
    """Behind the last epoch members keep their partitions, and newcomers get none, as in Kafka 4.3 and 4.4."""
    coordinator = consumer_group("a")
    assert (beat(coordinator, "a", INT32_MAX).error_code, coordinator.groups[GROUP].generation) == (0, INT32_MAX)
    answer = beat(coordinator, "b", 0)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, INT32_MAX)
    assert answer.assignment.topic_partitions == []
    assert coordinator.groups[GROUP].generation == INT32_MIN
    assert beat(coordinator, "a", INT32_MAX).error_code == ErrorCode.NONE
    assert beat(coordinator, "b", INT32_MAX).error_code == ErrorCode.NONE
    assert beat(coordinator, "a", -1).error_code == ErrorCode.NONE
    assert coordinator.groups[GROUP].generation == INT32_MIN + 1
    answer = beat(coordinator, "c", 0)
    assert (answer.error_code, answer.assignment.topic_partitions) == (ErrorCode.NONE, [])


def test_following() -> None:
    """One more each time, and from the last int32 to the first."""
    assert [following(number) for number in (0, 1, INT32_MAX, INT32_MIN, -1)] == [1, 2, INT32_MIN, INT32_MIN + 1, 0]


def test_records_at_a_bound_are_named() -> None:
    """The last value of each number that is written is named, and no other value is."""
    assert [group_at_bound(value_of(number)) is None for number in (0, 5, INT32_MAX - 1)] == [True] * 3
    assert "2147483647, the last" in str(group_at_bound(value_of(INT32_MAX)))
    assert "-7 is behind" in str(group_at_bound(value_of(-7)))
    value = value_of(1)
    value.current_state_timestamp = INT64_MAX
    assert "time of its state" in str(group_at_bound(value))
    common = {"offset": 1, "leader_epoch": 1, "metadata": "", "commit_timestamp": 1, "expire_timestamp": -1}
    assert offset_at_bound(OffsetCommitValue(**common)) is None  # type: ignore[arg-type]
    for field, last in (
        ("offset", INT64_MAX),
        ("leader_epoch", INT32_MAX),
        ("commit_timestamp", INT64_MAX),
        ("expire_timestamp", INT64_MAX),
    ):
        assert "is the last" in str(offset_at_bound(OffsetCommitValue(**common | {field: last})))  # type: ignore[arg-type]
    assert epoch_at_bound(INT32_MAX - 1) is None
    assert "the last one" in str(epoch_at_bound(INT32_MAX))
    assert "-2147483648 is behind" in str(epoch_at_bound(INT32_MIN))
    behind = LastRecords(INT32_MIN, INT32_MAX, {"m": ConsumerGroupMemberMetadataValue()})
    assert list(broken_rules(behind)) == []
