"""The producer of docker-compose.yml: a few messages a second, each written once and in order (idempotent).

For each message that the server acknowledges it prints `acknowledged` with partition and offset, as a line of JSON.
SIGTERM ends it after the server has answered all messages under way.

CLIENT_SETTINGS names a JSON file with more settings of the client: TLS and a login.

House rule: this program knows nothing about the other services.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaError, Message, Producer

FLUSH_S = 8.0
"""Less than the 10 s that Docker gives a container to stop."""


def delivered(error: KafkaError | None, message: Message) -> None:
    """Print the result of a message."""
    fields = {"partition": message.partition(), "offset": message.offset()} if error is None else {"why": error.str()}
    print(json.dumps({"event": "acknowledged" if error is None else "failed", **fields}), flush=True)


def main() -> None:
    """Produce until SIGTERM; exit code 1 if a message has no answer at the end."""
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    settings = os.environ.get("CLIENT_SETTINGS")
    producer = Producer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "enable.idempotence": True,
            "log_level": 0,
            **(json.loads(Path(settings).read_bytes()) if settings else {}),
        }
    )
    pause_s = 1 / float(os.environ["MESSAGES_PER_SECOND"])
    for number in itertools.count():
        if stopping:
            break
        producer.produce(os.environ["TOPIC"], key=str(number), value=f"message {number}", on_delivery=delivered)
        producer.poll(pause_s)
    sys.exit(1 if producer.flush(FLUSH_S) else 0)


if __name__ == "__main__":
    main()
