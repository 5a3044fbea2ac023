"""The rules find each way in which the records of a group of the consumer protocol can contradict one another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.consumer.invariants import ConsumerRule, broken_rules
from coordinator.group.consumer.records import CURRENT, LastRecords
from coordinator.group.replay import Replay
from coordinator.story.records.consumer import CONSUMER_VERSIONS, read_consumer_value
from coordinator.story.records.values import read_key
from protocol.errors import ProtocolError
from protocol.messages import ConsumerGroupTargetAssignmentMemberValue
from tests.group.consumer.play import Play, topic_id


def last_records() -> LastRecords:
    """The last records of two members, of which one is static and away; each shall have two partitions."""
    play = Play()
    play.join("m")
    play.join("n", instance_id="seat")
    play.beat("m", 2, {"t": [0, 1, 2, 3]})
    play.beat("m", 2, {"t": [0, 1]})
    play.beat("n", 3, {})
    play.beat("n", -2, instance_id="seat")
    last = {record.key: record.value for record in play.log}
    records = LastRecords()
    for key, value in last.items():
        if value is not None:
            read = read_key(key)
            records.put(read.name, read_consumer_value(value, CONSUMER_VERSIONS[read.kind])[1])
    return records


def change(of: str, name: str, value: object) -> Callable[[LastRecords], None]:
    """Change a field of the member m in one of the kinds of records."""
    return lambda records: setattr(getattr(records, of)["m"], name, value)


def has(*partitions: int) -> Callable[[LastRecords], None]:
    """Let the member m have these partitions."""
    return lambda records: setattr(records.current["m"].assigned_partitions[0], "partitions", [*partitions])


def shared_while_revoking(records: LastRecords) -> None:
    """Let a member give up what the other one has."""
    records.current["m"].partitions_pending_revocation = records.current["n"].assigned_partitions


def aimed_twice(records: LastRecords) -> None:
    """Promise a partition to two members."""
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id("t"), partitions=[0, 3])
    records.targets["m"].topic_partitions = [topic]


def test_records_of_a_play_are_right() -> None:
    """The records that a coordinator wrote break no rule; a member that is away is none."""
    records = last_records()
    assert records.current["n"].member_epoch == -2
    assert sorted(records.current) == sorted(records.targets) == ["m", "n"]
    assert list(broken_rules(records)) == []


@pytest.mark.parametrize(
    ("change", "rule", "member_id"),
    [
        (lambda records: records.members.pop("m"), ConsumerRule.NO_MEMBER, "m"),
        (change("members", "instance_id", "seat"), ConsumerRule.INSTANCE_TWICE, None),
        (lambda records: setattr(records, "epoch", records.epoch - 1), ConsumerRule.TARGET_EPOCH, None),
        (change("current", "member_epoch", 4), ConsumerRule.MEMBER_EPOCH, "m"),
        (change("current", "member_epoch", -1), ConsumerRule.MEMBER_EPOCH, "m"),
        (has(0, 2), ConsumerRule.OWNED_TWICE, None),
        (shared_while_revoking, ConsumerRule.OWNED_TWICE, None),
        (has(0, 1, 1), ConsumerRule.OWNED_TWICE, "m"),
        (aimed_twice, ConsumerRule.TARGET_TWICE, None),
    ],
    ids=[
        "no member", "one seat", "older than its target", "ahead", "below any", "shared", "shared while revoking",
        "twice", "aimed twice",
    ],
)  # fmt: skip
def test_each_contradiction_is_found(
    change: Callable[[LastRecords], object], rule: ConsumerRule, member_id: str | None
) -> None:
    """A change of one record breaks one rule, and the violation names the member if it is one alone."""
    records = last_records()
    change(records)
    broken = list(broken_rules(records))
    assert {each.rule for each in broken} == {rule}
    assert member_id in {None, *(each.member_id for each in broken)}


@pytest.mark.parametrize(
    ("member_id", "data"),
    [("n", None), ("m", b"\0"), ("m", b"\0\x09"), ("m", b"\0\0\0")],
)
def test_records_that_no_group_can_have_are_not_loaded(play: Play, member_id: str, data: bytes | None) -> None:
    """A partition that two members have, or a value that is cut or newer, makes a load fail with its reason."""
    play.join("m")
    play.join("n")
    first = next(record for record in play.log if record.key[1] == CURRENT)
    replay = Replay()
    replay.add([*play.log, first._replace(key=first.key[:-1] + member_id.encode(), value=data or first.value)])
    with pytest.raises(ProtocolError):
        list(replay.groups())
