"""Chaos for docker-compose.yml: it restarts the consumers and kills the coordinator, one after the other.

It talks to the Docker engine through the engine's socket (engine.py). Each round ends every consumer once, by turns
with SIGTERM and with SIGKILL, starts it again, and waits until the member has its seat back. After the first consumer
it kills the coordinator with SIGKILL. It kills the coordinator again while the last consumer is stopped, and starts
that consumer before the coordinator. At the end it waits longer than a session timeout, so that the coordinator expires
members that are gone.

COMMAND_CONFIG names a client properties file, for a coordinator that asks for TLS and a login.

Each step is a line of JSON. If the group isn't whole in time, the exit code is 1 and standard error has a line.

House rule: it does harm and waits. The coordinator's log and the audit say whether partitions moved.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from engine import Engine, say

from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import describe_groups
from coordinator.client.properties import Properties, read_file
from coordinator.client.security import Security
from coordinator.story.described import Group

COORDINATOR = "coordinator"
SESSIONS_WAITED = 1.2
"""How long the end waits, in session timeouts."""
WHOLE_WITHIN_S = 60.0
POLL_S = 0.2


class Chaos:
    """The containers, and the group that has to stay whole."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._bootstrap = os.environ["BOOTSTRAP_SERVERS"]
        config = os.environ.get("COMMAND_CONFIG")
        self._security = Security(read_file(Path(config)) if config else Properties())
        self._group_id = os.environ["GROUP_ID"]
        self._session_timeout_s = int(os.environ["SESSION_TIMEOUT_MS"]) / 1_000
        self._consumers = sorted(name for name in self._engine.services if name.startswith("consumer"))

    def run(self, rounds: int) -> None:
        """Run all rounds, then wait for a session timeout."""
        seats = self._wait_until_whole({})
        say("found", seats=seats)
        for _ in range(rounds):
            for number, consumer in enumerate(self._consumers):
                by = "SIGTERM" if number % 2 == 0 else "SIGKILL"
                self._engine.end(consumer, by)
                if consumer == self._consumers[-1]:
                    self._engine.end(COORDINATOR, "SIGKILL")
                    self._engine.start(consumer)
                    self._engine.start(COORDINATOR)
                    say("restarted", service=COORDINATOR, by="SIGKILL")
                else:
                    self._engine.start(consumer)
                seats = self._wait_until_whole({consumer: seats[consumer]})
                say("restarted", service=consumer, by=by)
                if number == 0:
                    self._engine.end(COORDINATOR, "SIGKILL")
                    self._engine.start(COORDINATOR)
                    say("restarted", service=COORDINATOR, by="SIGKILL")
        time.sleep(SESSIONS_WAITED * self._session_timeout_s)
        say("done", seats=self._wait_until_whole({}))

    def _wait_until_whole(self, former: dict[str, str]) -> dict[str, str]:
        """Member ids by seat, once the group is stable, has every consumer, and has none of `former`."""
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while True:
            seen = self._look()
            if isinstance(seen, Group) and seen.state == "Stable":
                seats = {member.group_instance_id or "": member.member_id for member in seen.members}
                if sorted(seats) == self._consumers and not set(seats.values()) & set(former.values()):
                    return seats
            if time.monotonic() > deadline:
                sys.exit(f"{self._group_id} isn't whole after {WHOLE_WITHIN_S:g} s: {seen}")
            time.sleep(POLL_S)

    def _look(self) -> Group | Refused | Unreachable:
        try:
            with Client(self._bootstrap, POLL_S * 5, security=self._security) as client:
                return describe_groups(client, [self._group_id])[self._group_id]
        except (Refused, Unreachable) as error:
            return error


if __name__ == "__main__":
    Chaos().run(int(os.environ.get("ROUNDS", "1")))
