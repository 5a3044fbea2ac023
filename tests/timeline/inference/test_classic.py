"""The causes of a classic group's generations: named where the records leave one, unknown where two fit."""

from __future__ import annotations

import pytest

from coordinator.timeline.inference.observed import Observed
from tests.audit.scenes import GROUP, Member, Scene, member, static, subscription
from tests.timeline.inference.observing import events_of, follow, last_kinds, told

A, B, C = {"orders": [0]}, {"orders": [1]}, {"orders": [2]}
GONE = "member_left/member_expired"


def test_members_that_come_joined() -> None:
    """A new seat is a new member, also in the first generation; each is a cause of its own."""
    scene = Scene().group([member("a", A)], 1).group([member("a", A), member("b", B), member("c", C)], 2)
    assert told(scene) == [
        ("completed", 1, ["member_joined"]),
        ("completed", 2, ["member_joined", "member_joined"]),
    ]


def test_a_member_that_committed_lately_left() -> None:
    """Its session can't have ended: a commit starts it anew, and it takes ten seconds."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(60_000).commit(7, partition=1).tick(8_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_left"]


def test_a_member_that_joined_lately_left() -> None:
    """A join is a sign of life, too."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(5_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_left"]


def test_a_silent_member_left_or_expired() -> None:
    """Without a commit nobody knows; a member with an instance id doesn't leave by itself, but may be removed."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(60_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE]
    scene = Scene().group([member("a", A), static("s", 1, B)], 1).tick(60_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_removed/member_expired"]
    scene = Scene().group([member("a", A), static("s", 1, B)], 1).commit(1, partition=1)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_removed"]


def steady(scene: Scene, partition: int, seconds: int) -> Scene:
    """Commit once a second."""
    for number in range(seconds):
        scene.commit(number, partition=partition)
    return scene


def test_a_steady_member_that_fell_silent_expired_if_others_went_on() -> None:
    """Another member committed a whole session later, so no rebalance was under way when the session ended."""
    scene = Scene().group([member("a", A), member("b", B)], 1)
    steady(steady(scene, 1, 4), 0, 11)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_expired"]


@pytest.mark.parametrize(
    ("silent_s", "instance_id", "kind"),
    [
        (12, None, "member_expired"),
        (12, "s", "member_expired"),
        (40, None, GONE),
        (60, None, "member_left"),
        (60, "s", "member_removed/member_expired"),
        (70, "s", "member_expired"),
        (90, None, GONE),
    ],
)
def test_the_length_of_a_silence_tells_a_hung_program_from_a_dead_one(
    silent_s: int, instance_id: str | None, kind: str
) -> None:
    """A dead one is gone a session (10 s) after its commits.

    One that doesn't poll leaves after its max.poll.interval.ms (60 s); with an instance id it only stops its
    heartbeats then.
    """
    silent = member("s", B, instance_id=instance_id)
    scene = Scene().group([member("a", A), silent], 1)
    steady(steady(scene, 1, 4), 0, silent_s)
    assert last_kinds(scene.group([member("a", A)], 2)) == [kind]


def test_a_member_that_was_waited_for_until_its_session_ended_expired() -> None:
    """Another one came meanwhile. The join phase ended just then, so this member was the last one it waited for."""
    for silent_s, kind in ((11, "member_expired"), (14, GONE)):
        scene = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 0, 4), 1, 4).tick(
            silent_s * 1000 - 1000
        )
        assert last_kinds(scene.group([member("a", A), member("c", B)], 2)) == [kind, "member_joined"]
    scene = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 0, 4), 1, 4).tick(10_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE], "something else began it, and left no trace"
    late = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 1, 4), 0, 8).tick(3_000)
    assert last_kinds(late.group([member("a", A)], 2)) == [GONE], "the other one went on: this one was silent before"
    scene = Scene().group([member("a", A), member("b", B), member("c", C)], 1)
    scene = steady(steady(steady(scene, 0, 4), 2, 4), 1, 4).tick(10_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE, GONE], "two are gone, and one may have left"


def test_a_slow_rebalance_after_a_leave_is_no_expiry() -> None:
    """The other members stopped to commit when it left: they may have waited for a slow one after that."""
    scene = Scene().group([member("a", A), member("b", B)], 1)
    steady(steady(scene, 0, 4), 1, 4).tick(60_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE]


def test_the_last_member_expired_if_it_was_steady() -> None:
    """An empty group waits for nobody: its record comes when its last member goes."""
    scene = steady(Scene().group([member("a", A)], 1), 0, 4).tick(12_000)
    assert told(scene.group([], 2))[-1] == ("emptied", 2, ["member_expired"])
    scene = steady(Scene().group([member("a", A)], 1), 0, 4).group([], 2)
    assert told(scene)[-1] == ("emptied", 2, ["member_left"])


def test_a_commit_in_a_transaction_is_a_weaker_sign() -> None:
    """It doesn't start the session anew, so a heartbeat interval less is sure."""
    scene = Scene().group([member("a", A), member("b", {"orders": [0]})], 1).tick(60_000)
    scene.transacted(7, 9).end_transaction(9, committed=True).tick(7_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE]


