"""The cluster of etcd that tests use: what its methods promise holds for the real processes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.etcd import Etcd, EtcdError

if TYPE_CHECKING:
    from tests.support.certificates import Certificates

pytestmark = pytest.mark.etcd


def put(etcd: Etcd, key: str, value: str, number: int = 0) -> None:
    """Write a key through a member."""
    pair = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
    etcd.ask("/v3/kv/put", pair, number)


def state_of(pid: int) -> str:
    """The letter of the process's state: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_member_keeps_its_data_and_port_over_kill_and_restart() -> None:
    """One member: after SIGKILL and a start it answers on the same port, and has what was written."""
    with Etcd() as etcd:
        endpoints = etcd.endpoints
        put(etcd, "a/1", "one")
        etcd.members[0].kill()
        with pytest.raises(OSError, match="refused"):
            etcd.ask("/v3/maintenance/status", {})
        etcd.restart(0)
        assert etcd.endpoints == endpoints
        assert etcd.values("a/") == {"a/1": b"one"}
        pid = etcd.members[0].pid
        folder = etcd.folder
    assert not Path(f"/proc/{pid}").exists()
    assert not folder.exists()


@pytest.mark.long
def test_three_members_go_on_without_a_leader_that_is_frozen_or_dead() -> None:
    """Three members: one that is frozen stays in the cluster; the others choose a leader when the old one is gone."""
    with Etcd(members=3) as etcd:
        first = etcd.leader()
        put(etcd, "a/1", "one", (first + 1) % 3)
        etcd.members[first].freeze()
        assert state_of(etcd.members[first].pid) == "T"
        second = etcd.leader()
        assert second != first
        put(etcd, "a/1", "two", second)
        etcd.members[first].thaw()
        etcd.wait_for(first)
        assert etcd.values("a/", first) == {"a/1": b"two"}
        etcd.members[etcd.leader()].kill()
        third = etcd.leader()
        assert etcd.values("a/", third) == {"a/1": b"two"}


def test_a_flag_that_etcd_refuses_is_an_error() -> None:
    """A member that ends at once is an error, not a wait."""
    with pytest.raises(EtcdError, match="m0 ended"), Etcd(arguments=["--no-such-flag"]):
        pass


def test_members_speak_tls_with_the_certificates_of_tests(certificates: Certificates) -> None:
    """With certificates, a client that trusts the CA and has a certificate of it is answered."""
    with Etcd(certificates=certificates) as etcd:
        put(etcd, "a/1", "one")
        assert etcd.values("a/") == {"a/1": b"one"}
