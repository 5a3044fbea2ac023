"""The consumers of the examples: a stand-in for your own code. Each one runs on a thread, with confluent-kafka."""

from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError


class Worker:
    """A consumer of `topic` that commits each record it gets.

    on_revoke: called before it gives topic partitions away. error: why it ended by itself, None while it works.
    records: the values that it got.
    """

    def __init__(self, bootstrap_servers, name, topic="orders", group="workers", on_revoke=lambda: None, **settings):
        self.settings = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": name,
            "group.id": group,
            "heartbeat.interval.ms": 100,  # 3 s by default: so late a member hears that its group rebalances
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        self.topic = topic
        self.on_revoke = on_revoke
        self.records = []
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
        consumer.subscribe([self.topic], on_revoke=lambda *_: self.on_revoke())
        while not self.is_over.is_set() and self.error is None:
            message = consumer.poll(0.02)
            if message is None:
                continue
            if message.error() is None:
                self.records.append(message.value())
                consumer.commit(message, asynchronous=False)
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
