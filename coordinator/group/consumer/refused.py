"""The refusal of a request of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.errors import ErrorCode


class Refused(Exception):
    """The coordinator refuses a request with an error code, for some errors with a reason. It changed nothing."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.message = message
