"""Whose turn it is, among handshakes that all want to go on at once."""

from __future__ import annotations

import io
from collections.abc import Callable

from coordinator.server.runtime.pace import TURN_MAX_MS, Pace
from coordinator.server.telemetry.lines import Lines
from coordinator.server.wire.handshakes import WITHIN_MS, Handshakes
from tests.server.harness import ManualClock


class Stage:
    """A loop whose turns the test takes, and handshakes of which each step takes a whole turn."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.turns: list[Callable[[], None]] = []
        lines = Lines(io.StringIO(), "text", 1, self.clock)
        self.handshakes = Handshakes(self.clock, lines, Pace(self.clock, self.turns.append))
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
        self._stage.clock.advance(TURN_MAX_MS)

    def give_up(self) -> None:
        """As Handshake.give_up."""
        self._stage.said.append(f"{self.peer} ends")


def test_those_that_have_begun_go_first() -> None:
    """Among those that wait for a turn, new ones stand behind; one that has gone meanwhile is passed over."""
    stage = Stage()
    first, second, third, gone = (Step(stage, name) for name in ("first", "second", "third", "gone"))
    proceed = stage.handshakes.proceed
    assert proceed(first)
    assert not any([proceed(second), proceed(gone), proceed(third), proceed(first)])
    stage.handshakes.leave(gone)
    assert stage.said == ["first"]
    for _ in range(4):
        stage.turn()
    assert stage.said == ["first", "first", "second", "third"]


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
