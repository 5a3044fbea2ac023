"""Calls that take long: a few at a time, in order; a short one waits for none of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.server.wire.call import Call, Steps
from coordinator.server.wire.long_calls import AT_ONCE, FREE_MS, LongCalls
from tests.server.harness import config_of
from tests.server.wire.test_call import Turns, call_of

LONG = 10 * FREE_MS


class Crowd:
    """Calls under way in turns that the test makes. done: the numbers of those that have ended, in their order."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.turns.did.append(0)
        self.long = LongCalls(self.turns.pace, config_of())
        self.done: list[int] = []
        self.begun: set[int] = set()

    def call(self) -> Call:
        """One more call."""
        call = call_of(self.long)
        call.take(lambda _: None)
        return call

    def begin(self, number: int, steps: int, then: Callable[[], None] = lambda: None) -> Call:
        """Begin a call of so many steps of a millisecond."""
        call = self.call()
        call.work(self.steps(number, steps, then))
        return call

    def steps(self, number: int, steps: int, then: Callable[[], None] = lambda: None) -> Steps:
        """The steps."""
        for _ in range(steps):
            self.begun.add(number)
            self.turns.clock.advance(1)
            yield
        self.done.append(number)
        then()

    def end(self) -> None:
        """Make turns until nothing is left to do."""
        while self.turns.next:
            self.turns.turn()


def test_a_few_long_calls_are_under_way_at_a_time_and_all_end() -> None:
    """Those that came first end first."""
    crowd = Crowd()
    for number in range(3 * AT_ONCE):
        crowd.begin(number, LONG)
    while not crowd.done:
        crowd.turns.turn()
    assert len(crowd.long._under_way) == AT_ONCE
    crowd.end()
    assert sorted(crowd.done[:AT_ONCE]) == list(range(AT_ONCE))
    assert sorted(crowd.done) == list(range(3 * AT_ONCE))


def test_a_short_call_waits_for_no_long_one() -> None:
    """It ends while long calls that came before it still wait."""
    crowd = Crowd()
    for number in range(3 * AT_ONCE):
        crowd.begin(number, LONG)
    crowd.begin(99, FREE_MS - 1)
    crowd.end()
    assert crowd.done[0] == 99


def test_a_call_that_goes_on_comes_before_those_that_were_never_under_way() -> None:
    """A call whose first work made another one, later, holds what it has built."""
    crowd = Crowd()
    calls: list[Call] = []
    for number in range(2 * AT_ONCE):
        calls.append(crowd.begin(number, LONG))
    further = crowd.begin(50, LONG, lambda: None)
    while len(crowd.done) < 1:
        crowd.turns.turn()
    crowd.turns.pace.has_time()
    crowd.long.later(calls[0], partial(calls[0].work, crowd.steps(100, 1)))
    crowd.end()
    assert crowd.done.index(100) < crowd.done.index(AT_ONCE)
    assert further.was_under_way


def test_a_call_whose_client_is_gone_gives_way() -> None:
    """While it waits it is forgotten, and while it is under way its place is free in the next turn."""
    crowd = Crowd()
    calls = [crowd.begin(number, LONG) for number in range(3 * AT_ONCE)]
    for _ in range(10 * AT_ONCE * FREE_MS):
        crowd.turns.turn()
    waiting = [call for call in calls if not call.was_under_way]
    assert waiting
    for call in calls[:-1]:
        call.close()
    assert len(crowd.long._waiting) == 1
    crowd.end()
    assert crowd.done[-1] == 3 * AT_ONCE - 1
    assert not crowd.long._under_way
    assert not crowd.long._waiting


def test_an_error_of_a_long_call_frees_its_place() -> None:
    """Its connection gets the error; the next call goes on."""
    crowd = Crowd()

    def fail() -> None:
        raise KeyError("ours")

    for number in range(AT_ONCE):
        crowd.begin(number, LONG, fail)
    crowd.begin(99, LONG)
    crowd.end()
    assert crowd.done[-1] == 99
