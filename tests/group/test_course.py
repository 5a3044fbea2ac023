"""The course of a rebalance as a value: the longest wait, and how many causes it keeps."""

from __future__ import annotations

from coordinator.group.causes import Cause, CauseKind
from coordinator.group.client import Now
from coordinator.group.course import CAUSES_MAX, Course, Phase, Waited
from coordinator.group.state import EMPTY, STABLE, State

CAUSE = Cause(CauseKind.MEMBER_LEFT, ("m",))


def begun(state: State = STABLE) -> Course:
    """The course of a rebalance that began at 100 ms."""
    course = Course(())
    course.begin(state, 3, CAUSE, Now(100, 1_000))
    return course


def test_the_longest_wait_counts() -> None:
    """It is the wait for the last member to join, for members that never joined, or for the leader's assignments."""
    course = begun()
    assert course.waited(100, 100) is None
    course.last_to_join, course.last_ms = "slow", 130
    assert course.waited(150, 150) == Waited("slow", Phase.PREPARING, 30)
    course.late = ("late", "later")
    assert course.waited(150, 150) == Waited("late", Phase.PREPARING, 50)
    course.joined("leader", 150)
    assert course.waited(150, 190) == Waited("late", Phase.PREPARING, 50)
    assert course.waited(150, 210) == Waited("leader", Phase.COMPLETING, 60)


def test_nobody_is_waited_for_in_the_initial_delay() -> None:
    """The initial delay holds a group's first rebalance open for members that may come (KIP-134)."""
    course = begun(EMPTY)
    course.last_to_join, course.last_ms = "last", 130
    assert course.waited(3_100, 3_100) is None


def test_causes_beyond_a_number_are_counted() -> None:
    """The course keeps CAUSES_MAX causes, because thousands of members may leave together, and counts the others."""
    course = begun()
    for _ in range(CAUSES_MAX + 4):
        course.add(CAUSE)
    assert (len(course.causes), course.further_causes) == (CAUSES_MAX, 5)
