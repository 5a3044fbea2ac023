"""Changes of a group that are larger than a store takes at once: divided, put off, or refused; never half done."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from coordinator.group.consumer.regex import REFRESH_MIN_MS
from coordinator.group.consumer.target import RETRY_MS
from coordinator.group.events import TopicsChanged
from coordinator.group.notes import GroupTooLarge
from coordinator.group.state import Kind
from coordinator.group.topics import TopicImage, TopicTable
from schemas.errors import ErrorCode
from tests.group.consumer.play import GROUP, Play, given, subscribed, topic_id

KIB = 1_024


def versions(play: Play, since: int) -> list[int]:
    """The versions of the keys that were written since a position in the log."""
    return [int.from_bytes(record.key[:2]) for record in play.log[since:]]


NAMES = [*"abcdefgh"]


class Members:
    """Members that own what they are given, and give up what they must. play: their group."""

    def __init__(self) -> None:
        # Its targets move most partitions if a topic grows, so that parts of two targets have some twice.
        self.play = Play({"t": 8}, stored_max_bytes=2 * KIB, group_consumer_assignors=("range",))
        self.epochs = dict.fromkeys(NAMES, 0)
        self.owned: dict[str, dict[str, list[int]]] = {name: {} for name in NAMES}
        for name in NAMES:
            self.take(name, self.play.join(name))
            self.play.work()

    def take(self, name: str, answer: Any) -> None:
        """Take the answer to a heartbeat."""
        assert answer.error_code == ErrorCode.NONE
        self.epochs[name] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[name] = given(answer) or {}

    def settle(self) -> None:
        """Beat until the group is Stable."""
        for _ in range(10):
            for name in NAMES:
                self.take(name, self.play.beat(name, self.epochs[name], self.owned[name]))
                self.play.work()
        assert self.play.state() == "Stable"


def test_a_large_target_is_written_alone() -> None:
    """Then it may be divided: its epoch comes last. The heartbeat that asked for it goes on without it."""
    members = Members()
    members.settle()
    play = members.play
    play.set_topics(t=80)
    before = len(play.log)
    members.take("a", play.beat("a", members.epochs["a"]))
    assert versions(play, before) == [3]
    play.work()
    assert versions(play, before + 1) == [*[7] * len(NAMES), 6]
    members.settle()
    assert {len(owned["t"]) for owned in members.owned.values()} == {10}


@pytest.mark.parametrize("written", range(1, len(NAMES) + 1))
def test_a_part_of_a_large_target_does_no_harm(written: int) -> None:
    """Its owner dies before its epoch is written. The new owner makes another one, and no partition has two holders."""
    members = Members()
    members.settle()
    play = members.play
    play.set_topics(t=80)
    members.take("a", play.beat("a", members.epochs["a"]))
    before = len(play.log)
    play.work()
    del play.log[before + written :]
    play.restart()
    assert play.state() == "Assigning"
    twice = Counter(
        number for target in play.group.targets.values() for numbers in target.values() for number in numbers
    )
    assert (max(twice.values()) == 2) == (written < len(NAMES))
    members.settle()
    assert sorted(number for owned in members.owned.values() for number in owned["t"]) == [*range(80)]


def too_large(play: Play) -> list[tuple[int, int]]:
    """The generation and the limit of each note that a record was too large."""
    found = [note for note in play.notes if isinstance(note, GroupTooLarge)]
    assert all(note.size > note.limit for note in found)
    return [(note.generation, note.limit) for note in found]


def grown(**settings: Any) -> Play:
    """A group of member a with topic t, which grows beyond what a record of a target has room for."""
    play = Play({"t": 8}, stored_max_bytes=2 * KIB)
    assert given(play.join("a", **settings)) == {"t": [*range(8)]}
    play.set_topics(t=600)
    assert play.beat("a", 2).error_code == ErrorCode.NONE
    return play


def test_a_target_that_is_too_large_for_one_member_is_not_written() -> None:
    """The group goes on with the former one, in the log too, and a note says how large the record would be."""
    play = grown()
    before = len(play.log)
    play.work()
    assert (len(play.log), play.group.target_epoch, play.group.generation) == (before, 2, 3)
    assert (too_large(play), play.state()) == ([(3, 2 * KIB)], "Assigning")
    answer = play.beat("a", 2, {"t": [*range(8)]})
    assert (answer.error_code, answer.member_epoch, given(answer)) == (ErrorCode.NONE, 2, None)
    assert play.held() == {"a": {"t": [*range(8)]}}


def test_the_epoch_of_a_target_that_is_too_large_gets_no_further_one() -> None:
    """Its members, topics and subscriptions are the same, so its target would be."""
    play = grown()
    play.work()
    for _ in range(10):
        play.wait(RETRY_MS)
        play.beat("a", 2)
    assert not play.works
    assert len(too_large(play)) == 1


def test_a_later_epoch_gets_its_target_after_a_while() -> None:
    """Newcomers join without partitions, and share the target once it is time for it."""
    play = grown()
    play.work()
    for name in ("b", "c"):
        answer = play.join(name)
        assert (answer.error_code, answer.member_epoch, given(answer)) == (ErrorCode.NONE, 2, {})
    play.wait(RETRY_MS - 1)
    play.beat("b", 2)
    assert not play.works
    play.wait(1)
    play.beat("b", 2)
    play.work()
    assert (play.group.target_epoch, play.group.generation) == (5, 5)
    assert sorted(len(target[topic]) for target in play.group.targets.values() for topic in target) == [200] * 3
    assert len(too_large(play)) == 1


def test_a_first_target_that_is_too_large_stays_empty() -> None:
    """The member goes on at epoch 1 with nothing. A new owner of the partition tries once more."""
    play = Play({"t": 600}, stored_max_bytes=2 * KIB)
    assert given(play.join("a")) == {}
    play.work()
    before = len(play.log)
    for tries in (1, 2):
        answer = play.beat("a", 1)
        play.work()
        assert (answer.error_code, answer.member_epoch, given(answer)) == (ErrorCode.NONE, 1, None)
        assert (len(play.log), len(too_large(play))) == (before, tries)
        play.restart()
    play.set_topics(t=100)
    assert given(play.beat("a", 1)) == {"t": [*range(100)]}


def test_a_static_restart_during_a_target_that_is_too_large_keeps_the_former_one() -> None:
    """The restart has the target and the partitions of its seat."""
    play = grown(instance_id="i")
    play.beat("a", -2, instance_id="i")
    assert given(play.join("x", instance_id="i")) == {"t": [*range(8)]}
    play.work()
    assert too_large(play) == [(3, 2 * KIB)]
    assert play.held() == {"x": {"t": [*range(8)]}}
    assert [*play.group.targets] == ["x"]
    assert play.beat("x", 2, {"t": [*range(8)]}, instance_id="i").error_code == ErrorCode.NONE


MANY = [f"u{number:0>120}" for number in range(20)]
"""Topics whose names are more than a record of 2 KiB has room for."""


def test_a_regular_expression_with_too_many_topics_keeps_its_former_ones() -> None:
    """At first it has none. It counts as resolved, so that heartbeats don't ask again."""
    play = Play({"u1": 1}, stored_max_bytes=2 * KIB)
    play.join("a", regex="u.*")
    play.resolve(**{"u.*": MANY})
    assert (too_large(play), play.group.generation) == ([(1, 2 * KIB)], 1)
    assert (play.group.regexes["u.*"].topics, given(play.beat("a", 1))) == (frozenset(), None)
    play.wait(REFRESH_MIN_MS + 1)
    play.beat("a", 1)
    assert not play.asked
    play.set_topics(u2=1)
    play.beat("a", 1)
    play.resolve(**{"u.*": ["u1", "u2"]})
    assert given(play.beat("a", 1)) == {"u1": [0], "u2": [0]}
    play.set_topics(u3=1)
    play.wait(REFRESH_MIN_MS + 1)
    play.beat("a", 2)
    before = len(play.log)
    play.resolve(**{"u.*": [*MANY, "u1"]})
    assert (versions(play, before), play.group.generation, len(too_large(play))) == ([16], 2, 2)
    assert play.group.regexes["u.*"].topics == {"u1", "u2"}


