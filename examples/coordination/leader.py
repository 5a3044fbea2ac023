"""One of several programs leads and counts in a database. A leader that wakes from a pause does no harm.

    python leader.py 127.0.0.1:9092 NAME counter.db

docs/start/leaders-and-shards.md explains it. --unfenced leaves the check out, and --pause-at 3 stops the process
between reading 3 and writing 4, as a suspended machine would: `kill -CONT` wakes it. Ctrl-C ends it.
"""

import argparse
import os
import signal
import sqlite3

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError

TOPIC = "leader"  # it has one partition: the member that has it leads
TAKE_OVER = "UPDATE counter SET token = :token WHERE token <= :token"
FENCED = "UPDATE counter SET value = :value WHERE token <= :token"
UNFENCED = "UPDATE counter SET value = :value"


class Lease(ConsumerRebalanceListener):
    """token: the generation in which this program became the leader; None while it doesn't lead."""

    def __init__(self, consumer, name):
        self.consumer = consumer
        self.name = name
        self.token = None

    def on_partitions_assigned(self, assigned):
        if assigned:
            self.token = self.consumer.group_metadata().generation_id
            print(f"{self.name} leads, token {self.token}", flush=True)

    def on_partitions_revoked(self, revoked):
        if revoked:
            self.token = None
            print(f"{self.name} stops", flush=True)

    on_partitions_lost = on_partitions_revoked


def take_over(consumer, database, token):
    """From here on no former leader can write. Only then may a new leader read."""
    # The coordinator forgets a group without members and offsets, and its generations begin anew.
    consumer.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(token, "", -1)})
    if not database.execute(TAKE_OVER, {"token": token}).rowcount:
        raise SystemExit(f"token {token} is older than that of the database: the group was deleted")


def count(database, lease, given):
    """Do the work of a leader: read a value, write the next one."""
    (value,) = database.execute("SELECT value FROM counter").fetchone()
    if value == given.pause_at:
        print(f"{given.name} read {value} and falls asleep", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    change = {"value": value + 1, "token": lease.token}
    if database.execute(UNFENCED if given.unfenced else FENCED, change).rowcount:
        print(f"{given.name} wrote {value + 1}", flush=True)
    else:
        lease.token = None
        print(f"{given.name} may not write {value + 1}: another program leads", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("name")
    parser.add_argument("database")
    parser.add_argument("--unfenced", action="store_true")
    parser.add_argument("--pause-at", type=int)
    given = parser.parse_args()
    over = []
    signal.signal(signal.SIGINT, lambda *_: over.append(True))  # not in the middle of a write
    database = sqlite3.connect(given.database, isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, value INTEGER, token INTEGER)")
    database.execute("INSERT OR IGNORE INTO counter VALUES (1, 0, 0)")
    consumer = KafkaConsumer(
        bootstrap_servers=given.bootstrap_servers,
        client_id=given.name,
        group_id="counters",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        enable_auto_commit=False,
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    lease = Lease(consumer, given.name)
    consumer.subscribe([TOPIC], listener=lease)
    taken_over = None
    try:
        # kafka-python 3.0 joins once if it knows the topic before. It may lose a second join: docs/start/clients.md.
        consumer.partitions_for_topic(TOPIC)
        while not over:
            try:
                consumer.poll(timeout_ms=200)
                if lease.token not in {None, taken_over}:
                    take_over(consumer, database, lease.token)
                    taken_over = lease.token
                if lease.token is not None:
                    count(database, lease, given)
            except KafkaError as error:
                print(f"{given.name}: {error}", flush=True)
    finally:
        consumer.close()  # leaves the group: another program leads at once
        print(f"{given.name} has left", flush=True)


if __name__ == "__main__":
    main()
