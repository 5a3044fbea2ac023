"""Tests the port to real etcd servers: what it tells of their answers, and when it goes to another member."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from coordinator.log.cluster.keys import prefix_end
from coordinator.log.cluster.loop import Loop
from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Event,
    Get,
    Lost,
    Page,
    Put,
    Rejected,
    Status,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.etcd import client as clients
from coordinator.log.etcd.client import TRY_S, Access, Client
from tests.support.certificates import Authority, Certificates
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.etcd

NOT_FOUND = 5


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call have its answer, although etcd's disk may be slower than a try."""
    monkeypatch.setattr(clients, "TRY_S", WITHIN_S)


class Caller:
    """A client on its loop. prefix: of keys that belong to one test."""

    def __init__(self, access: Access) -> None:
        self.loop = Loop("test")
        self.client = Client(access, self.loop)
        self.prefix = f"/{uuid4().hex}/".encode()
        self.loop.start()

    def ask(self, call: Any, *arguments: Any, **options: Any) -> Any:
        """Make a call on the loop's thread, and return its outcome."""
        told: SimpleQueue[Any] = SimpleQueue()
        self.loop.call(partial(call, *arguments, told.put, **options))
        return told.get(timeout=WITHIN_S)

    def txn(self, *success: Put | Delete | Get) -> Any:
        """Carry out a transaction without conditions."""
        return self.ask(self.client.txn, Txn([], success))

    def page(self, limit: int, revision: int = 0) -> Any:
        """Read keys of this test."""
        return self.ask(self.client.range, self.prefix, prefix_end(self.prefix), limit=limit, revision=revision)

    def watch(self, from_revision: int) -> tuple[SimpleQueue[Event], SimpleQueue[Lost | Compacted], Any]:
        """Watch the keys of this test; return what gets its events, its end, and a function that ends it."""
        events, ended, cancels = SimpleQueue[Event](), SimpleQueue[Lost | Compacted](), SimpleQueue[Any]()

        def take(news: list[Event], _revision: int) -> None:
            for each in news:
                events.put(each)

        def begin() -> None:
            cancels.put(self.client.watch(self.prefix, from_revision, take, ended.put))

        self.loop.call(begin)
        return events, ended, cancels.get(timeout=WITHIN_S)

    def close(self) -> None:
        """End the thread and all connections."""
        self.loop.end(WITHIN_S)
        self.client.close()


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """Three members, for the tests that hurt none of them."""
    with Etcd(members=3) as running:
        yield running


@pytest.fixture
def caller(etcd: Etcd) -> Iterator[Caller]:
    """A client of all members."""
    made = Caller(Access(etcd.endpoints))
    yield made
    made.close()


def test_a_transaction_takes_one_branch_and_tells_what_that_read(caller: Caller) -> None:
    """Conditions look at values and revisions; a key that isn't there has revision 0."""
    key = caller.prefix + b"k"
    first = caller.ask(caller.client.txn, Txn([Compare(key, Target.CREATE_REVISION, 0)], [Put(key, b"1")], [Get(key)]))
    assert isinstance(first, TxnResult)
    assert first.succeeded
    again = caller.ask(caller.client.txn, Txn([Compare(key, Target.CREATE_REVISION, 0)], [Put(key, b"2")], [Get(key)]))
    assert not again.succeeded
    assert [(kv.value, kv.create_revision, kv.mod_revision) for kv in again.gets] == [
        (b"1", first.revision, first.revision)
    ]
    compares = [Compare(key, Target.VALUE, b"1"), Compare(key, Target.MOD_REVISION, first.revision)]
    assert caller.ask(caller.client.txn, Txn(compares, [Delete(key)])).succeeded
    assert caller.txn(Get(key)).gets == [None]


