"""The authorizer's log: a line for each denied request, and for each allowed one if `tenure.authorizer.log.allowed`.

A line has the event `authorizer_denied` or `authorizer_allowed`, and the words of Kafka's authorizer log. A client can
be denied as fast as it can send, so lines have a limit for each second. The next line says how many are missing. Users
have a limit each, and allowed requests one of their own, so that nobody can hide a denial behind many others.

House rule: a line follows a decision, and no decision waits for a line.
"""

from __future__ import annotations

from collections import Counter

from coordinator.config import Config
from coordinator.loop.clock import Clock
from coordinator.loop.lines import Level, Lines
from coordinator.security.access import Access, Asked

LINES_PER_SECOND = 50
"""Lines about denied requests in a second at most, and as many about allowed ones, so that clients can't fill the disk.
"""

LINES_OF_ONE = 10
"""Lines about the requests of one principal in a second at most."""

NAME_MAX = 300
"""Characters of a resource's name in a line. A topic's name has at most 249, a group's id 32,767."""

MS_PER_SECOND = 1_000


class AuthorizerLines:
    """Writes the lines of one kind of decision. word: Denied or Allowed."""

    def __init__(self, lines: Lines, clock: Clock, level: Level, word: str) -> None:
        self._lines = lines
        self._clock = clock
        self._level = level
        self._word = word
        self._second = 0
        # Lines of this second by principal, and how many decisions had none so far.
        self._written: Counter[str] = Counter()
        self._left_out = 0

    def _has_room(self, principal: str) -> bool:
        """Whether there is room for a line about this principal; it is taken then."""
        second = self._clock.ms() // MS_PER_SECOND
        if second != self._second:
            self._second = second
            self._written.clear()
        if self._written[principal] >= LINES_OF_ONE or self._written.total() >= LINES_PER_SECOND:
            return False
        self._written[principal] += 1
        return True

    def write(self, asked: Asked) -> None:
        """Write or count a decision."""
        if not self._has_room(asked.principal):
            self._left_out += 1
            return
        missing, self._left_out = self._left_out, 0
        name = asked.name if len(asked.name) <= NAME_MAX else f"{asked.name[:NAME_MAX]} ..."
        kind = asked.kind.name.title().replace("_", "")
        text = (
            f"Principal = {asked.principal} is {self._word} operation = {asked.operation.name} "
            f"from host = {asked.host} on resource = {kind}:LITERAL:{name}"
        )
        if missing:
            text += f" ({missing} more in the seconds before)"
        self._lines.write(
            self._level,
            f"authorizer_{self._word.lower()}",
            text,
            principal=asked.principal,
            host=asked.host,
            operation=asked.operation.name,
            resource_type=asked.kind.name,
            resource_name=name,
            left_out=missing,
        )


def access_of(config: Config, lines: Lines, clock: Clock) -> Access:
    """The access that the settings ask for. It gets the rules later."""
    access = Access(
        is_open=not config.authorizer_class_name,
        everyone=config.allow_everyone_if_no_acl_found,
        supers=config.super_users,
    )
    access.on_denied = AuthorizerLines(lines, clock, Level.WARN, "Denied").write
    if config.authorizer_log_allowed:
        access.on_allowed = AuthorizerLines(lines, clock, Level.INFO, "Allowed").write
    return access
