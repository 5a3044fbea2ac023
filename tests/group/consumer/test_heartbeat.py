"""Heartbeats of the consumer protocol: epochs, assignments, refusals (KIP-848)."""

from __future__ import annotations

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.consumer.step import NAMES_MAX
from coordinator.group.effects import REBALANCE, SESSION
from coordinator.group.notes import MembersDropped, RebalanceCause, RebalanceStarted
from schemas.errors import ErrorCode
from tests.group.consumer.play import GROUP, Play, given


def test_heartbeat_that_changes_nothing_writes_nothing(play: Play) -> None:
    """A steady heartbeat, partial or full, leaves the log alone."""
    play.join("a")
    before = len(play.log)
    play.beat("a", 2)
    play.beat("a", 2, {"t": [0, 1, 2, 3]}, topics=["t"], timeout_ms=10_000)
    assert len(play.log) == before


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (3, None, ErrorCode.NONE),
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {}, ErrorCode.NONE),
        (2, {"t": [1]}, ErrorCode.NONE),
        (2, {"t": [0, 1, 2, 3]}, ErrorCode.NONE),
        (2, {"u": [0]}, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"t": [9]}, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_former_epoch_is_fine_after_a_lost_answer(
    play: Play, epoch: int, owned: dict[str, list[int]] | None, error: int
) -> None:
    """The member's former epoch passes if it says what it owns, and that is part of what it was given.

    A refusal says whether the epoch is greater or smaller than the member's.
    """
    play.join("a")
    play.beat("a", 2, topics=["t", "u"])
    assert play.group.members["a"].epoch == 3
    answer = play.beat("a", epoch, owned)
    assert answer.error_code == error
    if error != ErrorCode.NONE:
        assert f"{'greater' if epoch > 3 else 'smaller'} member epoch ({epoch})" in answer.error_message


def test_version_0_may_leave_the_member_id_to_the_coordinator() -> None:
    """A newcomer of version 0 without a member id is told one: 16 bytes of a UUID, in Kafka's form."""
    assert Play().join("", version=0).member_id == "ABEiM0RVZneImaq7zN3u_w"


def test_an_empty_group_has_its_target() -> None:
    """The last departure writes the epoch of the empty target too (KAFKA-20442); the next target needn't wait."""
    play = Play(group_consumer_assignment_interval_ms=10_000)
    play.join("a")
    play.beat("a", -1)
    group = play.group
    assert (group.generation, group.target_epoch, group.target_ms) == (3, 3, 0)
    assert play.join("b").member_epoch == 4


def test_assignment_interval_delays_the_target() -> None:
    """A newcomer is answered with the epoch of the old target until the interval is over (KIP-1263)."""
    play = Play(group_consumer_assignment_interval_ms=1_000)
    play.join("a")
    assert play.join("b").member_epoch == 2
    assert play.state() == "Assigning"
    play.wait(1_000)
    assert play.beat("b", 2).member_epoch == 3
    assert play.state() == "Reconciling"


def test_a_vote_that_makes_another_assignor_win_bumps_at_once() -> None:
    """The new epoch has its target at once; null takes no vote back, and a vote for the winner bumps nothing."""
    play = Play({"t": 3, "u": 3})
    play.join("a", ["t", "u"], assignor="range")
    play.join("b", ["t", "u"])
    assert (play.describe().assignor_name, play.group.generation) == ("range", 3)
    play.beat("a", 2, assignor="uniform")
    assert (play.describe().assignor_name, play.group.generation, play.group.target_epoch) == ("uniform", 4, 4)
    play.beat("a", 2)
    play.beat("b", 3, assignor="uniform")
    assert (play.describe().assignor_name, play.group.generation) == ("uniform", 4)
    cause = [note.cause for note in play.notes if isinstance(note, RebalanceCause | RebalanceStarted)][-1]
    assert (cause.kind, cause.member_ids) == (CauseKind.ASSIGNOR_CHANGED, ("a",))


