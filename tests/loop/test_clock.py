"""The clock and its alarm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from coordinator.loop.clock import CATCH_UP_MAX_MS, CATCH_UP_MS, RING_MAX_MS, STALL_MS, Alarm, Handle, LoopClock, now
from tests.server.harness import ManualClock
from tests.support.patience import WITHIN_S


class Asked(ManualClock):
    """A clock that counts how often it is asked to call back."""

    asked = 0

    def call_at(self, at_ms: int, callback):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Set an alarm as Clock.call_at."""
        self.asked += 1
        return super().call_at(at_ms, callback)

    def work(self, ms: int) -> None:
        """Let time pass inside a callback."""
        self._ms += ms


def test_each_key_rings_at_its_time() -> None:
    """Keys ring in the order of their times, one that is armed again at its new time, a cancelled one never."""
    clock = ManualClock()
    start = clock.ms()
    rung: list[tuple[str, int]] = []
    alarm: Alarm[str] = Alarm(clock, lambda key: rung.append((key, clock.ms() - start)))
    for key, within_ms in {"a": 30, "b": 10, "c": 20}.items():
        alarm.arm(key, start + within_ms)
    alarm.arm("b", start + 40)
    alarm.cancel("c")
    assert "b" in alarm
    assert "c" not in alarm
    clock.advance(100)
    assert rung == [("a", 30), ("b", 40)]


def test_many_timers_ask_the_clock_once() -> None:
    """However many are armed behind the first, the clock is asked for one call only."""
    clock = Asked()
    alarm: Alarm[int] = Alarm(clock, lambda _: None)
    for key in range(100):
        alarm.arm(key, clock.ms() + 10 + key)
    assert clock.asked == 1


def test_what_rings_may_arm_again_without_delaying_others() -> None:
    """A key that is armed while another rings does not hide one that comes before it."""
    clock = ManualClock()
    start = clock.ms()
    rung: list[tuple[str, int]] = []

    def ring(key: str) -> None:
        rung.append((key, clock.ms() - start))
        if key == "a":
            alarm.arm("late", start + 100)

    alarm: Alarm[str] = Alarm(clock, ring)
    alarm.arm("a", start + 10)
    alarm.arm("b", start + 50)
    clock.advance(200)
    assert rung == [("a", 10), ("b", 50), ("late", 100)]


def test_a_key_that_raises_does_not_silence_the_others() -> None:
    """An exception for one key reaches the loop, and the other keys ring."""
    clock = ManualClock()
    rung: list[str] = []

    def ring(key: str) -> None:
        if key == "bad":
            raise ValueError(key)
        rung.append(key)

    alarm: Alarm[str] = Alarm(clock, ring)
    alarm.arm("bad", clock.ms() + 1)
    alarm.arm("good", clock.ms() + 1)
    with pytest.raises(ValueError, match="bad"):
        clock.advance(10)
    clock.advance(10)
    assert rung == ["good"]


class Kept(ManualClock):
    """A clock that keeps the calls, for the test to make them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Callable[[], None]] = []

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """Keep the call."""
        self.kept.append(callback)
        return super().call_at(at_ms, callback)


def test_a_time_that_has_come_does_not_keep_the_loop() -> None:
    """A key that arms itself again for now rings once in a turn of the loop, and the others ring too."""
    clock = Kept()
    rung: list[str] = []

    def ring(key: str) -> None:
        rung.append(key)
        if key == "again":
            alarm.arm("again", clock.ms())

    alarm: Alarm[str] = Alarm(clock, ring)
    alarm.arm("again", clock.ms())
    alarm.arm("other", clock.ms())
    for turn in (1, 2, 3):
        clock.kept.pop()()
        assert turn <= rung.count("again") <= 2 * turn
    assert rung.count("other") == 1


class Stalled(ManualClock):
    """A clock of a process that can stand still: calls that are due meanwhile come when it goes on."""

    def stall(self, ms: int) -> None:
        """Stand still for so long; then make the calls that are due, as an event loop does in its next turn."""
        self._ms += ms
        self.advance(0)


def test_after_a_stall_the_loop_reads_before_timers_ring() -> None:
    """A heartbeat that lies in the socket moves its member's deadline before the session timer rings."""
    clock = Stalled()
    start = clock.ms()
    rung: list[tuple[str, int]] = []
    alarm: Alarm[str] = Alarm(clock, lambda key: rung.append((key, clock.ms() - start)))
    alarm.arm("session", start + 6_000)
    alarm.arm("other", start + 6_500)
    clock.stall(7_000)
    assert rung == []
    alarm.arm("session", clock.ms() + 6_000)  # the heartbeat that the loop reads now
    clock.advance(CATCH_UP_MS)
    assert rung == [("other", 7_000 + CATCH_UP_MS)]
    clock.advance(6_000)
    assert rung[1:] == [("session", 13_000)]


def test_timers_ring_though_the_loop_stays_behind() -> None:
    """A loop that is always late may delay timers by CATCH_UP_MAX_MS at most."""
    clock = Stalled()
    start = clock.ms()
    rung: list[int] = []
    alarm: Alarm[str] = Alarm(clock, lambda _: rung.append(clock.ms() - start))
    alarm.arm("session", start + 1)
    while not rung:
        clock.stall(CATCH_UP_MS + STALL_MS + 50)
    assert CATCH_UP_MAX_MS <= rung[0] <= CATCH_UP_MAX_MS + 1_000


def test_timers_whose_work_takes_long_leave_the_loop_a_turn() -> None:
    """A thousand members may expire in one moment: others are read meanwhile, and no timer is lost or moved."""
    clock = Asked()
    turns: list[tuple[int, str]] = []

    def ring(key: str) -> None:
        turns.append((clock.asked, key))
        clock.work(RING_MAX_MS - 1)

    alarm: Alarm[str] = Alarm(clock, ring)
    for key in "abcd":
        alarm.arm(key, clock.ms() + 10)
    clock.advance(10)
    assert turns == [(1, "a"), (1, "b"), (2, "c"), (2, "d")]


def test_a_timer_for_a_past_time_is_no_stall() -> None:
    """A key that is armed for a time that has passed rings in the next turn."""
    clock = ManualClock()
    clock.advance(10_000)
    rung: list[str] = []
    alarm: Alarm[str] = Alarm(clock, rung.append)
    alarm.arm("late", clock.ms() - 5_000)
    clock.advance(0)
    assert rung == ["late"]


def test_a_stopped_alarm_is_silent() -> None:
    """Nothing rings after stop."""
    clock = ManualClock()
    rung: list[str] = []
    alarm: Alarm[str] = Alarm(clock, rung.append)
    alarm.arm("a", clock.ms() + 1)
    alarm.stop()
    clock.advance(10)
    assert rung == []


async def test_the_loops_clock_calls_back_and_never_before_its_time() -> None:
    """A call at a time comes when `ms` has reached it; both clocks tell the time."""
    clock = LoopClock(asyncio.get_running_loop())
    called: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    at_ms = clock.ms() + 5
    clock.call_at(at_ms, lambda: called.set_result(clock.ms()))
    assert await asyncio.wait_for(called, WITHIN_S) >= at_ms
    before_ms, both, after_ms = clock.ms(), now(clock), clock.ms()
    assert before_ms <= both.ms <= after_ms
    assert abs(both.wall_ms - time.time() * 1000) < 5_000
