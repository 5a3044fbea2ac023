"""A server for each test, and members that do only what the test says (tests.support.scripted)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coordinator.testing import Tenure
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle

Join = Callable[..., Member]


@pytest.fixture
def server() -> Iterator[Tenure]:
    """Yield a running server with topic t, whose waiters have patience."""
    with Tenure(topics={"t": 3}, timeout=WITHIN_S) as made:
        yield made
    hang_up()


@pytest.fixture
def member(server: Tenure) -> Iterator[Join]:
    """Yield a function that makes a member of the group "workers"."""
    yield lambda name, version=5, **says: Member(port_of(server), "workers", name, version, **says)
    hang_up()


def port_of(server: Tenure) -> int:
    """The server's port."""
    return int(server.bootstrap_servers.rpartition(":")[2])


def join_in(server: Tenure, new: Member, *others: Member) -> None:
    """Let a new member join a Stable group, and all be Stable again."""
    new.send_join()
    server.group("workers").wait_until(state="PreparingRebalance")
    settle(*others, new)
