"""The consumers of the examples, a stand-in for your own code: each one runs on a thread, with confluent-kafka."""

from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer


class Worker:
    """A consumer of `topic` that commits each record it gets.

    handle: called with each value before its commit. on_revoke: called before it gives topic partitions away.
    error: why it ended by itself, None while it works. records: the values that it got. refused: those of them whose
    commit was refused.
    """

    def __init__(
        self,
        bootstrap_servers,
        name,
        topics=("orders",),
        handle=lambda _: None,
        on_revoke=lambda: None,
        **settings,
    ):
        self.settings = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": name,
            "group.id": "workers",
            "heartbeat.interval.ms": 100,  # 3 s by default: so late a member hears that its group rebalances
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        self.topics = list(topics)
        self.handle = handle
        self.on_revoke = on_revoke
        self.records = []
        self.refused = []
        self.start()

    def start(self):
        self.error = None
        self.is_over = Event()
        self.thread = Thread(target=self.run)
        self.thread.start()

    def stop(self):
        self.is_over.set()
        self.thread.join()

    def restart(self):
        self.stop()
        self.start()

    def run(self):
        consumer = Consumer(self.settings)
        consumer.subscribe(self.topics, on_revoke=lambda *_: self.on_revoke())
        while not self.is_over.is_set() and self.error is None:
            message = consumer.poll(0.02)
            if message is None:
                continue
            if message.error() is None:
                self.handle(message.value())
                self.records.append(message.value())
                try:
                    consumer.commit(message, asynchronous=False)
                except KafkaException:
                    self.refused.append(message.value())
            elif message.error().code() == KafkaError._FATAL:  # noqa: SLF001 - its public name
                self.error = str(message.error())
        consumer.close()


@pytest.fixture
def start_worker():
    """A function that starts a worker. All of them are stopped at the end of the test."""
    started = []

    def start(bootstrap_servers, name, **settings):
        worker = Worker(bootstrap_servers, name, **settings)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()


@pytest.fixture
def produce():
    """A function that appends a record to the topic "orders"."""

    def produce(bootstrap_servers, value):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        producer.produce("orders", value)
        assert producer.flush(10) == 0

    return produce
