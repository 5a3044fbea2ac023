"""The consumer protocol's heartbeats (KIP-848): epochs, full and partial heartbeats, refusals, sessions."""

from __future__ import annotations

from protocol.messages import ConsumerGroupHeartbeatRequest
from tests.oracle.consumer import (
    UUID_OF_NOTHING,
    delete_topic,
    describe,
    grow_topic,
    seat,
    seats,
    settle,
    short_session,
    until_members,
)
from tests.oracle.stage import SHORT_MS, Stage, script

ONE, THREE, SIX = "consumer-1", "consumer-3", "consumer-6"


@script("consumer")
def first_member_gets_epoch_two(stage: Stage) -> None:
    """A new group is at epoch 1; its first member with a subscription gets epoch 2."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    a.beat()
    a.confirm()
    a.describe()
    a.describe(version=0)


@script("consumer")
def member_without_topics_joins_at_epoch_one(stage: Stage) -> None:
    """An empty list, an empty regex or an unresolved one bumps nothing."""
    a, b = seat(stage, "a", topics=[]), seat(stage, "b", regex="")
    a.join()
    b.join()
    a.describe()
    a.topics = [stage.known_topic(THREE, 3)]
    a.full()
    b.beat()
    b.describe()


@script("consumer")
def topic_that_does_not_exist_bumps_like_any_other(stage: Stage) -> None:
    """A subscription to no topic bumps; after the topic's creation the next heartbeat bumps again."""
    name = f"{stage.group}-later"
    a = seat(stage, "a", topics=[name])
    a.join()
    a.describe()
    a.confirm()
    stage.known_topic(name, 2)
    a.until_epoch(3)
    a.full()
    a.confirm()
    a.describe()
    delete_topic(stage, name)


@script("consumer")
def growth_of_a_topic_bumps(stage: Stage) -> None:
    """New partitions bump the group at the next heartbeat, which brings them."""
    name = stage.known_topic(f"{stage.group}-grows", 1)
    a = seat(stage, "a", topics=[name])
    a.join()
    a.confirm()
    grow_topic(stage, name, 3)
    a.until_epoch(3)
    a.full()
    a.confirm()
    a.describe()
    delete_topic(stage, name)


@script("consumer")
def version_zero_is_given_a_member_id(stage: Stage) -> None:
    """Version 0 may leave the member id to the coordinator; version 1 may not."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], member_id="", version=0)
    a.join()
    a.beat()
    a.confirm()
    a.describe()
    b = seat(stage, "b", topics=[topic], member_id="")
    b.join()


@script("consumer")
def full_heartbeats_hear_the_assignment(stage: Stage) -> None:
    """Timeout, subscription and partitions, all three: only such a heartbeat hears the assignment again."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.full()
    a.full(owns={})
    a.full(rebalance_timeout_ms=-1)
    a.full(subscribed_topic_names=None)
    a.full(topic_partitions=None)
    a.full(subscribed_topic_names=None, subscribed_topic_regex="")
    a.full(server_assignor="range")
    a.full(rack_id="r")
    a.describe()


@script("consumer")
def owned_partitions_are_not_checked(stage: Stage) -> None:
    """At its current epoch a member may say that it owns anything."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.beat(owns={topic: [0, 1, 2, 7], other: [0]})
    a.beat(owns={topic: [0, 0]})
    nothing = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=UUID_OF_NOTHING, partitions=[0])
    a.beat(topic_partitions=[nothing])
    a.describe()


@script("consumer")
def rejoin_with_epoch_zero_bumps_nothing(stage: Stage) -> None:
    """A dynamic member that rejoins with the same subscription keeps its epoch and its partitions."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    a.join()
    a.confirm()
    a.join()
    a.describe()


@script("consumer")
def rejoin_in_the_middle_of_a_revocation(stage: Stage) -> None:
    """A member that rejoins has given up everything: it moves to the newest target at once."""
    topic = stage.known_topic(SIX, 6)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    a.describe()
    a.join()
    b.beat()
    settle(a, b)
    a.describe()


