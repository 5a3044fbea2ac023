"""The state of a coordinator after it was killed. Each script yields at that moment.

Scripts for the limited servers begin on an open one, which comes back with the limits.
"""

from __future__ import annotations

from collections.abc import Generator

from tests.oracle.stage import Stage, protocol_list, script

TOPIC = "restart"
Restarts = Generator[None, None, None]


@script(restarts=True)
def stable_group_comes_back(stage: Stage) -> Restarts:
    """Generation, members, metadata and assignments are there, and nobody has to rejoin."""
    a, b = stage.statics("a b", version=9)
    c = stage.client("c", version=9)
    stage.form(a, b, c)
    yield
    a.describe()
    for member in (a, b, c):
        member.heartbeat()
        member.sync()
        member.synced()
    c.join()
    c.joined()


@script(restarts=True)
def static_member_restarts_after_the_coordinator(stage: Stage) -> Restarts:
    """A static restart rebalances nothing, the leader's neither; the leader is still known."""
    a, b = stage.statics("a b", version=9, protocols=["range", "sticky"])
    stage.form(a, b)
    yield
    b2 = b.restarted("b2")
    b2.enter()
    a2 = a.restarted("a2")
    a2.enter()
    b.heartbeat()
    a.heartbeat()
    b2.heartbeat()
    a2.describe()


@script(restarts=True)
def replaced_member_stays_replaced(stage: Stage) -> Restarts:
    """KAFKA-9659, KAFKA-10284: the id of the last replacement is the valid one."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    b2 = b.restarted("b2")
    b2.enter()
    a2 = a.restarted("a2")
    a2.enter()
    yield
    a2.heartbeat()
    b2.heartbeat()
    a.heartbeat()
    b.heartbeat()
    b2.sync()
    b2.synced()
    a2.describe()


@script(restarts=True)
def only_the_selected_protocol_comes_back(stage: Stage) -> Restarts:
    """A follower that rejoins with the two protocols that it always had causes a rebalance after a restart."""
    a, b = stage.clients("a b", version=9, protocols=["range", "sticky"])
    stage.form(a, b)
    yield
    b.heartbeat()
    b.join()
    b.waits()
    a.heartbeat()
    a.join()
    a.joined()
    b.joined()


@script(restarts=True)
def follower_with_one_protocol_rejoins(stage: Stage) -> Restarts:
    """With one protocol it is answered at once."""
    a, b = stage.clients("a b", version=9)
    stage.form(a, b)
    yield
    b.join()
    b.joined()
    a.heartbeat()


@script(restarts=True)
def rebalance_in_progress_is_forgotten(stage: Stage) -> Restarts:
    """A preparing group comes back Stable in its last generation; a member that hadn't synced into it is unknown."""
    a, b = stage.clients("a b", version=9)
    stage.form(a)
    b.join()
    b.joined()
    b.join()
    a.heartbeat()
    yield
    a.describe()
    a.heartbeat()
    b.heartbeat()
    b.join()
    b.joined()


@script(restarts=True)
def generation_that_was_never_synced_is_given_again(stage: Stage) -> Restarts:
    """A number that JoinGroup had answered already is given out again."""
    a, b = stage.statics("a b", version=9)
    stage.form(a)
    b.join()
    a.join()
    a.joined()
    b.joined()
    yield
    a.describe()
    a.heartbeat()
    a.heartbeat(generation_id=1)
    b.sync()
    b.synced()
    b.join(member_id="")
    a.join()
    a.joined()
    b.joined()


@script(restarts=True)
def first_generation_that_was_never_synced_is_lost(stage: Stage) -> Restarts:
    """A group that never was Stable isn't there."""
    a = stage.client("a", version=9)
    a.enter()
    yield
    a.describe()
    a.heartbeat()
    a.join()
    a.joined()


@script(restarts=True)
def pending_members_are_forgotten(stage: Stage) -> Restarts:
    """A pending id is unknown afterwards."""
    a, b = stage.clients("a b", version=9)
    stage.form(a)
    b.join()
    b.joined()
    yield
    b.join()
    b.joined()
    a.heartbeat()


