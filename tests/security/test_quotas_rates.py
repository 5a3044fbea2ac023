"""The arithmetic of quotas. The numbers here are Kafka's; tests/oracle/test_quotas.py compares more with them."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from coordinator.security import quotas_rates
from coordinator.security.quotas_rates import WAIT_MAX_MS, Rate, Sampling, Sensors, Tokens

WINDOW = Sampling(11, 1000)


def test_a_rate_is_about_the_whole_window() -> None:
    """5,000 at once are 500 a second, as ten seconds of the window are taken for past; so 100 a second wait 40 s."""
    rate = Rate(WINDOW)
    rate.record(5000, 1000)
    assert (rate.per_second(1000), rate.wait_ms(100, 1000)) == (500, 40_000)
    rate.record(10, 1500)
    assert rate.wait_ms(100, 1500) == 39_600
    assert rate.wait_ms(500, 1500) == 0


def test_tokens_are_lent() -> None:
    """A full bucket has 55 of 5 a second; 100 are given, and 45 are waited for: 9 s."""
    tokens = Tokens(WINDOW)
    tokens.take(100, 5, 1_000_000)
    assert tokens.wait_ms(5, 1_000_000) == 9_000
    assert tokens.wait_ms(5, 1_009_000) == 0


def test_a_wait_fits_into_an_answer() -> None:
    """Its field is an int32."""
    rate = Rate(WINDOW)
    rate.record(1e12, 0)
    assert rate.wait_ms(0.5, 0) == WAIT_MAX_MS


@given(st.lists(st.tuples(st.integers(0, 4_000), st.floats(0, 1e6)), min_size=1), st.floats(1, 1e5))
def test_a_client_that_obeys_gets_what_the_bound_allows(steps: list[tuple[int, float]], bound: float) -> None:
    """Never more than twice the bound, over the time since and the window before. Kafka's formula is that coarse.

    Nobody waits whose rate isn't above the bound.
    """
    rate = Rate(WINDOW)
    start_ms = now_ms = 1_000_000
    total = 0.0
    for pause_ms, last in steps:
        now_ms += pause_ms
        assert total / bound <= 2 * (now_ms - start_ms + WINDOW.all_ms) / 1000
        total += last
        rate.record(last, now_ms)
        wait_ms = rate.wait_ms(bound, now_ms)
        assert rate.per_second(now_ms) <= bound * 1.0001 if wait_ms == 0 else rate.per_second(now_ms) > bound
        now_ms += wait_ms


@given(st.lists(st.integers(0, 30_000), max_size=30))
def test_an_idle_sensor_is_like_a_new_one(pauses: list[int]) -> None:
    """So it can be dropped: the next value has the rate and the wait that it has in a new one."""
    now_ms = 5_000
    rate, tokens = Rate(WINDOW), Tokens(WINDOW)
    for pause_ms in pauses:
        now_ms += pause_ms
        if rate.is_idle(7, now_ms):
            fresh = Rate(WINDOW)
            fresh.record(500, now_ms)
            rate.record(500, now_ms)
            assert fresh.wait_ms(7, now_ms) == rate.wait_ms(7, now_ms)
        else:
            rate.record(500, now_ms)
        if tokens.is_idle(7, now_ms):
            assert tokens.left(7, now_ms) == Tokens(WINDOW).left(7, now_ms)
        tokens.take(30, 7, now_ms)


def test_sensors_are_bounded() -> None:
    """An idle one goes when others come; above the limit the one that was used longest ago goes."""
    sensors = Sensors(partial(Rate, WINDOW))
    for number in range(quotas_rates.SENSORS_MAX + 50):
        sensors.get(number, 10, 0).record(1, 0)
    assert len(sensors) == quotas_rates.SENSORS_MAX
    assert sensors.get(10_000, 10, 0).per_second(0) > 0
    assert sensors.get(0, 10, 0).per_second(0) == 0
    for number in range(-100, 0):
        sensors.get(number, 10, 60_000).record(1, 60_000)
    assert len(sensors) <= quotas_rates.SENSORS_MAX - 90
