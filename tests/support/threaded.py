"""A server in a thread of the test's process, for clients whose calls block.

    with Threaded(faults=faults) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, ...})
        server.call(faults.add, plan.move("workers"))

House rule: the test's thread touches the server through `call` alone.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import uvloop

from coordinator.config import Config
from coordinator.server.app import Server
from coordinator.server.faults.faults import Faults
from tests.server.harness import config_of, memory
from tests.support.patience import WITHIN_S
from tests.support.started import Closes

Found = TypeVar("Found")

PAUSE_S = 0.005
"""Between two looks for something that happens on the other thread."""


class Threaded(Closes):
    """See the module. The engine is in memory. make: makes the server on its loop, from the settings."""

    def __init__(
        self,
        *settings: str,
        faults: Faults | None = None,
        make: Callable[[Config, io.StringIO], Server] | None = None,
    ) -> None:
        self._settings = settings
        self._config = config_of(*settings)
        self._make = make or (lambda config, log: Server(config, opened=memory(config), log=log, faults=faults))
        self._log = io.StringIO()
        # As in the program; and a connection that comes as the server stops is closed with the loop.
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self.server: Server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for(self._start)
        return self

    async def _start(self) -> None:
        self.server = self._make(self._config, self._log)
        await self.server.start()
        await self.server.loaded.wait()

    def close(self) -> None:
        """Stop the server and its thread."""
        self.wait_for(self.server.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def restart(self) -> None:
        """End the server as if its process were killed, and start another on its port, with the same settings."""
        self._config = config_of(*self._settings, f"listeners=PLAINTEXT://{self.bootstrap}")
        self.wait_for(self._kill)
        self.wait_for(self._start)

    async def _kill(self) -> None:
        self.server.connections.stop()
        self.server.connections.abort()
        await self.server.stop()

    def wait_for(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine on the server's loop, to its end."""
        asyncio.run_coroutine_threadsafe(function(), self._loop).result(WITHIN_S)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        host, port = self.server.address
        return f"{host}:{port}"

    def call(self, function: Callable[..., Found], *arguments: Any) -> Found:
        """Call a function on the server's loop."""

        async def call() -> Found:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(WITHIN_S)

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of this name with these fields."""
        lines = [json.loads(line) for line in self.call(self._log.getvalue).splitlines()]
        return [line for line in lines if line["event"] == name and fields.items() <= line.items()]


def until(condition: Callable[[], Found | None], then: Callable[[], object] = lambda: None) -> Found:
    """The first result of `condition` that is true. then: called between two tries; by default a short pause."""
    end_s = time.monotonic() + WITHIN_S
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end_s
        then()
        pause.wait(PAUSE_S)
    return found
