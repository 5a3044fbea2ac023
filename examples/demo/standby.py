"""The story of a standby: the demo kills one of five consumers, once beside a standby and once without.

The figures come from the coordinator's descriptions of the group and from its log, as in `roll`. The consumers are
dynamic members of the classic protocol.

House rule: roll.py's.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.group_settings import change_settings
from coordinator.client.groups import describe_groups
from coordinator.client.topics import TopicPartition
from examples.demo.consumer import CLASSIC
from examples.demo.display import Display
from examples.demo.processes import Server, Worker, wait_until
from examples.demo.roll import PARTITION_COUNT, SETTLED_WITHIN_S, STABLE, WORKERS, rebalancing_s
from examples.demo.server_log import at_s

STANDBY = "standby"
KILLED = WORKERS[2]

Owners = dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class Loss:
    """The server's figures of the loss of one member.

    rebalancing_s: seconds in which the other members had to stop for a rebalance.
    moved: how many topic partitions of the other members have another owner afterwards.
    away_s: seconds from the member's expiry until its topic partitions had an owner again.
    """

    kind: str
    rebalances: int
    rebalancing_s: float
    generation_before: int
    generation_after: int
    moved: int
    away_s: float


class Standby:
    """Plays the story once, with a group of its own on a running server."""

    def __init__(
        self, server: Server, client: Client, topic: str, folder: Path, display: Display, *, seats: bool
    ) -> None:
        self._server = server
        self._client = client
        self._display = display
        self._seats = seats
        self._group_id = "with-standby" if seats else "without-standby"
        names = [*WORKERS, STANDBY] if seats else WORKERS
        self._workers = {
            name: Worker(name, server, self._group_id, topic, folder, CLASSIC, static=False) for name in names
        }

    def play(self) -> Loss:
        """Start the consumers, kill one with SIGKILL, and wait until its partitions have an owner again."""
        kind = "beside a standby" if self._seats else "without a standby"
        with ExitStack() as stack:
            for worker in self._workers.values():
                stack.enter_context(worker)
            if self._seats:
                change_settings(self._client, self._group_id, {"target.group.size": str(len(WORKERS))})
            for name in WORKERS:
                self._workers[name].start()
            before = wait_until(self._settled, "the group settles", SETTLED_WITHIN_S)
            if self._seats:
                self._workers[STANDBY].start()
                wait_until(lambda: self._last("standby_joined", 0), "a standby waits", SETTLED_WITHIN_S)
            mark, generation = self._server.log.mark(), self._server.log.generation(self._group_id)
            lost = self._workers[KILLED]
            lost_id = lost.member_id
            self._display.step(f"{KILLED} is killed (SIGKILL), {kind}", "")
            lost.kill()
            expired = wait_until(lambda: self._last("member_expired", mark), "the member expires", SETTLED_WITHIN_S)
            after = wait_until(lambda: self._settled(lost_id), "the group settles", SETTLED_WITHIN_S)
            events = self._server.log.events(self._group_id, since=mark)
            over = self._last("seat_taken", mark) or self._last("rebalance_completed", mark)
            assert over is not None
            figures = Loss(
                kind,
                sum(event["event"] == "rebalance_started" for event in events),
                rebalancing_s(events),
                generation,
                self._server.log.generation(self._group_id),
                sum(after[pair] != owner for pair, owner in before.items() if owner != lost_id),
                at_s(over) - at_s(expired),
            )
            self._display.step(
                f"its topic partitions have an owner, {kind}",
                f"{figures.rebalances} rebalances, {figures.moved} topic partitions of the others moved",
            )
            return figures

    def _settled(self, gone: str | None = None) -> Owners | None:
        """The owners, once the group is stable, without the member id `gone`, and every topic partition has one."""
        answer = describe_groups(self._client, [self._group_id])[self._group_id]
        if isinstance(answer, Refused) or answer.state != STABLE:
            return None
        holders = [member for member in answer.members if member.topic_partitions]
        owners = {pair: member.member_id for member in holders for pair in member.topic_partitions}
        is_full = gone is not None or len(holders) == len(WORKERS)
        return owners if is_full and len(owners) == PARTITION_COUNT and gone not in owners.values() else None

    def _last(self, name: str, since: int) -> dict[str, Any] | None:
        events = self._server.log.events(self._group_id, since=since)
        return next((event for event in reversed(events) if event["event"] == name), None)


def summary(losses: list[Loss]) -> str:
    """The figures side by side."""
    rows = [("", [loss.kind for loss in losses])]
    rows += [
        ("rebalances", [str(loss.rebalances) for loss in losses]),
        ("the others stop for", [f"{loss.rebalancing_s:.2f} s" for loss in losses]),
        ("topic partitions of the others that moved", [str(loss.moved) for loss in losses]),
        ("generation", [f"{loss.generation_before} -> {loss.generation_after}" for loss in losses]),
        ("new owner after the expiry", [f"{loss.away_s:.2f} s" for loss in losses]),
    ]
    return "\n".join(f"{name:44}" + "".join(f"{cell:>22}" for cell in cells) for name, cells in rows)
