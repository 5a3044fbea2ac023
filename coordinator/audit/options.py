"""The options that say what the coordinators allowed: those of `tenure audit` and of the program for spark-submit.

House rule: an option is one line in LIMIT_OPTIONS, and both have it.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.audit.check.limits import Limits
from coordinator.config import MS_PER_MINUTE


class LimitOption(NamedTuple):
    """An option: its flag, what stands for its value, the field of Limits that it sets and times what, its help."""

    flag: str
    metavar: str
    field: str
    help: str
    factor: int = 1

    @property
    def default(self) -> int | None:
        """Where it is left out."""
        value: int | None = getattr(Limits(), self.field)
        return None if value is None else value // self.factor


LIMIT_OPTIONS = {
    "partitions": LimitOption(
        "--partitions", "N", "partition_count", "offsets.topic.num.partitions; found out where it is left out."
    ),
    "max_session_ms": LimitOption("--max-session-ms", "MS", "session_ms_max", "group.max.session.timeout.ms."),
    "max_rebalances": LimitOption(
        "--max-rebalances", "N", "rebalances_per_hour_max", "How many rebalances in an hour are no storm."
    ),
    "offsets_retention_minutes": LimitOption(
        "--offsets-retention-minutes", "MIN", "offsets_retention_ms", "offsets.retention.minutes.", MS_PER_MINUTE
    ),
    "delete_retention_ms": LimitOption(
        "--delete-retention-ms", "MS", "delete_retention_ms", "log.cleaner.delete.retention.ms, for --before."
    ),
}
"""Name of the argument -> its option; all are whole numbers from 1 on."""


def limits_of(values: Mapping[str, int | None]) -> Limits:
    """The limits that the options name, by the names of LIMIT_OPTIONS; None stands for one that was left out."""
    fields = {
        option.field: value * option.factor
        for name, option in LIMIT_OPTIONS.items()
        if (value := values[name]) is not None
    }
    return Limits()._replace(**fields)


def add_limit_options(parser: ArgumentParser) -> None:
    """Give a parser all of them."""
    for option in LIMIT_OPTIONS.values():
        parser.add_argument(
            option.flag, metavar=option.metavar, type=_natural, default=option.default, help=option.help
        )


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
