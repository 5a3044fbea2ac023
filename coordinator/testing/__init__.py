"""A coordinator for tests: in this process, on real sockets, for unmodified clients.

    from coordinator.testing import Tenure

    with Tenure(topics={"orders": 12}) as tenure:
        ...  # start consumers on tenure.bootstrap_servers
        group = tenure.group("workers").wait_until_stable(members=3)
        with group.no_rebalance():
            ...  # restart them

`tenure` starts and stops the server, which runs on a thread of its own (`loop_thread`). `group` looks at a group and
waits for it, `values` are what it sees, `history` keeps the events of all groups, `assertions` says what went wrong,
`requests` counts requests. `clock` is the server's time and `faults` what goes wrong; `members` fill a group without
clients. `control` is all of this on the server's thread. `plugin` has the fixtures for pytest.

All functions block, and any thread may call them. Test code that runs on an event loop calls those that wait through
`asyncio.to_thread`.

House rule: importing this package imports no server; the first use of a name here does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.testing.assertions import (
        assert_moved_at_most,
        assert_no_rebalance,
        assert_nothing_moved,
        assert_rebalances,
        assert_same_seats,
    )
    from coordinator.testing.group import Group
    from coordinator.testing.tenure import NotRunning, Tenure
    from coordinator.testing.values import Fencing, Rebalance, Return

__all__ = [
    "Fencing",
    "Group",
    "NotRunning",
    "Rebalance",
    "Return",
    "Tenure",
    "assert_moved_at_most",
    "assert_no_rebalance",
    "assert_nothing_moved",
    "assert_rebalances",
    "assert_same_seats",
]

_HOMES = {
    "Fencing": "values",
    "Group": "group",
    "NotRunning": "tenure",
    "Rebalance": "values",
    "Return": "values",
    "Tenure": "tenure",
}
"""The module of each name; the others are in `assertions`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'assertions')}"), name)