@script("consumer")
def rejoin_with_another_subscription(stage: Stage) -> None:
    """A rejoin with other topics bumps."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.topics = [topic, other]
    a.join()
    a.topics = [other, topic]
    a.join()
    a.topics = [other]
    a.full()
    a.describe()


@script("consumer")
def what_never_bumps(stage: Stage) -> None:
    """Assignor, rack, timeout and client id change without a bump; names in another order too."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic, other])
    a.join()
    a.beat(server_assignor="range")
    a.describe()
    a.beat(rack_id="rack")
    a.beat(rebalance_timeout_ms=30_000)
    a.beat(subscribed_topic_names=[other, topic])
    a.beat(subscribed_topic_names=[other, topic, other])
    a.describe()
    a.client.client_id = "another"
    a.client.reconnect()
    a.beat()
    a.describe()
    a.beat(rack_id="another")
    a.describe()


@script("consumer")
def vote_for_an_assignor(stage: Stage) -> None:
    """A vote is described at once and used at the next bump; null takes no vote back."""
    topic = stage.known_topic(SIX, 6)
    a, b, c = seats(stage, "a b c", topics=[topic])
    a.join()
    b.join()
    settle(a, b)
    a.beat(server_assignor="range")
    a.describe()
    b.beat(server_assignor="range")
    settle(a, b)
    a.describe()
    c.join()
    settle(a, b, c)
    c.describe()
    a.beat()
    a.beat(server_assignor="uniform")
    b.beat(server_assignor="uniform")
    c.describe()
    c.leave()
    settle(a, b)
    a.describe()


@script("consumer")
def range_orders_static_members_first(stage: Stage) -> None:
    """The range assignor takes static members first, by instance id."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic, other], assignor="range")
    b = seat(stage, "b", topics=[topic, other], assignor="range", instance="Z")
    c = seat(stage, "c", topics=[topic, other], assignor="range", instance="Y")
    for member in (a, b, c):
        member.join()
    settle(a, b, c)
    a.describe()


@script("consumer")
def former_epoch_is_tolerated_with_owned_partitions(stage: Stage) -> None:
    """A member whose answer was lost may come with its former epoch and a list of what it owns; null is fenced."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.confirm()
    a.beat(subscribed_topic_names=[topic, other], owns=a.assigned)
    a.describe()
    a.beat(member_epoch=2)
    a.beat(member_epoch=2, owns={})
    a.beat(member_epoch=2, owns={topic: [0, 1]})
    a.beat(member_epoch=2, owns={topic: [0, 1, 2], other: [0]})
    a.beat(member_epoch=2, owns={topic: [0, 1, 2, 3]})
    a.beat(member_epoch=1, owns={})
    a.epoch = 3
    a.beat(member_epoch=4)
    a.beat(member_epoch=4, owns={})
    a.beat(member_epoch=-3)
    a.beat()


@script("consumer")
def former_epoch_may_be_many_group_epochs_ago(stage: Stage) -> None:
    """The former epoch is the member's own, even if the group has gone on by several."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(ONE, 1)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    b.topics = [other]
    b.join()
    b.beat(subscribed_topic_names=[other, "nothing"])
    b.beat(subscribed_topic_names=[other])
    a.beat()
    a.beat(member_epoch=2, owns=a.assigned)
    a.beat(member_epoch=3, owns=a.assigned)
    a.beat(member_epoch=4, owns=a.assigned)
    a.describe()


@script("consumer")
def no_former_epoch_while_revoking(stage: Stage) -> None:
    """Being asked to revoke counts as an update at the same epoch."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(ONE, 1)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    a.beat(subscribed_topic_names=[topic, other], owns=a.assigned)
    a.confirm()
    b.join()
    a.beat()
    a.beat(member_epoch=2, owns={topic: [0]})
    a.beat(member_epoch=3)
    a.describe()


