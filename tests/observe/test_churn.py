"""Real consumers that come, go, restart and commit, topics that grow, producers that pause: nothing is found.

Then one of them hangs, so that something can be found. tests/simulation/test_healthy_day.py has a day of this.

House rule: at most one thing happens within PAUSE_S, and members restart within their session: a healthy group.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from coordinator.testing.tenure import Tenure
from tests.observe.test_observer import SETTINGS, Observing, observing
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

CHURN_S = rounds(60.0, 120.0, 300.0)
PAUSE_S = 4.0, 9.0
GROUPS = "billing", "shipping"
TOPIC = "orders"
NAMED_WITHIN_S, REST_S = 90.0, 10.0


class Worker:
    """A consumer that polls on a thread of its own. hangs: whether it goes on without polling."""

    def __init__(self, bootstrap: str, group: str, name: str, *, static: bool) -> None:
        self.group, self.name, self.static = group, name, static
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 2_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
        } | ({"group.instance.id": name} if static else {})
        self.hangs = threading.Event()
        self.start()

    def start(self) -> None:
        """Begin to poll, as a new process."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(self._over,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; a static one keeps its seat."""
        self._over.set()
        self._thread.join(WITHIN_S)

    def _poll(self, over: threading.Event) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        while not over.is_set():
            if self.hangs.is_set():
                over.wait(1.0)
                continue
            consumer.poll(0.1)
        consumer.close()


class Cluster:
    """Two groups that work, and a producer that pauses now and then. seed: of all that happens."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(WITHIN_S)
        self.partitions = 4
        self._over, self._pauses = threading.Event(), threading.Event()
        self._producing = threading.Thread(target=self._produce, daemon=True)
        self._producing.start()
        self._named = 0
        self.workers: list[Worker] = []
        for group in GROUPS:
            for static in (True, False):
                self._join(group, static=static)

    def churn(self, seconds: float) -> None:
        """Let one thing after the other happen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._over.wait(self._chance.uniform(*PAUSE_S))
            self._chance.choice([self._come, self._go, self._restart, self._restart, self._pause, self._grow])()

    def close(self) -> None:
        """End all."""
        self._over.set()
        for each in self.workers:
            each.hangs.clear()
            each.stop()

    def _join(self, group: str, *, static: bool) -> None:
        self._named += 1
        self.workers.append(Worker(self._bootstrap, group, f"{group}-{self._named}", static=static))

    def _come(self) -> None:
        group = self._chance.choice(GROUPS)
        if sum(each.group == group for each in self.workers) < 3:
            self._join(group, static=False)

    def _go(self) -> None:
        dynamic = [each for each in self.workers if not each.static]
        if dynamic:
            gone = self._chance.choice(dynamic)
            self.workers.remove(gone)
            gone.stop()

    def _restart(self) -> None:
        each = self._chance.choice([each for each in self.workers if each.static])
        each.stop()
        each.start()

    def _pause(self) -> None:
        self._pauses.clear() if self._pauses.is_set() else self._pauses.set()

    def _grow(self) -> None:
        if self.partitions < 8:
            self.partitions += 1
            self._admin.create_partitions([NewPartitions(TOPIC, self.partitions)])[TOPIC].result(WITHIN_S)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        while not self._over.wait(0.1):
            for _ in range(0 if self._pauses.is_set() else self._chance.choice([1, 5, 5, 200])):
                producer.produce(TOPIC, b"order")
            producer.poll(0)
        producer.flush(WITHIN_S)

    def hang(self) -> Worker:
        """Let a static member stop reading, while its client sends heartbeats and records come."""
        self._pauses.clear()
        hung = next(each for each in self.workers if each.static)
        hung.hangs.set()
        return hung


@contextmanager
def churned(bootstrap: str) -> Iterator[Cluster]:
    """A cluster with its members, until the block ends."""
    cluster = Cluster(bootstrap, seed=48)
    try:
        yield cluster
    finally:
        cluster.close()


def found(events: Path) -> list[dict[str, Any]]:
    """The findings that began, without the notice that a rebalance is under way: that has a cause."""
    told = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
    return [
        each
        for each in told
        if each["type"] == "finding_began" and (each["kind"], each["severity"]) != ("rebalancing", "notice")
    ]


def is_at_rest(observer: Observing, cluster: Cluster) -> bool:
    """Whether no rebalance is under way or to come, which the one that hangs would hold up.

    Groups have been stable for a while. A member that left without a word, as one that ends while it joins, is gone:
    its session has ended. Leaders have seen the partitions that came last.
    """
    since_ms = (time.time() - REST_S) * 1_000
    if not all(each["state"] == "Stable" and each["last_event_ms"] < since_ms for each in observer.get("/overview")):
        return False
    for group in GROUPS:
        members = observer.get(f"/groups/{group}")["members"]
        owned = sorted(number for each in members for number in (each["assignment"] or {}).get(TOPIC, []))
        names = sorted(each.name for each in cluster.workers if each.group == group)
        if sorted(each["client_id"] for each in members) != names or owned != list(range(cluster.partitions)):
            return False
    return True


def play(bootstrap: str, folder: Path) -> None:
    """Nothing is found while members churn; then the one that hangs is."""
    events = folder / "events.jsonl"
    with churned(bootstrap) as cluster, observing(bootstrap, folder, "--events", str(events)) as observer:
        cluster.churn(CHURN_S)
        assert [(each["kind"], each["found"]) for each in found(events)] == []
        rebalances = sum(each["rebalances"] for each in observer.get("/overview"))
        assert rebalances >= CHURN_S / 30  # it was no time without work
        wait_until(lambda: is_at_rest(observer, cluster), "the last rebalance is over", WITHIN_S)
        hung = cluster.hang()
        named = wait_until(
            lambda: [each for each in found(events) if each["group"] == hung.group] or None, "it", NAMED_WITHIN_S
        )
        assert {each["kind"] for each in named} == {"partition_stuck"}, (named, observer.get("/overview"))
        assert hung.name in named[0]["found"]


@pytest.mark.long
def test_nothing_is_found_on_tenure(tmp_path: Path) -> None:
    """Beside a server of ours that keeps no events, the hung member alone is found."""
    with Tenure(settings=SETTINGS, data_dir=tmp_path / "data") as tenure:
        play(tenure.bootstrap_servers, tmp_path)
    assert {each["kind"] for each in found(tmp_path / "events.jsonl")} == {"partition_stuck"}
