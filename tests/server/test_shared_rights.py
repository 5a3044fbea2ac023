"""Rights and users that several workers share: a change through one worker is obeyed by the members at another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator.security.acls import Kind, Pattern, Permission
from coordinator.security.sasl.client import Dialogue, plain, scram
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    Message,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import heartbeat_request, join_request, sync_request
from tests.server.requests.test_acls import STANDARD
from tests.server.requests.test_credentials import deletion, upsertion
from tests.server.test_supervisor import ON_0, ON_1, wait_until_gone
from tests.support.raw import Closed, Connection
from tests.support.requests import acl, commit_request
from tests.support.tenure import Tenure

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = f"""\
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl.plain.sasl.jaas.config={PLAIN_MODULE} required user_admin="admin-secret";
connections.max.reauth.ms=3600000
{STANDARD}
super.users=User:admin
"""
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 6,
    "tenure.topics": "orders:3",
}
GROUPS = (ON_0, ON_1)
"""By the worker that owns them."""
REPEATS = 4
"""The first request is handled, the second remembered, and the others are answered by what was remembered."""
NONE, NO_GROUP, NO_TOPIC = (
    ErrorCode.NONE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class Pair:
    """Two workers, and connections to them, which end with the test."""

    def __init__(self, tenure: Tenure, stack: ExitStack) -> None:
        self.tenure = tenure
        self._stack = stack

    def connect(self, worker: int) -> Connection:
        """A connection to a worker."""
        return self._stack.enter_context(Connection(self.tenure.ports[worker]))

    def admin(self, worker: int) -> Connection:
        """An administrator's connection to a worker."""
        connection = self.connect(worker)
        assert log_in(connection, "PLAIN", plain("admin", "admin-secret")) == NONE
        return connection

    def replace(self, worker: int) -> None:
        """Kill a worker, and wait for the next one."""
        os.kill(self.tenure.worker_pid(worker), signal.SIGKILL)
        self.tenure.wait_for_event("worker_back")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two workers with SASL and ACLs."""
    listeners = {"SASL": "SASL_PLAINTEXT"}
    tenure = Tenure(
        SETTINGS, directory=tmp_path, arguments=["--workers", "2"], listeners=listeners, properties=PROPERTIES
    )
    with tenure:
        with ExitStack() as stack:
            yield Pair(tenure, stack)
        pids = [event["pid"] for event in tenure.events("worker_started")]
        tenure.kill()
        wait_until_gone(pids)


def log_in(connection: Connection, mechanism: str, dialogue: Dialogue) -> int:
    """Authenticate, for the first time or again; returns the last error code."""
    assert code_of(connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1)) == NONE
    token = next(dialogue)
    while True:
        answer: Any = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code != NONE:
            return int(answer.error_code)
        try:
            token = dialogue.send(answer.auth_bytes)
        except StopIteration:
            return NONE


def code_of(answer: Any) -> int:
    """Its error code."""
    return int(answer.error_code)


def as_alice(connection: Connection, password: str = "secret") -> int:
    """Log in as alice by SCRAM; returns the error code."""
    return log_in(connection, "SCRAM-SHA-256", scram("SCRAM-SHA-256", "alice", password, "nonce"))


def alter_users(connection: Connection, *changes: Any) -> None:
    """Add users, with the names and passwords of `changes`, or remove them."""
    is_deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, is_deletion)],
        upsertions=[each for each in changes if not isinstance(each, is_deletion)],
    )
    answer: Any = connection.ask(request, 0)
    assert {each.error_code for each in answer.results} == {NONE}


def allow(connection: Connection, kind: Kind, name: str, permission: Permission = Permission.ALLOW) -> None:
    """Let alice read something, or forbid it."""
    answer: Any = connection.ask(CreateAclsRequest(creations=[acl(kind, name, permission=permission)]), 3)
    assert [each.error_code for each in answer.results] == [NONE]


def take_back(connection: Connection, kind: Kind, permission: Permission) -> None:
    """Delete all rules of that kind and effect."""
    selected = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=None,
        pattern_type_filter=Pattern.ANY,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=permission,
    )
    answer: Any = connection.ask(DeleteAclsRequest(filters=[selected]), 3)
    (result,) = answer.filter_results
    assert len(result.matching_acls) == 1


class Member:
    """alice's only member of a group, at the worker that owns it."""

    def __init__(self, pair: Pair, worker: int) -> None:
        self.connection = pair.connect(worker)
        assert as_alice(self.connection) == NONE
        group = GROUPS[worker]
        joined: Any = self.connection.ask(join_request(group, instance="i", session_ms=60_000), 5)
        assert joined.error_code == NONE
        assert code_of(self.connection.ask(sync_request(group, joined, "i"), 5)) == NONE
        who = (joined.generation_id, joined.member_id, "i")
        self._beat: Message = heartbeat_request(group, joined, "i")
        self._commit: Message = commit_request(group, {("orders", 0): 7}, *who)

    def codes(self) -> tuple[set[int], set[int]]:
        """The error codes of its heartbeats and of its commits, each repeated."""
        beats = {code_of(self.connection.ask(self._beat, 4)) for _ in range(REPEATS)}
        commits: list[Any] = [self.connection.ask(self._commit, 8) for _ in range(REPEATS)]
        return beats, {each.topics[0].partitions[0].error_code for each in commits}


