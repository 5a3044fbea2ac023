"""One consumer of docker-compose.cluster.yml: it has a seat, and commits higher and higher offsets.

Nodes of a cluster keep no records, so this program makes the offsets up: for each of its partitions it reads the
committed offset, and commits the next one. It prints JSON lines: those of consumer.py, `committed` for each commit that
the coordinator acknowledged, with the seconds since the one before it, and `went_back` if it read less than that.

House rule: this program knows nothing about the other services.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition
from consumer import POLL_S, complain, join, say, stopper

ANSWER_WITHIN_S = 5.0


def commit_next(consumer: Consumer, acknowledged: dict[int, tuple[int, float]]) -> None:
    """Read the committed offsets, and commit the next ones; acknowledged: the last one of each partition, and when."""
    try:
        read = consumer.committed(consumer.assignment(), timeout=ANSWER_WITHIN_S)
        for each in read:
            # Without a committed offset, it is a negative number.
            each.offset = max(each.offset, 0)
            known, _ = acknowledged.get(each.partition, (0, 0.0))
            if each.offset < known:
                say("went_back", partition=each.partition, acknowledged=known, read=each.offset)
        following = [TopicPartition(each.topic, each.partition, each.offset + 1) for each in read]
        done = consumer.commit(offsets=following, asynchronous=False) or []
    except KafkaException as failure:
        # No coordinator: the client looks for it by itself.
        complain(failure.args[0])
        return
    for each in done:
        if each.error is None:
            now = time.monotonic()
            _, before = acknowledged.get(each.partition, (0, now))
            acknowledged[each.partition] = (each.offset, now)
            say("committed", partition=each.partition, offset=each.offset, after_s=round(now - before, 1))


def main() -> None:
    """Commit until SIGTERM."""
    is_over = stopper()
    consumer = join(**{"enable.auto.commit": False})
    acknowledged: dict[int, tuple[int, float]] = {}
    while not is_over():
        message = consumer.poll(POLL_S)
        if message is not None and (error := message.error()) is not None:
            complain(error)
        elif consumer.assignment():
            commit_next(consumer, acknowledged)
    consumer.close()


if __name__ == "__main__":
    main()