@script(restarts=True)
def emptied_group_comes_back(stage: Stage) -> Restarts:
    """An emptied group keeps its generation and its protocol type."""
    (a,) = stage.statics("a", version=9)
    stage.form(a)
    a.leave()
    yield
    a.describe()
    a.list_groups()
    a.member_id = ""
    a.enter()


@script(restarts=True)
def member_that_left_comes_back(stage: Stage) -> Restarts:
    """A leave from a group that goes on is not on disk: the member is back, until its session times out."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    b.leave()
    yield
    a.describe()
    b.heartbeat()
    a.heartbeat()


@script(restarts=True)
def offsets_come_back(stage: Stage) -> Restarts:
    """Committed, committed again and deleted offsets, of members and of a simple group."""
    topic, other = stage.topic(TOPIC, 2), stage.topic(f"{TOPIC}-other", 1)
    a, simple = stage.client("a", version=9), stage.client("simple", group=f"{stage.group}.simple")
    stage.form(a)
    a.commit(topic, 5)
    a.commit(topic, 6)
    a.commit(other, 7)
    simple.commit(topic, 8)
    simple.commit(other, 9)
    simple.delete_offsets({topic: [0]})
    yield
    a.fetch_offsets(None)
    simple.fetch_offsets(None, group=simple.group)
    simple.describe(stage.group, simple.group)
    a.commit(topic, 10)
    a.fetch_offsets(None)


@script(restarts=True)
def deleted_group_stays_deleted(stage: Stage) -> Restarts:
    """Deleted with its offsets, and the id used again afterwards."""
    topic = stage.topic(TOPIC, 2)
    a, b = stage.client("a"), stage.client("b", group=f"{stage.group}.again")
    for member in (a, b):
        stage.form(member)
        member.commit(topic, 5)
        member.leave()
        member.delete_groups(member.group)
    again = stage.client("again", group=b.group)
    stage.form(again)
    yield
    a.describe(a.group, b.group)
    a.fetch_offsets(None)
    b.fetch_offsets(None, group=b.group)
    again.heartbeat()


@script(restarts=True)
def group_of_another_type_comes_back(stage: Stage) -> Restarts:
    """Protocol type and name are what they were."""
    a = stage.client("a", version=9, protocol_type="connect", protocols={"sessioned": b"c"})
    stage.form(a)
    yield
    a.describe()
    a.heartbeat()
    b = stage.client("b", version=9)
    b.join()
    b.joined()
    a.join(protocols=protocol_list({"sessioned": b"c"}))
    a.joined()


@script(restarts=True)
def topics_come_back(stage: Stage) -> Restarts:
    """Topics and their partitions are kept."""
    topic = stage.topic(f"{TOPIC}-kept", 3)
    a = stage.client("a")
    a.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    yield
    stage.until_topic(topic)
    a.commit(topic, 2, member_id="", generation_id_or_member_epoch=-1)
    a.fetch_offsets({topic: [0]})


@script("limited", restarts=True)
def larger_than_the_limit_that_was_lowered(stage: Stage) -> Restarts:
    """KAFKA-9885: a group above a lowered group.max.size rebalances; the last member to rejoin is turned away."""
    a, b, c = stage.clients("a b c", version=9)
    stage.form(a, b, c)
    yield
    a.describe()
    a.heartbeat()
    for member in (a, b, c):
        member.join(session_timeout_ms=10_000)
    c.joined()
    a.joined()
    b.joined()
    a.describe()


@script("limited", restarts=True)
def as_large_as_the_limit_that_was_lowered(stage: Stage) -> Restarts:
    """A group that just fits is left alone."""
    a, b = stage.statics("a b", version=9)
    stage.form(a, b)
    yield
    a.heartbeat()
    b.heartbeat()
    c = stage.client("c", version=9, session_timeout_ms=10_000)
    c.join()
    c.joined()
    a.describe()


@script("limited", restarts=True)
def session_timeouts_out_of_new_bounds(stage: Stage) -> Restarts:
    """Members keep the timeouts that they have; a join is held to the new bounds."""
    a = stage.client("a", version=9)
    stage.form(a)
    yield
    a.heartbeat()
    a.join()
    a.joined()
    a.heartbeat()
