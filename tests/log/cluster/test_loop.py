"""Tests the engine's thread."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from threading import get_ident

from coordinator.log.cluster.loop import Loop
from tests.support.patience import WITHIN_S


def test_calls_and_timers_run_on_one_thread_in_their_order() -> None:
    """Timers when they are due, and not if they were prevented."""
    loop, told = Loop("test"), SimpleQueue[tuple[str, int]]()

    def tell(what: str) -> None:
        told.put((what, get_ident()))

    def begin() -> None:
        tell("begin")
        loop.later(30, lambda: tell("last"))
        loop.later(1, lambda: tell("first"))
        loop.later(10, lambda: tell("never"))()

    loop.start()
    loop.call(begin)
    found = [told.get(timeout=WITHIN_S) for _ in range(3)]
    assert [what for what, _ in found] == ["begin", "first", "last"]
    assert len({thread for _, thread in found} - {get_ident()}) == 1
    assert loop.end(WITHIN_S)
    assert told.empty()


def test_a_call_that_raises_ends_nothing() -> None:
    """It is reported with its trace."""
    traces, told = SimpleQueue[str](), SimpleQueue[bool]()
    loop = Loop("test", traces.put)
    loop.start()
    loop.call(partial(list[None]().pop))
    loop.call(lambda: told.put(True))
    assert told.get(timeout=WITHIN_S)
    assert "IndexError" in traces.get(timeout=WITHIN_S)
    assert loop.end(WITHIN_S)
