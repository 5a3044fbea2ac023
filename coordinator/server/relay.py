"""Questions between the nodes of one server: their supervisor carries them, and the answers back.

`Peers` is how a node sees the others, `Relay` stands between them. Questions and answers are plain JSON values.

A question gets one answer. The answer is None if the asked node does not run, or ends before it answers. By then it has
done what the question wants, or never will: a question that is asked again meets no late copy of itself. The answer to
a node that has ended meanwhile is dropped.

Questions of one node to another one arrive in their order, and so do a node's answers and questions to another node.

House rule: no question is given up because of its age; a node that hangs is ended (liveness.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from coordinator.server.channel import Kind

if TYPE_CHECKING:
    from coordinator.server.shared_topics import Peer, Send

P = TypeVar("P", bound="Peer")

OnAsked = Callable[[Any, Callable[[Any], None]], None]
"""Gets a question of another node, and a function that takes the answer, once."""


class Peers(Protocol):
    """The other nodes. on_asked: answers their questions."""

    on_asked: OnAsked

    def ask(self, node_id: int, question: Any, done: Callable[[Any], None]) -> None:
        """Ask a node; `done` gets its answer, or None (see the module)."""


def unanswered(_question: Any, answer: Callable[[Any], None]) -> None:
    """Answer as a node that doesn't run."""
    answer(None)


class _Open(NamedTuple, Generic[P]):
    """A question without an answer. channel, number: of the asker's process, and its number of the question."""

    asker: P
    channel: object
    number: int
    asked: P


class Relay(Generic[P]):
    """See the module. send: see `Send`."""

    def __init__(self, send: Send[P]) -> None:
        self._send = send
        self._open: dict[int, _Open[P]] = {}
        self._last_number = 0

    def ask(self, asker: P, number: int, asked: P, question: Any) -> None:
        """Carry a question of `asker`, which has given it this number."""
        each = _Open(asker, asker.channel, number, asked)
        if asked.channel is None:
            self._answer(each, None)
            return
        self._last_number += 1
        self._open[self._last_number] = each
        self._send(asked, Kind.ASKED, {"number": self._last_number, "question": question})

    def answered(self, number: int, answer: Any) -> None:
        """Carry the answer to the question that got this number here."""
        self._answer(self._open.pop(number), answer)

    def forget(self, node: P) -> None:
        """A node's process has ended: each question to it gets None."""
        for number in [number for number, each in self._open.items() if each.asked is node]:
            self.answered(number, None)

    def _answer(self, each: _Open[P], answer: Any) -> None:
        if each.asker.channel is each.channel:
            self._send(each.asker, Kind.ANSWERED, {"number": each.number, "answer": answer})