@pytest.mark.parametrize("worker", [0, 1])
def test_a_changed_rule_is_obeyed_at_another_worker(pair: Pair, worker: int) -> None:
    """From the answer to its change on, by remembered heartbeats and commits too, and by a worker that was replaced."""
    other, group = pair.admin(1 - worker), GROUPS[worker]
    alter_users(other, upsertion("alice"))
    allow(other, Kind.GROUP, group)
    allow(other, Kind.TOPIC, "orders")
    member = Member(pair, worker)
    assert member.codes() == ({NONE}, {NONE})
    take_back(other, Kind.TOPIC, Permission.ALLOW)
    assert member.codes() == ({NONE}, {NO_TOPIC})
    allow(other, Kind.TOPIC, "orders")
    assert member.codes() == ({NONE}, {NONE})
    allow(other, Kind.GROUP, group, Permission.DENY)
    assert member.codes() == ({NO_GROUP}, {NO_GROUP})
    pair.replace(worker)
    member.connection = pair.connect(worker)
    assert as_alice(member.connection) == NONE
    assert member.codes() == ({NO_GROUP}, {NO_GROUP})
    take_back(other, Kind.GROUP, Permission.DENY)
    assert member.codes() == ({NONE}, {NONE})
    take_back(other, Kind.GROUP, Permission.ALLOW)
    assert member.codes() == ({NO_GROUP}, {NO_GROUP})


@pytest.mark.parametrize("worker", [0, 1])
def test_a_changed_user_is_known_to_another_worker(pair: Pair, worker: int) -> None:
    """From the answer to the change on. A member stays until its session ends, which is when it has to log in again."""
    other, refused = pair.admin(1 - worker), ErrorCode.SASL_AUTHENTICATION_FAILED
    alter_users(other, upsertion("alice"))
    allow(other, Kind.GROUP, GROUPS[worker])
    allow(other, Kind.TOPIC, "orders")
    member = Member(pair, worker)
    alter_users(other, upsertion("alice", password="changed"))
    assert member.codes() == ({NONE}, {NONE})
    assert as_alice(pair.connect(worker)) == refused
    assert as_alice(pair.connect(worker), "changed") == NONE
    alter_users(other, deletion("alice"))
    assert as_alice(pair.connect(worker), "changed") == refused
    assert member.codes() == ({NONE}, {NONE})
    assert as_alice(member.connection, "changed") == refused
    with pytest.raises(Closed):
        member.codes()
