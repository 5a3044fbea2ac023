"""Standbys with real clients: it kills members, and counts what the others notice while a standby reads on.

    python -m tests.interop.takeover --client confluent-kafka --members 5 --rounds 50 [--crash]

Each round kills a random member at a random moment with SIGKILL, waits until the standby reads from the committed
offsets, and starts another standby. `--crash` also kills the coordinator in every fifth round, beside the member. The
program prints a line for each round: how long after the member's expiry the standby had its first record, and how many
rebalance callbacks the others had.

House rule: the callbacks of the clients count, not the server's word.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from datetime import datetime
from typing import NamedTuple

from tests.interop.brokers import TenureBroker, create_topic
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.interop.worker import Record
from tests.support.patience import WITHIN_S
from tests.support.seats import set_seats
from tests.support.tenure import Tenure, wait_until

RECORDS = 300
SETTINGS = {
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


class Takeover(NamedTuple):
    """The effects of one kill.

    ms: from the expiry to the first record that the standby read. callbacks: of all others. rebalances: of the group.
    first: partition -> the first offset that the standby read.
    """

    ms: float
    callbacks: int
    rebalances: int
    first: dict[int, int]


def start_standby(fleet: Fleet, tenure: Tenure, client: str, group: str, session_ms: int) -> ConsumerProcess:
    """Start a consumer, and wait until it waits as a standby."""
    mark = tenure.mark()
    standby = fleet.start(client, group, records=True, session_timeout_ms=session_ms)
    tenure.wait_for_event("standby_joined", group, since=mark)
    return standby


def callbacks_of(members: list[ConsumerProcess], since: float) -> int:
    """How many rebalance callbacks these consumers had."""
    return sum(len(member.named(name, since)) for member in members for name in ("assigned", "revoked", "lost"))


def commit_first(fleet: Fleet, member: ConsumerProcess) -> None:
    """Commit offset 1 of each partition of a member that has read it."""
    event = fleet.commit(member, dict.fromkeys(member.membership.partitions, (1, "")))
    assert event["event"] == "committed", event


def kill_and_watch(
    fleet: Fleet, broker: TenureBroker, members: list[ConsumerProcess], lost: ConsumerProcess, standby: ConsumerProcess
) -> Takeover:
    """Kill `lost`, and wait until `standby` reads each of its partitions from the committed offset."""
    tenure, group = broker.tenure, lost.settings.group
    others = [member for member in members if member is not lost]
    seat = set(lost.membership.partitions)
    mark, since = tenure.mark(), time.monotonic()
    lost.kill()

    def first() -> dict[int, tuple[int, float]]:
        found: dict[int, tuple[int, float]] = {}
        for event in standby.named("records", since):
            for partition, offset, _ in event["records"]:
                found.setdefault(partition, (offset, event["at"]))
        return found

    fleet.wait("the standby has the seat", lambda: set(standby.membership.partitions) == seat)
    fleet.wait("the standby reads on", lambda: seat <= first().keys())
    (taken,) = wait_until(lambda: tenure.events("seat_taken", group, since=mark), "seat_taken", WITHIN_S)
    expired_at = datetime.fromisoformat(str(taken["ts"])).timestamp() - (time.time() - time.monotonic())
    read = first()
    assert standby.membership.generation == others[0].membership.generation
    return Takeover(
        (min(at for _, at in read.values()) - expired_at) * 1000,
        callbacks_of(others, since),
        broker.rebalances(group, mark),
        {partition: offset for partition, (offset, _) in read.items()},
    )


def main() -> None:
    """Run the rounds, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default="confluent-kafka")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--session-ms", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crash", action="store_true")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    group = "takeover"
    with Tenure(SETTINGS) as tenure:
        broker = TenureBroker(tenure)
        create_topic(tenure.bootstrap, "orders", asked.members + 1)
        set_seats(tenure.port, group, asked.members)
        with Fleet(tenure.bootstrap, "orders", asked.members + 1) as fleet:
            members = [
                fleet.start(asked.client, group, records=True, session_timeout_ms=asked.session_ms)
                for _ in range(asked.members)
            ]
            fleet.wait_until_shared(members)
            fleet.produce(members[0], [Record(str(n).encode(), b"value") for n in range(RECORDS)])
            took, disturbed = [], 0
            for number in range(asked.rounds):
                standby = start_standby(fleet, tenure, asked.client, group, asked.session_ms)
                lost = chance.choice(members)
                commit_first(fleet, lost)
                fleet.wait_while_polling([*members, standby], chance.random() * 2)
                if asked.crash and number % 5 == 4:
                    tenure.kill()
                    tenure.start()
                one = kill_and_watch(fleet, broker, members, lost, standby)
                members[members.index(lost)] = standby
                assert set(one.first.values()) == {1}, one
                took.append(one.ms)
                disturbed += one.callbacks
                print(f"{number + 1}: {one.ms:.0f} ms, {one.callbacks} callbacks, {one.rebalances} rebalances")
    ordered = sorted(took)
    print(
        f"{asked.client}: {len(took)} seats taken, first record after {statistics.median(ordered):.0f} ms (median), "
        f"{ordered[-1]:.0f} ms (longest); callbacks of the others: {disturbed}; two owners: "
        f"{len(fleet.double_ownerships())}"
    )


if __name__ == "__main__":
    main()
