"""The story: five consumers share a topic, each restarts, and in the middle the coordinator is killed.

It plays three times: with static members, with dynamic members, and with static members of the consumer protocol.
After each step the group settles. Then the coordinator's descriptions of the group and its log say who owns what, how
often the group rebalanced, how long that took, and which generation (in the consumer protocol, which epoch) it has. A
consumer says only which member it is.

House rule: a figure is computed from readings of the server before and after, and from nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from coordinator.client.topics import TopicPartition
from coordinator.story.described import Group, Member
from examples.demo.consumer import CLASSIC, CONSUMER, SESSION_TIMEOUT_MS
from examples.demo.display import Display, Figures, View
from examples.demo.processes import POLL_S, DemoFailed, Server, Worker, wait_until
from examples.demo.server_log import at_s
from schemas.errors import ErrorCode

WORKERS = tuple(f"worker-{number}" for number in range(1, 6))
PARTITION_COUNT = 12
KILL_AFTER = 3
"""The demo kills the coordinator after so many restarts."""
DOWN_S = 1.5
"""How long a consumer stays down: a fast deployment."""
SETTLED_WITHIN_S = 30.0
STABLE = "Stable"
ENDS = frozenset({"rebalance_completed", "rebalance_ended"})
"""Events that end a rebalance; the consumer protocol has the second one only."""

Owners = dict[TopicPartition, str]
"""Topic partition -> the worker that owns it."""


class Act(NamedTuple):
    """One playing of the story. counter: the name of its group's generations."""

    kind: str
    group_id: str
    protocol: str
    static: bool
    counter: str = "generation"


ACTS = (
    Act("static", "static-workers", CLASSIC, static=True),
    Act("dynamic", "dynamic-workers", CLASSIC, static=False),
    Act("static, consumer protocol", "consumer-workers", CONSUMER, static=True, counter="epoch"),
)
"""The acts, in the order of their columns."""


class Roll:
    """Plays the story once, with a group of its own on a running server."""

    def __init__(self, server: Server, client: Client, topic: str, folder: Path, display: Display, act: Act) -> None:
        self._server = server
        self._client = client
        self._display = display
        self._is_static = act.static
        self._view = View(act.kind, act.counter, members=dict.fromkeys(WORKERS))
        self._group_id = act.group_id
        self._workers = [
            Worker(name, server, self._group_id, topic, folder, act.protocol, static=act.static) for name in WORKERS
        ]
        self._mark = 0
        self._names: dict[str, str] = {}
        """Member id -> worker, of all members since the start."""
        self._member_ids: dict[str, str] = {}
        self._owners: Owners = {}
        self._moved: set[TopicPartition] = set()
        """Topic partitions that changed their owner since the last step began."""
        self._ever_moved: set[TopicPartition] = set()

    def play(self) -> Figures:
        """Start the consumers, restart each of them, and end them."""
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
        self._view.doing = f"{len(WORKERS)} members join"
        self._settle()
        self._mark = self._server.log.mark()
        self._display.chapter(
            f"{len(self._member_ids)} {'static' if self._is_static else 'dynamic'} members share "
            f"{len(self._owners)} partitions at {self._view.counter} {self._generation()}, {self._led_by()}"
        )

    def _led_by(self) -> str:
        """The one that assigns: the leader, or the coordinator."""
        return f"led by {self._view.leader}" if self._view.leader else "assigned by the coordinator"

    def _restart(self, worker: Worker) -> None:
        """End a consumer and start it again; the step is done when the consumer is back under a new member id."""
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
        """Kill the coordinator, start it again on the same data, and return when it was back (time.monotonic)."""
        with self._step("coordinator killed and restarted"):
            self._server.kill()
            self._display.update(self._view)
            self._server.start()
        return time.monotonic()

    def _outlive_sessions(self, restarted_at: float) -> None:
        """Wait longer than a session timeout: a restarted coordinator gives each member a full one."""
        with self._step("a session timeout has passed"):
            self._look_until(restarted_at + 1.1 * SESSION_TIMEOUT_MS / 1_000)

    @contextmanager
    def _step(self, what: str, replaced: str = "") -> Iterator[None]:
        """Run a block that does something to the group, wait until the group has settled, and show what that took."""
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
            f"{len(self._moved):2} of {len(self._owners)} moved  {self._view.counter} {self._generation()}",
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
        """Keep showing the group until the time `end` (time.monotonic)."""
        while time.monotonic() < end:
            self._look()
            time.sleep(POLL_S)

    def _look(self) -> Group | None:
        """Describe the group and show it; returns None while the group doesn't exist."""
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
        """The number of rebalances that began since a mark in the log; without a mark, since the roll began."""
        events = self._server.log.events(self._group_id, since=self._mark if since is None else since)
        return sum(event["event"] == "rebalance_started" for event in events)

    def _generation(self) -> int:
        return self._server.log.generation(self._group_id)

    def _leader(self) -> str:
        """The leader when the last rebalance completed; a static member stays leader with a new member id."""
        leader = self._server.log.newest(self._group_id, "leader")
        return next((name for name, known in self._member_ids.items() if known == leader), self._view.leader)


def rebalancing_s(events: list[dict[str, Any]]) -> float:
    """Seconds between each rebalance_started and the end that follows, by the times of the lines."""
    total, began = 0.0, None
    for event in events:
        at = at_s(event)
        if event["event"] == "rebalance_started":
            began = began or at
        elif event["event"] in ENDS and began is not None:
            total, began = total + at - began, None
    return total
