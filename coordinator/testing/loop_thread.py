"""A thread with an event loop of its own, which other threads give work to.

House rule: the thread ends with its loop, and so do the threads that the loop made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Event, Thread
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")

GUARD_PAUSE_S = 0.01
"""The pause between two calls of a guard."""

ANSWER_WITHIN_S = 60.0
"""How long a caller waits for the loop; it answers in less than a millisecond unless the machine stands still."""


class LoopThread:
    """A running loop. It ends with `end`."""

    def __init__(self, name: str) -> None:
        self._begun = Event()
        self._loop: asyncio.AbstractEventLoop
        # A test run that is interrupted must not wait for a server that nobody stops.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._begun.wait()

    def run(self, work: Coroutine[Any, Any, Result], guard: Callable[[], None] | None = None) -> Result:
        """Run a coroutine on the loop, and wait for its result.

        guard: called again and again meanwhile; an exception of it cancels the coroutine, and is raised.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while guard is not None and wait([future], GUARD_PAUSE_S).not_done:
                guard()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def call(self, begin: Callable[[Future[Result]], object]) -> Result:
        """Call `begin` on the loop with a future, and wait until somebody gives it a result.

        Raises TimeoutError after ANSWER_WITHIN_S, RuntimeError if the loop has ended.
        """
        future: Future[Result] = Future()

        def guarded() -> None:
            try:
                begin(future)
            except BaseException as error:  # noqa: BLE001 - it reaches the thread that waits
                future.set_exception(error)

        self._loop.call_soon_threadsafe(guarded)
        try:
            return future.result(ANSWER_WITHIN_S)
        except FutureTimeout:
            raise TimeoutError(f"the server's thread did not answer within {ANSWER_WITHIN_S:g} s") from None

    def do(self, work: Callable[[], Result]) -> Result:
        """Call `work` on the loop, and wait for its result. Raises as `call` does, and whatever `work` raises."""

        def begin(future: Future[Result]) -> None:
            future.set_result(work())

        return self.call(begin)

    def end(self) -> None:
        """End the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._begun.set()
        await self._over.wait()
