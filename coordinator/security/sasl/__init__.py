"""SASL: a dialogue for each mechanism. Bytes in; bytes out, and in the end the user, or a failure.

    exchange = Exchange(mechanism)
    step = exchange.step(token)      # until step.user is not None; raises AuthenticationFailed

A mechanism is a generator: it gets the client's tokens, and yields the answer to each; before the first token it yields
NOTHING. It returns the last answer, so that nothing keeps a password that came.

House rule: the text of `AuthenticationFailed` is for the server's log and holds no secret. A client sees `told` alone,
which says the same whether the user exists or not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

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


NOTHING = Step(b"")

Dialogue = Generator[Step, bytes, Step]


Mechanism = Callable[[], Dialogue]
"""A mechanism with the users that it knows: begins a dialogue."""


class Exchange:
    """One authentication of one client."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._dialogue = mechanism()
        next(self._dialogue)

    def step(self, token: bytes) -> Step:
        """Take the client's next token. Raises AuthenticationFailed; then the exchange is over."""
        try:
            return self._dialogue.send(token)
        except StopIteration as end:
            last: Step | None = end.value
        if last is None:
            raise AuthenticationFailed("the exchange is over")
        return last
