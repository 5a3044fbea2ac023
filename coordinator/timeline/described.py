"""What a group is now, as its coordinator describes it: the part that findings look at.

House rule: plain values; how a description is asked for is coordinator.client's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    client_host: as Kafka writes it, "/127.0.0.1".
    assignment: topic -> partition indexes; None where only the group's own clients can read it.
    subscription: the topics that it subscribes to, None likewise.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: dict[str, list[int]] | None
    subscription: frozenset[str] | None = None

    @property
    def topic_partitions(self) -> list[tuple[str, int]]:
        """What is assigned, in order."""
        return [(topic, index) for topic, indexes in (self.assignment or {}).items() for index in indexes]


class Pending(NamedTuple):
    """A member id that was given out and not used yet. lapses_ms: when it is taken back, Unix time in ms."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: int


class Waiting(NamedTuple):
    """Whom a group waits for between two generations.

    since_ms, until_ms: Unix time in ms, until_ms at the latest. is_held_open: for whoever may come, and nobody in
    particular (group.initial.rebalance.delay.ms). leader: the member id of whose assignments are waited for, None while
    members join. members: who has not joined; with a leader, who has not synced; each with the client that has its seat
    now, where the group's description has who took it first.
    """

    since_ms: int
    until_ms: int
    is_held_open: bool
    leader: str | None
    members: list[Member]
    pending: list[Pending]


class DescribedGroup(Protocol):
    """A group with its members. waiting: None where it waits for nobody, or its server doesn't say."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def state(self) -> str:
        """As Kafka names it: Stable, PreparingRebalance, ..."""

    @property
    def members(self) -> list[Member]:
        """By instance id and member id."""

    @property
    def waiting(self) -> Waiting | None:
        """Whom it waits for."""