@script("consumer")
def blank_names_are_refused(stage: Stage) -> None:
    """Blank group, member, instance id or rack: INVALID_REQUEST; ConsumerGroupDescribe says INVALID_GROUP_ID."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    for blank in ("", "  "):
        a.join(group_id=blank)
        a.join(member_id=blank)
        a.join(instance_id=blank)
        a.join(rack_id=blank)
        a.describe(blank)
        a.beat(group_id=blank)
        a.leave(instance_id=blank)
        a.beat(rack_id=blank)
    a.describe()


@script("consumer")
def what_a_join_must_carry(stage: Stage) -> None:
    """A join without timeout, without subscription, with partitions or without a list of them; odd epochs."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join(rebalance_timeout_ms=-1)
    a.join(rebalance_timeout_ms=0)
    a.join(subscribed_topic_names=None)
    a.join(topic_partitions=None)
    a.join(owns={topic: [0]})
    a.join(member_epoch=-2)
    a.join(member_epoch=-3)
    a.describe()
    a.join(server_assignor="nobody")
    a.join(server_assignor="")
    a.join(server_assignor="Range")
    a.describe()
    a.join()
    a.beat(rebalance_timeout_ms=0)
    a.beat(rebalance_timeout_ms=-2)
    a.describe()


@script("consumer")
def refused_in_a_leave(stage: Stage) -> None:
    """A wrong assignor is refused in a leave, too; a bad regex in a leave is ignored."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    a.leave(server_assignor="nobody")
    a.beat(server_assignor="nobody")
    a.beat(subscribed_topic_regex="(")
    a.leave(subscribed_topic_regex="(")
    a.describe()
    a.beat()


@script("consumer")
def no_group_and_an_empty_one(stage: Stage) -> None:
    """GROUP_ID_NOT_FOUND for any epoch but 0 without a group, UNKNOWN_MEMBER_ID in an empty one, whose epochs go on."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.beat(member_epoch=1)
    a.leave()
    a.leave(-2)
    a.describe()
    a.join()
    a.beat(member_id="b")
    a.beat(member_id="b", member_epoch=-1)
    a.leave()
    a.describe()
    a.beat(member_epoch=2)
    a.leave()
    a.join()
    a.describe()
    a.client.delete_groups()
    a.leave()
    a.client.delete_groups()
    a.describe()
    a.join()


@script("consumer")
def leave_of_a_member(stage: Stage) -> None:
    """A leave is answered with its epoch and interval 0; a second one is unknown."""
    topic = stage.known_topic(THREE, 3)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    b.join()
    settle(a, b)
    b.leave(member_epoch=-1, instance_id="I")
    b.leave()
    b.leave()
    a.describe()
    a.beat()
    a.describe()
    a.leave(member_epoch=-2)
    a.describe()


@script("consumer")
def session_ends(stage: Stage) -> None:
    """A silent member is removed; the group goes on with the next epoch."""
    topic = stage.known_topic(THREE, 3)
    short_session(stage, SHORT_MS)
    a = seat(stage, "a", topics=[topic])
    a.join()
    until_members(stage, 0)
    a.beat()
    a.describe()
    a.join()


@script("consumer")
def refused_requests_do_not_keep_a_session(stage: Stage) -> None:
    """Refused heartbeats, refused joins and commits do not keep a session alive."""
    topic = stage.known_topic(THREE, 3)
    short_session(stage, 4 * SHORT_MS)
    a = seat(stage, "a", topics=[topic])
    a.join()
    stage.pass_time(2 * SHORT_MS + SHORT_MS)
    a.beat(member_epoch=7)
    a.join(server_assignor="nobody")
    a.commit(topic)
    stage.pass_time(2 * SHORT_MS)
    a.beat()


@script("consumer_limited")
def full_group(stage: Stage) -> None:
    """Any unknown member of a full group hears GROUP_MAX_SIZE_REACHED, even with an epoch."""
    topic = stage.known_topic(THREE, 3)
    a, b, c = seats(stage, "a b c", topics=[topic])
    a.join()
    b.join()
    c.join()
    c.beat(member_epoch=3)
    c.leave()
    b.join()
    settle(a, b)
    a.describe()
    b.leave()
    c.join()


@script("consumer")
def groups_described_together(stage: Stage) -> None:
    """Each group asked for has its answer, in order; a group asked for twice too."""
    a = seat(stage, "a", topics=[stage.known_topic(THREE, 3)])
    a.join()
    b = seat(stage, "b", topics=[THREE], group=f"{stage.group}.b", regex="", rack="r", assignor="range")
    b.join()
    a.describe(stage.group, f"{stage.group}.none", f"{stage.group}.b", stage.group)
    describe(a.client, "", version=0)
