"""`start_worker` and `produce`. Each recipe runs with three clients, but for those that name theirs."""

import pytest
from confluent_kafka import Producer
from worker_aiokafka import AiokafkaWorker
from worker_confluent_kafka import ConfluentWorker
from worker_kafka_python import KafkaPythonWorker

WORKERS = {"confluent-kafka": ConfluentWorker, "aiokafka": AiokafkaWorker, "kafka-python": KafkaPythonWorker}


@pytest.fixture(params=WORKERS)
def start_worker(request):
    """A function that starts a worker. All of them are stopped at the end of the test."""
    started = []

    def start(bootstrap_servers, name, **settings):
        worker = WORKERS[request.param](bootstrap_servers, name, **settings)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.is_over.set()
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
