"""The causes of a classic group's generations: named where the records leave one, unknown where two fit."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from coordinator.story.events import TopicChange
from coordinator.story.inference.observed import Observed
from tests.audit.scenes import GROUP, Member, Scene, member, static, subscription
from tests.story.inference.observing import events_of, follow, kinds, last_kinds, told

A, B, C = {"orders": [0]}, {"orders": [1]}, {"orders": [2]}
GONE = "member_left/member_expired"


def test_members_that_come_joined() -> None:
    """A new seat is a new member, also in the first generation; each is a cause of its own."""
    all_of_it = {"orders": [0, 1, 2]}
    scene = Scene().group([member("a", all_of_it)], 1).group([member("a", A), member("b", B), member("c", C)], 2)
    assert told(scene) == [
        ("completed", 1, ["member_joined"]),
        ("completed", 2, ["member_joined", "member_joined"]),
    ]


def test_a_member_that_committed_lately_left() -> None:
    """Its session can't have ended: a commit starts it anew, and it takes ten seconds."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(60_000).commit(7, partition=1).tick(8_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_left"]


def test_a_member_that_joined_lately_left() -> None:
    """A join is as good a sign of life as a commit."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(8_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == ["member_left"]


def test_a_member_that_has_less_time_to_join_than_its_session_may_have_been_late() -> None:
    """It was silent for longer than its rebalance timeout, so the group may have gone on without it."""
    late = member("b", B)
    late.rebalance_timeout = 6_000
    scene = Scene().group([member("a", A), late], 1).tick(8_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE]


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
    """Another one came, and nobody else was there. The join phase ended just when the session did."""
    for silent_s, kind in ((11, "member_expired"), (14, GONE)):
        scene = steady(Scene().group([member("b", B)], 1), 1, 4).tick(silent_s * 1000 - 1000)
        assert last_kinds(scene.group([member("c", B)], 2)) == ["member_joined", kind]


def test_two_members_may_have_been_waited_for() -> None:
    """One that is gone and one that stayed: the first may have left at once, and the other one was slow."""
    scene = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 0, 4), 1, 4).tick(10_000)
    assert last_kinds(scene.group([member("a", A), member("c", B)], 2)) == [GONE, "member_joined"]
    scene = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 0, 4), 1, 4).tick(10_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE], "something else began it, and left no trace"
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


def test_only_the_end_of_a_lone_member_is_known() -> None:
    """Of two that are gone, one may have left, and the group waited for the other until its session ended."""
    scene = steady(steady(Scene().group([member("a", A), member("b", B)], 1), 0, 4), 1, 4).tick(10_000)
    assert told(scene.group([], 2))[-1] == ("emptied", 2, [GONE, GONE])


def test_a_member_without_partitions_has_nothing_to_commit() -> None:
    """So its silence tells nothing, although it committed all the time before."""
    scene = steady(Scene().group([member("a", A)], 1), 0, 4).group([member("a")], 2).tick(10_000)
    assert last_kinds(scene.group([], 3)) == [GONE]


def test_a_member_that_was_silent_for_nearly_its_session_left_or_expired() -> None:
    """A broker on a busy machine writes the record of a commit a little later than the session begins anew."""
    for silent_ms, kind in ((9_000, "member_left"), (9_700, GONE)):
        scene = Scene().group([member("a", A), member("b", B)], 1).tick(60_000).commit(7, partition=1)
        assert last_kinds(scene.tick(silent_ms - 1_000).group([member("a", A)], 2)) == [kind]


def test_members_that_came_to_an_empty_group_and_went_left_no_record() -> None:
    """Only a join begins a rebalance of an empty group; its member ended before it had its assignment."""
    scene = Scene().group([member("a", A)], 1).commit(1).group([], 2).group([], 4)
    ended = "member_left/member_removed/member_expired/sync_timed_out"
    assert told(scene)[-2:] == [("superseded", 3, ["member_joined"]), ("emptied", 4, [ended])]


def test_a_leader_that_joined_again_without_a_reason_may_have_been_first() -> None:
    """Beside a member that came or went: the log doesn't show it if the leader did so once more."""
    first = "member_joined/leader_rejoined"
    both = {"orders": [0, 1]}
    two = [member("a", A), member("b", B)]
    restless = Scene().group([member("a", both)], 1).group([member("a", both)], 2)
    assert last_kinds(restless) == ["leader_rejoined"]
    assert last_kinds(restless.group(two, 3)) == [first, "member_joined"]
    assert last_kinds(restless.group(two, 4)) == ["leader_rejoined"]
    left = steady(restless, 1, 1).group([member("a", both)], 5)
    assert last_kinds(left) == ["member_left/leader_rejoined", "member_left"]
    other = Scene().group([member("a", both)], 1).group([member("a", both)], 2).group(two, 3, leader="b")
    assert last_kinds(other.group([member("b", both)], 4)) == ["member_left"], "another one leads"


