"""A consumer as a process: NAME is its instance id, NAME.pid exists while it runs, NAME.log has its assignments.

rolled_worker.py FOLDER NAME BOOTSTRAP
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event

from confluent_kafka import Consumer, TopicPartition


def main(folder: Path, name: str, bootstrap: str) -> None:
    """Consume until SIGTERM."""
    over = Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    log = folder / f"{name}.log"

    def noted(what: str, partitions: list[TopicPartition]) -> None:
        with log.open("a") as lines:
            print(what, *sorted(each.partition for each in partitions), file=lines)

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "group.instance.id": name,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 60_000,
        }
    )
    consumer.subscribe(
        ["orders"],
        on_assign=lambda _, partitions: noted("assigned", partitions),
        on_revoke=lambda _, partitions: noted("revoked", partitions),
    )
    pid = folder / f"{name}.pid"
    pid.with_suffix(".new").write_text(str(os.getpid()))
    pid.with_suffix(".new").rename(pid)
    while not over.is_set():
        consumer.poll(0.1)
    consumer.close()
    pid.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