def test_tied_votes_for_assignors_fall_as_in_kafka_4() -> None:
    """One vote each: uniform wins, which Kafka's hash map has first, whoever votes first."""
    for votes in (("range", "uniform"), ("uniform", "range")):
        play = Play({"t": 3})
        for member_id, vote in zip("ab", votes, strict=True):
            play.join(member_id, assignor=vote)
        assert play.describe().assignor_name == "uniform"


@pytest.mark.parametrize("what", ["a change", "a taken seat", "a leave"])
def test_a_changed_subscription_bumps_once(what: str) -> None:
    """Topics that only its member subscribed to leave the hash with it, so that a restart finds the same topics."""
    play = Play({"t": 1, "u": 1, "v": 1, "w": 1})
    play.join("a", ["t", "u"], regex="v", instance_id="i")
    play.join("b", ["u"], regex="w")
    play.resolve(v=["v"])
    play.wait(10_001)
    play.join("c", ["u"], regex="w")
    play.resolve(v=["v"], w=["w"])
    if what == "a change":
        play.beat("a", play.group.members["a"].epoch, {}, topics=["u"], regex="")
    elif what == "a taken seat":
        play.beat("a", -2, instance_id="i")
        play.join("x", ["u"], regex="", instance_id="i")
    else:
        play.leave("a", instance_id="i")
    for regex in (None, ""):  # the other subscriber of w keeps its topics
        play.beat("b", play.group.members["b"].epoch, regex=regex)
        epoch = play.group.generation
        play.restart()
        play.beat("b", play.group.members["b"].epoch)
        assert play.group.generation == epoch


def test_each_member_has_one_vote_for_an_assignor() -> None:
    """Most votes make the target; with as many, the first that had one. A vote goes with its member, or to another."""
    play = Play({"t": 3}, group_consumer_assignors=("range", "uniform"))
    makers = []
    for name, vote in (("a", "uniform"), ("b", "range"), ("c", "range"), ("d", "range"), ("e", "range")):
        play.join(name, assignor=vote)
        makers.append(play.group.assignor)
    assert makers == ["uniform", "uniform", "range", "range", "range"]
    play.beat("e", 6, topics=["t", "u"], assignor="uniform")
    assert play.group.assignor == "range"
    play.join("f", assignor="range")
    play.beat("f", 8, topics=["t", "u"], assignor="uniform")
    assert play.group.assignor == "uniform"
    for name in ("e", "f"):
        play.leave(name)
    play.beat("a", 2)
    assert (play.group.assignor, play.describe().assignor_name) == ("range", "range")


def test_member_that_changes_its_subscription_gives_up_at_once() -> None:
    """Partitions of a topic that a member left are revoked before a target without them is made."""
    play = Play({"t": 2, "u": 2}, group_consumer_assignment_interval_ms=60_000)
    play.join("a", ["t", "u"])
    told = play.beat("a", 2, {"t": [0, 1], "u": [0, 1]}, topics=["t"])
    assert given(told) == {"t": [0, 1]}
    assert play.group.members["a"].revoking.keys()


def test_member_that_never_gives_up_is_dropped_in_its_own_time(play: Play) -> None:
    """The rebalance timeout runs from when the member was told, and heartbeats do not stop it."""
    play.join("a", timeout_ms=20_000)
    play.join("b")
    play.wait(15_000)
    play.beat("a", 2)
    play.wait(15_000)
    assert play.beat("a", 2, {"t": [0, 1, 2, 3]}).error_code == ErrorCode.NONE
    play.wait(6_000)
    assert list(play.group.members) == ["b"]
    assert MembersDropped(GROUP, 3, ("a",), "did not give up its partitions in time") in play.notes
    assert given(play.beat("b", 3)) == {"t": [0, 1, 2, 3]}


def test_a_member_joins_with_topics_or_an_expression(play: Play) -> None:
    """Also with no topics at all; without a word about them it is refused, and the message says why."""
    refused = play.beat("a", 0, {}, timeout_ms=10_000)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "SubscribedTopicNames or SubscribedTopicRegex" in refused.error_message
    assert play.beat("m", 0, {}, timeout_ms=10_000, topics=[]).error_code == ErrorCode.NONE
    assert play.beat("n", 0, {}, timeout_ms=10_000, regex="t.*").error_code == ErrorCode.NONE


