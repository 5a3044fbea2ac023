"""The settings of the coordinators that wrote a log, as far as checks depend on them; a log doesn't contain them.

The defaults are those of coordinator.config, which are Kafka's.

`tenure audit` and the program for spark-submit share the options for them.

House rule: this module imports nothing heavy, as the command line shows these defaults. An option is one entry in
LIMIT_OPTIONS, and both programs have it.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.config import MS_PER_MINUTE, Config, GroupConfig

REBALANCES_PER_HOUR_MAX = 10
"""A quiet group has none; a rollout of ten dynamic members makes twenty."""

_GROUP = GroupConfig()
_LOG = Config()


class Limits(NamedTuple):
    """Settings of the coordinators, times in ms.

    partition_count: offsets.topic.num.partitions; None if it isn't known. session_ms_max: group.max.session.timeout.ms.
    offsets_retention_ms: offsets.retention.minutes. offsets_check_ms: offsets.retention.check.interval.ms, how often a
    coordinator looks for expired offsets. delete_retention_ms: log.cleaner.delete.retention.ms, how long a tombstone
    stays. transaction_ms_max: transaction.max.timeout.ms. id_expiration_ms: transactional.id.expiration.ms.
    """

    partition_count: int | None = None
    session_ms_max: int = _GROUP.group_max_session_timeout_ms
    rebalances_per_hour_max: int = REBALANCES_PER_HOUR_MAX
    offsets_retention_ms: int = _GROUP.offsets_retention_ms
    offsets_check_ms: int = _LOG.offsets_retention_check_interval_ms
    delete_retention_ms: int = _LOG.log_cleaner_delete_retention_ms
    transaction_ms_max: int = _LOG.transaction_max_timeout_ms
    id_expiration_ms: int = _LOG.transactional_id_expiration_ms


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
