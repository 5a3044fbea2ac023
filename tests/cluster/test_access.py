"""Nodes on an etcd with TLS, certificates of clients, and users: what they need, and what they say if it is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest

from coordinator.config import ConfigError, load
from coordinator.log.embedded.report import ignore
from coordinator.log.segments.counts import Counts
from coordinator.log.store import open_cluster
from schemas.errors import ErrorCode
from tests.support.apache_cluster import wait_for_coordinators
from tests.support.certificates import Certificates
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.etcd

CLUSTER = "orders"
TOKEN_S = 1
"""How long etcd knows a token that nobody uses (--auth-token-ttl)."""


@pytest.fixture(scope="module")
def etcd(certificates: Certificates) -> Iterator[Etcd]:
    """Three members that want certificates, with a user for the keys of one cluster."""
    flags = (f"--auth-token-ttl={TOKEN_S}", "--bcrypt-cost=4")
    with Etcd(members=3, certificates=certificates, arguments=flags) as running:
        running.enable_users("tenure", "right", f"/{CLUSTER}/")
        yield running


@pytest.fixture(scope="module")
def settings(etcd: Etcd, certificates: Certificates) -> dict[str, str | int]:
    """All that a node needs."""
    password = etcd.folder / "password"
    password.write_text("right\n")
    return {
        "tenure.store": etcd.store,
        "tenure.cluster": CLUSTER,
        "tenure.store.ssl.truststore.location": str(certificates.ca),
        "tenure.store.ssl.keystore.location": str(certificates.client),
        "tenure.store.user": "tenure",
        "tenure.store.password.file": str(password),
    }


def refusal(settings: dict[str, str | int], folder: Path) -> str:
    """Open the store of a node that can't start; its error, which comes before its time to try is over."""
    sets = [f"{name}={value}" for name, value in settings.items()]
    config, _ = load(sets=[*sets, "node.id=2", f"log.dirs={folder / 'data'}"])
    began = monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("coordinator.log.etcd.engine.OPEN_WITHIN_S", WITHIN_S)
        with pytest.raises(ConfigError) as caught:
            open_cluster(config, uuid4, ignore, Counts())
    assert monotonic() - began < WITHIN_S, "it tried on until its time was over"
    assert not (folder / "data" / "meta.properties").exists()
    return str(caught.value)


def test_a_wrong_certificate_or_password_is_said_at_once(
    etcd: Etcd, settings: dict[str, str | int], certificates: Certificates, tmp_path: Path
) -> None:
    """One line names the setting, for the wrong CA, no or a foreign certificate, password, user, and cluster."""
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    truststore, keystore = "tenure.store.ssl.truststore.location", "tenure.store.ssl.keystore.location"
    login = "tenure.store.user or tenure.store.password.file is wrong"
    unauthenticated = "INVALID_ARGUMENT: etcdserver: authentication failed, invalid user ID or password: "
    told = {
        text: refusal({**settings, **changes}, tmp_path)
        for text, changes in {
            f"etcd's certificate isn't valid by {truststore}": {truststore: str(certificates.foreign_ca)},
            f"etcd accepts no certificate of this node ({keystore})": {keystore: ""},
            f"accepts no certificate of this node ({keystore})": {keystore: str(certificates.foreign_client)},
            unauthenticated + login: {"tenure.store.password.file": str(wrong)},
            login: {"tenure.store.user": "nobody"},
            "may not read and write the keys of tenure.cluster": {"tenure.cluster": "others"},
        }.items()
    }
    for text, line in told.items():
        assert text in line
        assert line.startswith("tenure.store: etcd")
        assert "\n" not in line


@pytest.mark.cluster
def test_a_node_lives_on_when_its_token_is_gone(etcd: Etcd, settings: dict[str, str | int]) -> None:
    """A member of etcd forgets the token that only another one is asked with: the node logs in anew there."""
    began = monotonic()
    with Tenure({**settings, "node.id": 1, "tenure.topics": "t:1"}, arguments=["--http", "127.0.0.1:0"]) as node:
        wait_for_coordinators([node.port])
        member = Member(node.port, "g", "m", 9)
        settle(member)
        assert logins(node) == 1
        # A member forgets tokens once a second.
        wait_until(lambda: monotonic() > began + TOKEN_S + 1.5, "the tokens are gone", WITHIN_S)
        etcd.members[0].freeze()
        wait_until(lambda: logins(node) > 1, "the node logs in anew", WITHIN_S)
        # Without the frozen member, which may lead etcd, the node refuses writes for a moment.
        wait_until(lambda: forms_a_group(node.port), "a group forms", WITHIN_S)
        etcd.members[0].thaw()
        hang_up()


def forms_a_group(port: int) -> bool:
    """Whether a new group forms: its member joins and syncs."""
    member = Member(port, str(uuid4()), "m", 9)
    member.send_join()
    if member.receive_join().error_code != ErrorCode.NONE:
        return False
    member.send_sync({member.member_id: member.name})
    answer: Any = member.connection.receive(WITHIN_S)
    return bool(answer.error_code == ErrorCode.NONE)


@pytest.mark.cluster
def test_users_are_switched_on_under_nodes_that_have_one(tmp_path: Path) -> None:
    """A node starts before etcd has users, and says so. When it has them, the node logs in, and no member notices.

    A node without a user doesn't start then.
    """
    password = tmp_path / "password"
    password.write_text("right\n")
    with Etcd(arguments=["--bcrypt-cost=4"]) as etcd:
        arguments = ["--store", etcd.store, "--cluster", CLUSTER, "--node-id", "1", "--http", "127.0.0.1:0"]
        user = {"tenure.store.user": "tenure", "tenure.store.password.file": str(password), "tenure.topics": "t:1"}
        with Tenure(user, arguments=arguments) as node:
            wait_for_coordinators([node.port])
            assert len(node.events("store_has_no_users")) == 1
            settle(Member(node.port, "before", "m", 9))
            etcd.enable_users("tenure", "right", f"/{CLUSTER}/")
            settle(Member(node.port, "after", "m", 9))
            assert logins(node) > 1
            assert [line for line in node.events() if line["level"] == "error"] == []
            hang_up()
        line = refusal({"tenure.store": etcd.store, "tenure.cluster": CLUSTER}, tmp_path)
        assert "etcd has users, and tenure.store.user names none" in line


def logins(node: Tenure) -> int:
    """How often a node has logged in to etcd."""
    (line,) = node.events("http_listening")
    with urlopen(f"{line['url']}metrics", timeout=WITHIN_S) as answer:
        text = answer.read().decode()
    found = re.search(r'^tenure_store_calls_total\{.*call="Authenticate".*\} (\S+)$', text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))
