"""Kafka Streams, unmodified: a word count with a store, at least once and exactly once, on static members.

Streams creates topics of its own: a repartition topic, and a changelog that is to be compacted, from which a store is
restored where its files are gone.

House rule: conftest.py's; counts are exact because an instance is restarted when it has nothing left to do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop.brokers import Broker, TenureBroker, create_topic, settings_of
from tests.interop.conftest import SETTINGS
from tests.interop.java.process import WAIT_S, JavaProcess
from tests.interop.java.programs import FOLDER, command
from tests.support.apache import VERSION, VERSION_44, ApacheKafka, jars
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.toolchain

PARTITIONS = 4
INSTANCES = ("one", "two")
SESSION_TIMEOUT_MS = 180_000
EXACTLY_ONCE = "exactly_once_v2"
LINES = ("the quick brown fox", "jumps over the lazy dog", "the dog sleeps")


class Application:
    """The instances of a Streams application, and the lines that they count.

    release: of Kafka Streams. is_streams_group: they are members of a streams group of Kafka 4.4, and not static
    members of a classic group.
    """

    def __init__(
        self,
        broker: Broker | ApacheKafka,
        folder: Path,
        guarantee: str = "at_least_once",
        *,
        release: str = VERSION,
        is_streams_group: bool = False,
    ) -> None:
        self._guarantee = guarantee
        self.release = release
        self._is_streams_group = is_streams_group
        self.name = f"count-{uuid.uuid4().hex[:8]}"
        self.lines, self.results = f"lines-{self.name}", f"counts-{self.name}"
        self.repartition, self.changelog = (f"{self.name}-word-counts-{each}" for each in ("repartition", "changelog"))
        self.expected: Counter[str] = Counter()
        self._broker = broker
        self._folder = folder
        self._stack = ExitStack()
        self._instances: dict[str, JavaProcess] = {}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def folder(self, instance: str) -> Path:
        """Where an instance keeps its store."""
        return self._folder / instance

    def start(self, instance: str) -> None:
        """Start an instance, and wait until it has all that it is assigned."""
        settings: dict[str, object] = {
            "bootstrap": self._broker.bootstrap,
            "application": self.name,
            "from": self.lines,
            "to": self.results,
            "folder": str(self.folder(instance)),
            "guarantee": self._guarantee,
        }
        if not self._is_streams_group:
            settings |= {"instance": instance, "session_timeout_ms": SESSION_TIMEOUT_MS}
        folder = jars(self.release, FOLDER / ("pom.xml" if self.release == VERSION else "streams.pom.xml"))
        program = command("WordCount", folder, heap="-Xmx256m")
        process = self._stack.enter_context(JavaProcess([*program, json.dumps(settings)]))
        self._instances[instance] = process
        process.wait_for(f"{instance} runs", lambda event: event.get("state") == "RUNNING")

    def close(self, instance: str) -> None:
        """End an instance in its order; a static member doesn't leave."""
        self._instances[instance].tell("close")
        self._instances[instance].wait_for(f"{instance} is closed", lambda event: event["event"] == "closed")
        assert self._instances[instance].join() == 0

    def send_signal(self, instance: str, number: signal.Signals) -> None:
        """Freeze an instance, or let it go on."""
        self._instances[instance].send_signal(number)

    def kill(self, instance: str) -> None:
        """SIGKILL."""
        self._instances[instance].kill()

    def end(self) -> None:
        """End all."""
        self._stack.close()

    def write(self, times: int) -> None:
        """More lines to count."""
        for number in range(times):
            for line in LINES:
                self._producer.produce(self.lines, f"{line} {number}", str(number))
                self.expected.update([*line.split(), str(number)])
        assert self._producer.flush(WAIT_S) == 0

    def restored(self, instance: str) -> int:
        """How many records of its changelog an instance has read since it was started."""
        return sum(event["count"] for event in self._instances[instance].events if event["event"] == "restored")

    def counts(self) -> Counter[str]:
        """Return the contents of all instances' stores."""
        found: Counter[str] = Counter()
        for instance, process in self._instances.items():
            before = len(process.events)
            process.tell("counts")
            event = process.wait_for(f"{instance} counts", lambda event: event["event"] == "counts", before)
            found.update(event["counts"])
        return found

    def has_counted_all(self) -> bool:
        """Whether the stores have what was written, and the group has committed all of it."""
        return self.counts() == self.expected and self._lag() == 0

    def start_of(self, topic: str) -> int:
        """The first offsets of a topic's partitions, summed up."""
        consumer = Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": "nobody", "log_level": 0})
        try:
            asked = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            return sum(consumer.get_watermark_offsets(each, timeout=WITHIN_S)[0] for each in asked)
        finally:
            consumer.close()

    def _lag(self) -> int:
        consumer = Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": self.name, "log_level": 0})
        lag = 0
        try:
            for topic in (self.lines, self.repartition):
                asked = [TopicPartition(topic, index) for index in range(PARTITIONS)]
                for each in consumer.committed(asked, timeout=WITHIN_S):
                    low, end = consumer.get_watermark_offsets(each, timeout=WITHIN_S)
                    lag += end - (each.offset if each.offset >= 0 else low)
        finally:
            consumer.close()
        return lag


@contextmanager
def started(application: Application, broker: Broker) -> Iterator[Application]:
    """Yield the running application, with a store on each of two instances."""
    for topic in (application.lines, application.results):
        create_topic(broker.bootstrap, topic, PARTITIONS)
    try:
        for instance in INSTANCES:
            application.start(instance)
        yield application
    finally:
        application.end()


