"""The heap keeps the pages that requests need again and again, and gives back those of large answers that are over."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading

import pytest

from coordinator.loop import heap
from coordinator.loop.heap import FREE_BYTES, HEAP_BYTES, REST_MS, Trims
from tests.server.harness import ManualClock
from tests.support.patience import WITHIN_S

MB = 1024 * 1024

WRITES_TWICE = """
import resource
from coordinator.loop.heap import settle
settle()
def write():
    values = [b"x" * 100_000 for _ in range(10)]
    del values
write()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
write()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_of_records_that_are_written_together_is_not_got_anew_each_time() -> None:
    """A second write of a megabyte reuses the memory of the first: hardly one of 250 pages is faulted in."""
    done = subprocess.run([sys.executable, "-c", WRITES_TWICE], capture_output=True, check=True)
    assert int(done.stdout) < 50


GROWS = """
import resource
from coordinator.loop.heap import settle
from protocol.connection import FrameReader
settle()
freed = bytearray(b"x" * 30_000_000)  # once, for another request
del freed
reader, piece, most, kept = FrameReader(100_000_000), b"x" * 65_536, 0, []
for part in [(50_000_000).to_bytes(4), *[piece] * 700]:
    kept.append(bytearray(100_000))  # others use the heap meanwhile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    reader.receive_data(part)
    reader.next_frame()
    most = max(most, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(most * resource.getpagesize())
"""


def test_a_large_frame_grows_without_a_move_of_all_of_it() -> None:
    """A piece of a frame takes pages for a few MB at most, also if the process freed a large piece of memory before."""
    done = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, check=True)
    assert int(done.stdout) <= 3 * HEAP_BYTES


DROPS = f"""
import os
from coordinator.loop.heap import FREE_BYTES, give_back
from coordinator.loop.heap import settle
from benchmarks.meter import resident_bytes
settle()
def drop(size):
    before = resident_bytes(os.getpid())
    pieces = [bytes(4_000) for _ in range(size // 4_000)]
    kept = pieces[::100]
    del pieces
    after = resident_bytes(os.getpid())
    give_back()
    print(after - before, resident_bytes(os.getpid()) - before)
    return kept
kept = [drop(size) for size in (FREE_BYTES // 4, {100 * MB})]
"""


def test_free_memory_goes_back_if_it_is_much() -> None:
    """Of 100 MB that are free between pieces that stay, nearly all goes back; a few MB stay for the next requests.

    Other C libraries than glibc decide that themselves.
    """
    done = subprocess.run([sys.executable, "-c", DROPS], capture_output=True, check=True, text=True)
    little, much = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert little[1] >= little[0] > FREE_BYTES // 8
    assert much[0] > 90 * MB or platform.libc_ver()[0] != "glibc"
    assert much[1] < 20 * MB or platform.libc_ver()[0] != "glibc"


def test_the_heap_is_looked_at_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread, until the end."""
    clock, looked = ManualClock(), threading.Semaphore(0)

    def look() -> None:
        assert threading.current_thread() is not threading.main_thread()
        looked.release()

    monkeypatch.setattr(heap, "give_back", look)
    trims = Trims(clock)
    for _ in range(2):
        clock.advance(REST_MS - 1)
        assert not looked.acquire(blocking=False)
        clock.advance(1)
        assert looked.acquire(timeout=WITHIN_S)
    trims.end()
    clock.advance(2 * REST_MS)
    assert not looked.acquire(blocking=False)