def test_a_transaction_of_many_operations_is_whole(caller: Caller) -> None:
    """etcd allows 128 operations on one level, and the client nests the others."""
    keys = [caller.prefix + b"%04d" % number for number in range(1_100)]
    result = caller.txn(*[Put(key, b"x") for key in keys])
    assert isinstance(result, TxnResult)
    pages = [caller.page(limit=1_000)]
    assert pages[0].more
    assert {kv.mod_revision for kv in pages[0].kvs} == {result.revision}
    assert [kv.key for kv in pages[0].kvs] == keys[:1_000]
    failed = caller.ask(caller.client.txn, Txn([Compare(keys[0], Target.VALUE, b"y")], [], [Get(key) for key in keys]))
    assert len(failed.gets) == len(keys)


def test_history_that_is_gone_is_told_as_such(caller: Caller) -> None:
    """A load reads all pages at one revision, and a watch begins at one: both hear that they must begin again."""
    revisions = [caller.txn(Put(caller.prefix + b"k", b"%d" % number)).revision for number in range(3)]
    assert isinstance(caller.page(limit=1, revision=revisions[0]), Page)
    assert caller.ask(caller.client.compact, revisions[2]) is None
    assert isinstance(caller.page(limit=1, revision=revisions[0]), Compacted)
    _, ended, _ = caller.watch(revisions[0])
    assert ended.get(timeout=WITHIN_S) == Compacted()


def test_a_client_without_a_user_needs_no_login(caller: Caller) -> None:
    """It is known from the start."""
    assert caller.client.is_known


def test_a_lease_that_is_gone_is_no_error_of_the_way(caller: Caller) -> None:
    """A keepalive tells 0, and a write with the lease is refused: the session must know that from a lost answer."""
    lease = caller.ask(caller.client.grant, 5)
    assert caller.ask(caller.client.keep_alive, lease) == 5
    assert isinstance(caller.txn(Put(caller.prefix + b"k", b"1", lease)), TxnResult)
    assert caller.ask(caller.client.revoke, lease) is None
    assert caller.txn(Get(caller.prefix + b"k")).gets == [None]
    assert caller.ask(caller.client.keep_alive, lease) == 0
    refused = caller.txn(Put(caller.prefix + b"k", b"1", lease))
    assert isinstance(refused, Rejected)
    assert refused.code == NOT_FOUND


def test_a_watch_tells_changes_in_order_until_it_is_ended(caller: Caller) -> None:
    """Those since its revision too; after its end it tells nothing."""
    key = caller.prefix + b"k"
    first = caller.txn(Put(key, b"1")).revision
    events, _, end = caller.watch(first)
    caller.txn(Put(key, b"2"))
    caller.txn(Delete(key))
    found = [events.get(timeout=WITHIN_S) for _ in range(3)]
    assert [(event.kv.value, event.is_delete) for event in found] == [(b"1", False), (b"2", False), (b"", True)]
    caller.loop.call(end)
    caller.txn(Put(key, b"3"))
    assert caller.txn(Get(key)).gets[0].value == b"3"
    assert events.empty()


