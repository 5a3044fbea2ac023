"""The thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from coordinator.testing.loop_thread import LoopThread
from tests.support.patience import WITHIN_S


async def name_of_thread() -> str:
    """The thread that runs this coroutine."""
    return threading.current_thread().name


def test_work_runs_on_the_thread_and_its_outcome_comes_back() -> None:
    """A coroutine's result, a future's result and each error reach the caller, and the thread ends with `end`."""
    before = set(threading.enumerate())
    thread = LoopThread("of-a-test")
    try:
        assert thread.run(name_of_thread()) == "of-a-test"

        def name(future: Future[str]) -> None:
            future.set_result(threading.current_thread().name)

        assert thread.call(name) == "of-a-test"

        assert thread.do(lambda: threading.current_thread().name) == "of-a-test"

        def fail(_: Future[None]) -> None:
            raise LookupError("nothing")

        with pytest.raises(LookupError, match="nothing"):
            thread.call(fail)
    finally:
        thread.end()
    assert set(threading.enumerate()) == before


def test_a_loop_that_has_ended_takes_no_work() -> None:
    """A call after the end fails at once."""
    thread = LoopThread("of-a-test")
    thread.end()

    def answer(future: Future[None]) -> None:
        future.set_result(None)

    with pytest.raises(RuntimeError):
        thread.call(answer)


def test_a_wait_for_the_loop_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never comes is an error that says how long the caller waited."""
    monkeypatch.setattr("coordinator.testing.loop_thread.ANSWER_WITHIN_S", 0.0)

    def forget(_: Future[None]) -> None:
        """Answer nothing."""

    thread = LoopThread("of-a-test")
    with pytest.raises(TimeoutError, match="did not answer within 0 s"):
        thread.call(forget)
    thread.end()


def test_a_guard_ends_a_coroutine() -> None:
    """An exception of the guard reaches the caller, and the coroutine is cancelled; without one its result comes."""
    thread = LoopThread("of-a-test")
    ended = threading.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    def give_up() -> None:
        raise LookupError("nobody waits")

    with pytest.raises(LookupError, match="nobody waits"):
        thread.run(wait_for_ever(), give_up)
    assert ended.wait(WITHIN_S)
    assert thread.run(name_of_thread(), lambda: None) == "of-a-test"
    thread.end()
