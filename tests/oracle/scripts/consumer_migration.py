"""Groups whose members go from the classic to the consumer protocol and back, while they work (KIP-848).

Classic members here are consumers: their metadata are subscriptions, and the assignments that a leader makes can be
read.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.consumer import Owned, assignment, owning, seat, settle, until, until_members
from tests.oracle.stage import SHORT_MS, Client, Stage, protocol_list, script

ONE, THREE, SIX = "consumer-1", "consumer-3", "consumer-6"
HALVES = (range(3), range(3, 6))


def classic(stage: Stage, name: str, **settings: Any) -> Client:
    """A classic consumer of the topic SIX."""
    topic = stage.known_topic(SIX, 6)
    return stage.client(name, version=9, **{"protocols": {"range": owning(topic)}, **settings})


def form(stage: Stage, *members: Client) -> None:
    """A Stable classic group of one or two members, which share the topic."""
    stage.form(*members, assign=False)
    parts = (range(6),) if len(members) == 1 else HALVES
    leader, *followers = members
    leader.sync({member: assignment(consumer_6=part) for member, part in zip(members, parts, strict=True)})
    for follower in followers:
        follower.sync()
    for member in members:
        member.synced()


def rejoin(member: Client, owned: Owned, generation: int | None = None, **changes: Any) -> None:
    """JoinGroup of a member that owns these partitions, its answer, and SyncGroup if it has joined."""
    held = member.generation if generation is None else generation
    member.join(protocols=protocol_list({"range": owning(SIX, owned=owned, generation=held)}), **changes)
    if member.joined().error_code == 0:
        member.sync()
        member.synced()


@script("consumer")
def upgrade_of_a_classic_group(stage: Stage) -> None:
    """Generation and assignments stay; the group epoch is generation + 1 because of the newcomer's subscription."""
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    a.describe()
    c.list_groups()
    c.heartbeat()
    c.describe(version=6)
    rejoin(c, {SIX: range(6)})
    c.heartbeat()
    a.beat()
    a.describe()
    rejoin(c, {SIX: range(3)})
    a.beat()
    c.heartbeat()
    a.describe()


@script("consumer")
def upgrade_of_two_classic_members(stage: Stage) -> None:
    """Both hear REBALANCE_IN_PROGRESS when they have to give up partitions, and rejoin one after the other."""
    c, d = classic(stage, "c"), classic(stage, "d")
    form(stage, c, d)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    a.describe()
    c.heartbeat()
    d.heartbeat()
    rejoin(c, {SIX: range(3)})
    rejoin(c, {SIX: range(2)})
    a.beat()
    d.heartbeat()
    rejoin(d, {SIX: range(3, 6)})
    rejoin(d, {SIX: range(3, 5)})
    a.beat()
    a.confirm()
    c.heartbeat()
    d.heartbeat()
    a.describe()


@script("consumer")
def upgrade_during_a_rebalance(stage: Stage) -> None:
    """Waiting JoinGroups and SyncGroups get REBALANCE_IN_PROGRESS."""
    c = classic(stage, "c")
    d = classic(stage, "d", protocols={"range": owning(stage.known_topic(ONE, 1))})
    form(stage, c)
    d.join()
    d.joined()
    d.join()
    d.waits()
    a = seat(stage, "a", topics=[SIX])
    a.join()
    d.joined()
    a.describe()
    c.heartbeat()


@script("consumer")
def upgrade_while_members_sync(stage: Stage) -> None:
    """The same in CompletingRebalance."""
    c = classic(stage, "c", protocols={"range": owning(stage.known_topic(THREE, 3))})
    d = classic(stage, "d", protocols={"range": owning(stage.known_topic(ONE, 1))})
    stage.form(c, d, assign=False)
    d.sync()
    d.waits()
    a = seat(stage, "a", topics=[SIX])
    a.join()
    d.synced()
    a.describe()
    c.sync()
    c.synced()


