"""The producer of docker-compose.yml: a few messages a second, each written once and in order (idempotent).

For each message that the server acknowledges it prints `acknowledged` with partition and offset, as a line of JSON.
SIGTERM ends it after the server has answered all messages under way.

CLIENT_SETTINGS names a JSON file with more settings of the client: TLS and a login.

House rule: this program knows nothing about the other services.
"""

from __future__ import annotations

import itertools
import os
import sys

from confluent_kafka import KafkaError, Message, Producer
from consumer import further_settings, say, stopper

FLUSH_S = 8.0
"""Less than the 10 s that Docker gives a container to stop."""


def delivered(error: KafkaError | None, message: Message) -> None:
    """Print the result of a message."""
    fields = {"partition": message.partition(), "offset": message.offset()} if error is None else {"why": error.str()}
    say("acknowledged" if error is None else "failed", **fields)


def main() -> None:
    """Produce until SIGTERM; exit code 1 if a message has no answer at the end."""
    is_over = stopper()
    producer = Producer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "enable.idempotence": True,
            "log_level": 0,
            **further_settings(),
        }
    )
    pause_s = 1 / float(os.environ["MESSAGES_PER_SECOND"])
    for number in itertools.count():
        if is_over():
            break
        producer.produce(os.environ["TOPIC"], key=str(number), value=f"message {number}", on_delivery=delivered)
        producer.poll(pause_s)
    sys.exit(1 if producer.flush(FLUSH_S) else 0)


if __name__ == "__main__":
    main()
