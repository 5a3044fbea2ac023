"""The refusal of a request of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.refusal import Refusal

if TYPE_CHECKING:
    from schemas.errors import ErrorCode


class Refused(Exception):
    """The coordinator refuses a request with an error code, for some errors with a reason. It changed nothing.

    refusal: the same as a value.
    """

    def __init__(
        self,
        error: ErrorCode,
        message: str | None = None,
        why: str | None = None,
        until: str | None = None,
        *,
        is_noted: bool = False,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.message = message
        self.refusal = Refusal(error, message, why, until, is_noted)
