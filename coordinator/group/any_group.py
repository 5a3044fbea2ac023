"""The common part of groups of every kind: their name, state and committed offsets.

`group.Group` is a group of the classic protocol, `consumer.group.ConsumerGroup` one of the consumer protocol (KIP-848).
Rules that serve both, such as those about offsets, take an `AnyGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from coordinator.group.state import EMPTY, Kind, State
from protocol.records.batch import Record


class CommittedOffset(NamedTuple):
    """A committed offset of a topic partition (Kafka: OffsetAndMetadata).

    leader_epoch: -1 if the client gave none.
    commit_ms, expire_ms: Unix time in ms. expire_ms is None unless the client asked for a retention (OffsetCommit
    v2-4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None


class Prepared(NamedTuple):
    """The content of a commit: offsets by topic partition, and their records.

    too_large: topic partitions whose metadata is too large; nothing of them is stored. fits: whether one batch can have
    all records; if not, `offsets` and `records` are not complete.
    """

    offsets: dict[tuple[str, int], CommittedOffset]
    records: list[Record]
    too_large: set[tuple[str, int]]
    fits: bool


class Pending(NamedTuple):
    """An offset that a transaction will commit.

    place: grows with the place in the log. committed: None if a later commit in the log counts.
    """

    place: int
    committed: CommittedOffset | None


@dataclass(slots=True, eq=False, repr=False)
class PendingOffsets:
    """The pending offsets of a group, of all producers.

    by_partition: topic partition -> producer id -> what is pending. by_producer: producer id -> topic partitions.
    passed: topic partition -> the place up to which nothing pending counts, because a later commit does.
    place: of the last one that was added. size: how many there are.
    """

    by_partition: dict[tuple[str, int], dict[int, Pending]] = field(default_factory=dict)
    by_producer: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    passed: dict[tuple[str, int], int] = field(default_factory=dict)
    place: int = 0
    size: int = 0

    def add(self, producer_id: int, place: int, offsets: Mapping[tuple[str, int], CommittedOffset | None]) -> None:
        """A producer has written these; place: larger than all before."""
        keys = self.by_producer.setdefault(producer_id, set())
        self.size += len(offsets.keys() - keys)
        keys.update(offsets)
        for key, committed in offsets.items():
            self.by_partition.setdefault(key, {})[producer_id] = Pending(place, committed)
        self.place = place


NO_PENDING = PendingOffsets()
"""Those of a group without any; nobody changes it."""


@dataclass(slots=True, eq=False, repr=False)
class AnyGroup:
    """A group.

    kind: its protocol, which decides its rules.
    protocol_type: None until a first member joined.
    generation: of a group of the consumer protocol, its epoch.
    state_since_ms: Unix time of the last transition in ms, None if the log doesn't say.
    offsets: topic -> partition -> committed offset. pending_offsets: of open transactions.
    members: by member id. static_members: instance id -> member id.
    subscribed_topics: of a group of consumers; None if unknown.
    """

    kind: ClassVar[Kind]

    group_id: str
    state_since_ms: int | None = None
    state: State = EMPTY
    protocol_type: str | None = None
    generation: int = 0
    members: Mapping[str, Any] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[int, CommittedOffset]] = field(default_factory=dict)
    pending_offsets: PendingOffsets = NO_PENDING
    subscribed_topics: frozenset[str] | None = None

    @property
    def size(self) -> int:
        """The number of its members."""
        return len(self.members)

    @property
    def pending_size(self) -> int:
        """The number of member ids that the coordinator gave out and no client has used (KIP-394)."""
        return 0

    @property
    def is_awaited(self) -> bool:
        """Whether clients wait to become its members (`classic.expected`)."""
        return False

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member may consume `topic`; True if the subscriptions are unknown."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def close(self) -> None:
        """Let go of the members. Nobody may use the group after this."""
