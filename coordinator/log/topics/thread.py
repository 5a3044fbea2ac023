"""The thread of the topics' logs: it takes calls from a queue, and hands their results over.

    queue -> all calls that are queued -> appends, log by log: checks, one write, one fdatasync
                                       -> other calls, between the appends before and behind them
          -> results are handed over after HAND_OVER_AFTER_S, and when all of these calls are done

The engine of the groups has another thread, so clients that read or write many records don't hold up the groups. This
thread starts with the first call.

House rule: each caller gets a value or an Exception, in the order of the calls; nothing raises on this thread.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.log.compaction.cleaner import call_on
from coordinator.log.topics.partition import TopicPartition

WINDOW_MAX = 256
"""Calls that are taken from the queue at once; each may be an append of a megabyte."""

HAND_OVER_AFTER_S = 0.001
"""How long a result waits for others, about: to wake the loop costs as much as a few calls."""

Done = Callable[[Any], None]
"""Called with a result, on the caller's thread."""

Result = tuple[Done, Any]
"""A callback, and the value or Exception that it is to be called with."""


class Append(NamedTuple):
    """A batch to append: the one at the start of `data`. is_v2: see Producers.check."""

    partition: TopicPartition
    data: bytes
    now_ms: int
    done: Done
    is_v2: bool = False


class _Call(NamedTuple):
    function: Callable[[], Any]
    done: Done


class LogThread:
    """See the module.

    append: appends to one log, on the thread; returns a result for each append, and raises nothing.
    begin, end: called on the thread, first and last.
    hand_over: takes results, and has each `done` called with its value, in this order, on the callers' own thread.
    died: called with a traceback if a mistake of ours ends the thread; no call gets a result after that.
    """

    def __init__(
        self,
        append: Callable[[list[Append]], Sequence[Any]],
        begin: Callable[[], None],
        end: Callable[[], None],
        hand_over: Callable[[list[Result]], object],
        died: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._append = append
        self._begin = begin
        self._end = end
        self._hand_over = hand_over
        self._died = died
        self._now_s = now_s
        self._queue: SimpleQueue[Append | _Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Below: touched by the thread only.
        self._results: list[Result] = []
        self._handed_over_s = 0.0

    # On any thread, one call at a time.

    def append(self, partition: TopicPartition, data: bytes, now_ms: int, done: Done, *, is_v2: bool = False) -> None:
        """Append the batch at the start of `data` behind all that was called before; `done` gets its result.

        is_v2: see Producers.check.
        """
        self._put(Append(partition, data, now_ms, done, is_v2))

    def call(self, function: Callable[[], Any], done: Done) -> None:
        """Call `function` on the thread; `done` gets its result or its error."""
        self._put(_Call(function, done))

    def call_and_wait(self, call: Callable[[], object]) -> object:
        """Call on the thread, which has started, in the order of the queue; None if the thread has ended.

        Any thread but this one may wait like this, at the same time as others.
        """
        assert self._thread is not None
        return call_on(self._thread, lambda queued: self._queue.put(_Call(queued, forget)), call)

    def close(self) -> None:
        """Run all queued calls, and end; returns when the thread has ended."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _put(self, call: Append | _Call) -> None:
        self._queue.put(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="topics", daemon=True)
            self._thread.start()

    # On the thread.

    def _run(self) -> None:
        try:
            self._begin()
            self._serve()
        except BaseException:  # noqa: BLE001 - nobody else would learn of it
            with suppress(RuntimeError):  # the loop has ended as well
                self._died(traceback.format_exc())
        self._end()

    def _serve(self) -> None:
        while True:
            calls = [self._queue.get()]
            with suppress(Empty):
                while len(calls) < WINDOW_MAX:
                    calls.append(self._queue.get_nowait())
            self._work([call for call in calls if call is not None])
            if None in calls:
                break

    def _work(self, calls: list[Append | _Call]) -> None:
        self._handed_over_s = self._now_s()
        window: dict[tuple[UUID, int], list[Append]] = {}
        for call in calls:
            if isinstance(call, Append):
                window.setdefault(call.partition.key, []).append(call)
                continue
            self._write(window)
            window = {}
            try:
                result = call.function()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result = error
            self._results.append((call.done, result))
            self._hand_over_if_due()
        self._write(window)
        self._hand_over_all()

    def _write(self, window: dict[tuple[UUID, int], list[Append]]) -> None:
        for appends in window.values():
            for append, result in zip(appends, self._append(appends), strict=True):
                self._results.append((append.done, result))
            self._hand_over_if_due()

    def _hand_over_if_due(self) -> None:
        if self._now_s() - self._handed_over_s >= HAND_OVER_AFTER_S:
            self._hand_over_all()

    def _hand_over_all(self) -> None:
        results, self._results = self._results, []
        if results:
            self._hand_over(results)
        self._handed_over_s = self._now_s()


def forget(_result: object) -> None:
    """A callback for a call whose result nobody needs."""
