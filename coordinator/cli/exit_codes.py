"""How a command ends: its exit code, and one line on standard error when it isn't 0.

House rule: an exit code is an interface (scripts branch on it); a new reason gets a new code, no code changes meaning.
Nothing is imported here that `serve` would have to pay for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    """Done, or nothing was found."""
    FINDINGS = 1
    """A negative answer."""
    USAGE = 2
    """Wrong usage, a wrong setting, or input that can't be read."""
    NOT_FOUND = 3
    """No such group or member."""
    REFUSED = 4
    """The server said no; the line names its error."""
    UNREACHABLE = 5
    """The server can't be reached in time."""


def warn(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    print("tenure:", " ".join(message.split()), file=sys.stderr)


def fail(code: ExitCode, message: str) -> NoReturn:
    """End the command with one line of why."""
    warn(message)
    sys.exit(code)


def end(failures: Sequence[tuple[ExitCode, str]]) -> None:
    """End a command on several things: quietly without failures, else with the highest of their codes and one line."""
    if failures:
        fail(max(code for code, _message in failures), "; ".join(message for _code, message in failures))
