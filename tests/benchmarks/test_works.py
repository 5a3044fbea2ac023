"""Scripts of the works, driven by hand."""

from math import inf

import pytest

from benchmarks import frames
from benchmarks.driver import clock
from benchmarks.works import heartbeats

HALVES = (b"before", b"behind")


def answered(request: bytes | float) -> bytes:
    """A server's answer to a heartbeat."""
    assert isinstance(request, bytes)
    correlation_id = request.removeprefix(HALVES[0]).removesuffix(HALVES[1])
    return bytes(4) + correlation_id + frames.HEARTBEAT_DONE


def test_heartbeats_end_with_the_first_that_is_sent_too_late() -> None:
    """So each turn has an end, and nothing under way when the next begins."""
    took: list[float] = []
    script = heartbeats([HALVES], took, until=0.0)
    with pytest.raises(StopIteration):
        script.send(answered(next(script)))
    assert len(took) == 1


def test_heartbeats_go_on_until_then() -> None:
    """And each is counted."""
    took: list[float] = []
    script = heartbeats([HALVES], took, until=inf)
    request = next(script)
    for _ in range(10):
        request = script.send(answered(request))
    assert len(took) == 10


def test_heartbeats_that_are_paced_wait_for_their_time() -> None:
    """Which goes on from the first one's, however late an answer is."""
    script = heartbeats([HALVES], [], due=5.0, pause_s=0.5, until=clock() + 60)
    assert next(script) == 5.0
    assert script.send(answered(next(script))) == 5.5
