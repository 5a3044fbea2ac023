"""Targets that are made in steps, and what happens to the group meanwhile. `test_random` pauses anywhere."""

from __future__ import annotations

import pytest

from coordinator.group.consumer import target
from coordinator.group.consumer.assignors import subscriber
from schemas.errors import ErrorCode
from tests.group.consumer.play import Play, given


@pytest.fixture(autouse=True)
def _smallest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat does the first step of any target, and no more."""
    monkeypatch.setattr(subscriber, "UNITS_PER_PAUSE", 1)
    monkeypatch.setattr(target, "PAUSES_AT_ONCE", 0)


@pytest.fixture
def play() -> Play:
    """Return a group of static members whose next target is under way: `a` has all partitions, `b` has joined."""
    made = Play()
    made.join("a", instance_id="i")
    made.work()
    assert given(made.beat("a", 1)) == {"t": [0, 1, 2, 3]}
    made.join("b", instance_id="j")
    assert made.works
    return made


def targets(play: Play) -> dict[str, list[int]]:
    """The partitions of topic t in the target, by member id."""
    return {
        member_id: sorted(number for numbers in topics.values() for number in numbers)
        for member_id, topics in play.group.targets.items()
    }


def test_group_goes_on_with_the_former_target() -> None:
    """A first member is at epoch 1 without partitions until the target is made. Its next heartbeat brings them."""
    play = Play()
    joined = play.join("a")
    assert (joined.error_code, joined.member_epoch, given(joined)) == (ErrorCode.NONE, 1, {})
    assert play.state() == "Assigning"
    again = play.beat("a", 1, {})
    assert (again.error_code, again.member_epoch, given(again)) == (ErrorCode.NONE, 1, None)
    play.work()
    assert play.group.target_epoch == play.group.generation == 2
    assert play.state() == "Reconciling"
    answer = play.beat("a", 1, {})
    assert (answer.member_epoch, given(answer)) == (2, {"t": [0, 1, 2, 3]})
    assert play.state() == "Stable"


def test_a_large_group_leaves_all_of_it_to_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to MEMBERS_AT_ONCE the heartbeat makes a small target; with one more member it does none of the work."""
    monkeypatch.setattr(target, "PAUSES_AT_ONCE", 10_000)
    monkeypatch.setattr(target, "MEMBERS_AT_ONCE", 2)
    play = Play()
    play.join("a")
    play.join("b")
    assert (play.group.target_epoch, play.works) == (3, [])
    play.join("c")
    assert play.group.target_epoch == 3
    play.work()
    assert play.group.target_epoch == 4


def test_a_group_makes_one_target_at_a_time(play: Play) -> None:
    """Heartbeats that come while a target is being made begin no other one."""
    for number in range(3):
        play.join(f"c{number}")
        play.beat("a", 2)
    assert len(play.works) == 1


def test_a_further_bump_gets_a_target_of_its_own(play: Play) -> None:
    """The target under way is for the epoch of its start; the next heartbeat begins one for the newest epoch."""
    play.join("c")
    play.work()
    assert (play.group.generation, play.group.target_epoch) == (4, 3)
    assert targets(play).keys() == {"a", "b"}
    play.beat("a", 2)
    play.work()
    assert play.group.target_epoch == 4
    assert targets(play).keys() == {"a", "b", "c"}


def test_a_member_that_left_is_in_no_target(play: Play) -> None:
    """What it would have got goes to nobody until the next target."""
    play.leave("a", instance_id="i")
    play.work()
    assert targets(play).keys() == {"b"}
    assert len(targets(play)["b"]) == 2
    play.beat("b", 2)
    play.work()
    assert targets(play) == {"b": [0, 1, 2, 3]}


def test_a_static_member_that_returned_has_its_target(play: Play) -> None:
    """Whoever took the seat meanwhile, even twice, gets the new target of the member of the start."""
    for former, member_id in (("a", "x"), ("x", "y")):
        play.beat(former, -2, instance_id="i")
        assert play.join(member_id, instance_id="i").error_code == ErrorCode.NONE
    play.work()
    assert targets(play).keys() == {"b", "y"}
    assert sorted(targets(play)["b"] + targets(play)["y"]) == [0, 1, 2, 3]
    assert play.group.target_epoch == play.group.generation


def test_seats_that_swap_their_member_ids_share_nothing(play: Play) -> None:
    """A member that joins under the id of a former holder of a seat does not get that seat's target too."""
    play.beat("a", -2, instance_id="i")
    play.join("x", instance_id="i")
    play.join("a")
    play.work()
    assert targets(play).keys() == {"b", "x"}
    assert sorted(targets(play)["b"] + targets(play)["x"]) == [0, 1, 2, 3]


def test_a_member_that_left_and_joined_again_has_its_target(play: Play) -> None:
    """Its tombstones are in the log, so its target is written again though it is the same."""
    play.leave("b", instance_id="j")
    play.join("b", instance_id="j")
    play.work()
    assert len(targets(play)["b"]) == 2


def test_a_group_that_everybody_left_takes_no_target(play: Play) -> None:
    """The work ends without a record."""
    play.leave("a", instance_id="i")
    play.leave("b", instance_id="j")
    written = len(play.log)
    play.work()
    assert len(play.log) == written
    assert play.group.making is None


def test_a_group_that_was_deleted_takes_no_target(play: Play) -> None:
    """Nor does another group of the same name; it makes its own."""
    play.leave("a", instance_id="i")
    play.leave("b", instance_id="j")
    assert play.delete() == ErrorCode.NONE
    play.join("c")
    assert len(play.works) == 2
    play.work()
    assert play.group.target_epoch == play.group.generation == 2
    assert targets(play) == {"c": [0, 1, 2, 3]}


def test_a_restart_in_between_makes_the_target_anew(play: Play) -> None:
    """The log has nothing of a target under way; the first heartbeat after the load begins it again."""
    play.work(3)
    play.restart()
    assert play.group.making is None
    play.beat("a", 2)
    play.work()
    assert play.group.target_epoch == play.group.generation == 3
