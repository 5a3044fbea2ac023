"""SASL: a state machine for each mechanism. Bytes in; bytes out, and in the end the user, or a failure.

    exchange = mechanism.begin()
    step = exchange.step(token)      # until step.user is not None; raises Refused

House rule: the text of `Refused` is for the server's log. No client sees it, and it holds no secret.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refused(Exception):
    """The client doesn't authenticate; the text says why."""


class Step(NamedTuple):
    """The server's answer to a token. user: who has authenticated; None while the exchange goes on."""

    answer: bytes
    user: str | None = None


class Exchange(Protocol):
    """One authentication of one client."""

    def step(self, token: bytes) -> Step:
        """Take the client's next token. Raises Refused; then the exchange is over."""


class Mechanism(Protocol):
    """A mechanism with the users that it knows."""

    def begin(self) -> Exchange:
        """A new exchange."""
