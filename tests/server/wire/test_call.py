"""An open request: its answer, and an answer that is made of several parts."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.client import Client
from coordinator.server.wire.call import Call, gather, ring
from protocol.messages import HeartbeatResponse
from tests.server.harness import endless_pace


def call_of() -> Call:
    """The call of a Heartbeat."""
    return Call(12, 0, 1, Client("c", "/h"), "PLAINTEXT", "127.0.0.1", lambda _: None, lambda *_: None, endless_pace())


def test_an_answer_at_once_is_taken_and_one_later_is_sent() -> None:
    """The answer's bytes are handed over once, whether the answer or the connection comes first."""
    sent: list[Any] = []
    at_once = call_of()
    at_once.answer(HeartbeatResponse())
    assert at_once.take(sent.append) is not None
    assert sent == []
    later = call_of()
    assert later.take(sent.append) is None
    later.answer(HeartbeatResponse())
    assert sent == [at_once.take(sent.append)]


def test_an_answer_to_a_closed_connection_goes_nowhere() -> None:
    """`on_closed` is called, so that the handler can clean up."""
    sent: list[Any] = []
    closed: list[str] = []
    call = call_of()
    call.take(sent.append)
    call.on_closed = lambda: closed.append("closed")
    call.close()
    call.answer(HeartbeatResponse())
    assert (sent, closed) == ([], ["closed"])


def test_a_call_is_answered_once() -> None:
    """A second answer is a bug, so it fails an assertion."""
    call = call_of()
    call.answer(HeartbeatResponse())
    with pytest.raises(AssertionError):
        call.answer(HeartbeatResponse())


def test_what_goes_wrong_in_a_reply_reaches_the_connection_and_not_who_delivers() -> None:
    """`take` raises an exception of an answer at once; for a later answer the exception is sent in its place."""

    def fail(_: object) -> None:
        raise KeyError("ours")

    at_once = call_of()
    at_once.reply(fail).deliver("body")
    with pytest.raises(KeyError):
        at_once.take(lambda _: None)
    sent: list[Any] = []
    later = call_of()
    later.take(sent.append)
    later.reply(fail).deliver("body")
    assert [type(outcome) for outcome in sent] == [KeyError]


def test_a_wait_ends_as_the_call_says() -> None:
    """`ring` calls the function that the handler left in `on_wait`."""
    rung: list[str] = []
    call = call_of()
    call.on_wait = lambda: rung.append("now")
    ring(call)
    assert rung == ["now"]


def test_gather_hands_on_everything_in_order_once_it_is_there() -> None:
    """The parts may come in any order; without any part the result is an empty list at once."""
    got: list[list[Any]] = []
    first, second, third = gather(3, got.append)
    third("c")
    first("a")
    assert got == []
    second("b")
    assert got == [["a", "b", "c"]]
    assert not list(gather(0, got.append))
    assert got[-1] == []
