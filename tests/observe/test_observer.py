"""`tenure observe` as a process, beside a server of ours that stands for any cluster: the log, the page, restarts."""

from __future__ import annotations

import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.testing.tenure import Tenure
from tests.client.scripted import SILENCE, Scripted
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.tenure import tenure_command, wait_until

PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/nodes", "/groups", "/overview", "/findings", "/openapi.json"),
    *("/lag?group=workers", "/lags?group=workers", "/sums", "/groups/workers", "/groups/workers/events"),
)
"""All that the page asks for, and what programs do."""

STOPPED_WITHIN_S = 60.0
"""A busy machine takes a while; a process that waits for the cluster or a client would never end."""

SETTINGS = {"tenure.events.enable": False, "group.initial.rebalance.delay.ms": 0}


class Observing:
    """A running observer. url: of its page."""

    def __init__(self, process: subprocess.Popen[str], log: Path, ready: str) -> None:
        self.process = process
        self._log = log
        self.ready = ready
        self.url = "http://" + ready.rpartition("http=")[2]

    def get(self, path: str) -> Any:
        """The answer as JSON."""
        with urllib.request.urlopen(self.url + path, timeout=WITHIN_S) as answer:
            return json.load(answer)

    def status(self, path: str) -> int:
        """The answer's status."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=WITHIN_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def entries(self, group: str, count: int) -> list[dict[str, Any]]:
        """The timeline of a group, once it has so many entries and no open one."""

        def found() -> list[dict[str, Any]] | None:
            if self.status(f"/groups/{group}/events") != 200:
                return None
            timeline: list[dict[str, Any]] = self.get(f"/groups/{group}/events")["timeline"]
            is_over = len(timeline) >= count and all(each.get("outcome", "") is not None for each in timeline)
            return timeline if is_over else None

        return wait_until(found, f"{count} entries of {group}", WITHIN_S)

    @property
    def log(self) -> str:
        """The text of its log."""
        return self._log.read_text()

    @property
    def lines(self) -> list[str]:
        """The names of its log lines."""
        return [json.loads(line)["event"] for line in self._log.read_text().splitlines()]


@contextmanager
def observing(bootstrap: str, folder: Path, *arguments: str) -> Iterator[Observing]:
    """An observer of a cluster, until the block ends."""
    log = folder / "observer.jsonl"
    command = [*tenure_command(), "observe", "--bootstrap-server", bootstrap, "--http", "127.0.0.1:0"]
    with log.open("a") as stream:
        process = popen(
            [*command, "--set", "tenure.log.format=json", *arguments], stdout=subprocess.PIPE, stderr=stream, text=True
        )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            if "--wait" in arguments:  # the line comes with the cluster; until then the log has the address
                wait_until(lambda: "http_listening" in log.read_text(), "HTTP", WITHIN_S)
                ready = "http=" + re.findall(r'"url": ?"http://([^/]+)/', log.read_text())[-1]
            else:
                ready = process.stdout.readline().strip()
            assert ready, log.read_text()
            yield Observing(process, log, ready)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WITHIN_S)


def test_the_page_tells_what_the_log_tells(tmp_path: Path) -> None:
    """Groups, their rebalances with causes, metrics and health come from the cluster's log; SIGTERM ends it well."""
    file = tmp_path / "events.jsonl"
    with (
        Tenure(topics={"orders": 6}, settings=SETTINGS, data_dir=tmp_path / "data") as cluster,
        observing(cluster.bootstrap_servers, tmp_path, "--events", str(file)) as observer,
    ):
        assert re.fullmatch(rf"ready observes={cluster.bootstrap_servers} http=127\.0\.0\.1:\d+", observer.ready)
        cluster.group("workers").fill(1, topics=["orders"], static=False)
        cluster.group("workers").wait_until_stable(members=1)
        first = observer.entries("workers", 1)[0]
        assert (first["type"], first["cause"]["kind"], first["inferred"]) == ("rebalance", "member_joined", True)
        listed = wait_until(lambda: observer.get("/groups") or None, "a list of groups", WITHIN_S)
        assert [group["group_id"] for group in listed] == ["workers"]
        assert observer.get("/overview")[0]["rebalances"] >= 1
        assert len(observer.get("/groups/workers")["members"]) == 1
        for path in PATHS:
            assert (path, observer.status(path)) == (path, 200)
        assert observer.status("/groups/nobody/events") == 404
        wait_until(lambda: file.exists() and file.read_text().count("\n") >= 1, "events", WITHIN_S)
    assert observer.process.returncode == 0
    assert observer.lines == ["http_listening"]
    assert json.loads(file.read_text().splitlines()[0])["type"] == "rebalance_ended"


