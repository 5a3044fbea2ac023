"""Static members of the consumer protocol (KIP-848), and administrators who remove members."""

from __future__ import annotations

from tests.oracle.consumer import Seat, seat, seats, settle, short_session, until_members
from tests.oracle.stage import SHORT_MS, Stage, script

ONE, THREE, SIX = "consumer-1", "consumer-3", "consumer-6"


def returned(member: Seat, name: str) -> Seat:
    """The same program again: another member id on another connection, the same instance id and subscription."""
    return seat(member.stage, name, instance=member.client.instance, topics=member.topics)


@script("consumer")
def static_member_returns(stage: Stage) -> None:
    """After -2 the seat waits with its partitions; the member that returns gets them at once, without a bump."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic], instance="B")
    a.join()
    b.join()
    settle(a, b)
    a.leave(-2)
    b.describe()
    b.client.list_groups()
    b.beat()
    c = returned(a, "c")
    c.join()
    c.confirm()
    b.describe()
    a.beat()
    b.beat()


@script("consumer")
def active_static_member_cannot_rejoin(stage: Stage) -> None:
    """UNRELEASED_INSTANCE_ID for another member id and for its own, until the seat is given up."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    b = returned(a, "b")
    b.join()
    a.join()
    a.beat()
    a.describe()
    a.leave(-2)
    a.join()
    a.confirm()
    a.leave(-1)
    b.join()
    b.describe()


@script("consumer")
def attempts_do_not_prolong_the_session(stage: Stage) -> None:
    """A member that can't rejoin is let in when its session has ended."""
    topic = stage.known_topic(THREE, 3)
    short_session(stage, 4 * SHORT_MS)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    stage.pass_time(2 * SHORT_MS)
    a.join()
    until_members(stage, 0)
    a.join()


@script("consumer")
def time_away_counts_from_the_last_heartbeat(stage: Stage) -> None:
    """-2 doesn't restart the session timer."""
    topic = stage.known_topic(THREE, 3)
    short_session(stage, 4 * SHORT_MS)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    stage.pass_time(2 * SHORT_MS)
    stage.pass_time(SHORT_MS)
    a.leave(-2)
    stage.pass_time(2 * SHORT_MS)
    a.describe()
    returned(a, "b").join()


@script("consumer")
def away(stage: Stage) -> None:
    """Away: epoch -2, its old epoch fenced, a second -2 fine; it counts for targets, OffsetDelete and DeleteGroups."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic])
    a.join()
    a.confirm()
    a.leave(-2)
    a.beat()
    a.beat(owns=a.assigned)
    a.leave(-2)
    a.describe()
    a.client.list_groups()
    a.client.delete_offsets({topic: [0]})
    a.client.delete_groups()
    b.join()
    b.beat()
    b.describe()
    c = returned(a, "c")
    c.join()
    b.beat()
    c.describe()


@script("consumer")
def away_for_good(stage: Stage) -> None:
    """-1 after -2 gives the seat up; the old id is unknown then."""
    topic = stage.known_topic(THREE, 3)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic])
    a.join()
    b.join()
    a.leave(-2)
    a.leave(-1)
    a.leave(-1)
    b.beat()
    b.describe()


@script("consumer")
def away_in_the_middle_of_a_revocation(stage: Stage) -> None:
    """-2 frees the partitions asked for at once."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic])
    a.join()
    b.join()
    a.beat()
    a.leave(-2)
    b.describe()
    b.beat()
    b.describe()
    c = returned(a, "c")
    c.join()
    b.describe()


@script("consumer")
def away_before_it_was_told(stage: Stage) -> None:
    """Before the member was told to revoke, -2 frees nothing; its return serves whoever waits."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic])
    a.join()
    b.join()
    a.leave(-2)
    b.beat()
    b.describe()
    c = returned(a, "c")
    c.join()
    b.beat()
    b.describe()


@script("consumer")
def rack_and_names_of_a_returning_member(stage: Stage) -> None:
    """It inherits the rack if it names none; only changed names bump."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic], instance="A", rack="R", assignor="range")
    a.join()
    a.leave(-2)
    b = returned(a, "b")
    b.join()
    b.describe()
    b.leave(-2)
    c = seat(stage, "c", topics=[topic], instance="A", rack="S", assignor="uniform", rebalance_timeout_ms=30_000)
    c.join()
    c.describe()
    c.leave(-2)
    d = seat(stage, "d", topics=[topic, other], instance="A")
    d.join()
    d.describe()
    d.leave(-2)
    e = seat(stage, "e", topics=[], instance="A")
    e.join()
    e.describe()


