"""Chaos for docker-compose.cluster.yml: it kills, stops, freezes and cuts off nodes, and kills a member of etcd.

Each round does every kind of harm once, and always to the node that has the group at that moment:

    killed      SIGKILL
    stopped     SIGTERM
    frozen      all its processes stand still, for longer than a lease
    cut off     without a network, for longer than a lease
    with a seat SIGKILL, together with a consumer
    etcd        SIGKILL of one member of three

After the harm chaos waits until each partition has been committed anew, undoes it, and waits until three nodes and the
whole group are there. At the end it waits longer than a session timeout, so that the coordinator expires members that
are gone.

Each step is a line of JSON. If something doesn't come in time, the exit code is 1 and standard error has a line.

House rule: it does harm and waits. The logs of nodes and consumers say whether partitions moved, and how long commits
took.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from engine import Engine, say

from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import committed_offsets, describe_groups
from coordinator.story.described import Group
from coordinator.story.offsets import NO_OFFSET

NODES = ("node-0", "node-1", "node-2")
ETCD = ("etcd-1", "etcd-2", "etcd-3")
STILL_S = 8.0
"""How long a node stands still or has no network: its lease is 3 s."""
SESSIONS_WAITED = 1.2
"""How long the end waits, in session timeouts."""
WITHIN_S = 60.0
ASK_WITHIN_S = 2.0
POLL_S = 0.1

Seen = TypeVar("Seen")
Offsets = dict[tuple[str, int], int]


class Chaos:
    """The containers, and the group that has to stay whole."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._bootstrap = os.environ["BOOTSTRAP_SERVERS"]
        self._group_id = os.environ["GROUP_ID"]
        self._partitions = int(os.environ["PARTITIONS"])
        self._session_timeout_s = int(os.environ["SESSION_TIMEOUT_MS"]) / 1_000
        self._consumers = sorted(name for name in self._engine.services if name.startswith("consumer"))

    def run(self, rounds: int) -> None:
        """Run all rounds, then wait for a session timeout."""
        engine = self._engine
        say("found", seats=self._recover({}))
        for number in range(rounds):
            for how, harm, undo in (
                ("killed", lambda node: engine.end(node, "SIGKILL"), engine.start),
                ("stopped", lambda node: engine.end(node, "SIGTERM"), engine.start),
                ("frozen", engine.freeze, engine.thaw),
                ("cut off", engine.cut, engine.join),
            ):
                self._harm(how, self._owner(), harm, undo)
            self._harm("killed", ETCD[number % 3], lambda member: engine.end(member, "SIGKILL"), engine.start)
            self._kill_with_a_seat(self._consumers[number % len(self._consumers)])
        time.sleep(SESSIONS_WAITED * self._session_timeout_s)
        say("done", seats=self._recover({}))

    def _harm(self, how: str, service: str, harm: Callable[[str], None], undo: Callable[[str], None]) -> None:
        """Harm one service, and undo that when the group goes on without it."""
        before, began = self._offsets(), time.monotonic()
        harm(service)
        self._wait_for_commits(before)
        if how in ("frozen", "cut off"):
            time.sleep(max(0.0, began + STILL_S - time.monotonic()))
        undo(service)
        self._recover({})
        say("harmed", service=service, how=how)

    def _kill_with_a_seat(self, consumer: str) -> None:
        """Kill the node of the group and a consumer at once; the consumer comes back first."""
        former = self._whole({})[consumer]
        node, before = self._owner(), self._offsets()
        self._engine.end(consumer, "SIGKILL")
        self._engine.end(node, "SIGKILL")
        self._engine.start(consumer)
        self._wait_for_commits(before)
        self._engine.start(node)
        self._recover({consumer: former})
        say("harmed", service=node, how="killed", consumer=consumer)

    def _recover(self, former: dict[str, str]) -> dict[str, str]:
        """Wait for all nodes, for the whole group and for new commits; member ids by seat, none of them of `former`."""
        self._wait("three nodes", lambda client: len(client.nodes()) == len(NODES) or None)
        self._wait_for_commits(self._offsets())
        return self._whole(former)

    def _whole(self, former: dict[str, str]) -> dict[str, str]:
        """Member ids by seat, once the group is stable and has every consumer."""

        def seats(client: Client) -> dict[str, str] | None:
            group = self._group(client)
            found = {member.group_instance_id or "": member.member_id for member in group.members}
            is_whole = group.state == "Stable" and sorted(found) == self._consumers
            return found if is_whole and not set(found.values()) & set(former.values()) else None

        return self._wait("the group is whole", seats)

    def _owner(self) -> str:
        """The node that has the group."""
        return self._wait("a coordinator", lambda client: NODES[self._group(client).coordinator.node_id])

    def _group(self, client: Client) -> Group:
        return _answer(describe_groups(client, [self._group_id])[self._group_id])

    def _offsets(self) -> Offsets:
        """All committed offsets, once each partition has one."""

        def offsets(client: Client) -> Offsets | None:
            answer = _answer(committed_offsets(client, [self._group_id])[self._group_id])
            found = {
                (topic, index): offset
                for topic, known in answer.items()
                for index, offset in known.items()
                if offset != NO_OFFSET
            }
            return found if len(found) == self._partitions else None

        return self._wait("a commit in each partition", offsets)

    def _wait_for_commits(self, before: Offsets) -> None:
        """Wait until each partition has a commit that began after `before` was read: one may have been under way."""
        self._wait_for(
            "new commits in each partition", lambda: all(self._offsets()[each] > before[each] + 1 for each in before)
        )

    def _wait(self, what: str, look: Callable[[Client], Seen | None]) -> Seen:
        """Wait until `look` sees something, and return that."""
        seen: Seen | None = None

        def ask() -> bool:
            nonlocal seen
            with Client(self._bootstrap, ASK_WITHIN_S) as client:
                seen = look(client)
            return seen is not None

        self._wait_for(what, ask)
        assert seen is not None
        return seen

    def _wait_for(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline, why = time.monotonic() + WITHIN_S, ""
        while True:
            try:
                if is_there():
                    return
            except (Refused, Unreachable) as error:
                why = str(error)
            if time.monotonic() > deadline:
                sys.exit(f"not after {WITHIN_S:g} s: {what} {why}".rstrip())
            time.sleep(POLL_S)


def _answer(answer: Seen | Refused) -> Seen:
    if isinstance(answer, Refused):
        raise answer
    return answer


if __name__ == "__main__":
    Chaos().run(int(os.environ.get("ROUNDS", "1")))
