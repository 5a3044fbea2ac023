"""Tests the thread of the topics' logs: its order, its handing over of results together, and its end."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.log.topics.log import Written
from tests.log.topics.caller import Caller, part
from tests.log.topics.test_log import expected, values
from tests.support.patience import WITHIN_S


def test_there_is_no_thread_before_the_first_call(tmp_path: Path) -> None:
    """There is no thread and no file before the first call."""
    before = threading.active_count()
    caller = Caller(tmp_path)
    caller.logs.close()
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_calls_see_what_was_appended_before_them(caller: Caller) -> None:
    """A call sees the appends before it, and none behind it."""
    caller.append(part(), 0, 1)
    found: list[Any] = []
    caller.logs.call(lambda: values(caller.logs.log(part())), found.append)
    caller.append(part(), 2)
    assert caller.values(part()) == expected(3)
    assert found == [expected(2)]
    assert caller.outcomes == [Written(number, -1, 0) for number in range(3)]


def test_outcomes_do_not_wait_for_work_that_takes_long(tmp_path: Path) -> None:
    """The thread hands over slow calls' outcomes one by one, each before the next call, and fast calls' together."""
    for step_s, hops in ((0.0, 1), (1.0, 3)):
        now_s = 0.0

        def tick(step_s: float = step_s) -> float:
            nonlocal now_s
            now_s += step_s
            return now_s

        caller = Caller(tmp_path, now_s=tick)
        resume = threading.Event()
        caller.logs.call(partial(resume.wait, WITHIN_S), lambda _: None)
        caller.append(part(), 0)
        caller.append(part(number=1), 0)
        caller.logs.call(lambda: None, lambda _: None)
        resume.set()
        caller.logs.close()
        assert caller.hops.qsize() in {hops + 1, hops}
        shutil.rmtree(tmp_path / "orders-0")
        shutil.rmtree(tmp_path / "orders-1")


def test_who_raises_hurts_nobody(caller: Caller) -> None:
    """A call that raises gives its exception to its caller; other calls go on."""
    error = ValueError("mine")

    def fail() -> None:
        raise error

    assert caller.ask(fail) is error
    caller.append(part(), 0)
    assert caller.values(part()) == expected(1)


def test_close_does_what_was_asked_for(caller: Caller, tmp_path: Path) -> None:
    """All appends are durable when close returns."""
    caller.append(part(), *range(10))
    caller.logs.close()
    assert Caller(tmp_path).values(part()) == expected(10)


def test_the_end_of_the_thread_is_reported(tmp_path: Path) -> None:
    """The thread reports any exception that ends it, because nobody gets an answer after it."""

    def end() -> None:
        raise SystemExit("of a bug")

    caller = Caller(tmp_path)
    caller.logs.call(end, lambda _: None)
    assert "of a bug" in caller.died.get(timeout=WITHIN_S)
    caller.logs.close()
