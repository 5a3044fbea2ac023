"""Pace: the loop serves a crowd in several turns, in order, and passes over no waiting work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coordinator.loop.pace import LATE_MS, TURN_MAX_MS, Pace
from tests.server.harness import ManualClock


class Loop:
    """A loop that the test turns."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: list[Callable[[], None]] = []
        self.pace = Pace(self.clock, self.calls.append)
        self.done: list[int] = []

    def turn(self) -> None:
        """Do the work that was deferred so far."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def ask(self, number: int, takes_ms: int = 1) -> None:
        """Do work that takes so long, at once or later."""

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
    """A turn takes two milliseconds; new work comes after work that waits."""
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
    """However long one piece of work takes, the next turn does the next piece."""
    for number in range(4):
        loop.ask(number, takes_ms=10 * TURN_MAX_MS)
    for turns in range(1, 5):
        assert loop.done == list(range(turns))
        loop.turn()


def test_a_turn_begins_anew_for_who_comes_after_a_pause(loop: Loop) -> None:
    """New work does not wait because of a long turn before the pause, and an idle loop is not called again."""
    loop.ask(0, takes_ms=100)
    loop.turn()
    loop.ask(1)
    assert loop.done == [0, 1]
    loop.turn()
    assert loop.calls == []


def test_work_that_goes_on_later_has_its_share_of_that_turn(loop: Loop) -> None:
    """Work that asks for more time in its own turn is not deferred at once."""
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
    """It comes before work that has waited longer."""
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
    """If heartbeats take longer than LATE_MS in turn after turn, deferred work gets as much time as they take."""
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
    """One long turn between short ones gives deferred work no more time."""
    for number in range(1_000):
        loop.ask(number)
    for turn in range(1, 5):
        loop.clock.advance(turn % 2 * 40)
        loop.turn()
        assert len(loop.done) == 2 + 2 * turn


def test_a_crowd_before_is_no_reason_either(loop: Loop) -> None:
    """Two long turns with a pause between them are not two in a row."""
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
    """Long work that begins a turn, such as a leader's sync, counts as that turn's own, not as heartbeats."""
    loop.ask(0, takes_ms=40)
    for number in range(1, 1_000):
        loop.ask(number)
    for turn in range(2):
        loop.turn()
        assert len(loop.done) == 3 + 2 * turn
        loop.clock.advance(40)


async def test_a_turn_lets_one_piece_of_work_on() -> None:
    """Once a turn has no time, further work waits in its order, and what was given up is passed over."""
    loop, done = Loop(), asyncio.Queue[int]()

    async def piece(number: int) -> None:
        await loop.pace.next()
        done.put_nowait(number)
        loop.clock.advance(TURN_MAX_MS)

    tasks = [asyncio.create_task(piece(number)) for number in range(5)]
    assert await done.get() == 0
    tasks[2].cancel()
    for number in (1, 3, 4):
        loop.turn()
        assert await done.get() == number
        assert done.empty()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not loop.pace._pieces
