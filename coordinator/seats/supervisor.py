"""Decides when a program with a leased name starts, gets a signal, and has to be dead.

    until                       the name may go to another program
    until - margin              SIGKILL
    until - margin - grace      SIGTERM

Each renewal moves `until`. A supervisor that wakes from a pause finds out first that the time is over.

House rule: pure. `handle` looks at the time before it looks at the event.
"""

from __future__ import annotations

from enum import Enum
from signal import SIGTERM
from typing import NamedTuple

MARGIN_SHARE = 0.1
"""The part of a session that is kept for a late signal, and for clocks that run at different speeds."""
NONE_FREE = "no name is free"
SIGNAL_EXIT = 128
"""Shells add it to the signal that ended a program."""


class Leased(NamedTuple):
    """The name is held until then, on the supervisor's clock. trouble: why the last renewal failed, or ""."""

    name: str
    token: int
    until: float
    trouble: str = ""


class Waits(NamedTuple):
    """There is no name yet."""

    why: str


class Lost(NamedTuple):
    """The name is another one's, or can't be had."""

    why: str


Report = Leased | Waits | Lost
"""A keeper's report to its supervisor."""


class KeeperEnded(NamedTuple):
    """Nobody renews the lease."""


class Signalled(NamedTuple):
    """The supervisor got a signal."""

    number: int


class Ended(NamedTuple):
    """The program ended, with its exit code as a shell has it."""

    code: int


class Tick(NamedTuple):
    """Some time went by."""


Event = Report | KeeperEnded | Signalled | Ended | Tick


class Start(NamedTuple):
    """Start the program."""

    name: str
    token: int


class Send(NamedTuple):
    """Send the program a signal."""

    number: int


class Kill(NamedTuple):
    """SIGKILL for the program and its children."""


class Say(NamedTuple):
    """Print a line."""

    text: str


class Why(Enum):
    """The reason why a run is over."""

    PROGRAM = "the program ended"
    SIGNAL = "a signal came before the program began"
    NO_NAME = "no name could be had at once"
    REFUSED = "no name can be had"
    LOST = "the lease was lost"


class Exit(NamedTuple):
    """Give the name back, and end. code: of the program or the signal."""

    why: Why
    code: int


Action = Start | Send | Kill | Say | Exit


class Supervisor:
    """See the module. waits: whether it waits for a name."""

    def __init__(self, session_s: float, grace_s: float, *, waits: bool = True) -> None:
        self._margin_s, self._grace_s = session_s * MARGIN_SHARE, grace_s
        self._waits = waits
        self._until = 0.0
        self._runs = self._is_over = self._has_trouble = False
        self._said = ""
        self._why = ""
        """Why the program must end, but for its own reasons."""
        self._is_killed = False

    @property
    def term_at(self) -> float:
        """When the program gets SIGTERM."""
        return self._until - self._margin_s - self._grace_s

    @property
    def kill_at(self) -> float:
        """When the program has to be dead."""
        return self._until - self._margin_s

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event."""
        if isinstance(event, Leased):
            self._until = max(self._until, event.until)
        found = self._look_at(now)
        if self._is_over:
            return []
        if isinstance(event, Ended):
            self._runs, self._is_over = False, True
            found.append(Exit(Why.LOST if self._why else Why.PROGRAM, event.code))
        elif isinstance(event, Leased):
            if event.trouble and not self._has_trouble:
                found.append(Say(f"the lease can't be renewed: {event.trouble}"))
            self._has_trouble = bool(event.trouble)
            if not (self._runs or self._why) and now < self.term_at:
                self._runs = True
                found.append(Start(event.name, event.token))
        elif isinstance(event, Lost | KeeperEnded):
            found += self._lose(event)
        elif isinstance(event, Signalled):
            found += [Send(event.number)] if self._runs else self._end(Why.SIGNAL, SIGNAL_EXIT + event.number)
        elif isinstance(event, Waits):
            if not self._waits:
                found += [Say(event.why), *self._end(Why.NO_NAME, 1)]
            elif event.why != self._said:
                self._said = event.why
                found.append(Say(f"waits: {event.why}"))
        return found

    def _look_at(self, now: float) -> list[Action]:
        if not self._runs:
            return []
        if now >= self.kill_at:
            return self._kill("the lease was not renewed in time")
        if now >= self.term_at and not self._why:
            self._why = "the lease was not renewed in time"
            return [Say(f"{self._why}: SIGTERM, and SIGKILL {self.kill_at - now:.1f} s later"), Send(SIGTERM)]
        return []

    def _kill(self, why: str) -> list[Action]:
        self._why = self._why or why
        if self._is_killed:
            return []
        self._is_killed = True
        return [Kill(), Say(f"{why}: SIGKILL")]

    def _lose(self, event: Lost | KeeperEnded) -> list[Action]:
        why = event.why if isinstance(event, Lost) else "nobody renews the lease"
        if not self._runs:
            return [Say(why), *self._end(Why.REFUSED, 0)]
        if isinstance(event, Lost):
            return self._kill(why)
        if self._why:
            return []
        self._why = why
        return [Say(f"{why}: SIGTERM"), Send(SIGTERM)]

    def _end(self, why: Why, code: int) -> list[Action]:
        self._is_over = True
        return [Exit(why, code)]