def test_a_commit_in_a_transaction_is_a_weaker_sign() -> None:
    """It doesn't start the session anew, so a heartbeat interval less is sure."""
    scene = Scene().group([member("a", A), member("b", {"orders": [0]})], 1).tick(60_000)
    scene.transacted(7, 9).end_transaction(9, committed=True).tick(7_000)
    assert last_kinds(scene.group([member("a", A)], 2)) == [GONE]


def test_who_came_first_is_unknown_unless_nobody_stayed() -> None:
    """A member that stays leaves both orders possible; without one, a leave would have emptied the group first."""
    scene = Scene().group([member("a", A), member("b", B)], 1).group([member("a", A), member("c", B)], 2)
    event = events_of(scene)[-1]
    assert event.causes_in_order is False
    scene = Scene().group([member("b", B)], 1).group([member("c", B)], 2)
    event = events_of(scene)[-1]
    assert [cause.kind for cause in event.causes] == ["member_joined", "member_left"]
    assert event.causes_in_order is UNSET
    event = events_of(scene.group([member("d", A), member("e", B)], 3))[-1]
    assert [cause.kind for cause in event.causes] == ["member_joined", "member_joined", "member_left"]
    assert event.causes_in_order is False  # which of the two was first, nobody knows


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
    assert (event.causes_in_order is not False) is (first is not None)
    assert first is None or event.causes[0].kind == first


@pytest.mark.parametrize(
    ("looks", "kind"),
    [
        ([(1_000, {"a", "b"}), (3_000, {"a"})], "member_left"),
        ([(1_000, {"a", "b"}), (9_000, {"a"})], GONE),  # its session may have ended by then
        ([(1_000, {"a", "b"}), (3_000, {"a", "b"})], GONE),
        ([(3_000, {"a"})], GONE),  # the look may be older than the record
        ([], GONE),
    ],
)
def test_a_look_may_tell_that_a_member_left_before_its_session_ended(
    looks: list[tuple[int, set[str]]], kind: str
) -> None:
    """A slow member holds up the rebalance for longer than the other's session, so the records fit both kinds."""
    observed = Observed()
    scene = Scene().group([member("a", A), member("b", B)], 1).commit(1, partition=1)
    list(follow(scene, observed))
    for after_ms, members in looks:
        observed.described(GROUP, scene.now_ms + after_ms, "PreparingRebalance", frozenset(members))
    at = scene.next_offset
    (event,) = follow(scene.tick(30_000).group([member("a", A)], 2), observed, begin=at)
    assert kinds(event) == [kind]


def test_a_look_tells_nothing_about_a_seat_that_a_new_program_took() -> None:
    """The old member id is gone as soon as the program is back; the seat's end comes later."""
    observed = Observed()
    scene = Scene().group([member("a", A), static("s", 1, B)], 1).commit(1, partition=1)
    list(follow(scene, observed))
    for members in ({"a", "s-1"}, {"a", "s-2"}):
        observed.described(GROUP, scene.now_ms + 1_000, "PreparingRebalance", frozenset(members))
    at = scene.next_offset
    (event,) = follow(scene.tick(30_000).group([member("a", A)], 2), observed, begin=at)
    assert kinds(event) == ["member_removed/member_expired"]


def test_a_look_of_a_clock_that_is_behind_is_not_before_the_newest_record() -> None:
    """A member that committed all along can't have left long before its last sign."""
    observed = Observed()
    scene = Scene().group([member("a", A), member("b", B)], 1).commit(1, partition=1)
    list(follow(scene, observed))
    at = scene.next_offset
    observed.described(GROUP, scene.now_ms - 60_000, "Stable", frozenset({"a", "b"}))
    list(follow(scene.tick(30_000).commit(1, partition=0), observed, begin=at))
    observed.described(GROUP, scene.now_ms - 60_000, "PreparingRebalance", frozenset({"a"}))
    at = scene.next_offset
    (event,) = follow(scene.tick(30_000).group([member("a", A)], 2), observed, begin=at)
    assert kinds(event) == [GONE]


