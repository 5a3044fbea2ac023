"""The authorizer's log: a line for each denied request, and for each allowed one if `tenure.authorizer.log.allowed`.

A line has the event `authorizer_denied` or `authorizer_allowed`, and the words of Kafka's authorizer log. A client can
be denied as fast as it can send, so lines have a limit for each second. The next line says how many are missing.

House rule: a line follows a decision, and no decision waits for a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.security.access import Access, Asked
from coordinator.server.telemetry.lines import Level

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.server.clock import Clock
    from coordinator.server.telemetry.lines import Lines

LINES_PER_SECOND = 50
"""Lines of the authorizer in a second at most, so that a client can't fill the disk with them."""

MS_PER_SECOND = 1_000


class AuthorizerLines:
    """Writes the lines."""

    def __init__(self, lines: Lines, clock: Clock) -> None:
        self._lines = lines
        self._clock = clock
        self._second = 0
        self._written = 0
        self._left_out = 0

    def denied(self, asked: Asked) -> None:
        """Write that a client was denied something."""
        self._write(Level.WARN, "authorizer_denied", "Denied", asked)

    def allowed(self, asked: Asked) -> None:
        """Write that a client was allowed something."""
        self._write(Level.INFO, "authorizer_allowed", "Allowed", asked)

    def _write(self, level: Level, event: str, word: str, asked: Asked) -> None:
        second = self._clock.ms() // MS_PER_SECOND
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        missing, self._left_out = self._left_out, 0
        kind = asked.kind.name.title().replace("_", "")
        text = (
            f"Principal = {asked.principal} is {word} operation = {asked.operation.name} from host = {asked.host} "
            f"on resource = {kind}:LITERAL:{asked.name}"
        )
        if missing:
            text += f" ({missing} more in the seconds before)"
        self._lines.write(
            level,
            event,
            text,
            principal=asked.principal,
            host=asked.host,
            operation=asked.operation.name,
            resource_type=asked.kind.name,
            resource_name=asked.name,
            left_out=missing,
        )


def access_of(config: Config, lines: AuthorizerLines) -> Access:
    """The access that the settings ask for. It gets the rules later."""
    access = Access(
        is_open=not config.authorizer_class_name,
        everyone=config.allow_everyone_if_no_acl_found,
        supers=config.super_users,
    )
    access.on_denied = lines.denied
    if config.authorizer_log_allowed:
        access.on_allowed = lines.allowed
    return access