def test_a_cluster_that_is_away_is_said_once(tmp_path: Path) -> None:
    """A cluster that restarts costs two lines; the observer goes on where it was, and the page shows both lives."""
    with (
        Tenure(topics={"orders": 6}, settings=SETTINGS, data_dir=tmp_path / "data") as cluster,
        observing(cluster.bootstrap_servers, tmp_path) as observer,
    ):
        cluster.group("workers").fill(1, topics=["orders"], static=False)
        cluster.group("workers").wait_until_stable(members=1)
        before = observer.entries("workers", 1)
        cluster.kill()
        wait_until(lambda: "cluster_away" in observer.lines, "a line", WITHIN_S)
        assert observer.status("/readyz") == 503
        cluster.start()
        wait_until(lambda: "cluster_back" in observer.lines, "a line", WITHIN_S)
        assert observer.status("/readyz") == 200
        cluster.group("others").fill(1, topics=["orders"], static=False)
        cluster.group("others").wait_until_stable(members=1)
        observer.entries("others", 1)
        assert observer.entries("workers", 1)[: len(before)] == before
    assert observer.lines == ["http_listening", "cluster_away", "cluster_back"]


@pytest.mark.long
def test_sigterm_ends_it_whatever_it_waits_for(tmp_path: Path) -> None:
    """The cluster accepts and never answers; a page waits for it; a client of HTTP reads nothing."""
    silence: dict[str, list[Any]] = {"Metadata": [SILENCE]}
    with Scripted(silence) as server, observing(server.bootstrap, tmp_path, "--wait", "--events", "topic") as observer:
        host, _, port = observer.ready.rpartition("http=")[2].rpartition(":")
        with (
            socket.create_connection((host, int(port))) as waits,
            socket.create_connection((host, int(port))) as never_reads,
        ):
            waits.sendall(b"GET /groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            never_reads.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
            wait_until(lambda: len(server.asked("Metadata")) >= 2, "questions", WITHIN_S)
            began = time.monotonic()
            observer.process.send_signal(signal.SIGTERM)
            assert observer.process.wait(WITHIN_S) == 0
            assert time.monotonic() - began < STOPPED_WITHIN_S
    assert set(observer.lines) <= {"http_listening", "cluster_away", "events_not_written"}


def test_it_starts_without_a_cluster(tmp_path: Path) -> None:
    """With --wait an observer may be there first, and says that it is ready once the cluster answers."""
    with Tenure(settings=SETTINGS, data_dir=tmp_path / "data") as cluster:
        bootstrap = cluster.bootstrap_servers
        cluster.stop()
        with observing(bootstrap, tmp_path, "--wait") as observer:
            wait_until(lambda: "cluster_away" in observer.lines, "a line", WITHIN_S)
            assert observer.process.stdout is not None
            assert select.select([observer.process.stdout], [], [], 0)[0] == []
            cluster.start()
            assert observer.process.stdout.readline() == f"ready observes={bootstrap} {observer.ready}\n"
            wait_until(lambda: observer.status("/readyz") == 200, "ready", WITHIN_S)
            assert observer.get("/groups") == []


RESTS = """
import gc, os, signal, sys, threading, weakref
from coordinator.client.client import Cluster
from coordinator.config import load
from coordinator.observe.observer import Options, observe
from coordinator.loop import cycles

class Cycle:
    def __init__(self):
        self.itself = self

def see(observer):
    observer.follower.is_caught_up.wait()
    print(gc.get_freeze_count() > 0, gc.get_threshold()[2] == cycles.NEVER, flush=True)
    cycle, over = Cycle(), threading.Event()
    weakref.finalize(cycle, over.set)
    gc.collect(1)
    del cycle
    over.wait()
    os.kill(os.getpid(), signal.SIGTERM)

cycles.CHECK_MS = cycles.REST_MS = cycles.REST_FACTOR = 1
config, _ = load(flags={}, sets=[], environment={})
begin = lambda observer: threading.Thread(target=see, args=(observer,)).start()
observe(Options(Cluster(sys.argv[1]), 5.0, config), [], begin)
"""


def test_the_collector_rests_once_the_history_is_read(tmp_path: Path) -> None:
    """As in a server: it skips what is there, and only looks with a rest between them free old objects."""
    with Tenure(settings=SETTINGS, data_dir=tmp_path / "data") as cluster:
        command = [sys.executable, "-c", RESTS, cluster.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, check=True, timeout=WITHIN_S, text=True)
    assert done.stdout == "True True\n"
