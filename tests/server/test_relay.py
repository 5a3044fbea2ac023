"""Questions between nodes: each gets one answer, whoever ends meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.server.channel import Kind
from coordinator.server.relay import Relay


class Node:
    """A node: the messages to it, and the identity of its process."""

    def __init__(self) -> None:
        self.channel: object | None = object()
        self.sent: list[tuple[str, Mapping[str, Any]]] = []


class Relayed:
    """Two nodes; the first asks."""

    def __init__(self) -> None:
        self.first, self.second = Node(), Node()
        self.relay: Relay[Node] = Relay(self.send)

    def send(self, node: Node, kind: str, fields: Mapping[str, Any]) -> None:
        """Keep the message; see `Send`."""
        node.sent.append((kind, fields))

    def ask(self, number: int) -> None:
        """Ask as the first node."""
        self.relay.ask(self.first, number, self.second, "how?")

    def end(self, node: Node) -> None:
        """The process of a node ends."""
        node.channel = None
        self.relay.forget(node)


def test_a_question_gets_its_answer() -> None:
    """Answers may come in another order; each has the number that the asker gave to its question."""
    two = Relayed()
    for number in (7, 9):
        two.ask(number)
    assert two.second.sent == [(Kind.ASKED, {"number": number, "question": "how?"}) for number in (1, 2)]
    two.relay.answered(2, "so")
    two.relay.answered(1, False)
    assert two.first.sent == [
        (Kind.ANSWERED, {"number": 9, "answer": "so"}),
        (Kind.ANSWERED, {"number": 7, "answer": False}),
    ]


def test_a_node_that_ends_answers_nothing() -> None:
    """Its questions get None: those that it has, and further ones until it runs again."""
    two = Relayed()
    two.ask(7)
    two.end(two.second)
    two.ask(8)
    assert two.first.sent == [(Kind.ANSWERED, {"number": number, "answer": None}) for number in (7, 8)]
    assert len(two.second.sent) == 1


def test_an_answer_is_for_the_process_that_asked() -> None:
    """The next process of the asker numbers its questions anew, and gets no answer of the former one."""
    two = Relayed()
    two.ask(1)
    two.end(two.first)
    two.first.channel = object()
    two.ask(1)
    two.relay.answered(1, "to the former one")
    two.relay.answered(2, "to this one")
    assert two.first.sent == [(Kind.ANSWERED, {"number": 1, "answer": "to this one"})]
