"""Committed offsets of the consumer protocol's members (KIP-848)."""

from __future__ import annotations

from typing import Any

from tests.oracle.consumer import seat, seats, settle
from tests.oracle.stage import Stage, script

ONE, THREE, SIX = "consumer-1", "consumer-3", "consumer-6"


@script("consumer")
def commits_at_an_epoch(stage: Stage) -> None:
    """The current epoch commits anything; an older one what was held then; another member's, and strangers'."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(ONE, 1)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    a.commit(topic, 1)
    a.commit(other, 1)
    a.commit(topic, 2, generation_id_or_member_epoch=1)
    a.commit(topic, 2, generation_id_or_member_epoch=0)
    a.commit(topic, 2, generation_id_or_member_epoch=-1)
    a.commit(topic, 2, generation_id_or_member_epoch=3)
    b.join()
    a.beat()
    a.commit(topic, 3, partitions=range(6))
    a.confirm()
    a.commit(topic, 4, generation_id_or_member_epoch=2)
    a.commit(topic, 4, generation_id_or_member_epoch=2, partitions=(0, 5))
    a.commit(topic, 4, generation_id_or_member_epoch=2, partitions=(5,))
    a.commit(topic, 5, partitions=(5,))
    b.beat()
    b.commit(topic, 6, partitions=range(6))
    b.commit(topic, 6, generation_id_or_member_epoch=2, partitions=(5,))
    b.commit(topic, 6, member_id="nobody")
    b.commit(topic, 6, member_id="", generation_id_or_member_epoch=-1)
    b.commit(topic, 6, member_id="")
    b.commit(topic, 6, member_id="nobody", generation_id_or_member_epoch=-1)
    a.client.fetch_offsets(None)


@script("consumer")
def commits_of_older_epochs_while_revoking(stage: Stage) -> None:
    """A partition that is being revoked is committed with the epoch since which it was held."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(ONE, 1)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    a.beat(subscribed_topic_names=[topic, other])
    a.commit(topic, 1, generation_id_or_member_epoch=2)
    a.commit(other, 1, generation_id_or_member_epoch=2)
    b.join()
    a.beat()
    a.commit(topic, 2, generation_id_or_member_epoch=2, partitions=range(6))
    a.commit(topic, 3, generation_id_or_member_epoch=3, partitions=range(6))
    a.client.fetch_offsets(None)


@script("consumer")
def commits_of_seats(stage: Stage) -> None:
    """After a return any older epoch commits; away, epoch -2; the instance id isn't looked at."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    a.commit(topic, 1, group_instance_id="Z")
    a.commit(topic, 2, group_instance_id=None)
    a.leave(-2)
    a.commit(topic, 3)
    a.commit(topic, 4, generation_id_or_member_epoch=-2)
    a.commit(topic, 5, generation_id_or_member_epoch=-1)
    a.fetch(topic)
    a.fetch(topic, member_epoch=-2)
    b = seat(stage, "b", topics=[topic], instance="A")
    b.join()
    a.commit(topic, 6)
    b.commit(topic, 7, generation_id_or_member_epoch=1)
    b.commit(topic, 8, generation_id_or_member_epoch=0)
    b.commit(topic, 9, generation_id_or_member_epoch=-2)
    b.fetch(topic)


@script("consumer")
def older_commits(stage: Stage) -> None:
    """Below version 9: UNSUPPORTED_VERSION per partition, but UNKNOWN_MEMBER_ID comes first."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.commit(topic, version=8)
    a.commit(topic, version=9)
    a.commit(topic, version=9, member_id="", generation_id_or_member_epoch=-1)
    a.client.delete_groups()
    a.commit(topic, version=9, generation_id_or_member_epoch=2)
    a.commit(topic, version=8, generation_id_or_member_epoch=2)
    a.join()
    for version in (2, 5, 8):
        a.commit(topic, version=version, partitions=(0, 1))
        a.commit(topic, version=version, member_id="nobody")
        a.commit(topic, version=version, generation_id_or_member_epoch=9)
    a.client.fetch_offsets(None)


@script("consumer")
def commits_from_outside(stage: Stage) -> None:
    """Epoch -1 without a member id commits while the group is empty, and not while it has members."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    outside: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
    a.commit(topic, **outside)
    a.commit(topic, version=8, **outside)
    a.leave()
    a.commit(topic, 7, **outside)
    a.commit(topic, 8, version=2, **outside)
    a.commit(topic, 9, generation_id_or_member_epoch=2)
    a.client.fetch_offsets(None)
    a.describe()


@script("consumer")
def fetches(stage: Stage) -> None:
    """OffsetFetch wants the exact epoch; null is from outside, an empty member id isn't; no group: no error."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic])
    a.fetch(topic)
    a.fetch(topic, member_epoch=2)
    a.join()
    a.commit(topic, 5)
    a.fetch(topic)
    a.fetch(topic, member_epoch=1)
    a.fetch(topic, member_epoch=3)
    a.fetch(topic, member_epoch=0)
    a.fetch(topic, member_id="nobody")
    a.fetch(topic, member_id="")
    a.fetch(topic, member_id="", member_epoch=-1)
    a.fetch(topic, member_id=None, member_epoch=-1)
    a.fetch(topic, member_epoch=-1)
    a.fetch(other, topics=None)
    a.fetch(topic, version=8)
    a.leave()
    a.fetch(topic)
    a.fetch(topic, member_id=None, member_epoch=-1)


@script("consumer")
def offset_delete_asks_for_subscriptions(stage: Stage) -> None:
    """GROUP_SUBSCRIBED_TO_TOPIC for a subscription; an unsubscribed topic that is still owned may be deleted."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic, other])
    a.join()
    a.confirm()
    a.commit(topic, 1)
    a.commit(other, 1)
    a.client.delete_offsets({topic: [0], other: [0]})
    a.beat(subscribed_topic_names=[topic])
    a.client.delete_offsets({topic: [0, 1], other: [0], "nothing": [0]})
    a.client.fetch_offsets(None)
    a.client.delete_groups()
    a.leave()
    a.client.delete_offsets({topic: [0]})
    a.client.fetch_offsets(None)
    a.client.delete_groups()
    a.client.delete_offsets({topic: [0]})
    a.client.fetch_offsets(None)
    a.describe()


@script("consumer")
def offsets_survive_the_members(stage: Stage) -> None:
    """An empty group keeps its offsets, and a member that joins finds them."""
    topic = stage.known_topic(THREE, 3)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.commit(topic, 5)
    a.leave()
    b.join()
    b.fetch(topic)
    settle(b)
    b.describe()
