"""Work that goes on beside a test: `with polled(lambda: consumer.poll(0.1)): ...`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def polled(poll: Callable[[], Any], pause_s: float = 0.0) -> Iterator[None]:
    """Call `poll` again and again on a thread of its own, with a pause before each call, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_s):
            poll()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
