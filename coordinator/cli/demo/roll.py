"""The story: five consumers share a topic, each is restarted, and in the middle the coordinator is killed.

It is told twice, with static members and with dynamic ones. When the group has settled, who owns what, how often it
rebalanced, how long that took and at which generation it is: all of that is what the coordinator answers
(DescribeGroups) and logs. The consumers only say which member each of them is.

House rule: a figure is computed from readings of the server before and after, and from nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from coordinator.cli.demo.consumer import SESSION_TIMEOUT_MS
from coordinator.cli.demo.processes import POLL_S, DemoFailed, Server, Worker, wait_until
from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import Group, describe_groups
from coordinator.client.topics import TopicPartition
from coordinator.timeline.described import Member
from schemas.errors import ErrorCode

WORKERS = tuple(f"worker-{number}" for number in range(1, 6))
PARTITION_COUNT = 12
KILL_AFTER = 3
"""The coordinator is killed after so many restarts."""
DOWN_S = 1.5
"""How long a consumer stays down: a fast deployment."""
SETTLED_WITHIN_S = 30.0
STABLE = "Stable"

Owners = dict[TopicPartition, str]
"""Topic partition -> the worker that owns it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the server says of a roll.

    unchanged: topic partitions, of `partitions`, that no DescribeGroups of the stable group showed with another owner.
    rebalancing_s: seconds from the begins of rebalances to their ends.
    """

    kind: str
    restarts: int
    rebalances: int
    rebalancing_s: float
    generation_before: int
    generation_after: int
    partitions: int
    unchanged: int

    @property
    def moved_nothing(self) -> bool:
        """No rebalance, and no topic partition changed its owner."""
        return self.rebalances == 0 and self.unchanged == self.partitions


@dataclass(slots=True)
class View:
    """The story at a moment, for the display.

    members: by worker, None while it has none. states: worker -> what happens to it, if anything does.
    """

    kind: str
    doing: str = ""
    state: str = ""
    generation: int = 0
    rebalances: int = 0
    members: dict[str, Member | None] = field(default_factory=lambda: dict.fromkeys(WORKERS))
    leader: str = ""
    states: dict[str, str] = field(default_factory=dict)


class Display(Protocol):
    """Shows the story."""

    def update(self, view: View) -> None:
        """Something may look different now."""

    def chapter(self, text: str) -> None:
        """Something new begins, or ends."""

    def step(self, what: str, outcome: str) -> None:
        """Something is done."""


class Roll:
    """One telling, with a group of its own on a running server."""

    def __init__(
        self, server: Server, client: Client, topic: str, folder: Path, display: Display, *, static: bool
    ) -> None:
        self._server = server
        self._client = client
        self._display = display
        self._view = View("static" if static else "dynamic")
        self._group_id = f"{self._view.kind}-workers"
        self._workers = [Worker(name, server, self._group_id, topic, folder, static=static) for name in WORKERS]
        self._mark = 0
        self._names: dict[str, str] = {}
        """Member id -> worker, of all that ever were."""
        self._member_ids: dict[str, str] = {}
        self._owners: Owners = {}
        self._moved: set[TopicPartition] = set()
        """Since the last step began."""
        self._ever_moved: set[TopicPartition] = set()

    def play(self) -> Figures:
        """Start the consumers, roll them, and end them."""
        with ExitStack() as processes:
            for worker in self._workers:
                processes.enter_context(worker).start()
            self._assemble()
            generation_before = self._generation()
            for worker in self._workers[:KILL_AFTER]:
                self._restart(worker)
            restarted_at = self._kill_coordinator()
            for worker in self._workers[KILL_AFTER:]:
                self._restart(worker)
            self._outlive_sessions(restarted_at)
            figures = Figures(
                kind=self._view.kind,
                restarts=len(self._workers),
                rebalances=self._rebalances(),
                rebalancing_s=rebalancing_s(self._server.log.events(self._group_id, since=self._mark)),
                generation_before=generation_before,
                generation_after=self._generation(),
                partitions=len(self._owners),
                unchanged=len(self._owners.keys() - self._ever_moved),
            )
            self._display.chapter(
                f"  rebalances during the roll {figures.rebalances}, "
                f"assignments unchanged {figures.unchanged}/{figures.partitions}"
            )
            for worker in self._workers:
                worker.stop()
        return figures

    def _assemble(self) -> None:
        """Wait until all members share the topic."""
        self._view.doing = f"{len(WORKERS)} {self._view.kind} members join"
        self._settle()
        self._mark = self._server.log.mark()
        self._display.chapter(
            f"{len(self._member_ids)} {self._view.kind} members share {len(self._owners)} partitions at generation "
            f"{self._generation()}, led by {self._view.leader}"
        )

    def _restart(self, worker: Worker) -> None:
        """End a consumer and start it again; settled when it is back under a new member id."""
        role = ", the leader," if worker.name == self._view.leader else ""
        with self._step(f"{worker.name}{role} restarted", replaced=worker.name):
            self._view.states[worker.name] = "stopping"
            self._look()
            worker.stop()
            self._view.states[worker.name] = "down"
            self._look_until(time.monotonic() + DOWN_S)
            self._view.states[worker.name] = "starting"
            worker.start()

    def _kill_coordinator(self) -> float:
        """SIGKILL, and a new start on the same data; returns when it was back (time.monotonic)."""
        with self._step("coordinator killed and restarted"):
            self._server.kill()
            self._display.update(self._view)
            self._server.start()
        return time.monotonic()

    def _outlive_sessions(self, restarted_at: float) -> None:
        """Wait until who is still a member has heartbeated since: a restarted coordinator gives each a full session."""
        with self._step("a session timeout has passed"):
            self._look_until(restarted_at + 1.1 * SESSION_TIMEOUT_MS / 1_000)

    @contextmanager
    def _step(self, what: str, replaced: str = "") -> Iterator[None]:
        """Something is done to the group; afterwards it has settled, and what that took is told."""
        mark = self._server.log.mark()
        self._moved.clear()
        self._view.doing = what
        yield
        self._settle(replaced)
        self._ever_moved |= self._moved
        rebalances = self._rebalances(mark)
        self._display.step(
            what,
            f"{rebalances} {'rebalance ' if rebalances == 1 else 'rebalances'}  "
            f"{len(self._moved):2} of {len(self._owners)} moved  generation {self._generation()}",
        )

    def _settle(self, replaced: str = "") -> None:
        """Wait until the group is stable, its members are the workers' and they own every partition.

        replaced: a worker that must have a new member id by then.
        """
        old_member_id = self._member_ids.get(replaced)

        def settled() -> dict[str, Member] | None:
            group = self._look()
            members = {name: member for name, member in self._view.members.items() if member is not None}
            if group is None or group.state != STABLE or not len(group.members) == len(members) == len(WORKERS):
                return None
            fresh = not replaced or members[replaced].member_id != old_member_id
            return (
                members
                if fresh and sum(len(one.topic_partitions) for one in group.members) == PARTITION_COUNT
                else None
            )

        members = wait_until(settled, f"{self._view.doing}: the group settles", SETTLED_WITHIN_S)
        self._member_ids = {name: member.member_id for name, member in members.items()}
        self._owners = {pair: name for name, member in members.items() for pair in member.topic_partitions}
        self._view.leader = self._leader()
        self._view.states.clear()
        self._look()

    def _look_until(self, end: float) -> None:
        """Keep showing the group, until time.monotonic() says so."""
        while time.monotonic() < end:
            self._look()
            time.sleep(POLL_S)

    def _look(self) -> Group | None:
        """Describe the group and show it; None while it doesn't exist."""
        for worker in self._workers:
            worker.require_alive()
        answer = describe_groups(self._client, [self._group_id])[self._group_id]
        if isinstance(answer, Refused):
            if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise DemoFailed(str(answer))
        self._names |= {worker.member_id: worker.name for worker in self._workers if worker.member_id is not None}
        members = {self._names[one.member_id]: one for one in answer.members if one.member_id in self._names}
        if answer.state == STABLE:
            owned = ((pair, name) for name, member in members.items() for pair in member.topic_partitions)
            self._moved |= {pair for pair, name in owned if self._owners.get(pair, name) != name}
        self._view.members = {worker.name: members.get(worker.name) for worker in self._workers}
        self._view.state = answer.state
        self._view.generation = self._generation()
        self._view.rebalances = self._rebalances()
        self._display.update(self._view)
        return answer

    def _rebalances(self, since: int | None = None) -> int:
        """How many began, by the log; from the roll's begin on if no mark is given."""
        events = self._server.log.events(self._group_id, since=self._mark if since is None else since)
        return sum(event["event"] == "rebalance_started" for event in events)

    def _generation(self) -> int:
        """The group's, by the last event that names one."""
        events = self._server.log.events(self._group_id)
        return next((int(event["generation"]) for event in reversed(events) if "generation" in event), 0)

    def _leader(self) -> str:
        """Who led when the last rebalance was completed; a static leader stays it, whatever its member id is now."""
        events = self._server.log.events(self._group_id)
        leader = next((event["leader"] for event in reversed(events) if "leader" in event), None)
        return next((name for name, known in self._member_ids.items() if known == leader), self._view.leader)


def rebalancing_s(events: list[dict[str, Any]]) -> float:
    """Seconds between each rebalance_started and the rebalance_completed that follows, by the times of the lines."""
    total, began = 0.0, None
    for event in events:
        at = datetime.fromisoformat(event["ts"]).timestamp()
        if event["event"] == "rebalance_started":
            began = began or at
        elif event["event"] == "rebalance_completed" and began is not None:
            total, began = total + at - began, None
    return total
