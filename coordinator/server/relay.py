"""Questions between the nodes of one server: their supervisor carries them, and the answers back.

`Link` is a node's end of the way, `Relay` the supervisor's. Questions and answers are plain JSON values. The changes of
the list of topics take the same way (shared_topics.py).

A question gets one answer. The answer is None if the asked node does not run, or ends before it answers. By then it has
done what the question wants, or never will: a question that is asked again meets no late copy of itself. The answer to
a node that has ended meanwhile is dropped.

Questions of one node to another one arrive in their order, and so do a node's answers and questions to another node.

House rule: no question is given up because of its age; a node that hangs is ended (liveness.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from coordinator.log.engine import Unavailable
from coordinator.log.topics.list import Topic
from coordinator.server.channel import Kind
from coordinator.server.nodes.topics import Change, ChangeDone, Topics

if TYPE_CHECKING:
    from coordinator.server.shared_topics import Peer, Send

P = TypeVar("P", bound="Peer")

OnAsked = Callable[[Any, Callable[[Any], None]], None]
"""Gets a question of another node, and a function that takes the answer, once."""


def unanswered(_question: Any, answer: Callable[[Any], None]) -> None:
    """Answer as a node that doesn't run."""
    answer(None)


class Link(ABC):
    """A node's end. topics: its copy of the list. on_asked: answers other nodes.

    gone: what an asked change gets if the supervisor, or this node's run, is over. A subclass is the way itself.
    """

    def __init__(self, topics: Iterable[Topic], gone: str) -> None:
        self.topics = Topics({topic.name: topic for topic in topics}, self._change, is_shared=True)
        self.on_asked: OnAsked = unanswered
        self._gone = Unavailable(gone)
        self._asked = 0
        self._waiting: dict[int, tuple[Callable[[Any], None], Any]] = {}
        """By number: takes the result of what the node asked for, and the result if none comes."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether messages still go anywhere."""

    @abstractmethod
    def send(self, kind: Kind, **fields: Any) -> None:
        """Send a message to the supervisor."""

    def ask(self, node_id: int, question: Any, done: Callable[[Any], None]) -> None:
        """Ask a node; `done` gets its answer, or None (see the module)."""
        self._begin(Kind.ASK, done, None, node=node_id, question=question)

    def _change(self, change: Change, done: ChangeDone) -> None:
        self._begin(Kind.CHANGE_REQUEST, done, self._gone, change=change)

    def _begin(self, kind: Kind, done: Callable[[Any], None], otherwise: Any, **fields: Any) -> None:
        if not self.is_open:
            done(otherwise)
            return
        self._asked += 1
        self._waiting[self._asked] = done, otherwise
        self.send(kind, number=self._asked, **fields)

    def _say(self, kind: Kind, **fields: Any) -> None:
        if self.is_open:
            self.send(kind, **fields)

    def receive(self, kind: str, message: Mapping[str, Any]) -> None:
        """Take a message that is about a change, a question or an answer."""
        number = message["number"]
        if kind == Kind.APPLY:
            self.topics.apply(message["change"], partial(self._say, Kind.APPLIED, number=number))
        elif kind == Kind.ASKED:
            self.on_asked(message["question"], lambda answer: self._say(Kind.ANSWER, number=number, answer=answer))
        else:
            done, _ = self._waiting.pop(number)
            if kind == Kind.ANSWERED:
                done(message["answer"])
            else:
                assert kind == Kind.CHANGE_RESULT
                done(Unavailable(message["error"]) if message["error"] else message["taken"])

    def give_up(self) -> None:
        """End the wait for results."""
        waiting, self._waiting = self._waiting, {}
        for done, otherwise in waiting.values():
            done(otherwise)


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
