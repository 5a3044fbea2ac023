"""The kinds of logs that the runtime serves: the coordinators of a log's partitions, and what belongs to them.

`Partition` and `Loading` take all that depends on the kind from here: new coordinators, and the reader of a log's
records. `Runtime` serves one log, of one kind.

House rule: plain factories. The only state is what the coordinators of one log share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from coordinator.config import Config, GroupSettings
from coordinator.group.coordinator import Coordinator
from coordinator.group.replay import Replay
from coordinator.group.topics import Topics
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.server.runtime.replies import Errand
from coordinator.transaction.coordinator import Coordinator as TransactionCoordinator
from coordinator.transaction.coordinator import Settings
from coordinator.transaction.events import Markers
from coordinator.transaction.records import Replay as TransactionReplay
from protocol.records.batch import Record


class CoordinatorHost(Protocol):
    """The attributes of the runtime that a new coordinator gets."""

    config: Config
    topics: Topics
    group_configs: Mapping[str, GroupSettings]


class Reader(Protocol):
    """Turns the records of a partition into the groups that its coordinator loads.

    skipped: how many records it left out, by their kind.
    """

    skipped: dict[int, int]

    def add(self, page: Iterable[Record]) -> None:
        """Take the next records. Raises ProtocolError."""

    def groups_in_steps(self) -> Iterator[Any]:
        """Yield the groups that the records make, each with a `group_id`; None where the caller may pause."""

    def size_of(self, group: Any) -> int:
        """How many parts of it were decoded since the last pause."""


class LogKind(NamedTuple):
    """A kind of log.

    log: its name. contents, items: what it holds, in log lines. partition_count: the number of its partitions.
    coordinator: makes a coordinator of a partition, without groups. reader: makes a reader of its records.
    """

    log: str
    contents: str
    items: str
    partition_count: Callable[[Config], int]
    coordinator: Callable[[int, CoordinatorHost], Any]
    reader: Callable[[], Reader]


def _of_groups(index: int, host: CoordinatorHost) -> Coordinator:
    made = Coordinator(index, host.config.group)
    made.topics = host.topics
    made.group_configs = host.group_configs
    return made


GROUPS = LogKind(
    OFFSETS_TOPIC,
    "offsets and group metadata",
    "groups",
    lambda config: config.offsets_topic_num_partitions,
    _of_groups,
    Replay,
)


def transactional_ids(write: Callable[[int, Markers], None]) -> LogKind:
    """The log of transactional ids.

    write: called with the number of a partition and the markers that one of its transactions needs.
    """
    ids_of: Counter[str] = Counter()

    def coordinator(index: int, host: CoordinatorHost) -> TransactionCoordinator:
        config = host.config
        settings = Settings(
            config.transaction_max_timeout_ms,
            config.transactional_id_expiration_ms,
            config.transaction_version,
            config.transactional_ids_max,
        )
        return TransactionCoordinator(index, settings, Errand(partial(write, index)), ids_of)

    return LogKind(
        TRANSACTIONS_TOPIC,
        "transactional ids",
        "ids",
        lambda config: config.transaction_state_log_num_partitions,
        coordinator,
        TransactionReplay,
    )
