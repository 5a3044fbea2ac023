"""The options for `Limits`: `tenure audit` and the program for spark-submit share them.

House rule: an option is one entry in LIMIT_OPTIONS, and both programs have it.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.audit.check.limits import Limits
from coordinator.config import MS_PER_MINUTE


class LimitOption(NamedTuple):
    """An option. metavar: stands for its value in the help. field: of Limits, which gets the value times `factor`."""

    flag: str
    metavar: str
    field: str
    help: str
    factor: int = 1

    @property
    def default(self) -> int | None:
        """The value if the option is left out."""
        value: int | None = getattr(Limits(), self.field)
        return None if value is None else value // self.factor


LIMIT_OPTIONS = {
    "partitions": LimitOption(
        "--partitions", "N", "partition_count", "offsets.topic.num.partitions; by default the folder shows it."
    ),
    "max_session_ms": LimitOption("--max-session-ms", "MS", "session_ms_max", "group.max.session.timeout.ms."),
    "max_rebalances": LimitOption(
        "--max-rebalances",
        "N",
        "rebalances_per_hour_max",
        "More rebalances than this within an hour are a finding.",
    ),
    "offsets_retention_minutes": LimitOption(
        "--offsets-retention-minutes", "MIN", "offsets_retention_ms", "offsets.retention.minutes.", MS_PER_MINUTE
    ),
    "delete_retention_ms": LimitOption(
        "--delete-retention-ms", "MS", "delete_retention_ms", "log.cleaner.delete.retention.ms; for --before."
    ),
}
"""Name of the argument -> its option; every value is a whole number from 1 on."""


def limits_of(values: Mapping[str, int | None]) -> Limits:
    """The limits that the options set; values: by the names of LIMIT_OPTIONS, None for an option that was left out."""
    fields = {
        option.field: value * option.factor
        for name, option in LIMIT_OPTIONS.items()
        if (value := values[name]) is not None
    }
    return Limits()._replace(**fields)


def add_limit_options(parser: ArgumentParser) -> None:
    """Add the options to a parser."""
    for option in LIMIT_OPTIONS.values():
        parser.add_argument(
            option.flag, metavar=option.metavar, type=_natural, default=option.default, help=option.help
        )


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
