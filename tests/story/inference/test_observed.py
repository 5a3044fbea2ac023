"""An observer of a partition makes events of its records, as a coordinator would have told them."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from coordinator.story.entries import Timeline
from coordinator.story.events import Move
from coordinator.story.inference.knowledge import Told
from coordinator.story.inference.observed import Observed
from coordinator.story.words import timed_lines
from tests.audit.scenes import GROUP, START_MS, Scene, member, newer_key, newer_value, share_value, static
from tests.story.inference.observing import events_of, follow, told

A, B, C = {"orders": [0]}, {"orders": [1]}, {"orders": [2]}


def test_an_event_has_what_the_records_tell() -> None:
    """Members before and after, what moved, and how long the assignments took; the rest is null, and it is marked."""
    scene = Scene().group([member("a", {"orders": [0, 1]})], 1).tick(4_000)
    scene.group([member("a", A), member("b", B)], 2, since_ms=scene.now_ms - 300)
    event = events_of(scene)[-1]
    assert event.inferred
    assert event.node is UNSET
    assert (event.group, event.generation_before, event.generation) == (GROUP, 1, 2)
    assert (event.at_ms, event.began_ms) == (START_MS + 5_000, START_MS + 4_700)
    assert (event.preparing_ms, event.completing_ms, event.waited_for) == (None, 300, None)
    assert (event.before, event.members_after, event.state) == (["a"], 2, "Stable")
    assert event.moved == [Move("orders", 1, "a", "b")]


def test_a_first_generation_is_a_beginning_also_behind_a_gap() -> None:
    """A group whose first record has a later one was there before, if records are missing."""
    for generation, kind in ((1, "rebalance_ended"), (2, "group_loaded")):
        scene = Scene().commit(7).commit(8).group([member("a", A)], generation)
        events = list(follow(scene, Observed(), begin=1))
        assert events[-1].type == kind


def test_groups_that_are_there_are_named() -> None:
    """A deleted group isn't there, until it has a record again."""
    scene = Scene().group([member("a", A)], 1)
    for deleted, groups in ((False, [GROUP]), (True, [])):
        if deleted:
            scene.group([], 2).delete()
        observed = Observed()
        list(follow(scene, observed))
        assert observed.groups == groups


def test_a_group_forms_empties_and_is_deleted() -> None:
    """A deleted group begins anew with generation 1."""
    scene = Scene().group([member("a", A)], 1).group([], 2).group([member("b", A)], 3).delete()
    scene.group([member("c", A)], 1)
    assert [(event.type, event.generation) for event in events_of(scene)] == [
        ("rebalance_ended", 1),
        ("rebalance_ended", 2),
        ("rebalance_ended", 3),
        ("group_deleted", 3),
        ("rebalance_ended", 1),
    ]
    assert events_of(scene)[2].state == "Empty"


def test_a_static_member_is_back() -> None:
    """A new member id in the same generation is a restart without a rebalance."""
    scene = Scene().group([static("s", 1, A)], 1).group([static("s", 2, A)], 1)
    event = events_of(scene)[-1]
    assert (event.type, event.group_instance_id, event.rebalances, event.after_load) == (
        "member_replaced", "s", False, False,
    )  # fmt: skip
    assert (event.old_member_id, event.member_id) == ("s-1", "s-2")


def test_a_return_after_another_coordinator_is_a_rejoin() -> None:
    """The batch has a later epoch and the member gave no sign since: nobody had heard of it since the load."""
    scene = Scene().group([static("s", 1, A)], 1)
    scene.epoch = 2
    event = events_of(scene.group([static("s", 2, A)], 1))[-1]
    assert event.after_load


def test_a_standby_takes_a_seat() -> None:
    """Tenure alone writes such a record; the log doesn't say why the member is gone."""
    scene = Scene().group([member("a", A), member("b", B)], 1).group([member("a", A), member("c", B)], 1)
    event = events_of(scene)[-1]
    assert (event.type, event.old_member_id, event.member_id) == ("seat_taken", "b", "c")
    (entry,) = Timeline(GROUP).add_all([event]).entries
    assert timed_lines(entry)[0].endswith("has the seat of b (client at 127.0.0.1), because it is gone; no rebalance")


def test_the_same_record_again_is_nothing() -> None:
    """A leader that syncs twice writes the same once more."""
    assert len(events_of(Scene().group([member("a", A)], 1).group([member("a", A)], 1))) == 1


def test_generations_without_a_record_were_superseded() -> None:
    """Each has an event; they joined one after the other, before the assignments came."""
    scene = Scene().group([member("a", A), member("b", B), member("c", C)], 3)
    assert told(scene) == [
        ("superseded", 1, ["member_joined"]),
        ("superseded", 2, ["member_joined"]),
        ("completed", 3, ["member_joined"] * 3),
    ]
    scene = Scene().group([member("a", A)], 1).group([member("a", A)], 3)
    assert told(scene)[1] == ("superseded", 2, ["unknown"])


