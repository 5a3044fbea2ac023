"""Where answers go: what the runtime asks of a request that it is to answer.

House rule: an answer is given once, and what goes wrong in giving it reaches nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.group.events import CommitOffsets
    from coordinator.group.offsets import CommitTemplate


class Reply:
    """Where the answer of an event goes: the event's `request`."""

    __slots__ = ()

    def deliver(self, body: Any) -> None:
        """Take the answer, once. It must not raise: its caller has other answers to give."""
        # Abstract, but no ABC: each delivery asks isinstance, which takes an ABC several times as long.
        raise NotImplementedError


class RepeatedCommit(Reply):
    """A commit that repeats one before, and where its answer goes.

    template, offsets: what is to be stored.
    """

    __slots__ = ("offsets", "template")

    template: CommitTemplate
    offsets: Sequence[int]

    def event(self) -> CommitOffsets:
        """The same commit as an event, whose answer comes to `deliver`."""
        # Abstract, as Reply is, and no ABC for the same reason.
        raise NotImplementedError

    def done(self) -> None:
        """Take the answer that all is stored: as `deliver`, faster."""
        # Abstract, likewise.
        raise NotImplementedError
