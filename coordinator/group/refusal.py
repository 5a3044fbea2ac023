"""Refusals as values, and the words for those that end a client.

`Turn.note_refused` makes a note of one, so that an operator finds out why a client ended, and
until when others would.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.errors import ErrorCode

OTHER_SETTINGS = "its client has other settings"
OTHER_MEMBERS = "the group has other members"

WORDS: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ("the group can't be upgraded yet", "its rebalance is over"),
    ErrorCode.GROUP_ID_NOT_FOUND: ("the group isn't there", "the client joins anew"),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ("the group is full", "a member is gone, or the limit is higher"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "its protocol type is not the group's, or no protocol name is common to it and all members",
        OTHER_MEMBERS,
    ),
    ErrorCode.INVALID_GROUP_ID: ("the group id is empty", OTHER_SETTINGS),
    ErrorCode.INVALID_REGULAR_EXPRESSION: ("its regular expression can't be read", OTHER_SETTINGS),
    ErrorCode.INVALID_REQUEST: ("the request breaks the protocol", OTHER_SETTINGS),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "its session timeout is not between group.min.session.timeout.ms and group.max.session.timeout.ms",
        OTHER_SETTINGS,
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: ("its metadata can't be read, or are too large", OTHER_SETTINGS),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ("the server has no such assignor", OTHER_SETTINGS),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the server doesn't serve the consumer protocol",
        "group.coordinator.rebalance.protocols names it",
    ),
}
"""The errors that end a client which wants to join, or put off an upgrade: why, and until when.

Clients go on by themselves after any other error. A fenced client has a note of its own.
"""


class Refusal(NamedTuple):
    """A refusal.

    message: in the answer. why, until: for the note, where the words of the error don't fit.
    """

    error: ErrorCode
    message: str | None = None
    why: str | None = None
    until: str | None = None


NOT_EXPECTED = Refusal(
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    "The group has no seat for members outside expected.instance.ids.",
    why="the group refuses members that expected.instance.ids doesn't name",
    until="expected.instance.ids names it, or unexpected.instance.ids is allowed",
)


class RefusedRequest(Exception):
    """The coordinator refuses a request of the consumer protocol, and changed nothing."""

    def __init__(
        self, error: ErrorCode, message: str | None = None, why: str | None = None, until: str | None = None
    ) -> None:
        super().__init__(error)
        self.refusal = Refusal(error, message, why, until)
