"""`tenure store restore`: it says what it did, or why it can't."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from coordinator.cli.log.command import app as log_app
from coordinator.cli.store import app
from coordinator.client.client import Client
from coordinator.client.topics import create_topic
from coordinator.log.etcd.client import Access
from coordinator.log.etcd.moving import EPOCHS, Mover, Stored
from tests.cli.conftest import SETTINGS, run_app
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.tenure_cluster import ClusterNode

pytestmark = pytest.mark.etcd


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


def test_a_user_needs_the_keys_of_its_cluster_alone(tmp_path: Path) -> None:
    """With the role that docs/run/cluster.md makes, a node serves, commands work; other clusters' keys are denied."""
    password = tmp_path / "password"
    password.write_text("secret")
    login = {"tenure.store.user": "tenure", "tenure.store.password.file": str(password)}
    options = [part for name, value in login.items() for part in ("--set", f"{name}={value}")]
    with Etcd() as own:
        own.enable_users("tenure", "secret", "/orders/")
        with ClusterNode(0, own.endpoints, "orders", login | SETTINGS, proxied=False) as node:
            with Client(node.bootstrap, WITHIN_S) as client:
                create_topic(client, "payments", 2)
            assert node.stop() == 0
        store = ["--store", own.store, *options, "--cluster"]
        assert run_app(app, "restore", *store, "orders").code == 0
        exported = run_app(log_app, "export", str(tmp_path / "exported"), *store, "orders")
        assert (exported.code, exported.err) == (0, "")
        denied = run_app(log_app, "export", str(tmp_path / "other"), *store, "others")
        assert (denied.code, denied.out) == (2, "")
        assert denied.err == (
            "tenure: etcd refuses: PERMISSION_DENIED: etcdserver: permission denied: the user in tenure.store.user may "
            "not read and write the keys of tenure.cluster\n"
        )
