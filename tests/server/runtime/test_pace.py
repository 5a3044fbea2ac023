"""Pace: a crowd is served in turns, in its order, and nobody who waits is passed over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.server.runtime.pace import LATE_MS, TURN_MAX_MS, Pace
from tests.server.harness import ManualClock


class Loop:
    """A loop's turns, one at a time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: list[Callable[[], None]] = []
        self.pace = Pace(self.clock, self.calls.append)
        self.done: list[int] = []

    def turn(self) -> None:
        """What was put off so far."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def ask(self, number: int, takes_ms: int = 1) -> None:
        """Do something that takes so long, now or later."""

        def work() -> None:
            self.done.append(number)
            self.clock.advance(takes_ms)

        if self.pace.has_time():
            work()
        else:
            self.pace.later(work)


@pytest.fixture
def loop() -> Loop:
    """A loop at the beginning of a turn."""
    return Loop()


def test_a_turn_ends_when_it_took_long_and_the_rest_comes_in_its_order(loop: Loop) -> None:
    """Two milliseconds a turn; who comes meanwhile is behind those who wait."""
    for number in range(5):
        loop.ask(number)
    assert loop.done == [0, 1]
    loop.turn()
    assert loop.done == [0, 1, 2, 3]
    loop.ask(5)
    assert loop.done == [0, 1, 2, 3]
    loop.turn()
    assert loop.done == [0, 1, 2, 3, 4, 5]


def test_each_turn_does_something(loop: Loop) -> None:
    """However long one thing takes, the next turn does the next."""
    for number in range(4):
        loop.ask(number, takes_ms=10 * TURN_MAX_MS)
    for turns in range(1, 5):
        assert loop.done == list(range(turns))
        loop.turn()


def test_a_turn_begins_anew_for_who_comes_after_a_pause(loop: Loop) -> None:
    """Nobody waits because somebody took long before, and the loop isn't called for ever."""
    loop.ask(0, takes_ms=100)
    loop.turn()
    loop.ask(1)
    assert loop.done == [0, 1]
    loop.turn()
    assert loop.calls == []


def test_work_that_goes_on_later_has_its_share_of_that_turn(loop: Loop) -> None:
    """What asks for time while it is its turn isn't sent behind the others at once."""
    left = [1, 2, 3]

    def work() -> None:
        while left:
            loop.done.append(left.pop(0))
            loop.clock.advance(1)
            if left and not loop.pace.has_time():
                loop.pace.later(work)
                return

    loop.ask(0, takes_ms=TURN_MAX_MS)
    assert not loop.pace.has_time()
    loop.pace.later(work)
    loop.ask(9)
    loop.turn()
    assert loop.done == [0, 1, 2]
    loop.turn()
    assert loop.done == [0, 1, 2, 9, 3]


def test_what_a_turn_has_begun_goes_first(loop: Loop) -> None:
    """Before those that wait since longer."""
    loop.ask(0, takes_ms=TURN_MAX_MS)
    loop.ask(1)
    assert not loop.pace.has_time()
    loop.pace.first(lambda: loop.done.append(9))
    loop.turn()
    assert loop.done == [0, 9, 1]


@pytest.mark.parametrize(("heartbeats_ms", "done_in_a_turn"), [(0, 2), (LATE_MS, 2), (LATE_MS + 1, 6), (40, 40)])
def test_heartbeats_that_are_late_anyway_leave_half_of_the_time(
    loop: Loop, heartbeats_ms: int, done_in_a_turn: int
) -> None:
    """As many members' as fill turns may wait for what is put off; fewer go first."""
    for number in range(1_000):
        loop.ask(number)
    for _ in range(2):
        loop.clock.advance(heartbeats_ms)
        loop.turn()
    first = len(loop.done)
    for turn in range(1, 4):
        loop.clock.advance(heartbeats_ms)
        loop.turn()
        assert loop.done == list(range(first + turn * done_in_a_turn))


def test_a_crowd_that_comes_is_no_reason_to_let_heartbeats_wait(loop: Loop) -> None:
    """One long turn between short ones: what is put off has no more time than else."""
    for number in range(1_000):
        loop.ask(number)
    for turn in range(1, 5):
        loop.clock.advance(turn % 2 * 40)
        loop.turn()
        assert len(loop.done) == 2 + 2 * turn


def test_a_crowd_before_is_no_reason_either(loop: Loop) -> None:
    """Two long turns with a pause between aren't one after the other."""
    for number in range(3):
        loop.ask(number)
    loop.clock.advance(40)
    loop.turn()
    loop.turn()
    assert (loop.done, loop.calls) == ([0, 1, 2], [])
    for number in range(3, 1_000):
        loop.ask(number)
    for _ in range(2):
        loop.clock.advance(40)
        loop.turn()
    assert loop.done == list(range(9))


def test_what_took_long_before_a_crowd_came_is_no_reason_either(loop: Loop) -> None:
    """A leader's sync, say, and then the members': what a turn does that puts something off is its own."""
    loop.ask(0, takes_ms=40)
    for number in range(1, 1_000):
        loop.ask(number)
    for turn in range(2):
        loop.turn()
        assert len(loop.done) == 3 + 2 * turn
        loop.clock.advance(40)