def test_the_cause_of_a_generation_without_a_record_is_unknown_if_members_did_several_things() -> None:
    """It may be of any kind: a leader that joins again leaves no trace. A static member that is back may be a cause."""
    scene = Scene().group([static("s", 1, A), member("b", B)], 1).tick(60_000).group([static("s", 2, A)], 3)
    assert told(scene)[1:] == [
        ("superseded", 2, ["unknown"]),
        (
            "completed",
            3,
            [
                "member_left/member_expired",
                "static_member_replaced/leader_rejoined/member_rejoined/member_removed/member_expired/member_joined",
            ],
        ),
    ]
    scene = Scene().group([static("s", 1, A), member("b", B)], 1).group([static("s", 2, B), member("b", A)], 3)
    assert len(told(scene)[-1][2]) == 1, "the record shows that the static member is back: it is one cause"


def test_records_that_compaction_removed_are_no_superseded_ones() -> None:
    """A gap in the offsets hides the reason for a jump; the first record is where the log begins."""
    scene = Scene(base_offset=100).group([member("a", A)], 4)
    observed = Observed()
    (loaded,) = follow(scene, observed)
    assert (loaded.type, loaded.generation, loaded.members, loaded.state) == (
        "group_loaded", 4, 1, "Stable",
    )  # fmt: skip
    scene.next_offset += 5
    (event,) = follow(scene.group([member("a", A), member("b", B)], 9), observed, begin=101)
    assert (event.generation_before, event.generation, event.generations_unseen) == (4, 9, 4)


def test_a_marker_is_no_gap() -> None:
    """The end of a transaction takes an offset, and hides nothing."""
    scene = Scene().group([member("a", A)], 1).transacted(5, 9).end_transaction(9, committed=False)
    assert len(told(scene.group([member("a", A)], 3))) == 3


def test_a_told_cause_replaces_the_inferred_one() -> None:
    """Its client's names come from the record; other causes stay."""
    scene = Scene().group([member("a", A), member("b", B)], 1).tick(60_000).group([member("a", A)], 2)
    observed = Observed()
    observed.told(Told(scene.now_ms, GROUP, 1, ("member_expired",), ("b",)))
    event = events_of(scene, observed)[-1]
    (cause,) = event.causes
    assert (cause.kind, cause.client_id, cause.told) == ("member_expired", "client", True)


def test_a_told_cause_of_another_group_of_that_name_is_none() -> None:
    """A group was deleted and made anew: a told cause has the number of the generation alone, and may be of either."""
    pair, next_pair = [member("a", A), member("b", B)], [member("c", A), member("d", B)]
    scene = Scene().group(pair, 1).tick(60_000).group(pair[:1], 2).delete()
    scene.group(next_pair, 1).tick(60_000).group(next_pair[:1], 2)
    both = Observed()
    both.told(Told(scene.now_ms, GROUP, 1, ("member_expired",), ("b",)))
    both.told(Told(scene.now_ms, GROUP, 1, ("member_left",), ("d",)))
    assert [kinds for _, generation, kinds in told(scene, both) if generation == 2] == [
        ["member_left/member_expired"]
    ] * 2
    late = Observed()
    late.told(Told(scene.now_ms, GROUP, 2, ("member_expired",), ("a",)))
    assert told(scene.group(pair[:1], 3), late)[-1] == ("completed", 3, ["member_joined", "member_left"])


def test_unreadable_records_are_counted() -> None:
    """They tell nothing; the next record of the group is compared with the one before."""
    scene = Scene().group([member("a", A)], 1)
    scene.append((scene_key(), b"\0\x63odd"))
    observed = Observed()
    assert len(events_of(scene.group([member("a", A), member("b", B)], 2), observed)) == 2
    assert observed.unreadable == 1
    assert events_of(Scene().append((newer_key(GROUP), b"\0")), observed) == []
    assert observed.unreadable == 2


def test_records_of_share_groups_are_read() -> None:
    """They tell no event: several members may have a partition. A damaged one is counted."""
    scene = Scene().append((newer_key(GROUP, 11), share_value()), (newer_key(GROUP, 11), None))
    observed = Observed()
    assert events_of(scene, observed) == []
    assert (observed.unreadable, observed.groups) == (0, [])
    assert events_of(Scene().append((newer_key(GROUP, 11), newer_value())), observed) == []
    assert observed.unreadable == 1


def scene_key() -> bytes:
    """The key of the group's record."""
    return b"\0\2" + len(GROUP).to_bytes(2, "big") + GROUP.encode()


@pytest.mark.parametrize(
    ("scene", "line"),
    [
        (
            Scene().group([member("a", A), member("b", B)], 1).tick(60_000).group([member("a", A)], 2),
            """rebalance, generation 1 -> 2: member b is gone (client at 127.0.0.1); unknown why: it left \
(stopped, or not polled for max.poll.interval.ms), or its session ended [inferred from the log]""",
        ),
        (  # the client of a static member doesn't leave
            Scene().group([static("i", 1, A), member("a", A)], 1).tick(60_000).group([member("a", A)], 2),
            """rebalance, generation 1 -> 2: member i-1 is gone (client at 127.0.0.1); unknown why: an operator \
removed it, or its session ended [inferred from the log]""",
        ),
        (
            Scene(base_offset=7).group([member("a", A)], 4),
            "the log of the group begins here, in generation 4 with 1 member",
        ),
    ],
)
def test_words_say_that_it_is_inferred(scene: Scene, line: str) -> None:
    """A timeline of inferred events says so, and what is unknown."""
    entries = Timeline(GROUP).add_all(events_of(scene)).entries
    assert timed_lines(entries[-1])[0].partition("  ")[2] == line
