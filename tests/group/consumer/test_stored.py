"""Changes of a group that are larger than a store takes at once: divided, put off, or refused; never half done."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.state import Kind
from schemas.errors import ErrorCode
from tests.group.consumer.play import GROUP, Play, given

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
        play.coordinator.config = play.config = replace(play.config, stored_max_records=records_max)
        play.leave("a")
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
