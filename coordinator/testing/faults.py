"""The faults of a server under test, for the test's own thread; also the functions that make faults.

    tenure.faults.add("OffsetCommit client_id=worker-1 -> drop-response")
    (lost,) = tenure.faults.add(drop_response("OffsetCommit", client_id="worker-1"))
    ...
    assert lost.fired == 1

coordinator.server.faults.plan describes the conditions, the actions and the text. A fault stays planned over a stop, a
kill and a new start, until it is removed or has happened often enough.

House rule: the plan changes on the server's thread while the server runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence

from coordinator.server.faults.faults import Faults
from coordinator.server.faults.plan import (
    Action,
    Fault,
    PlanError,
    blackhole,
    delay,
    disconnect,
    disconnect_after,
    drop_request,
    drop_response,
    error,
    kill,
    loading,
    move,
    not_available,
    parse,
    random_plan,
    written,
)

__all__ = [
    "Action",
    "Fault",
    "PlanError",
    "PlannedFaults",
    "blackhole",
    "delay",
    "disconnect",
    "disconnect_after",
    "drop_request",
    "drop_response",
    "error",
    "kill",
    "loading",
    "move",
    "not_available",
]

FAULTS_MAX = 1_000
"""Faults of a plan: each request is compared with all of them."""

SEEDS = 2**32
"""A seed that nobody named is below this."""


class PlannedFaults:
    """The plan of a `Tenure`; iterating over it gives its faults, `str` its text.

    faults: of each node; all have the same plan. do: calls a function where the plan may change. can_kill: whether a
    server has a folder, or other nodes, so that its groups survive one.
    """

    def __init__(self, faults: Sequence[Faults], do: Callable[[Callable[[], None]], None], *, can_kill: bool) -> None:
        self._faults = faults
        self._do = do
        self._can_kill = can_kill

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults[0]))

    def __str__(self) -> str:
        return written(self)

    def add(self, *faults: Fault | str) -> list[Fault]:
        """Plan further faults, each a value or a text of one or more lines; returns them as values.

        Raises PlanError; ValueError for a kill without a data folder and without other nodes, and for too many faults.
        """
        added: list[Fault] = []
        for fault in faults:
            added += parse(fault) if isinstance(fault, str) else [fault]
        if not self._can_kill and any(fault.action is Action.KILL for fault in added):
            raise ValueError("a kill needs a data folder, or other nodes: Tenure(data_dir=...) or Tenure(nodes=3)")
        planned = len(list(self))
        if planned + len(added) > FAULTS_MAX:
            raise ValueError(f"{len(added)} faults beside {planned} are more than {FAULTS_MAX}: take some back first")
        self._on_each(lambda faults: faults.add(*added))
        return added

    def add_random(self, seed: int | None = None, count: int = 10, clients: Collection[str] = ()) -> list[Fault]:
        """Plan faults that clients should survive, drawn by chance; `str` of the plan is the text to replay them.

        seed: the same seed gives the same faults; by default another one each time. clients: client ids; each fault is
        for one of them, or for all clients if there are none.
        """
        drawn = random.randrange(SEEDS) if seed is None else seed  # noqa: S311 - a test's chance is no secret
        return self.add(*random_plan(drawn, count, clients))

    def remove(self, *faults: Fault) -> None:
        """Take faults out of the plan; the connections that they silenced close."""
        self._on_each(lambda each: each.remove(*faults))

    def clear(self) -> None:
        """Take all faults out of the plan."""
        self._on_each(lambda each: each.clear())

    @property
    def never_fired(self) -> list[Fault]:
        """The planned faults that no request met."""
        return self._faults[0].never_fired

    def _on_each(self, change: Callable[[Faults], None]) -> None:
        def changed() -> None:
            for faults in self._faults:
                change(faults)

        self._do(changed)
