"""The joins that a group holds for expected members: data of `classic.expected`, which has the rules.

House rule: only `classic.expected` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.group.events import JoinGroup


class Held(NamedTuple):
    """A JoinGroup that waits outside the group.

    until_ms: when its client has to ask again, on the clock of `Now.ms`.
    """

    event: JoinGroup
    member_id: str
    until_ms: int

    @property
    def key(self) -> tuple[bool, str]:
        """The client's key, equal for all its joins: its instance id, else its member id."""
        name = self.event.body.group_instance_id
        return (False, self.member_id) if name is None else (True, name)


@dataclass(slots=True, eq=False, repr=False)
class Arrivals:
    """The joins that a group holds, and the members that it holds them for.

    held: in the order of their first arrival.
    awaited: the expected members that are missing; None while nothing is held for them.
    until_ms: when the wait for them ends. given_up: expected members for whom an earlier wait ended in vain.
    timer_at_ms: when the timer fires; None if it doesn't run.
    """

    held: dict[tuple[bool, str], Held] = field(default_factory=dict)
    awaited: set[str] | None = None
    until_ms: int = 0
    given_up: set[str] = field(default_factory=set)
    timer_at_ms: int | None = None