def test_who_came_first_is_unknown_unless_nobody_stayed() -> None:
    """A member that stays leaves both orders possible; without one, a leave would have emptied the group first."""
    scene = Scene().group([member("a", A), member("b", B)], 1).group([member("a", A), member("c", B)], 2)
    event = events_of(scene)[-1]
    assert not event["causes_in_order"]
    scene = Scene().group([member("b", B)], 1).group([member("c", B)], 2)
    event = events_of(scene)[-1]
    assert [cause["kind"] for cause in event["causes"]] == ["member_joined", "member_left"]
    assert "causes_in_order" not in event
    event = events_of(scene.group([member("d", A), member("e", B)], 3))[-1]
    assert [cause["kind"] for cause in event["causes"]] == ["member_joined", "member_joined", "member_left"]
    assert not event["causes_in_order"]  # which of the two was first, nobody knows


@pytest.mark.parametrize(
    ("live", "first"),
    [
        ({"a", "b", "c"}, "member_joined"),
        ({"a"}, "member_left"),
        ({"a", "c"}, None),
        ({"a", "b"}, None),
    ],
)
def test_a_live_look_may_tell_who_came_first(live: set[str], first: str | None) -> None:
    """The members while the group prepared: the new one beside the old one, or neither of them."""
    observed = Observed()
    scene = Scene().group([member("a", A), member("b", B)], 1)
    list(follow(scene, observed))
    observed.described(GROUP, scene.now_ms, "PreparingRebalance", frozenset(live))
    at = scene.next_offset
    (event,) = follow(scene.group([member("a", A), member("c", B)], 2), observed, begin=at)
    assert event.get("causes_in_order", True) is (first is not None)
    assert first is None or event["causes"][0]["kind"] == first


def wants(name: str, parts: dict[str, list[int]], *topics: str) -> Member:
    """A member that subscribes to these topics."""
    return member(name, parts, topics=topics)


def test_another_subscription_is_a_cause() -> None:
    """The member that changed it is named, and its topics, also a leader; another form of the same topics is none."""
    for name in ("a", "b"):
        scene = Scene().group([wants("a", A, "orders"), wants("b", B, "orders")], 1)
        scene.group([wants(each, A, "orders", *(["refunds"] if each == name else [])) for each in ("a", "b")], 2)
        (cause,) = events_of(scene)[-1]["causes"]
        assert (cause["kind"], cause["member_ids"], cause["topics"]) == (
            "metadata_changed", [name], [{"topic": "refunds", "change": "added"}],
        )  # fmt: skip
    other = member("a", A)
    other.subscription = subscription(["orders"], 3)
    assert last_kinds(Scene().group([member("a", A)], 1).group([other], 2)) == ["leader_rejoined"]


