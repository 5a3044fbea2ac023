"""Timers behave like a model that keeps a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.loop.timers import LEFTOVERS_MIN, Timers

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_key_goes_off_once_at_its_last_time_and_in_order(steps: list[tuple[str, str, int]]) -> None:
    """After any arming and cancelling, due keys come by time, then in the order of arming."""
    timers: Timers[str] = Timers()
    model: dict[str, tuple[int, int]] = {}
    now = 0
    for order, (step, key, number) in enumerate(steps):
        if step == "arm":
            timers.arm(key, number)
            model[key] = (number, order)
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now += number
            due = sorted((when, key) for key, when in model.items() if when[0] <= now)
            for _, key_due in due:
                del model[key_due]
                assert timers.due(now) == key_due
            assert timers.due(now) is None
        assert len(timers) == len(model)
        assert all(key in timers for key in model)
        assert timers.next_at_ms() == min((at_ms for at_ms, _ in model.values()), default=None)


def test_what_goes_off_can_cancel_what_is_due_with_it() -> None:
    """Keys come one at a time, so that the first can cancel the second."""
    timers: Timers[str] = Timers()
    timers.arm("a", 1)
    timers.arm("b", 1)
    assert timers.due(1) == "a"
    timers.cancel("b")
    assert timers.due(1) is None


def test_the_heap_does_not_grow_with_arming_again() -> None:
    """A key that is armed over and over takes no more room than a few leftovers."""
    timers: Timers[str] = Timers()
    for at_ms in range(10_000):
        timers.arm("a", at_ms)
    assert len(timers._heap) <= 2 + LEFTOVERS_MIN
    assert timers.next_at_ms() == 9_999
