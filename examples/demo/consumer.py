"""One consumer of the demo: an ordinary confluent-kafka consumer that owns partitions until SIGTERM.

Run as `python -m examples.demo.consumer PARENT BOOTSTRAP GROUP TOPIC PROTOCOL [INSTANCE_ID]`: the member is
static with an instance id and dynamic without one. PROTOCOL is `classic` or `consumer`. The program prints its member
id whenever that changes, so that the demo can match processes and members. SIGTERM only closes the consumer: a dynamic
member then leaves its group. A static member doesn't (KIP-345); in the consumer protocol it says that it will be back
(KIP-848).

House rule: this program knows nothing of the demo's story; it ends by itself when its parent process is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

SESSION_TIMEOUT_MS = 10_000
"""How long a member may be silent: longer than a restart takes, and short enough that the demo can wait for it. In the
consumer protocol the coordinator has this setting and the next."""
HEARTBEAT_INTERVAL_MS = 500
"""How soon a member learns of a rebalance. librdkafka's default is 3 s, which only makes the demo longer."""
RECONNECT_MAX_MS = 500
CLASSIC, CONSUMER = "classic", "consumer"
"""The protocols, as `group.protocol` names them."""
POLL_S = 0.2


def settings(bootstrap: str, group_id: str, protocol: str, instance_id: str | None) -> dict[str, str | int]:
    """The consumer's settings; everything else is librdkafka's default, above all the client id.

    Assignors sort members by member id, and a member id begins with the client id. If the client ids sorted like the
    workers, they would hide what a rebalance moves.
    """
    classic = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "group.protocol": protocol,
        **(classic if protocol == CLASSIC else {}),
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        **({} if instance_id is None else {"group.instance.id": instance_id}),
    }


def main(
    parent: str, bootstrap: str, group_id: str, topic: str, protocol: str = CLASSIC, instance_id: str | None = None
) -> None:
    """Consume until SIGTERM, or until the process `parent`, which started this one, is gone."""
    from confluent_kafka import Consumer  # the demo itself runs without this package, and says how to install it

    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(settings(bootstrap, group_id, protocol, instance_id))
    consumer.subscribe([topic])
    member_id = None
    while not stopping and os.getppid() == int(parent):
        consumer.poll(POLL_S)
        if consumer.memberid() != member_id:
            member_id = consumer.memberid()
            print(member_id, flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
