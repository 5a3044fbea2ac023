"""The server-side assignors of KIP-848: which member of a group gets which partitions.

An assignor is a generator. It yields None where its caller may pause, and at last the targets of all members. A group
of 10,000 members takes many turns of the loop that way. Equal input gives equal targets, whatever the order of the
members, so a coordinator that replays its log comes to the same targets.

House rule: an assignor is a pure function of its arguments. It changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from coordinator.group.consumer.assignors.ranged import ranged
from coordinator.group.consumer.assignors.subscriber import Assignment, Pauses, Subscriber
from coordinator.group.consumer.assignors.uniform import uniform

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "Pauses", "Subscriber"]

Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Iterator[dict[str, Assignment] | None]]
"""Takes members by their ids, and how many partitions each topic has. A topic that isn't there doesn't exist: nobody
gets it. Yields the targets by member id, an entry for each member. Nones come first, one wherever the caller may pause.
"""

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": ranged}
"""By the names that clients send and Kafka's settings use; the first is Kafka's default."""
