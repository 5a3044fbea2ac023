"""How a command ends: its exit code, and one line on standard error unless the code is 0.

House rule: an exit code is an interface, because scripts branch on it. A new reason gets a new code, and no code
changes its meaning. This module imports nothing that would make the start of `serve` slower.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    """The command did its work, or found nothing."""
    FINDINGS = 1
    """The answer is negative."""
    USAGE = 2
    """Wrong usage, a wrong setting, or input that can't be read."""
    NOT_FOUND = 3
    """There is no such group, member or transaction."""
    REFUSED = 4
    """The server answered with an error; the line names it."""
    UNREACHABLE = 5
    """The server didn't answer in time."""
    OTHER_KIND = 6
    """The group is of a kind for which the command doesn't work, such as a share group; the line names it."""


class Ended(SystemExit):
    """A command ends with an exit code other than 0. message: the line that says why."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(int(code))
        self.message = message


def warn(message: str) -> None:
    """Print the message as one line on standard error, even if it has several lines, or a server's text in it."""
    line = " ".join(message.split())
    if not line.isprintable():
        from coordinator.text import printable

        line = printable(line)
    print("tenure:", line, file=sys.stderr)


def fail(code: ExitCode, message: str) -> NoReturn:
    """End the command with this exit code and one line that says why."""
    warn(message)
    raise Ended(code, message)


def end(failures: Sequence[tuple[ExitCode, str]]) -> None:
    """End the command if there are failures: with the highest of their codes, and one line for all of them."""
    if failures:
        fail(max(code for code, _message in failures), "; ".join(message for _code, message in failures))
