"""How partitions move between members of the consumer protocol (KIP-848)."""

from __future__ import annotations

from tests.oracle.consumer import delete_topic, seat, seats, settle, until, until_members
from tests.oracle.stage import SHORT_MS, Stage, script

ONE, THREE, SIX = "consumer-1", "consumer-3", "consumer-6"


@script("consumer")
def two_members_share(stage: Stage) -> None:
    """The confirmation of a revocation moves the member to the new epoch and carries no assignment."""
    a, b = seats(stage, "a b", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    a.describe()
    a.beat()
    a.describe()
    a.beat()
    b.beat()
    a.confirm()
    a.describe()
    b.beat()
    b.confirm()
    b.describe()


@script("consumer")
def three_members_share(stage: Stage) -> None:
    """A third member takes from both; each gives up on its own, and the newcomer gets what is free."""
    a, b, c = seats(stage, "a b c", topics=[stage.known_topic(SIX, 6)])
    for member in (a, b):
        member.join()
    settle(a, b)
    c.join()
    a.beat()
    a.confirm()
    c.beat()
    c.describe()
    b.beat()
    b.confirm()
    c.beat()
    c.confirm()
    c.describe()


@script("consumer")
def three_members_join_at_once(stage: Stage) -> None:
    """Three members join before the first gives anything up: it revokes once for both."""
    a, b, c = seats(stage, "a b c", topics=[stage.known_topic(SIX, 6)])
    for member in (a, b, c):
        member.join()
    a.describe()
    a.beat()
    b.beat()
    a.confirm()
    b.beat()
    c.beat()
    settle(a, b, c)
    a.describe()


@script("consumer")
def revocation_in_one_step(stage: Stage) -> None:
    """A heartbeat that would be told to revoke and reports that nothing is owned does both steps."""
    a, b = seats(stage, "a b", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    a.beat(owns={})
    a.describe()
    b.beat()
    settle(a, b)


@script("consumer")
def null_confirms_nothing(stage: Stage) -> None:
    """Only a list of partitions without the revoked ones confirms."""
    topic = stage.known_topic(SIX, 6)
    a, b = seats(stage, "a b", topics=[topic])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    a.beat()
    a.full(topic_partitions=None)
    a.full(owns={topic: range(6)})
    a.beat(owns={topic: range(1, 6)})
    a.beat(owns={topic: [*a.assigned[topic], 5]})
    b.beat()
    a.describe()
    a.beat(owns={topic: a.assigned[topic][:1]})
    b.beat()


@script("consumer")
def revoking_member_jumps_over_epochs(stage: Stage) -> None:
    """A member keeps its old epoch while it revokes, and is at the newest afterwards."""
    a, b, c = seats(stage, "a b c", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    c.join()
    a.beat()
    c.beat()
    a.describe()
    a.confirm()
    a.confirm()
    b.beat()
    c.beat()
    settle(a, b, c)
    a.describe()


@script("consumer")
def target_that_turns_back(stage: Stage) -> None:
    """A revocation must be confirmed even if the target has turned back; then the partitions come again."""
    a, b = seats(stage, "a b", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    b.leave()
    a.describe()
    a.beat()
    a.describe()
    a.confirm()
    a.confirm()
    a.confirm()
    a.describe()


@script("consumer")
def turns_back_before_it_was_told(stage: Stage) -> None:
    """If the newcomer leaves before the holder heard of it, the holder revokes nothing."""
    a, b = seats(stage, "a b", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    b.leave()
    a.describe()
    a.beat()
    a.describe()


@script("consumer")
def leave_bumps_and_the_next_heartbeat_assigns(stage: Stage) -> None:
    """A leave bumps at once; the target comes with the next heartbeat, until then the state is Assigning."""
    a, b, c = seats(stage, "a b c", topics=[stage.known_topic(SIX, 6)])
    for member in (a, b, c):
        member.join()
    settle(a, b, c)
    c.leave()
    a.describe()
    a.client.list_groups()
    b.beat()
    a.describe()
    a.client.list_groups()
    settle(a, b)
    b.leave()
    a.leave()
    a.describe()
    a.client.list_groups()


@script("consumer")
def unanswered_revocation_ends_the_member(stage: Stage) -> None:
    """The rebalance timer starts when the member is told; partial revocations and a new timeout don't change it."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], rebalance_timeout_ms=4 * SHORT_MS), seat(stage, "b", topics=[topic])
    a.join()
    a.confirm()
    b.join()
    stage.pass_time(4 * SHORT_MS)
    a.beat()
    a.beat(owns={topic: range(1, 6)}, rebalance_timeout_ms=60_000)
    until_members(stage, 1)
    b.describe()
    a.beat()
    b.beat()
    b.describe()


@script("consumer")
def waiting_member_has_no_rebalance_timer(stage: Stage) -> None:
    """A member that waits for partitions is not removed."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic]), seat(stage, "b", topics=[topic], rebalance_timeout_ms=SHORT_MS)
    a.join()
    a.confirm()
    b.join()
    a.beat()
    stage.pass_time(2 * SHORT_MS)
    b.beat()
    a.confirm()
    b.beat()
    b.describe()


@script("consumer")
def rebalance_timer_ends_with_the_confirmation(stage: Stage) -> None:
    """A confirmed revocation stops the timer."""
    topic = stage.known_topic(SIX, 6)
    a, b = seat(stage, "a", topics=[topic], rebalance_timeout_ms=4 * SHORT_MS), seat(stage, "b", topics=[topic])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    a.confirm()
    stage.pass_time(4 * SHORT_MS)
    stage.pass_time(SHORT_MS)
    a.beat()
    a.describe()


@script("consumer")
def lost_answer_with_new_partitions(stage: Stage) -> None:
    """New partitions whose answer was lost are repeated only to a full heartbeat."""
    a, b = seats(stage, "a b", topics=[stage.known_topic(SIX, 6)])
    a.join()
    a.confirm()
    b.join()
    a.beat()
    a.confirm()
    b.beat()
    b.beat()
    b.beat(owns={})
    b.full(owns={})
    b.confirm()
    b.describe()


@script("consumer")
def description_includes_what_is_being_revoked(stage: Stage) -> None:
    """The current assignment contains the partitions that the member still has to give up."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(ONE, 1)
    a, b = seats(stage, "a b", topics=[topic, other], assignor="range")
    a.join()
    b.join()
    a.beat()
    b.describe()
    b.client.list_groups()
    a.beat(subscribed_topic_names=[other])
    b.describe()
    a.confirm()
    b.describe()


@script("consumer")
def unsubscribed_topic_is_revoked(stage: Stage) -> None:
    """A member that drops a topic revokes its partitions in two steps."""
    topic, other = stage.known_topic(THREE, 3), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[topic, other])
    a.join()
    a.confirm()
    a.beat(subscribed_topic_names=[other])
    a.beat()
    a.describe()
    a.confirm()
    a.describe()
    a.beat(subscribed_topic_names=[])
    a.confirm()
    a.describe()


@script("consumer")
def deleted_topic_is_revoked(stage: Stage) -> None:
    """A deleted topic's partitions are revoked by the member like any others."""
    name, other = stage.known_topic(f"{stage.group}-deleted", 2), stage.known_topic(ONE, 1)
    a = seat(stage, "a", topics=[name, other])
    a.join()
    a.confirm()
    delete_topic(stage, name)

    def told() -> bool:
        a.beat_aside()
        return name not in a.assigned

    stage.until_true(told)
    a.full(owns={name: [0, 1], other: [0]})
    a.describe()
    a.confirm()
    a.confirm()
    a.describe()


@script("consumer")
def members_with_different_subscriptions(stage: Stage) -> None:
    """Members share what they both subscribe to, and have alone what only they do."""
    topic, other = stage.known_topic(SIX, 6), stage.known_topic(THREE, 3)
    a, b = seat(stage, "a", topics=[topic, other]), seat(stage, "b", topics=[topic])
    a.join()
    a.confirm()
    b.join()
    settle(a, b)
    a.describe()
    b.beat(subscribed_topic_names=[topic, other])
    settle(a, b)
    a.describe()


@script("consumer")
def more_members_than_partitions(stage: Stage) -> None:
    """A member without a partition is there with an empty assignment, and takes over when another leaves."""
    a, b, c = seats(stage, "a b c", topics=[stage.known_topic(ONE, 1)])
    for member in (a, b, c):
        member.join()
    settle(a, b, c)
    c.describe()
    a.leave()
    b.beat()
    c.beat()
    c.describe()
    until(stage, lambda group: group.group_state == "Stable")