def test_a_frozen_member_costs_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call on it is lost, the watch at it ends, and the next call goes to another member."""
    with Etcd(members=3) as etcd:
        chosen = next(number for number in range(3) if number != etcd.leader())
        others = [endpoint for number, endpoint in enumerate(etcd.endpoints) if number != chosen]
        caller = Caller(Access([etcd.endpoints[chosen], *others]))
        assert isinstance(caller.ask(caller.client.status), Status)
        _, ended, _ = caller.watch(1)
        etcd.members[chosen].freeze()
        monkeypatch.setattr(clients, "TRY_S", TRY_S)
        outcomes = [caller.txn(Put(caller.prefix + b"k", b"1")) for _ in range(2)]
        assert isinstance(outcomes[0], Lost)
        assert caller.client.endpoint != etcd.endpoints[chosen]
        assert isinstance(ended.get(timeout=WITHIN_S), Lost)
        wait_until(lambda: isinstance(caller.txn(Get(b"k")), TxnResult), "another member answers", WITHIN_S)
        caller.close()


def test_keepalives_count_among_the_calls(etcd: Etcd) -> None:
    """An etcd that keeps leases late is slow, whatever else it answers; and a lost keepalive is one of all."""
    caller = Caller(Access(etcd.endpoints))
    calls = caller.client.calls
    lease = caller.ask(caller.client.grant, 60)
    made, seconds = calls.recent.read(monotonic()).calls, sum(calls.seconds.counts)
    assert caller.ask(caller.client.keep_alive, lease) == 60
    assert calls.recent.read(monotonic()).calls == made + 1
    assert (sum(calls.seconds.counts), calls.made["LeaseKeepAlive"]) == (seconds + 1, 1)
    caller.close()


class NoRoom:
    """A thread that can't start."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def setDaemon(self, _is_daemon: bool) -> None:  # noqa: N802 - as gRPC calls it
        """As a thread."""

    def start(self) -> None:
        """As Python does if the machine has no room for one more thread."""
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("whose", ["grpc._channel.cygrpc.ForkManagedThread", "coordinator.log.etcd.client.Thread"])
def test_a_call_without_a_thread_is_lost_and_a_later_one_works(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """The caller gets an outcome, so that it tries again. gRPC would leave all later calls without one."""
    caller = Caller(Access(etcd.endpoints[:1]))
    client = caller.client
    with monkeypatch.context() as patched:
        patched.setattr(whose, NoRoom)
        if whose.startswith("grpc"):
            assert [caller.ask(call) for call in (client.status, client.status)] == [Lost("can't start new thread")] * 2
        assert isinstance(caller.ask(client.keep_alive, 1), Lost)
        _, ended, _ = caller.watch(1)
        assert isinstance(ended.get(timeout=WITHIN_S), Lost)
    assert isinstance(caller.ask(client.status), Status)
    assert caller.ask(client.keep_alive, caller.ask(client.grant, 60)) == 60
    events, _, _ = caller.watch(0)
    caller.txn(Put(caller.prefix + b"k", b"1"))
    assert events.get(timeout=WITHIN_S).kv.value == b"1"
    caller.close()


def test_a_keepalive_of_a_member_that_is_dead_is_lost() -> None:
    """The caller gets an outcome, so that it tries again; the lease still lives when the member is back."""
    with Etcd(members=1) as etcd:
        caller = Caller(Access(etcd.endpoints))
        lease = caller.ask(caller.client.grant, 60)
        etcd.members[0].kill()
        assert isinstance(caller.ask(caller.client.keep_alive, lease), Lost)
        etcd.restart(0)
        wait_until(lambda: caller.ask(caller.client.keep_alive, lease) == 60, "the lease is kept", WITHIN_S)
        caller.close()


def test_a_client_logs_in_anew_when_users_have_changed(certificates: Certificates) -> None:
    """etcd refuses a signed token that is older than the change. That call is lost, and its next try has a new one."""
    key = certificates.folder / "token.pem"
    key.write_text(Authority("token").issue("token").key_pem())
    with Etcd(arguments=[f"--auth-token=jwt,priv-key={key},sign-method=ES256", "--bcrypt-cost=4"]) as etcd:
        etcd.enable_users("tenure", "right", "/orders/")
        caller = Caller(Access(etcd.endpoints, user="tenure", password="right"))
        try:
            client = caller.client
            assert [client.is_known, caller.ask(client.log_in), client.is_known] == [False, None, True]
            put = Put(b"/orders/a", b"1")
            assert isinstance(caller.txn(put), TxnResult)
            etcd.add_user("another")
            assert isinstance(caller.txn(put), Lost)
            assert isinstance(caller.txn(put), TxnResult)
        finally:
            caller.close()


def test_a_certificate_of_another_host_is_said(certificates: Certificates, tmp_path: Path) -> None:
    """Somebody else's certificate of the same CA is no proof."""
    elsewhere = tmp_path / "elsewhere.pem"
    elsewhere.write_text(certificates.authority.issue("elsewhere", hosts=("elsewhere",)).pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(elsewhere)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(listening.accept()[0], server_side=True) as connection:
                connection.recv(1)

        Thread(target=serve, daemon=True).start()
        caller = Caller(Access([f"127.0.0.1:{listening.getsockname()[1]}"], certificates.ca))
        assert caller.ask(caller.client.status) == Lost(
            "TLS: etcd's certificate doesn't name the address in tenure.store"
        )
        caller.close()
