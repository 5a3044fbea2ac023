"""An open request: its answer, and an answer that is made of several parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.loop.pace import Pace
from coordinator.server.telemetry.measures import Measures
from coordinator.server.wire.call import Answer, Answers, Call, Steps, outcome_of, ring, short
from coordinator.server.wire.long_calls import LongCalls
from coordinator.server.wire.throttle import Meter, Throttle
from protocol.messages import HeartbeatResponse, LeaveGroupResponse
from tests.server.harness import ManualClock, Sender, config_of, endless_calls


def call_of(long: LongCalls | None = None) -> Call:
    """The call of a Heartbeat."""
    return Call(12, 0, 1, "c", Sender(), lambda *_: None, long or endless_calls())


class Turns:
    """A loop with a pace, whose turns the test calls. did: the steps of each turn so far; each takes 1 ms."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.next: list[Callable[[], None]] = []
        self.pace = Pace(self.clock, self.next.append)
        self.did: list[int] = []

    def steps(self, count: int, then: Callable[[], None]) -> Steps:
        """So many steps, and `then` at the end."""
        for _ in range(count):
            self.did[-1:] = [self.did[-1] + 1]
            self.clock.advance(1)
            yield
        then()

    def turn(self) -> None:
        """Call back what waits for the next turn."""
        now, self.next[:] = list(self.next), []
        self.did.append(0)
        for callback in now:
            callback()


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


def test_what_goes_wrong_behind_an_answer_reaches_the_connection_and_not_who_delivers() -> None:
    """`take` raises an exception of steps that ended at once; that of later ones is sent in place of the answer."""
    answers = [Answer(), Answer()]

    @short
    def fail(_: Call, answer: Answer) -> Steps:
        yield answer
        raise KeyError("ours")

    at_once, later = call_of(), call_of()
    answers[0].deliver("body")
    fail(at_once, answers[0])
    with pytest.raises(KeyError):
        at_once.take(lambda _: None)
    sent: list[Any] = []
    fail(later, answers[1])
    later.take(sent.append)
    answers[1].deliver("body")
    assert [type(outcome) for outcome in sent] == [KeyError]


def test_a_wait_ends_as_the_call_says() -> None:
    """`ring` calls the function that the handler left in `on_wait`."""
    rung: list[str] = []
    call = call_of()
    call.on_wait = lambda: rung.append("now")
    ring(call)
    assert rung == ["now"]


@pytest.mark.parametrize("begin", [Call.work, Call.do])
def test_steps_wait_for_all_answers_and_get_them_in_order(begin: Callable[[Call, Steps], None]) -> None:
    """They go on when the last one comes, or at once if all are there; an outcome is one answer."""
    got: list[Any] = []
    call = call_of()
    answers = Answers(2)
    first, second = answers

    def steps(of: Answers) -> Steps:
        yield of
        got.append(of.found)
        got.append((yield from outcome_of(lambda what, done: done(f"{what} done"), "all")))

    begin(call, steps(answers))
    second.deliver("b")
    assert got == []
    first.deliver("a")
    assert got == [["a", "b"], "all done"]
    begin(call, steps(Answers(0)))
    assert got[2:] == [[], "all done"]


@pytest.mark.parametrize("is_kept", [False, True])
def test_only_a_call_that_is_kept_goes_on_without_its_client(*, is_kept: bool) -> None:
    """If the connection closes while the steps wait, the last answer ends them; a change is carried out."""
    got: list[Any] = []
    call = call_of()
    call.is_kept = is_kept
    answer = Answer()

    def steps() -> Steps:
        try:
            yield answer
            got.extend(answer.found)
        finally:
            got.append("ended")

    call.work(steps())
    call.close()
    answer.deliver("a")
    assert got == (["a", "ended"] if is_kept else ["ended"])