@script("consumer")
def instance_ids_are_looked_at_before_epochs(stage: Stage) -> None:
    """Partial heartbeats and -1 may leave out the instance id, -2 may not; another member's id is fenced."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic], instance="B")
    a.join()
    b.join()
    a.beat(instance_id=None)
    a.beat(instance_id="B")
    a.beat(instance_id="B", member_epoch=9)
    a.beat(instance_id="Z")
    a.beat(instance_id="Z", member_epoch=9)
    a.beat(member_epoch=9)
    a.leave(-2, instance_id=None)
    a.leave(-2, instance_id="B")
    a.leave(-1, instance_id="B")
    a.leave(-1, instance_id="Z")
    a.beat(member_id="c")
    a.beat(member_id="c", member_epoch=9)
    a.leave(-1, member_id="c")
    a.leave(-2, member_id="c")
    a.leave(-1, instance_id=None)
    b.describe()
    returned(a, "d").join()


@script("consumer")
def dynamic_member_becomes_static(stage: Stage) -> None:
    """By rejoining with an instance id, without a bump; by a mere heartbeat it is UNKNOWN_MEMBER_ID."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic])
    a.join()
    a.beat(instance_id="A")
    a.join(instance_id="A")
    a.beat(instance_id="A")
    a.describe()
    a.join()
    a.describe()


@script("consumer")
def static_member_returns_as_a_dynamic_one(stage: Stage) -> None:
    """Its former seat stays as it is, until its session ends or somebody removes it."""
    topic = stage.known_topic(SIX, 6)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    a.leave(-2)
    b = seat(stage, "b", topics=[topic])
    b.join()
    b.describe()
    b.client.leave(("", "A"))
    b.beat()
    b.describe()


@script("consumer")
def minus_two_of_others(stage: Stage) -> None:
    """-2 of a dynamic member, and of nobody."""
    topic = stage.known_topic(THREE, 3)
    a, b = seat(stage, "a", topics=[topic]), seat(stage, "b", topics=[topic], instance="B")
    a.join()
    a.leave(-2)
    a.leave(-2, instance_id="A")
    b.leave(-2)
    a.describe()


@script("consumer_limited")
def return_to_a_full_group(stage: Stage) -> None:
    """The returning member's new id is not yet a member: a full group turns it away."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic], instance="B")
    a.join()
    b.join()
    a.leave(-2)
    c = returned(a, "c")
    c.join()
    a.join()
    settle(a, b)
    a.describe()


@script("consumer")
def administrator_removes_members(stage: Stage) -> None:
    """LeaveGroup removes static members by instance id and dynamic ones by member id; several are one bump."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic], instance="B")
    c, d = seats(stage, "c d", topics=[topic])
    for member in (a, b, c, d):
        member.join()
    settle(a, b, c, d)
    admin = stage.client("admin")
    admin.leave(("z", "A"), ("", "Z"), ("z", None), ("a", "B"), ("", None), ("", ""))
    a.describe()
    admin.leave(("", "A"), ("c", None), ("c", None))
    d.describe()
    admin.leave(("b", "B"))
    d.describe()
    d.beat()
    d.confirm()
    admin.leave(("d", None), version=2)
    admin.leave(("d", None), version=1)
    d.describe()
    a.beat()


@script("consumer")
def administrator_removes_a_member_that_is_away(stage: Stage) -> None:
    """A seat that waits for its member's return can be freed."""
    topic = stage.known_topic(THREE, 3)
    a, b = seat(stage, "a", topics=[topic], instance="A"), seat(stage, "b", topics=[topic])
    a.join()
    b.join()
    a.leave(-2)
    b.client.leave(("", "A"))
    b.beat()
    b.describe()
    returned(a, "c").join()


@script("consumer")
def seat_that_was_given_up(stage: Stage) -> None:
    """After -1 without the instance id the seat is free."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    a.leave(-1, instance_id=None)
    b = returned(a, "b")
    b.join()
    b.describe()