@script("consumer")
def upgrade_that_is_refused(stage: Stage) -> None:
    """GROUP_ID_NOT_FOUND if an assignment has user data or can't be read, or the metadata can't be read."""
    c = classic(stage, "c")
    stage.form(c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    c.describe()
    d = classic(stage, "d", group=f"{stage.group}.user-data")
    d.enter()
    d.sync({d: assignment(consumer_6=range(6))[:-4] + b"\0\0\0\1x"})
    d.synced()
    b = seat(stage, "b", topics=[SIX], group=d.group)
    b.join()
    e = classic(stage, "e", group=f"{stage.group}.metadata", protocols={"range": b"no"})
    stage.form(e)
    f = seat(stage, "f", topics=[SIX], group=e.group)
    f.join()
    for group in (c.group, d.group, e.group):
        c.describe(group)


@script("consumer")
def static_seat_is_taken_over(stage: Stage) -> None:
    """A classic static member's seat goes to a consumer member without a bump, and back, without -2."""
    c, d = classic(stage, "c", instance="C"), classic(stage, "d", instance="D")
    form(stage, c, d)
    a = seat(stage, "a", topics=[SIX], instance="C")
    a.join()
    a.describe()
    d.heartbeat()
    c.heartbeat()
    e = classic(stage, "e", instance="C")
    e.join()
    e.joined()
    e.sync()
    e.synced()
    a.beat()
    a.describe()
    d.describe()
    d.heartbeat()


@script("consumer")
def all_static_members_upgrade(stage: Stage) -> None:
    """One after the other takes over its own seat: nobody else notices."""
    c, d = classic(stage, "c", instance="C"), classic(stage, "d", instance="D")
    form(stage, c, d)
    a = seat(stage, "a", topics=[SIX], instance="C")
    a.join()
    d.heartbeat()
    b = seat(stage, "b", topics=[SIX], instance="D")
    b.join()
    a.confirm()
    b.confirm()
    d.heartbeat()
    a.describe()


@script("consumer")
def dynamic_member_goes_on_under_its_id(stage: Stage) -> None:
    """A classic dynamic member that sends heartbeats under its own id bumps nothing."""
    c, d = classic(stage, "c"), classic(stage, "d")
    form(stage, c, d)
    a = seat(stage, "a", topics=[SIX], member_id=c.member_id)
    a.join()
    a.describe()
    d.heartbeat()
    b = seat(stage, "b", topics=[SIX], member_id=d.member_id)
    b.join()
    b.describe()
    settle(a, b)
    rejoin(c, {SIX: range(3)})
    b.describe()


@script("consumer")
def classic_member_joins_a_consumer_group(stage: Stage) -> None:
    """JoinGroup is answered at once: leader "", no members, its own first protocol; assignments in Sync are ignored."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.confirm()
    c = classic(stage, "c", protocols={"roundrobin": owning(topic), "range": owning(topic)})
    c.join()
    c.joined()
    c.join()
    c.joined()
    c.sync({c: b"anything"})
    c.synced()
    a.describe()
    c.heartbeat()
    a.beat()
    a.confirm()
    c.heartbeat()
    c.join(protocols=protocol_list({"range": owning(topic, owned={}, generation=3)}))
    c.joined()
    c.heartbeat()
    c.sync()
    c.synced()
    c.heartbeat()
    a.describe()


@script("consumer")
def rejoin_that_still_owns(stage: Stage) -> None:
    """A rejoin that still owns what it must revoke is answered with the old generation."""
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    c.heartbeat()
    rejoin(c, {SIX: range(6)})
    rejoin(c, {SIX: range(4)})
    a.describe()
    c.heartbeat()
    rejoin(c, {SIX: range(3)}, generation=1)
    a.beat()
    a.describe()


@script("consumer")
def subscriptions_of_version_zero(stage: Stage) -> None:
    """They own nothing, so their members give up all at once."""
    topic = stage.known_topic(SIX, 6)
    c = classic(stage, "c", protocols={"range": owning(topic, version=0)})
    form(stage, c)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c.heartbeat()
    c.join()
    c.joined()
    a.beat()
    c.sync()
    c.synced()
    a.describe()


@script("consumer")
def made_up_member_ids(stage: Stage) -> None:
    """Accepted from a dynamic classic member, UNKNOWN_MEMBER_ID from a static one."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    d = classic(stage, "d", instance="D")
    d.join(member_id="n")
    d.joined()
    d.join()
    d.joined()
    d.join(member_id="n")
    d.joined()
    c.heartbeat(member_id="nobody")
    c.heartbeat(generation_id=9)
    c.sync(generation_id=9)
    c.synced()
    c.sync(protocol_name="another")
    c.synced()
    c.sync(protocol_type="another")
    c.synced()
    a.describe()


@script("consumer")
def classic_joins_that_are_refused(stage: Stage) -> None:
    """No protocols, another protocol type, metadata that can't be read, in a consumer group."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    for name, settings in (
        ("c", {"protocols": {}}),
        ("d", {"protocol_type": "connect"}),
        ("e", {"protocols": {"range": b"no"}}),
        ("f", {"protocol_type": ""}),
    ):
        c = classic(stage, name, **settings)
        c.join(member_id=name)
        c.joined()
    a.describe()


@script("consumer")
def waiting_classic_member(stage: Stage) -> None:
    """Its heartbeat is NONE until its partitions are free, then REBALANCE_IN_PROGRESS."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.confirm()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    c.sync()
    c.synced()
    c.heartbeat()
    a.beat()
    c.heartbeat()
    a.confirm()
    c.heartbeat()
    c.heartbeat()
    rejoin(c, {})
    c.heartbeat()
    a.describe()


@script("consumer")
def classic_member_that_does_not_rejoin(stage: Stage) -> None:
    """Told to rejoin, it is removed after its rebalance timeout."""
    c = classic(stage, "c", rebalance_timeout_ms=SHORT_MS)
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    c.heartbeat()
    until_members(stage, 1)
    a.beat()
    a.describe()
    c.heartbeat()


@script("consumer")
def classic_member_that_does_not_sync(stage: Stage) -> None:
    """Joined, it is removed if it doesn't sync within its rebalance timeout."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = classic(stage, "c", rebalance_timeout_ms=SHORT_MS)
    c.join(member_id="m")
    c.joined()
    until_members(stage, 1)
    a.describe()


@script("consumer")
def classic_member_expires(stage: Stage) -> None:
    """A classic member's session ends as it does in a classic group."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = classic(stage, "c", session_timeout_ms=SHORT_MS)
    c.join(member_id="m")
    c.joined()
    c.sync()
    c.synced()
    until_members(stage, 1)
    a.describe()


@script("consumer")
def downgrade_when_the_last_consumer_member_leaves(stage: Stage) -> None:
    """PreparingRebalance, and the next generation is the epoch + 1."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.confirm()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    c.sync()
    c.synced()
    a.leave()
    a.describe()
    c.describe()
    c.list_groups()
    c.heartbeat()
    c.join()
    c.joined()
    c.describe()


@script("consumer")
def downgrade_when_the_last_consumer_member_expires(stage: Stage) -> None:
    """The same when its session ends, or it doesn't revoke in time."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic], rebalance_timeout_ms=SHORT_MS)
    a.join()
    a.confirm()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    c.sync()
    c.synced()
    a.beat()
    stage.until_state("PreparingRebalance")
    a.beat()
    c.heartbeat()
    c.join()
    c.joined()


@script("consumer")
def downgrade_by_an_administrator(stage: Stage) -> None:
    """The same when the last consumer member is removed."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    a.leave(-2)
    a.describe()
    c.leave(("", "A"))
    c.describe()
    c.join()
    c.joined()


@script("consumer")
def no_downgrade_when_the_last_classic_member_leaves(stage: Stage) -> None:
    """The group goes on as a consumer group."""
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    c.leave()
    a.beat()
    a.describe()
    c.list_groups()


@script("consumer")
def static_classic_member_takes_the_last_consumer_seat(stage: Stage) -> None:
    """The classic group is Stable at once, and nobody rejoins."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic], instance="A")
    b = seat(stage, "b", topics=[topic], instance="B")
    a.join()
    b.join()
    settle(a, b)
    c = classic(stage, "c", instance="A")
    c.join()
    c.joined()
    c.sync()
    c.synced()
    b.beat()
    b.describe()
    d = classic(stage, "d", instance="B")
    d.join()
    d.joined()
    d.sync()
    d.synced()
    c.heartbeat()
    d.heartbeat()
    d.describe()
    b.beat()


@script("consumer")
def last_seat_with_another_subscription(stage: Stage) -> None:
    """The classic group rebalances. Its members go on with the generation that they know, and hear that they rejoin."""
    other = stage.known_topic(ONE, 1)
    d = classic(stage, "d")
    form(stage, d)
    a = seat(stage, "a", topics=[SIX], instance="A")
    a.join()
    rejoin(d, {SIX: range(3)})
    a.confirm()
    a.confirm()
    a.describe()
    c = classic(stage, "c", instance="A", protocols={"range": owning(SIX, other)})
    c.join()
    c.joined()
    d.commit(SIX)
    d.heartbeat()
    c.sync()
    c.synced()
    d.join()
    d.waits()
    c.join()
    d.joined()
    c.joined()


@script("consumer")
def members_that_are_behind_a_downgrade(stage: Stage) -> None:
    """The epoch that a member never heard of is the generation: it hears ILLEGAL_GENERATION."""
    d = classic(stage, "d")
    form(stage, d)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    a.leave()
    d.commit(SIX)
    d.heartbeat()
    d.describe()
    e = classic(stage, "e", instance="E", group=f"{stage.group}.seat")
    form(stage, e)
    b = seat(stage, "b", topics=[SIX], instance="B", group=e.group)
    b.join()
    c = classic(stage, "c", instance="B", group=e.group)
    c.join()
    c.joined()
    e.commit(SIX)
    e.heartbeat()
    e.describe()


@script("consumer")
def commits_of_classic_members_in_a_consumer_group(stage: Stage) -> None:
    """Their generation is the member epoch, in every version of OffsetCommit."""
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    for version in (2, 8, 9):
        c.commit(SIX, version=version)
    c.commit(SIX, generation_id_or_member_epoch=9)
    a.commit(SIX)
    c.fetch_offsets(None)
    c.delete_offsets({SIX: [0], "nothing": [0]})


@script("upgrade")
def upgrade_only(stage: Stage) -> None:
    """Under policy `upgrade` classic members left alone hear NONE until one of them rejoins."""
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[SIX])
    a.join()
    a.leave()
    a.describe()
    c.heartbeat()
    rejoin(c, {SIX: range(6)})
    a.describe()
    c.describe()
    c.heartbeat()


