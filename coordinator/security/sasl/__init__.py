"""SASL: a state machine for each mechanism. Bytes in; bytes out, and in the end the user, or a failure.

    exchange = mechanism.begin()
    step = exchange.step(token)      # until step.user is not None; raises AuthenticationFailed

House rule: the text of `AuthenticationFailed` is for the server's log and holds no secret. A client sees `told` alone,
which says the same whether the user exists or not.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

ANOTHER_NAME = "Authentication failed: Client requested an authorization id that is different from username"
"""The message to a client that authenticates and asks to be somebody else."""


class AuthenticationFailed(Exception):
    """The client doesn't authenticate; the text says why.

    told: what the client gets to know, in Kafka's words; "" for the general words, which name the mechanism only.
    """

    def __init__(self, reason: str, told: str = "") -> None:
        super().__init__(reason)
        self.told = told


class Step(NamedTuple):
    """The server's answer to a token.

    user: who has authenticated; None while the exchange goes on. ends_at_ms: when that authentication ends, in Unix
    time; None if it doesn't end by itself.
    """

    answer: bytes
    user: str | None = None
    ends_at_ms: int | None = None


class Exchange(Protocol):
    """One authentication of one client."""

    def step(self, token: bytes) -> Step:
        """Take the client's next token. Raises AuthenticationFailed; then the exchange is over."""


class Mechanism(Protocol):
    """A mechanism with the users that it knows."""

    def begin(self) -> Exchange:
        """A new exchange."""
