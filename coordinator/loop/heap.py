"""glibc's heap: which memory it keeps for the next requests, and when it gives the rest back to the system.

A large answer consists of many small pieces. After the answer each piece is free, but other objects between the pieces
stay in use, and glibc gives back only the heap's end. So the process would keep hundreds of megabytes of free pages.

Once a minute a thread asks how much of the heap is free. If much is free, the thread lets glibc give back every free
page. Meanwhile it holds the heap's lock but no lock of Python's: the loop runs until it needs a piece of an
unusual size.

House rule: other C libraries than glibc are left alone.
"""

from __future__ import annotations

import ctypes
from threading import Thread

from coordinator.loop import cycles
from coordinator.loop.clock import Clock, Handle

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
HEAP_BYTES = 4 * 1024 * 1024
"""glibc's heap holds what is smaller than this; larger pieces get pages of their own (mallopt(3)).

The heap gives its end back to the system only if twice as much is free there. The records of a group of 500, written
together, pass glibc's own limit; getting the pages again would be a fifth of the cost of a restart. Without this
setting, glibc also raises the size, in time to 32 MB: a large frame that grows would then move once, in one turn.
"""

FREE_BYTES = 8 * HEAP_BYTES
"""So much of the heap may be free and keep its pages."""

REST_MS = 60_000
"""The time between two looks at the heap. To give back 240 MB takes 33 ms of CPU."""

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Info(ctypes.Structure):
    """glibc's struct mallinfo2 (mallinfo(3)). fordblks: free bytes of the heap."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


_library = ctypes.CDLL(None)
_mallopt, _mallinfo, _malloc_trim = (getattr(_library, name, None) for name in ("mallopt", "mallinfo2", "malloc_trim"))
if _mallinfo is not None:
    _mallinfo.restype = _Info


def settle() -> None:
    """Keep the memory of a finished load: the collector skips it, and glibc keeps pages that requests need again."""
    cycles.settle()
    if _mallopt is not None:
        _mallopt(M_MMAP_THRESHOLD, HEAP_BYTES)
        _mallopt(M_TRIM_THRESHOLD, 2 * HEAP_BYTES)


def give_back() -> None:
    """Give all free pages of the heap back to the system, if they are many."""
    if _mallinfo is not None and _malloc_trim is not None and _mallinfo().fordblks > FREE_BYTES:
        _malloc_trim(0)


class Trims:
    """Looks at the heap once in REST_MS, on a thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rest()

    def end(self) -> None:
        """Don't look again."""
        self._handle.cancel()

    def _rest(self) -> None:
        self._handle: Handle = self._clock.call_at(self._clock.ms() + REST_MS, self._look)

    def _look(self) -> None:
        Thread(target=give_back, name="heap", daemon=True).start()
        self._rest()
