"""Standbys with real clients: it kills members, and counts what the others notice while a standby reads on.

    python -m tests.interop.takeover --client confluent-kafka --members 5 --rounds 50 [--crash [N]] [--rebalance [N]]
                                     [--keep FOLDER]

Each round kills a random member at a random moment with SIGKILL, the leader too, and waits until a standby reads from
the committed offsets. `--crash` also kills the coordinator in every fifth round, at a random moment between the kill
and a second after the member's expiry; `--crash 1` in every round. Some clients give their seats up if the coordinator
is away for a session timeout: on a busy machine it needs `--session-ms 12000`. `--rebalance` kills the member during a
rebalance in every fifth round: the group gets one more seat, one standby gets that seat, and another one the seat of
the lost member.

`--keep FOLDER` keeps the server's log and the events of each consumer, to find out why a round went wrong.

The program prints a line for each round: how long after the member's expiry the standby had its first record, and how
many rebalance callbacks the others had.

House rule: the callbacks of the clients count, not the server's word.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
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
TOPIC = "orders"
OPEN_S = 0.8
"""For about so long a rebalance stays open: each member hears of it by its next heartbeat."""


class Takeover(NamedTuple):
    """The effects of one kill.

    ms: from the expiry to the first record that the standby read; None if the crash of the coordinator cut the line
    about the expiry, and after a rebalance. callbacks: of all others. rebalances: of the group. first: partition -> the
    first offset that its new owner read. leads: whether the lost member led.
    """

    ms: float | None
    callbacks: int
    rebalances: int
    first: dict[int, int]
    leads: bool = False


def start_standby(fleet: Fleet, tenure: Tenure, client: str, group: str, session_ms: int) -> ConsumerProcess:
    """Start a consumer, and wait until it waits as a standby."""
    mark = tenure.mark()
    standby = fleet.start(client, group, records=True, session_timeout_ms=session_ms)
    tenure.wait_for_event("standby_joined", group, since=mark)
    return standby


def commit_first(fleet: Fleet, member: ConsumerProcess) -> None:
    """Commit offset 1 of each partition of a member that has read it."""
    event = fleet.commit(member, dict.fromkeys(member.membership.partitions, (1, "")))
    assert event["event"] == "committed", event


def leader_of(tenure: Tenure, group: str) -> str:
    """The member id of the leader, by the log."""
    leader = ""
    for event in tenure.events(group=group):
        if event["event"] == "generation_started":
            leader = event["leader"]
        elif event["event"] == "seat_taken" and event["leads"]:
            leader = event["member_id"]
    return leader


def first_reads(member: ConsumerProcess, since: float) -> dict[int, tuple[int, float]]:
    """Partition -> the first offset that a consumer read after that, and when."""
    found: dict[int, tuple[int, float]] = {}
    for event in member.named("records", since):
        for partition, offset, _ in event["records"]:
            found.setdefault(partition, (offset, event["at"]))
    return found


def assert_no_rebalance(tenure: Tenure, group: str, since: int) -> None:
    """Fail with the causes if the group rebalanced after the mark, and name the members that expired.

    A machine that is too busy lets a second member expire, and then one standby is not enough.
    """
    causes = [event["cause"] for event in tenure.events("rebalance_started", group, since=since)]
    gone = [event["member_id"] for event in tenure.events("member_expired", group, since=since)]
    assert not causes, f"the group rebalanced: {causes}; {gone} expired\n{tenure.tail()}"


def kill_and_watch(
    fleet: Fleet,
    broker: TenureBroker,
    members: list[ConsumerProcess],
    lost: ConsumerProcess,
    standby: ConsumerProcess,
    crash_after_s: float | None = None,
) -> Takeover:
    """Kill `lost`, and wait until `standby` reads each of its partitions from the committed offset.

    crash_after_s: how long after that the coordinator is killed, and started again.
    """
    tenure, group = broker.tenure, lost.settings.group
    others = [member for member in members if member is not lost]
    seat = set(lost.membership.partitions)
    leads = leader_of(tenure, group) == lost.membership.member_id
    mark, since = tenure.mark(), time.monotonic()
    lost.kill()
    if crash_after_s is not None:
        wait_until(lambda: time.monotonic() >= since + crash_after_s, "the moment of the crash", WITHIN_S)
        tenure.restart()

    def holds_on() -> bool:
        assert_no_rebalance(tenure, group, mark)
        return set(standby.membership.partitions) == seat

    fleet.wait("the standby has the seat", holds_on)
    fleet.wait("the standby reads on", lambda: seat <= first_reads(standby, since).keys())
    if crash_after_s is None:
        tenure.wait_for_event("seat_taken", group, since=mark)
    taken = tenure.events("seat_taken", group, since=mark)
    read = first_reads(standby, since)
    assert standby.membership.generation == others[0].membership.generation
    ms = None
    if taken:
        expired_at = datetime.fromisoformat(str(taken[0]["ts"])).timestamp() - (time.time() - time.monotonic())
        ms = (min(at for _, at in read.values()) - expired_at) * 1000
    return Takeover(
        ms,
        sum(len(each.named(name, since)) for each in others for name in ("assigned", "revoked", "lost")),
        broker.rebalances(group, mark),
        {partition: offset for partition, (offset, _) in read.items()},
        leads,
    )


class Rounds:
    """A group of `size` members with seats and a standby, and the rounds that take members from it."""

    def __init__(
        self, fleet: Fleet, broker: TenureBroker, client: str, size: int, session_ms: int, chance: random.Random
    ) -> None:
        self.fleet, self.broker, self.client, self.size = fleet, broker, client, size
        self.session_ms, self.chance = session_ms, chance
        self.group = "takeover"
        self.standbys: list[ConsumerProcess] = []
        set_seats(broker.tenure.port, self.group, size)
        self.members = [
            fleet.start(client, self.group, records=True, session_timeout_ms=session_ms) for _ in range(size)
        ]
        fleet.wait_until_shared(self.members)
        fleet.produce(self.members[0], [Record(str(n).encode(), b"value") for n in range(RECORDS)])

    def lose_one(self, *, crash: bool = False) -> Takeover:
        """A random member goes at a random moment, and a standby has its seat."""
        self._want_standbys(1)
        (standby,) = self.standbys
        lost = self.chance.choice(self.members)
        commit_first(self.fleet, lost)
        self.fleet.wait_while_polling([*self.members, standby], self.chance.random() * 2)
        crash_after_s = self.chance.random() * (self.session_ms / 1_000 + 1) if crash else None
        one = kill_and_watch(self.fleet, self.broker, self.members, lost, standby, crash_after_s)
        self.members[self.members.index(lost)] = standby
        self.standbys = []
        return one

    def lose_one_in_a_rebalance(self) -> Takeover:
        """A random member goes while the group rebalances: at its end, or after it, standbys have both free seats."""
        self._want_standbys(2)
        tenure, fleet = self.broker.tenure, self.fleet
        for member in self.members:
            commit_first(fleet, member)
        lost = self.chance.choice(self.members)
        leads = leader_of(tenure, self.group) == lost.membership.member_id
        mark, began = tenure.mark(), time.monotonic()
        kill_at = began + self.chance.random() * OPEN_S
        set_seats(tenure.port, self.group, self.size + 1)
        wait_until(lambda: time.monotonic() >= kill_at, "the moment of the kill", WITHIN_S)
        lost.kill()
        self.members.remove(lost)
        now = [*self.members, *self.standbys]
        fleet.wait_until_shared(now)

        def first() -> dict[int, int]:
            """Of each partition, the first offset that its owner read since it was assigned."""
            found: dict[int, int] = {}
            for member in now:
                assigned = [event["at"] for event in member.named("assigned") if event["partitions"]]
                read = first_reads(member, assigned[-1])
                found |= {number: read[number][0] for number in member.membership.partitions if number in read}
            return found

        fleet.wait("each partition is read", lambda: len(first()) == fleet.partition_count)
        found, rebalances = first(), self.broker.rebalances(self.group, mark)
        self._shrink(now)
        return Takeover(None, 0, rebalances, found, leads)

    def _shrink(self, now: list[ConsumerProcess]) -> None:
        """The group has its former number of seats again: one of the members waits as a standby."""
        mark, fleet = self.broker.tenure.mark(), self.fleet
        set_seats(self.broker.tenure.port, self.group, self.size)
        self.broker.tenure.wait_for_event("standby_joined", self.group, since=mark)

        def seated() -> list[ConsumerProcess]:
            return [member for member in now if member.membership.partitions]

        fleet.wait("one waits", lambda: len(seated()) == self.size and fleet.shared(seated()))
        self.members = seated()
        self.standbys = [member for member in now if member not in self.members]

    def _want_standbys(self, count: int) -> None:
        while len(self.standbys) < count:
            self.standbys.append(
                start_standby(self.fleet, self.broker.tenure, self.client, self.group, self.session_ms)
            )


def is_nth(number: int, every: int) -> bool:
    """Whether the round of this number, from 0 on, is one of every `every`; none is for 0."""
    return every > 0 and (number + 1) % every == 0


@contextmanager
def kept(fleet: Fleet, folder: Path | None) -> Iterator[None]:
    """Keep the events of each consumer in the end, if there is a folder for them."""
    try:
        yield
    finally:
        for number, consumer in enumerate(fleet.consumers if folder is not None else ()):
            assert folder is not None
            consumer.keep(folder / f"consumer-{number}.jsonl")


def main() -> None:
    """Run the rounds, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default="confluent-kafka")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--session-ms", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crash", nargs="?", type=int, default=0, const=5)
    parser.add_argument("--rebalance", nargs="?", type=int, default=0, const=5)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with Tenure(SETTINGS, directory=asked.keep) as tenure:
        broker = TenureBroker(tenure)
        create_topic(tenure.bootstrap, TOPIC, asked.members + 1)
        with Fleet(tenure.bootstrap, TOPIC, asked.members + 1) as fleet, kept(fleet, asked.keep):
            chance = random.Random(asked.seed)
            rounds = Rounds(fleet, broker, asked.client, asked.members, asked.session_ms, chance)
            took: list[Takeover] = []
            in_rebalances: list[Takeover] = []
            for number in range(asked.rounds):
                if is_nth(number + 2, asked.rebalance):
                    in_rebalances.append(one := rounds.lose_one_in_a_rebalance())
                    words = "in a rebalance"
                else:
                    took.append(one := rounds.lose_one(crash=is_nth(number, asked.crash)))
                    words = (
                        f"{one.callbacks} callbacks"
                        if one.ms is None
                        else f"{one.ms:.0f} ms, {one.callbacks} callbacks"
                    )
                assert set(one.first.values()) == {1}, one
                print(
                    f"{number + 1}: {words}, {one.rebalances} rebalances{', the leader' if one.leads else ''}",
                    flush=True,
                )
            two_owners = len(fleet.double_ownerships())
    ordered = sorted(one.ms for one in took if one.ms is not None)
    # A crash may cut the line about each expiry.
    times = f"{statistics.median(ordered):.0f} ms (median), {ordered[-1]:.0f} ms (longest)" if ordered else "?"
    print(
        f"{asked.client}: {len(took)} seats taken, {sum(one.leads for one in took)} of a leader; first record after "
        f"{times}; callbacks of the others: "
        f"{sum(one.callbacks for one in took)}, rebalances: {sum(one.rebalances for one in took)}"
    )
    if in_rebalances:
        most = max(one.rebalances for one in in_rebalances)
        leaders = sum(one.leads for one in in_rebalances)
        print(
            f"lost in a rebalance: {len(in_rebalances)}, {leaders} of a leader; rebalances of a round: at most {most}"
        )
    print(f"partitions with two owners: {two_owners}")


if __name__ == "__main__":
    main()