def test_work_pauses_when_the_turn_has_no_time() -> None:
    """Each turn does some steps, further turns do the rest, and the answer comes with the last step."""
    turns, sent = Turns(), list[Any]()
    call = call_of(LongCalls(turns.pace, config_of()))
    turns.did.append(0)
    call.work(turns.steps(20, lambda: call.answer(HeartbeatResponse())))
    assert call.take(sent.append) is None
    assert 0 < turns.did[0] < 5
    while turns.next:
        turns.turn()
    assert sum(turns.did) == 20
    assert max(turns.did) < 5
    assert len(sent) == 1


def test_only_who_began_to_measure_ends_it() -> None:
    """A handler's steps may be a part of a dispatch that is measured: its meter goes on behind them."""
    turns = Turns()
    turns.did.append(0)
    throttle = Throttle(config_of(), turns.clock.ms, lambda: turns.clock.ms() * 1_000_000, Measures())
    call = call_of(LongCalls(turns.pace, config_of()))
    call.meter = meter = Meter(throttle, {}, "User:a", 12, 100)
    assert meter.begin()
    call.work(turns.steps(1, lambda: None))
    assert not meter.begin(), "it was ended"
    meter.end()
    call.work(turns.steps(1, lambda: None))
    assert meter.begin(), "nobody ended it"


def test_a_closed_connection_ends_work() -> None:
    """The generator is closed before its next step; nothing is answered and nothing raised."""
    turns, sent, ends = Turns(), list[Any](), list[str]()
    call = call_of(LongCalls(turns.pace, config_of()))
    turns.did.append(0)

    def steps() -> Steps:
        try:
            yield from turns.steps(20, lambda: ends.append("done"))
        finally:
            ends.append("ended")

    call.work(steps())
    assert call.take(sent.append) is None
    call.close()
    before = sum(turns.did)
    while turns.next:
        turns.turn()
    assert (sum(turns.did) - before, ends, sent) == (0, ["ended"], [])


def test_nobody_builds_the_answer_to_a_request_that_is_kept_when_its_client_is_gone() -> None:
    """What it changes is carried out to the end; the steps that encode its answer end with the connection."""
    turns, ends = Turns(), list[int]()
    call = call_of(LongCalls(turns.pace, config_of()))
    call.api_key, call.api_version = LeaveGroupResponse.API_KEY or 0, 3
    call.in_steps = call.is_kept = True
    body = LeaveGroupResponse(members=[LeaveGroupResponse.MemberResponse() for _ in range(100)])
    turns.did.append(0)
    call.answered = lambda *_: ends.append(sum(turns.did))
    call.work(turns.steps(20, lambda: call.answer(body)))
    assert call.take(lambda _: None) is None
    call.close()
    while turns.next:
        turns.turn()
    assert (sum(turns.did), ends) == (20, [])


def test_an_answer_that_is_never_sent_gives_back_its_memory() -> None:
    """`on_sent` is called once if the connection closes while the answer is being encoded."""
    turns, given = Turns(), list[str]()
    call = call_of(LongCalls(turns.pace, config_of()))
    turns.did.append(0)
    call.on_sent = lambda: given.append("back")
    call.work(turns.steps(20, lambda: call.answer(HeartbeatResponse())))
    assert call.take(lambda _: None) is None
    call.close()
    while turns.next:
        turns.turn()
    assert given == ["back"]


def test_an_error_in_a_later_turn_reaches_the_connection() -> None:
    """`send` gets the exception of a step; the turn goes on with other work."""
    turns, sent, others = Turns(), list[Any](), list[str]()
    call = call_of(LongCalls(turns.pace, config_of()))
    turns.did.append(0)

    def fail() -> None:
        raise KeyError("ours")

    call.work(turns.steps(5, fail))
    assert call.take(sent.append) is None
    turns.pace.later(lambda: others.append("done"))
    while turns.next:
        turns.turn()
    assert [type(outcome) for outcome in sent] == [KeyError]
    assert others == ["done"]
