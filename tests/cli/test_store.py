"""`tenure store restore`: it says what it did, or why it can't."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from coordinator.cli.store import app
from coordinator.log.etcd.client import Access
from coordinator.log.etcd.moving import EPOCHS, Mover, Stored
from tests.cli.conftest import run_app
from tests.support.etcd import Etcd

pytestmark = pytest.mark.etcd


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """One member."""
    with Etcd() as running:
        yield running


def _mover(etcd: Etcd) -> Mover:
    return Mover(Access(etcd.endpoints), "restored", lambda: uuid4().hex)


def test_restore_raises_the_epochs(etcd: Etcd) -> None:
    """The records stay; a second restore raises them again. Without a cluster it says so in one line."""
    store = ["--store", etcd.store, "--cluster", "restored"]
    absent = run_app(app, "restore", *store)
    assert (absent.code, absent.out) == (2, "")
    assert absent.err == f"tenure: etcd has no cluster restored ({etcd.endpoints[0]})\n"
    stored = Stored("id", [{b"\0\1a": b"\0b"}, {}], [4, -1], {"topic/a": b"{}"})
    with _mover(etcd) as mover:
        mover.write(stored)
    for number in (1, 2):
        ran = run_app(app, "restore", *store)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == (
            "cluster restored is restored: the epochs of 2 partitions are raised by 1,000,000, "
            "0 leases of nodes ended\n"
        )
        with _mover(etcd) as mover:
            back = mover.read()
        assert back == stored._replace(epochs=[5 + number * EPOCHS, number * EPOCHS])


def test_a_command_without_a_store_says_what_is_missing() -> None:
    """And a name that is missing, too."""
    assert "--store" in run_app(app, "restore").err
    assert "tenure.cluster" in run_app(app, "restore", "--store", "etcd://127.0.0.1:1").err
