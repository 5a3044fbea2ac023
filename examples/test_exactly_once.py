"""A program that reads orders and writes invoices, exactly once: it commits its offsets inside its transactions."""

import threading

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

ORDERS = [b"%d" % number for number in range(20)]
CLIENT = {
    "metadata.recovery.strategy": "none",  # librdkafka#5511
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 1_000,
    "log_level": 0,
}


class Invoicer:
    """A static member with a transactional id. Each transaction takes some orders."""

    def __init__(self, bootstrap_servers):
        common = CLIENT | {"bootstrap.servers": bootstrap_servers}
        self.consumer = Consumer(
            common
            | {
                "group.id": "invoicers",
                "group.instance.id": "invoicer-1",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "heartbeat.interval.ms": 100,
            }
        )
        self.producer = Producer(common | {"transactional.id": "invoicer-1", "transaction.timeout.ms": 60_000})
        self.is_over = threading.Event()
        self.error = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            self.producer.init_transactions(30)
            self.consumer.subscribe(["orders"])
            while not self.is_over.is_set():
                orders = [each for each in self.consumer.consume(5, 0.1) if not each.error()]
                if orders:
                    self.invoice(orders)
        except KafkaException as error:
            self.error = error.args[0]
        self.consumer.close()

    def invoice(self, orders):
        self.producer.begin_transaction()
        for order in orders:
            self.producer.produce("invoices", order.value())
        end = TopicPartition("orders", 0, orders[-1].offset() + 1)
        try:
            self.again(self.producer.send_offsets_to_transaction, [end], self.consumer.consumer_group_metadata())
            self.again(self.producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.again(self.producer.abort_transaction)
            self.consumer.seek(TopicPartition("orders", 0, orders[0].offset()))

    def again(self, call, *arguments):
        """Call, and call again after an error for which the client asks to."""
        is_done = False
        while not is_done and not self.is_over.is_set():
            try:
                call(*arguments, 5)
                is_done = True
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def stop(self):
        self.is_over.set()
        self.thread.join()


@pytest.fixture
def start_invoicer():
    started = []
    yield lambda *arguments: started.append(Invoicer(*arguments)) or started[-1]
    for invoicer in started:
        invoicer.stop()


@pytest.fixture
def order():
    def order(bootstrap_servers):
        producer = Producer(CLIENT | {"bootstrap.servers": bootstrap_servers})
        for value in ORDERS:
            producer.produce("orders", value)
        assert producer.flush(30) == 0

    return order


def has_read_all(group):
    return group.committed.get(("orders", 0)) == len(ORDERS)


def test_a_crash_before_the_commit(tenure_factory, start_invoicer, order, tmp_path):
    """The server dies once it has the offsets of a transaction: nothing is lost, and nothing is there twice."""
    tenure = tenure_factory(topics={"orders": 1, "invoices": 1}, data_dir=tmp_path / "data")
    order(tenure.bootstrap_servers)
    tenure.faults.add("TxnOffsetCommit transactional_id=invoicer-1 -> kill")
    start_invoicer(tenure.bootstrap_servers)
    tenure.wait_until_killed()
    tenure.start()
    tenure.group("invoicers").wait_until(has_read_all)
    tenure.assert_exactly_once("invoices", ORDERS)


def test_a_lost_answer_to_the_commit(tenure, start_invoicer, order):
    """The transaction is committed, and its program doesn't know: it asks again."""
    tenure.create_topic("orders")
    tenure.create_topic("invoices")
    order(tenure.bootstrap_servers)
    (lost,) = tenure.faults.add("EndTxn transactional_id=invoicer-1 -> drop-response")
    start_invoicer(tenure.bootstrap_servers)
    tenure.wait_until_fired(lost)
    tenure.group("invoicers").wait_until(has_read_all)
    tenure.assert_exactly_once("invoices", ORDERS)


def test_a_zombie_is_fenced(tenure, start_invoicer, order):
    """A second program with its names takes the transactional id: the first one's open transaction is aborted."""
    tenure.create_topic("orders")
    tenure.create_topic("invoices")
    (held,) = tenure.faults.add("TxnOffsetCommit transactional_id=invoicer-1 -> drop-request")
    zombie = start_invoicer(tenure.bootstrap_servers)
    order(tenure.bootstrap_servers)
    tenure.wait_until_fired(held)
    assert tenure.transactions["invoicer-1"].state == "Ongoing"
    start_invoicer(tenure.bootstrap_servers)
    tenure.group("invoicers").wait_until(has_read_all)
    tenure.assert_exactly_once("invoices", ORDERS)
    zombie.thread.join(30)
    assert zombie.error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.FENCED_INSTANCE_ID}  # noqa: SLF001


def test_time_ends_a_transaction(tenure):
    """A program that dies inside a transaction holds readers back until its timeout has passed."""
    tenure.create_topic("invoices")
    producer = Producer(CLIENT | {"bootstrap.servers": tenure.bootstrap_servers, "transactional.id": "invoicer-1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("invoices", b"1")
    assert producer.flush(30) == 0
    assert tenure.transactions["invoicer-1"].partitions == [("invoices", 0)]
    tenure.advance(60)
    tenure.assert_exactly_once("invoices", [])
    assert tenure.transactions["invoicer-1"].state == "CompleteAbort"
