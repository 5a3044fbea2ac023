"""Whose turn it is, among handshakes that all want to go on at once."""

from __future__ import annotations

import io
from collections.abc import Callable

from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.wire.handshakes import TURN_MAX_MS, TURN_MIN_MS, WITHIN_MS, Handshakes
from tests.server.harness import ManualClock


class Stage:
    """A loop whose turns the test takes, and handshakes of which each step takes TURN_MIN_MS."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.turns: list[Callable[[], None]] = []
        lines = Lines(io.StringIO(), "text", 1, self.clock)
        self.handshakes = Handshakes(self.clock, lines, Pace(self.clock, self.turns.append), self.turns.append)
        self.said: list[str] = []

    def turn(self) -> None:
        """Take the loop's next turn."""
        turns, self.turns[:] = self.turns[:], []
        for each in turns:
            each()


class Step:
    """A handshake that says what happens to it."""

    def __init__(self, stage: Stage, peer: str) -> None:
        self._stage = stage
        self.peer = peer
        stage.handshakes.begin(self)

    def step(self) -> None:
        """As Handshake.step."""
        self._stage.said.append(self.peer)
        self._stage.clock.advance(TURN_MIN_MS)

    def give_up(self) -> None:
        """As Handshake.give_up."""
        self._stage.said.append(f"{self.peer} ends")


def test_those_that_have_begun_go_first() -> None:
    """Among those that wait for a turn, new ones stand behind; one that has gone meanwhile is passed over."""
    stage = Stage()
    first, second, third, gone = (Step(stage, name) for name in ("first", "second", "third", "gone"))
    for handshake in (first, second, gone, third, first, first):
        stage.handshakes.proceed(handshake)
    stage.handshakes.leave(gone)
    assert stage.said == ["first"]
    for _ in range(4):
        stage.turn()
    assert stage.said == ["first", "first", "second", "third"]
    stage.turn()
    stage.handshakes.proceed(second)
    assert stage.said[4:] == ["second"]


def test_no_turn_is_asked_for_when_nobody_waits_for_one() -> None:
    """A server that has nothing to do doesn't turn."""
    stage = Stage()
    for handshake in (Step(stage, "first"), Step(stage, "second")):
        stage.handshakes.proceed(handshake)
    for _ in range(3):
        stage.turn()
    assert stage.said == ["first", "second"]
    assert stage.turns == []


def test_a_turn_has_few_steps_however_late_it_is() -> None:
    """As much as other work took, and never more than TURN_MAX_MS."""
    stage = Stage()
    everyone = [Step(stage, str(number)) for number in range(30)]
    for handshake in everyone:
        stage.handshakes.proceed(handshake)
    taken = []
    for other_work_ms in (0, 3 * TURN_MIN_MS, 10 * TURN_MAX_MS):
        before = len(stage.said)
        stage.clock.advance(other_work_ms)
        stage.turn()
        taken.append(len(stage.said) - before)
    assert taken == [1, 3, TURN_MAX_MS // TURN_MIN_MS]


def test_each_has_its_own_time() -> None:
    """Each ends WITHIN_MS after it began, in a queue or not; one that completed doesn't."""
    stage = Stage()
    early, done = Step(stage, "early"), Step(stage, "done")
    stage.clock.advance(WITHIN_MS - 1)
    late = Step(stage, "late")
    stage.handshakes.complete(done)
    stage.clock.advance(1)
    assert stage.said == ["early ends"]
    stage.clock.advance(WITHIN_MS - 2)
    assert stage.said == ["early ends"]
    stage.clock.advance(1)
    assert stage.said == ["early ends", "late ends"]
    assert (len(stage.handshakes), stage.handshakes.completed, stage.handshakes.failed) == (0, 1, 2)
    assert early is not late