@script("upgrade")
def classic_join_under_upgrade(stage: Stage) -> None:
    """JoinGroup to a consumer group is welcome."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = classic(stage, "c")
    c.join(member_id="m")
    c.joined()
    a.describe()


@script("downgrade")
def downgrade_only(stage: Stage) -> None:
    """Under policy `downgrade` no classic group becomes a consumer group; JoinGroup is welcome, and downgrades."""
    topic = stage.known_topic(SIX, 6)
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[topic])
    a.join()
    b = seat(stage, "b", topics=[topic], group=f"{stage.group}.b")
    b.join()
    d = classic(stage, "d", group=b.client.group)
    d.join(member_id="m")
    d.joined()
    d.sync()
    d.synced()
    b.describe()
    b.leave()
    d.describe()
    d.join()
    d.joined()


@script("disabled")
def no_migration(stage: Stage) -> None:
    """Under policy `disabled` JoinGroup to a consumer group is INCONSISTENT_GROUP_PROTOCOL, and nothing upgrades."""
    topic = stage.known_topic(SIX, 6)
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[topic])
    a.join()
    b = seat(stage, "b", topics=[topic], group=f"{stage.group}.b")
    b.join()
    d = classic(stage, "d", group=b.client.group)
    d.join(member_id="m")
    d.joined()
    d.join()
    d.joined()
    b.describe()
    c.heartbeat()
    until(stage, lambda group: len(group.members) == 1, b.client.group)


@script("consumer")
def topics_that_only_one_side_subscribes_to(stage: Stage) -> None:
    """A consumer member's other topic is its own."""
    other = stage.known_topic(ONE, 1)
    c = classic(stage, "c")
    form(stage, c)
    a = seat(stage, "a", topics=[other])
    a.join()
    c.heartbeat()
    a.describe()
