"""The audit's default limits are a broker's defaults, and two programs have options for them."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from coordinator.audit.check.limits import LIMIT_OPTIONS, Limits, add_limit_options, limits_of


def test_defaults_are_kafkas() -> None:
    """Each default is the one in Kafka's documentation, for example of group.max.session.timeout.ms."""
    week_ms, half_hour_ms, ten_minutes_ms, day_ms = 604_800_000, 1_800_000, 600_000, 86_400_000
    assert Limits() == (None, half_hour_ms, 10, week_ms, ten_minutes_ms, day_ms, 900_000, week_ms)


def test_a_parser_has_them_all() -> None:
    """An option that isn't given has its default, and each option sets its limit."""
    parser = ArgumentParser()
    add_limit_options(parser)
    assert limits_of(vars(parser.parse_args([]))) == Limits()
    assert limits_of(dict.fromkeys(LIMIT_OPTIONS)) == Limits()
    flags = [word for number, option in enumerate(LIMIT_OPTIONS.values(), 3) for word in (option.flag, str(number))]
    assert limits_of(vars(parser.parse_args(flags))) == Limits(3, 4, 5, 6 * 60_000, Limits().offsets_check_ms, 7)


@pytest.mark.parametrize("text", ["0", "-1", "x", ""])
def test_numbers_begin_at_one(text: str) -> None:
    """The parser refuses numbers below one."""
    parser = ArgumentParser()
    add_limit_options(parser)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--partitions", text])
