"""Tests of the virtual time."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.virtual_time import Timeline


def test_a_frozen_process_gets_its_calls_after_the_thaw_each_lane_in_order() -> None:
    """Nothing comes while it is frozen, nothing is lost, and no lane changes its order."""
    orders = set()
    for seed in range(20):
        time = Timeline(seed)
        node = time.process("node")
        came: list[str] = []
        for number in range(3):
            node.later(10 + number, partial(came.append, f"timer{number}"))
            node.later(20 + number, partial(came.append, f"net{number}"), "net")
        node.freeze()
        time.run(1_000)
        assert came == []
        node.thaw()
        time.run(0)
        assert [each for each in came if each.startswith("timer")] == ["timer0", "timer1", "timer2"]
        assert [each for each in came if each.startswith("net")] == ["net0", "net1", "net2"]
        orders.add(tuple(came))
    assert len(orders) > 1


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_killed_process_gets_nothing_more(*, is_frozen: bool) -> None:
    """Its timers don't fire, whether it was frozen or not."""
    time = Timeline(1)
    node = time.process("node")
    node.later(10, lambda: pytest.fail("it is dead"))
    if is_frozen:
        node.freeze()
        time.run(20)
    node.kill()
    time.run(1_000)


@pytest.mark.parametrize("rate", [0.9, 0.937, 1.0, 1.1])
def test_timers_count_by_the_clock_of_their_machine(rate: float) -> None:
    """A timer is due at the first moment at which that clock shows its time; what the network brings isn't."""
    time = Timeline(1)
    node = time.process("node", rate)
    began, began_ms = time.ms, node.now_ms()
    came: list[int] = []
    net: list[int] = []
    due = range(1, 3_000, 7)
    for ms in due:
        node.later(ms, lambda: came.append(node.now_ms() - began_ms))
        node.later(ms, lambda: net.append(time.ms - began), "net")
    time.run(4_000)
    assert net == list(due)
    assert all(ms <= shown <= ms + 1 for ms, shown in zip(due, came, strict=True))