def test_a_regular_expression_with_too_many_topics_hurts_no_other() -> None:
    """One resolution finds the topics of both; those of the other count."""
    play = Play({"t": 1, "u1": 1}, stored_max_bytes=2 * KIB)
    play.join("a", regex="u.*")
    play.resolve(**{"u.*": MANY})
    play.wait(REFRESH_MIN_MS + 1)
    play.join("b", regex="t")
    play.resolve(**{"u.*": MANY, "t": ["t"]})
    assert given(play.beat("b", 1)) == {"t": [0]}
    assert {regex: set(found.topics) for regex, found in play.group.regexes.items()} == {"u.*": set(), "t": {"t"}}


def test_a_subscription_that_the_store_does_not_take_is_refused() -> None:
    """The group stays as it was."""
    play = Play(stored_max_bytes=2 * KIB)
    play.join("a")
    play.beat("a", 2)
    before = len(play.log)
    answer = play.join("b", topics=[f"{number:0100d}" for number in range(20)])
    assert (answer.error_code, answer.error_message.startswith("The change of the group is larger")) == (
        ErrorCode.UNKNOWN_SERVER_ERROR, True
    )  # fmt: skip
    assert (len(play.log), [*play.group.members]) == (before, ["a"])
    assert play.beat("a", 2).error_code == ErrorCode.NONE


