"""One consumer of docker-compose.yml: an ordinary one, with a seat of its own in the group.

It prints JSON lines: `assigned`, `revoked` and `lost` with partitions, `consumed` with partition and offset for each
message, `error` with the client's message. SIGTERM closes it. As a static member it doesn't leave its group (KIP-345).

CLIENT_SETTINGS names a JSON file with more settings of the client: TLS and a login.

House rule: this program knows nothing about the other services.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

POLL_S = 0.2


def say(event: str, **fields: Any) -> None:
    """Print one line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def complain(error: KafkaError) -> None:
    """Print an error of the client. Unless the error is fatal, the client goes on by itself."""
    say("error", name=error.name(), text=error.str())
    if error.fatal():
        raise KafkaException(error)


def reporter(event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
    """Make a callback for the client that prints the partitions of its call."""
    return lambda _consumer, partitions: say(event, partitions=sorted(each.partition for each in partitions))


def stopper() -> Callable[[], bool]:
    """Return a function that says whether SIGTERM came."""
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    return lambda: stopping


def further_settings() -> dict[str, Any]:
    """The settings in the file that CLIENT_SETTINGS names, if it names one."""
    file = os.environ.get("CLIENT_SETTINGS")
    return json.loads(Path(file).read_bytes()) if file else {}


def join(**more: Any) -> Consumer:
    """Return a consumer that has subscribed. more: settings of the client."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP_ID"],
            "group.instance.id": os.environ["GROUP_INSTANCE_ID"],
            "session.timeout.ms": int(os.environ["SESSION_TIMEOUT_MS"]),
            "heartbeat.interval.ms": 1_000,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 500,
            # A coordinator that is frozen or cut off closes no connection: look for another one after this time.
            "socket.timeout.ms": 5_000,
            "log_level": 0,
            "error_cb": complain,
            **further_settings(),
            **more,
        }
    )
    consumer.subscribe(
        [os.environ["TOPIC"]],
        on_assign=reporter("assigned"),
        on_revoke=reporter("revoked"),
        on_lost=reporter("lost"),
    )
    return consumer


def main() -> None:
    """Consume until SIGTERM."""
    is_over = stopper()
    consumer = join()
    while not is_over():
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            complain(error)
        else:
            say("consumed", partition=message.partition(), offset=message.offset())
    consumer.close()


if __name__ == "__main__":
    main()
