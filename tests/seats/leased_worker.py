"""A program under a leased name: a static member of a group that writes down that it works, every 50 ms.

    GROUP_INSTANCE_ID=w-0 TENURE_SEAT_TOKEN=7 python leased_worker.py FILE BOOTSTRAP GROUP TOPIC

A line: the time on the machine's clock, the name, the token, the process. With the variable DEAF it ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

from confluent_kafka import Consumer

TURN_S = 0.05
SESSION_MS = 300_000
"""Longer than any absence here, also on a busy machine."""


def main() -> None:
    """Work until a signal comes."""
    path, bootstrap, group, topic = sys.argv[1:]
    name, token = os.environ["GROUP_INSTANCE_ID"], int(os.environ["TENURE_SEAT_TOKEN"])
    if "DEAF" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=consume, args=(bootstrap, group, topic, name), daemon=True).start()
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        line = json.dumps([time.clock_gettime(time.CLOCK_BOOTTIME), name, token, os.getpid()])
        os.write(out, f"{line}\n".encode())
        time.sleep(TURN_S)


def consume(bootstrap: str, group: str, topic: str, name: str) -> None:
    """Be a member of the group."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.instance.id": name, "log_level": 0}
    settings |= {"session.timeout.ms": SESSION_MS, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while True:
        consumer.poll(1.0)


if __name__ == "__main__":
    main()
