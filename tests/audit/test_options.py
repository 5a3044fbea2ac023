"""The options that both programs share."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from coordinator.audit.check.limits import Limits
from coordinator.audit.options import LIMIT_OPTIONS, add_limit_options, limits_of


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
