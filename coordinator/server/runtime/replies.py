"""Replies: how the runtime hands an answer back.

House rule: a request gets one answer, and a failure to deliver it reaches no other request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coordinator.group.events import CommitOffsets
from coordinator.group.offsets import CommitTemplate
from schemas.errors import ErrorCode


class Reply:
    """The `request` of an event: it takes the event's answer."""

    __slots__ = ()

    def deliver(self, body: Any) -> None:
        """Take the answer, once. It must not raise, because its caller has other answers to deliver."""
        # Abstract, but no ABC: each delivery asks isinstance, which is several times slower with an ABC.
        raise NotImplementedError


class Errand(Reply):
    """Takes something that is due once the records of a call are durable: no answer, since nobody asked.

    do: called with it.
    """

    __slots__ = ("_do",)

    def __init__(self, do: Callable[[Any], None]) -> None:
        self._do = do

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self._do(body)


class RepeatedCommit(Reply):
    """A commit that repeats an earlier one; it takes its own answer.

    template, offsets: what to store.
    """

    __slots__ = ("offsets", "template")

    template: CommitTemplate
    offsets: Sequence[int]

    def event(self) -> CommitOffsets:
        """Return this commit as an event; `deliver` takes its answer."""
        # Abstract, and no ABC, as Reply.
        raise NotImplementedError

    def refuse(self, error: ErrorCode) -> None:
        """Take the answer `error`."""
        self.deliver(self.event().refused(error))

    def done(self) -> None:
        """Take the answer NONE: faster than `deliver`."""
        # Abstract, and no ABC, as Reply.
        raise NotImplementedError