def test_another_protocol_is_a_cause() -> None:
    """A static member that came back with it is named."""
    scene = Scene().group([static("s", 1, A), member("b", B)], 1)
    scene.group([static("s", 2, A), member("b", B)], 2, protocol="roundrobin")
    (cause,) = events_of(scene)[-1]["causes"]
    assert (cause["kind"], cause["group_instance_id"]) == ("protocol_changed", "s")
    scene = Scene().group([member("a", A)], 1).group([member("a", A)], 2, protocol="roundrobin")
    assert last_kinds(scene) == ["metadata_changed"]


def test_partitions_that_nobody_had_were_added() -> None:
    """Same members, same topics, more partitions: the leader saw them and joined again."""
    scene = Scene().group([member("a", A), member("b", B)], 1, leader="b")
    scene.group([member("a", {"orders": [0, 2]}), member("b", {"orders": [1, 3]})], 2, leader="b")
    (cause,) = events_of(scene)[-1]["causes"]
    assert (cause["kind"], cause["member_ids"]) == ("leader_rejoined", ["b"])
    assert cause["topics"] == [{"topic": "orders", "change": "grown"}]


def test_a_deleted_topic_and_a_new_one() -> None:
    """The topics that came and went are named."""
    scene = Scene().group([member("a", A | {"old": [0]})], 1).group([member("a", A | {"new": [0]})], 2)
    (cause,) = events_of(scene)[-1]["causes"]
    assert cause["topics"] == [{"topic": "new", "change": "created"}, {"topic": "old", "change": "deleted"}]


COOPERATIVE = "cooperative-sticky"


@pytest.mark.parametrize(("leader", "kind"), [("a", "leader_rejoined"), ("b", "member_rejoined")])
def test_partitions_that_were_held_back_are_no_new_ones(leader: str, kind: str) -> None:
    """The member that gave them up in the last generation joined again (KIP-429)."""
    scene = Scene().group([member("a", {"orders": [0, 1]}), member("b", C)], 1, leader=leader, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c")], 2, leader=leader, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c", B)], 3, leader=leader, protocol=COOPERATIVE)
    (cause,) = events_of(scene)[-1]["causes"]
    assert (cause["kind"], cause["member_ids"], "topics" in cause) == (kind, ["a"], False)


def test_each_member_that_gave_up_partitions_joined_again() -> None:
    """Nobody knows which of them was first."""
    scene = Scene().group([member("a", {"orders": [0, 1]}), member("b", {"orders": [2, 3]})], 1, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c")], 2, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c", {"orders": [1, 3]})], 3, protocol=COOPERATIVE)
    event = events_of(scene)[-1]
    assert [(cause["kind"], cause["member_ids"], cause["meaning"]) for cause in event["causes"]] == [
        ("leader_rejoined", ["a"], "partitions_revoked"),
        ("member_rejoined", ["b"], "partitions_revoked"),
    ]
    assert event["causes_in_order"] is False


def test_nothing_changed() -> None:
    """Only a leader may start a rebalance for nothing; another member sends other metadata, as it owns others."""
    pair = [member("a", A), member("b", B)]
    assert last_kinds(Scene().group(pair, 1).group(pair, 2)) == ["leader_rejoined"]
    for owner, kind in (("a", "leader_rejoined"), ("b", "leader_rejoined/member_rejoined")):
        after = [member(name, parts, owned=parts if name == owner else None) for name, parts in (("a", A), ("b", B))]
        both = Scene().group(pair, 1, protocol=COOPERATIVE).group(after, 2, protocol=COOPERATIVE)
        assert last_kinds(both) == [kind]


def test_a_return_in_a_new_generation_is_unknown() -> None:
    """In a Stable group it would have a record of its own; so it came while the group rebalanced.

    Perhaps it was away for so long that it was gone, and that was the cause.
    """
    scene = Scene().group([static("s", 1, A), member("b", B)], 1).group([static("s", 2, A), member("b", B)], 2)
    assert last_kinds(scene) == ["static_member_replaced/leader_rejoined/member_rejoined/member_removed/member_expired"]