@pytest.fixture
def application(broker: Broker, java: None, tmp_path: Path) -> Iterator[Application]:
    """Yield a running application that counts at least once."""
    with started(Application(broker, tmp_path), broker) as running:
        yield running


@pytest.fixture(params=[VERSION, VERSION_44])
def exact(broker: Broker, java: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    """Yield a running application of each release that counts exactly once."""
    with started(Application(broker, tmp_path, EXACTLY_ONCE, release=request.param), broker) as running:
        yield running


def last_values(bootstrap: str, topic: str, expected: Counter[str]) -> Counter[str]:
    """Return the last value of each key of a topic, as soon as they are as expected, or after the wait."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: Counter[str] = Counter()
    until = time.monotonic() + WAIT_S
    while found != expected and time.monotonic() < until:
        for message in consumer.consume(1_000, 0.5):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found[key.decode()] = int.from_bytes(value, "big")
    consumer.close()
    return found


def test_words_are_counted_while_instances_restart(broker: Broker, application: Application) -> None:
    """Each instance is restarted, closed or by SIGKILL, while lines come in; one of them has lost its store's files.

    No rebalance; no word is counted twice or left out, in the stores and in the topic of results; the store is read
    from its files where they are, and from the changelog where they aren't. The changelog is to be compacted; the
    repartition topic keeps records until Streams deletes them, which it does.
    """
    assert settings_of(broker.bootstrap, application.changelog) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
    }
    assert settings_of(broker.bootstrap, application.repartition) == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }
    application.write(50)
    wait_until(application.has_counted_all, "all is counted", WAIT_S)
    mark = broker.mark()

    application.close("one")
    application.write(50)
    application.start("one")
    wait_until(application.has_counted_all, "all is counted after a restart", WAIT_S)
    assert application.restored("one") == 0

    application.kill("two")
    application.write(50)
    application.start("two")
    wait_until(application.has_counted_all, "all is counted after SIGKILL", WAIT_S)

    application.close("one")
    shutil.rmtree(application.folder("one"))
    application.start("one")
    wait_until(application.has_counted_all, "all is there without the store's files", WAIT_S)
    assert application.restored("one") > 0

    assert broker.rebalances(application.name, mark) == 0
    assert broker.replacements(application.name, mark) == 3
    assert last_values(broker.bootstrap, application.results, application.expected) == application.expected

    def is_purged() -> bool:
        application.write(1)  # it deletes what it has committed when it commits more
        wait_until(application.has_counted_all, "all is counted", WAIT_S)
        return application.start_of(application.repartition) > 0

    wait_until(is_purged, "what has been counted is deleted from the repartition topic", WAIT_S)


def committed_counts(bootstrap: str, topic: str, expected: Counter[str]) -> dict[str, list[int]]:
    """Return all counts of each word in the order of a topic, as a consumer with read_committed gets them.

    It reads until there are as many as expected, or until nothing has come for a while.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[str, list[int]] = {}
    until = time.monotonic() + WAIT_S
    while sum(map(len, found.values())) < expected.total() and time.monotonic() < until:
        for message in consumer.consume(1_000, 0.5):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found.setdefault(key.decode(), []).append(int.from_bytes(value, "big"))
    consumer.close()
    return found


def count_under_kills(exact: Application, broker: Broker, ways: Sequence[Callable[[], None]]) -> dict[str, list[int]]:
    """Count words while instances get SIGKILL, and the server in these ways, inside transactions; returns the counts.

    They are those of a consumer with read_committed. Each instance finds its seat: no rebalance, but those that Streams
    4.4 itself asks for when it starts again, on Apache Kafka too.
    """
    exact.write(20)
    wait_until(lambda: exact.counts() == exact.expected, "all is counted", WAIT_S)
    mark = broker.mark()
    for instance, kill in zip(cycle(INSTANCES), ways, strict=False):
        exact.write(50)
        exact.kill(instance)
        exact.start(instance)
        exact.write(50)
        kill()
    wait_until(lambda: exact.counts() == exact.expected, "all is counted after kills", WAIT_S)
    assert broker.replacements(exact.name, mark) >= len(ways)
    assert exact.release == VERSION_44 or broker.rebalances(exact.name, mark) == 0
    return committed_counts(broker.bootstrap, exact.results, exact.expected)


def each_once(expected: Counter[str]) -> dict[str, list[int]]:
    """The counts 1, 2, 3 and so on of each word, each of them once."""
    return {word: list(range(1, count + 1)) for word, count in expected.items()}


def test_words_are_counted_exactly_once_whatever_is_killed(broker: Broker, exact: Application) -> None:
    """With exactly_once_v2, instances and the server get SIGKILL; see `count_under_kills`."""

    def restart() -> None:
        broker.kill()
        broker.start()

    assert count_under_kills(exact, broker, [restart] * 4) == each_once(exact.expected)


@pytest.mark.interop
def test_words_are_counted_exactly_once_whichever_worker_is_killed(java: None, tmp_path: Path) -> None:
    """The same with two workers: each dies in turn, and then all of the server."""
    with Tenure(SETTINGS, arguments=["--workers", "2"]) as tenure:
        broker = TenureBroker(tenure)

        def kill_worker(node_id: int) -> None:
            mark = tenure.mark()
            os.kill(tenure.worker_pid(node_id), signal.SIGKILL)
            tenure.wait_for_event("worker_back", since=mark)

        def restart() -> None:
            broker.kill()
            broker.start()

        application = Application(broker, tmp_path, EXACTLY_ONCE, release=VERSION_44)
        with started(application, broker) as exact:
            counts = count_under_kills(exact, broker, [partial(kill_worker, 0), partial(kill_worker, 1), restart])
            assert counts == each_once(exact.expected)
