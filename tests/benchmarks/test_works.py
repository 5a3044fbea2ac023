"""The parts of the works, driven by hand."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import frames
from benchmarks.driver import clock
from benchmarks.members import UnexpectedAnswer
from benchmarks.meter import Meter
from benchmarks.works import heartbeats, scraped, steady
from tests.support.ports import refusing_port

HALVES = (b"before", b"behind")


def answered(request: bytes | float) -> bytes:
    """A server's answer to a heartbeat."""
    assert isinstance(request, bytes)
    correlation_id = request.removeprefix(HALVES[0]).removesuffix(HALVES[1])
    return bytes(4) + correlation_id + frames.HEARTBEAT_DONE


def test_heartbeats_end_with_the_first_that_is_sent_too_late() -> None:
    """A turn has an end, and no heartbeat is open when the next turn begins."""
    took: list[float] = []
    script = heartbeats([HALVES], took, until=0.0)
    with pytest.raises(StopIteration):
        script.send(answered(next(script)))
    assert len(took) == 1


def test_heartbeats_go_on_until_then() -> None:
    """Heartbeats go on until the turn's end, and each one is counted."""
    took: list[float] = []
    script = heartbeats([HALVES], took, until=inf)
    request = next(script)
    for _ in range(10):
        request = script.send(answered(request))
    assert len(took) == 10


def test_heartbeats_that_are_paced_wait_for_their_time() -> None:
    """Their times count from the first heartbeat's, even if an answer is late."""
    script = heartbeats([HALVES], [], due=5.0, pause_s=0.5, until=clock() + 60)
    assert next(script) == 5.0
    assert script.send(answered(next(script))) == 5.5


class Late:
    """A driver whose first answers come in its fourth run."""

    def __init__(self, took: list[float]) -> None:
        self.took = took
        self.runs = 0

    def run(self, _: float) -> None:
        self.runs += 1
        if self.runs == 4:
            self.took += [0.1, 0.3]


def test_a_run_lasts_until_its_first_answer(tmp_path: Path) -> None:
    """On a machine with other work the time may be over before."""
    took: list[float] = []
    bench = SimpleNamespace(meter=Meter(os.getpid(), str(tmp_path)))
    figures = steady(cast("Any", bench), cast("Any", Late(took)), 0.0, took)
    assert (figures["requests"], figures["latency_max_us"]) == (2, 300_000)


@contextmanager
def metrics(asked: list[str]) -> Iterator[str]:
    """HOST:PORT of a server that answers one request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 5
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        thread.join()


def test_metrics_are_scraped_once_in_a_turn() -> None:
    """A turn contains one whole scrape."""
    asked: list[str] = []
    with metrics(asked) as http, scraped(http):
        pass
    assert asked == ["/metrics"]


def test_metrics_that_can_not_be_scraped_end_the_work() -> None:
    """A failed scrape ends the work, because its cost would be measured as nothing."""
    with (
        refusing_port() as port,
        pytest.raises(UnexpectedAnswer, match="metrics can't be scraped"),
        scraped(f"127.0.0.1:{port}"),
    ):
        pass
