"""Types of groups: both protocols beside each other, and what is described and listed of each."""

from __future__ import annotations

from tests.oracle.consumer import describe, owning, seat
from tests.oracle.stage import Stage, script, subscription

THREE = "consumer-3"


@script("consumer")
def empty_classic_group_becomes_a_consumer_group(stage: Stage) -> None:
    """It keeps its offsets and starts counting anew."""
    topic = stage.known_topic(THREE, 3)
    c = stage.client("c", version=9, protocols={"range": subscription(topic)})
    stage.form(c)
    c.commit(topic, 5)
    c.leave()
    a = seat(stage, "a", topics=[topic])
    a.describe()
    a.beat(member_epoch=2)
    a.join()
    a.describe()
    a.fetch(topic)
    c.describe(version=6)
    c.list_groups()


@script("consumer")
def empty_consumer_group_becomes_a_classic_group(stage: Stage) -> None:
    """The first half of a classic join is enough; offsets stay."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.commit(topic, 5)
    a.leave()
    a.client.list_groups()
    c = stage.client("c", version=9, protocols={"range": subscription(topic)})
    c.join()
    c.joined()
    stage.until_state("Empty")
    c.list_groups()
    a.describe()
    c.describe(version=6)
    c.join()
    c.joined()
    c.fetch_offsets(None)
    c.describe()


@script("disabled")
def empty_groups_change_type_under_every_policy(stage: Stage) -> None:
    """No policy keeps an empty group from the other type."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.leave()
    c = stage.client("c", version=9, protocols={"range": subscription(topic)})
    stage.form(c)
    a.join()
    c.leave()
    a.join()
    c.join(member_id="")
    c.joined()
    a.describe()


@script("consumer")
def group_of_another_protocol_type(stage: Stage) -> None:
    """GROUP_ID_NOT_FOUND for the heartbeat while it has members; INCONSISTENT_GROUP_PROTOCOL for JoinGroup."""
    topic = stage.known_topic(THREE, 3)
    c = stage.client("c", version=9, protocol_type="connect", protocols={"range": subscription(topic)})
    stage.form(c)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.describe()
    c.leave()
    a.join()
    c.join(member_id="")
    c.joined()
    c.describe()


@script("consumer")
def descriptions_of_the_other_type(stage: Stage) -> None:
    """DescribeGroups of a consumer group: Dead, an error only in v6. ConsumerGroupDescribe of a classic: not found."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], group=f"{stage.group}.a")
    a.join()
    c = stage.client("c", version=9)
    stage.form(c)
    for version in (0, 4, 5, 6):
        c.describe(a.client.group, version=version)
        c.describe(f"{stage.group}.none", version=version)
    describe(c, stage.group, f"{stage.group}.none", a.client.group)
    describe(c, stage.group, a.client.group, version=0)
    c.leave()
    describe(c)
    a.leave()
    a.describe()
    c.describe(a.client.group, version=6)


@script("consumer")
def lists_by_type_and_state(stage: Stage) -> None:
    """States are trimmed and compared without case, types without case only; an unknown type matches nothing."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = stage.client("c", version=9, group=f"{stage.group}.classic")
    stage.form(c)
    offsets = stage.client("o", group=f"{stage.group}.offsets")
    offsets.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    for version in (0, 2, 3, 4, 5):
        c.list_groups(version=version)
    for types in (["consumer"], ["Consumer"], [" consumer"], ["classic"], ["CLASSIC", "consumer"], ["nothing"], [""]):
        c.list_groups(types=types)
    c.list_groups(types=["nothing", "classic"])
    for states in (["Stable"], [" stable "], ["Empty"], ["nothing"], ["Assigning", "Reconciling"], [""]):
        c.list_groups(states=states)
        c.list_groups(version=4, states=states)
    c.list_groups(types=["consumer"], states=["Empty"])
    a.leave()
    c.list_groups(types=["consumer"], states=["Empty"])


@script("consumer")
def classic_requests_of_consumer_members(stage: Stage) -> None:
    """Heartbeat, SyncGroup and LeaveGroup with a consumer member's id."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    c = stage.client("c", version=9)
    c.member_id, c.generation, c.protocol_name = "a", 2, "range"
    c.heartbeat()
    c.heartbeat(generation_id=1)
    c.heartbeat(member_id="nobody")
    c.sync()
    c.synced()
    c.sync(member_id="nobody")
    c.synced()
    c.leave()
    a.describe()


@script("consumer")
def reads_subscriptions_of_every_version(stage: Stage) -> None:
    """A classic member's subscription is read in each of its versions when the consumer protocol comes in."""
    topic = stage.known_topic(THREE, 3)
    for version in range(4):
        group = f"{stage.group}.{version}"
        protocols = {"range": owning(topic, version=version)}
        c = stage.client(f"c{version}", group=group, version=9, protocols=protocols)
        stage.form(c, assign=False)
        c.sync({c: b""})
        c.synced()
        a = seat(stage, f"a{version}", member_id="a", group=group, topics=[topic], assignor="range")
        a.join()
        a.describe()