def test_a_large_classic_group_stays_classic() -> None:
    """An upgrade must be whole: a newcomer hears GROUP_ID_NOT_FOUND, as from all groups that can't be upgraded."""
    for records_max, error in ((11, ErrorCode.GROUP_ID_NOT_FOUND), (15, ErrorCode.NONE)):
        play = Play(stored_max_bytes=100 * KIB, stored_max_records=records_max)
        play.classic_group(("c", None, {"t": [0, 1]}), ("d", None, {"t": [2, 3]}))
        before = len(play.log)
        assert play.join("a").error_code == error
        assert len(play.log[before:]) == (0 if error else 15)
        assert (play.coordinator.groups[GROUP].kind is Kind.CLASSIC) == bool(error)


def test_a_large_group_is_not_downgraded() -> None:
    """A downgrade must be whole too: the group goes on with its classic members alone."""
    for records_max, kind in ((12, Kind.CONSUMER), (13, Kind.CLASSIC)):
        play = Play(stored_max_bytes=100 * KIB)
        play.classic_group(("c", None, {"t": [0, 1]}), ("d", None, {"t": [2, 3]}))
        play.join("a")
        play.configure(stored_max_records=records_max)
        play.leave("a")
        assert play.coordinator.groups[GROUP].kind is kind
        assert play.coordinator.groups[GROUP].size == 2


def test_a_downgrade_counts_the_names_of_topics_in_targets() -> None:
    """A classic member may have topics that it subscribes to no more, until there is another target."""
    images = [TopicImage(topic_id(str(number)), f"{number:0>200}", 1) for number in range(10)]
    for limit, kind in ((2 * KIB, Kind.CONSUMER), (5 * KIB, Kind.CLASSIC)):
        play = Play({}, stored_max_bytes=100 * KIB)
        play.handle(TopicsChanged(TopicTable(images, 2, 2), None))
        play.join("a", [])
        play.classic_join("c", subscribed(*(image.name for image in images)), version=3)
        play.configure(group_consumer_assignment_interval_ms=15_000)
        play.classic_join("c", subscribed(), version=3)
        assert len(play.group.targets["c"]) == len(images)
        play.configure(stored_max_bytes=limit)
        play.leave("a")
        assert play.coordinator.groups[GROUP].kind is kind


def test_a_join_that_would_be_too_large_with_a_downgrade_comes_without_it() -> None:
    """Both are one change, and the group's record repeats what the new member says."""
    for size, kind in ((500, Kind.CLASSIC), (1_500, Kind.CONSUMER)):
        play = Play(stored_max_bytes=4 * KIB)
        play.join("a", instance_id="i")
        play.classic_join("c", version=3)
        assert play.classic_join("", subscribed("t") + bytes(size), instance_id="i").error_code == ErrorCode.NONE
        assert play.coordinator.groups[GROUP].kind is kind
        assert play.coordinator.groups[GROUP].size == 2


def test_more_members_than_the_store_takes_are_not_removed_at_once() -> None:
    """All of them stay; fewer at a time can be removed."""
    play = Play(stored_max_bytes=100 * KIB, stored_max_records=10)
    names = ["a", "b", "c", "d"]
    for name in names:
        play.join(name)
    assert play.remove_all(*names) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 4
    assert [*play.group.members] == names
    assert play.remove_all(*names[:3]) == [ErrorCode.NONE] * 3