def wants(name: str, parts: dict[str, list[int]], *topics: str) -> Member:
    """A member that subscribes to these topics."""
    return member(name, parts, topics=topics)


def test_another_subscription_is_a_cause() -> None:
    """The member that changed it is named, and its topics, also a leader; another form of the same topics is none."""
    for name in ("a", "b"):
        scene = Scene().group([wants("a", A, "orders"), wants("b", B, "orders")], 1)
        scene.group([wants(each, A, "orders", *(["refunds"] if each == name else [])) for each in ("a", "b")], 2)
        (cause,) = events_of(scene)[-1].causes
        assert (cause.kind, cause.member_ids, cause.topics) == (
            "metadata_changed", [name], [TopicChange("refunds", "added")],
        )  # fmt: skip
    other = member("a", A)
    other.subscription = subscription(["orders"], 3)
    assert last_kinds(Scene().group([member("a", A)], 1).group([other], 2)) == ["leader_rejoined"]


def test_another_protocol_is_a_cause() -> None:
    """A static member that came back with it is named."""
    scene = Scene().group([static("s", 1, A), member("b", B)], 1)
    scene.group([static("s", 2, A), member("b", B)], 2, protocol="roundrobin")
    (cause,) = events_of(scene)[-1].causes
    assert (cause.kind, cause.group_instance_id) == ("protocol_changed", "s")
    scene = Scene().group([member("a", A)], 1).group([member("a", A)], 2, protocol="roundrobin")
    assert last_kinds(scene) == ["metadata_changed"]


def test_partitions_that_nobody_had_were_added() -> None:
    """Same members, same topics, more partitions: the leader saw them and joined again."""
    scene = Scene().group([member("a", A), member("b", B)], 1, leader="b")
    scene.group([member("a", {"orders": [0, 2]}), member("b", {"orders": [1, 3]})], 2, leader="b")
    (cause,) = events_of(scene)[-1].causes
    assert (cause.kind, cause.member_ids) == ("leader_rejoined", ["b"])
    assert cause.topics == [TopicChange("orders", "grown")]


def test_a_deleted_topic_and_a_new_one() -> None:
    """The topics that came and went are named."""
    scene = Scene().group([member("a", A | {"old": [0]})], 1).group([member("a", A | {"new": [0]})], 2)
    (cause,) = events_of(scene)[-1].causes
    assert cause.topics == [TopicChange("new", "created"), TopicChange("old", "deleted")]


COOPERATIVE = "cooperative-sticky"


@pytest.mark.parametrize(("leader", "kind"), [("a", "leader_rejoined"), ("b", "member_rejoined")])
def test_partitions_that_were_held_back_are_no_new_ones(leader: str, kind: str) -> None:
    """The member that gave them up in the last generation joined again (KIP-429)."""
    scene = Scene().group([member("a", {"orders": [0, 1]}), member("b", C)], 1, leader=leader, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c")], 2, leader=leader, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c", B)], 3, leader=leader, protocol=COOPERATIVE)
    (cause,) = events_of(scene)[-1].causes
    assert (cause.kind, cause.member_ids, bool(cause.topics)) == (kind, ["a"], False)


def test_each_member_that_gave_up_partitions_joined_again() -> None:
    """Nobody knows which of them was first."""
    scene = Scene().group([member("a", {"orders": [0, 1]}), member("b", {"orders": [2, 3]})], 1, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c")], 2, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c", {"orders": [1, 3]})], 3, protocol=COOPERATIVE)
    event = events_of(scene)[-1]
    assert [(cause.kind, cause.member_ids, cause.meaning) for cause in event.causes] == [
        ("leader_rejoined", ["a"], "partitions_revoked"),
        ("member_rejoined", ["b"], "partitions_revoked"),
    ]
    assert event.causes_in_order is False


def test_a_member_that_gave_up_partitions_may_be_first_beside_another_one() -> None:
    """It had to join again; whether it did so before the new member came, or because of it, nobody knows."""
    scene = Scene().group([member("a", {"orders": [0, 1]}), member("b", C)], 1, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c")], 2, protocol=COOPERATIVE)
    scene.group([member("a", A), member("b", C), member("c", B), member("d")], 3, protocol=COOPERATIVE)
    event = events_of(scene)[-1]
    assert kinds(event) == ["member_joined", "leader_rejoined"]
    assert event.causes[1].meaning == "partitions_revoked"
    assert event.causes_in_order is False


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
