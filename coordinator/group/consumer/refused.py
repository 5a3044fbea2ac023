"""The refusal of a request of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.errors import ErrorCode


class Refused(Exception):
    """A request is refused with an error code and, for some errors, words of why; the group is as before."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.message = message