def test_a_heartbeat_that_says_all_has_the_assignment(play: Play) -> None:
    """A member says all after it lost an answer; as long as it lacks one thing, it knows what it has."""
    play.join("a")
    held = {"t": [0, 1, 2, 3]}
    play.beat("a", 2, held)
    assert given(play.beat("a", 2, held, topics=["t"], timeout_ms=10_000)) == held
    assert given(play.beat("a", 2, held, timeout_ms=10_000)) is None
    assert given(play.beat("a", 2, held, topics=["t"])) is None
    assert given(play.beat("a", 2, topics=["t"], timeout_ms=10_000)) is None


def test_a_member_that_leaves_takes_its_timers_along(play: Play) -> None:
    """That of its session, and that of the partitions that it had to give up: nothing is left to fire for nobody."""
    play.join("a")
    play.join("b")
    play.beat("a", 2, {"t": [0, 1, 2, 3]})
    assert {key.kind for key in play.timers if key.member_id == "a"} == {SESSION, REBALANCE}
    play.leave("a")
    assert {key.member_id for key in play.timers} == {"b"}


def test_epochs_go_on_after_a_restart(play: Play) -> None:
    """A coordinator that starts from the log goes on with the same members, epochs and partitions."""
    play.join("a")
    play.join("b")
    kept = given(play.beat("a", 2))
    play.restart()
    assert play.beat("a", 2).error_code == ErrorCode.NONE
    assert play.beat("a", 2, kept).member_epoch == 3
    moved = given(play.beat("b", 3))
    assert moved is not None
    assert len(moved["t"]) == 2


def test_restart_notices_topics_that_changed_meanwhile() -> None:
    """The hash in the log tells a topic that grew while no coordinator ran."""
    play = Play({"t": 1})
    play.join("a")
    play.restart()
    assert play.beat("a", 2).member_epoch == 2
    play.set_topics(t=3)
    play.restart()
    assert given(play.beat("a", 2)) == {"t": [0, 1, 2]}


def test_empty_group_can_be_deleted(play: Play) -> None:
    """A group with members can't be deleted; an empty one goes with all its records."""
    play.join("a")
    assert play.delete() == ErrorCode.NON_EMPTY_GROUP
    play.leave("a")
    assert play.delete() == ErrorCode.NONE
    assert not play.coordinator.groups
    last = {record.key: record.value for record in play.log}
    assert not any(last.values())


def test_names_of_a_group_are_limited() -> None:
    """A member whose topics are too many with those of others is refused and changes nothing. Known topics are free."""
    play = Play({"t1": 1})
    half = [f"a{number}" for number in range(NAMES_MAX // 2)]
    assert not play.join("m1", half).error_code
    assert not play.join("m2", [f"b{number}" for number in range(NAMES_MAX // 2)]).error_code
    assert play.join("m3", ["c"]).error_code == ErrorCode.INVALID_REQUEST
    assert "m3" not in play.group.members
    assert not play.join("m3", ["a0", "b0"]).error_code
    assert play.beat("m3", play.group.members["m3"].epoch, topics=["c"]).error_code == ErrorCode.INVALID_REQUEST


def test_members_share_the_topics_that_they_subscribe_to() -> None:
    """A thousand members with a thousand topics each need the memory of one list, from the log too."""
    play = Play({"t": 1, "u": 1})
    play.join("a", topics=["t", "u"])
    play.join("b", topics=["u", "t"])
    play.join("c", topics=["t"])
    for _ in range(2):
        topics = {member_id: member.topics for member_id, member in play.group.members.items()}
        assert topics["a"] is topics["b"]
        assert topics["c"] == {"t"}
        play.beat("a", play.group.members["a"].epoch, {}, topics=["t", "u"], timeout_ms=1)
        assert play.group.members["a"].topics is topics["a"]
        play.restart()
