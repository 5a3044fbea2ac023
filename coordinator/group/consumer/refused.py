"""The refusal of a request of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.group.refusal import Refusal


class RefusedRequest(Exception):
    """The coordinator refuses a request, and changed nothing."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal
