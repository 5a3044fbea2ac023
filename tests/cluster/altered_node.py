"""A node of a cluster that a test has altered; the arguments are those of `tenure`.

    WALL_CLOCK=FILE python -m tests.cluster.altered_node serve ...       its wall clock is off by the seconds in FILE
    ALTERED=silent python -m tests.cluster.altered_node serve ...        it gives a try up without telling etcd so
    ALTERED=silent,no-chain ...                                          and its appends have no head chain
    ALTERED=busy ...                                                     its loop hears late what it has lost

The wall clock steps when the content of FILE changes. Monotonic clocks go on.

House rule: for tests that need what no signal and no proxy does.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.cli.main import main as tenure
from coordinator.log.cluster import loop as engine_clock
from coordinator.log.cluster.core import Core
from coordinator.log.cluster.port import Compare, Lost, Target, Txn
from coordinator.log.cluster.writer import Writer
from coordinator.log.etcd import client as clients
from coordinator.loop import clock
from coordinator.server.runtime.runtime import Runtime

BUSY_S = 0.02
"""The loop of a busy node has so much else to do before each change of an ownership."""
REGISTERS_AFTER_MS = 500
"""Behind its new lease. Until it registers, the other nodes keep its partitions."""
HELD_S = 60
"""etcd keeps the call of a silent client for so long."""


class SteppedTime:
    """The module `time`, whose wall clock shows what a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def _offset_ns(self) -> int:
        return int(self._file.read_text() or 0) * 1_000_000_000

    def time(self) -> float:
        """As time.time."""
        return self.time_ns() / 1e9

    def time_ns(self) -> int:
        """As time.time_ns."""
        return time.time_ns() + self._offset_ns()

    def clock_gettime_ns(self, clock: int) -> int:
        """As time.clock_gettime_ns."""
        return time.clock_gettime_ns(clock) + (self._offset_ns() if clock == time.CLOCK_REALTIME else 0)


def step_wall_clock(file: Path) -> None:
    """Have the modules that read a clock see a stepped one.

    Not gRPC: its Python reads the wall clock, its C code reads the machine's, and both have to see the same.
    """
    for module in (clock, engine_clock):
        module.time = SteppedTime(file)  # type: ignore[attr-defined]


def give_up_silently() -> None:
    """A try that has no answer in time is lost for the node, and etcd hears nothing of that.

    It is the same if a machine loses its network, or stands still before it can tell.
    """
    try_s = clients.TRY_S
    ask = clients.Client._ask

    def silent(self: Any, method: str, name: str, request: Any, done: Any, result: Any) -> None:
        waits = [True]

        def told(outcome: Any) -> None:
            if waits:
                waits.clear()
                cancel()
                done(outcome)

        def give_up(index: int) -> None:
            if waits:
                waits.clear()
                self._leave(index)
                done(Lost("no answer in time"))

        cancel = self._loop.later(int(try_s * 1000), partial(give_up, self._chosen))
        clients.TRY_S = HELD_S
        ask(self, method, name, request, told, result)
        clients.TRY_S = try_s

    clients.Client._ask = silent  # type: ignore[method-assign]


def leave_out_the_chain() -> None:
    """An append has the claim as its condition, as many programs on etcd do it, and moves no head."""
    made = Writer._txn

    def without_chain(self: Writer) -> Txn:
        txn = made(self)
        parts = self._parts
        claims = [Compare(self._keys.own(part.own.partition), Target.CREATE_REVISION, part.own.claim) for part in parts]
        return txn._replace(compares=claims)

    Writer._txn = without_chain  # type: ignore[method-assign]


def be_busy() -> None:
    """Each change of an ownership takes a turn of the loop, and a long one; requests come in between.

    A new lease is there long before the node registers with it.
    """
    changed = Runtime._ownership_changed

    def late(self: Runtime, index: int, owner: int | None, epoch: int) -> None:
        until_s = time.monotonic() + BUSY_S
        while time.monotonic() < until_s:
            pass
        changed(self, index, owner, epoch)

    def leased(self: Core) -> None:
        self._port.later(REGISTERS_AFTER_MS, self.claims.announce)

    Runtime._ownership_changed = late  # type: ignore[method-assign]
    Core._leased = leased  # type: ignore[method-assign]


def main() -> None:
    """See the module."""
    if file := os.environ.get("WALL_CLOCK"):
        step_wall_clock(Path(file))
    altered = os.environ.get("ALTERED", "").split(",")
    if "silent" in altered:
        give_up_silently()
    if "no-chain" in altered:
        leave_out_the_chain()
    if "busy" in altered:
        be_busy()
    tenure()


if __name__ == "__main__":
    sys.argv[0] = "tenure"
    main()
