"""Every API under every right, on Apache Kafka and on Tenure: the same error codes, and the same things left out.

Both servers have the same properties file: clients authenticate by PLAIN, and StandardAuthorizer decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, cast

import pytest

from coordinator.security.acls import CLUSTER_NAME, OPERATIONS, Kind, Operation, Pattern, Permission
from protocol.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    Message,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.interop.java.tools import Tools
from tests.oracle.acl_table import CASES, EVERYTHING, GROUP, HIDDEN, TOPIC, UNMATCHED
from tests.support import requests
from tests.support.apache import AUTHORIZER, ApacheKafka
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection
from tests.support.requests import (
    fetch_request,
    heartbeat_request,
    join_request,
    produce_request,
    sync_request,
    topics_request,
)
from tests.support.tenure import Tenure, wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from tests.oracle.acl_table import Case

pytestmark = pytest.mark.oracle

LISTENERS = {"SASL": "SASL_PLAINTEXT"}
USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob")}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = f"""\
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={PLAIN} required \\
    {" ".join(f'user_{name}="{password}"' for name, password in USERS.items())};
authorizer.class.name={AUTHORIZER}
super.users=User:admin
"""

ALICE = "User:alice"
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY

Acl = tuple[Kind, Pattern, str, str, str, Operation, Permission]


def acl(
    kind: Kind,
    name: str,
    operation: Operation,
    permission: Permission = ALLOW,
    *,
    pattern: Pattern = LITERAL,
    principal: str = ALICE,
    host: str = "*",
) -> Acl:
    """An ACL."""
    return kind, pattern, name, principal, host, operation, permission


class Server:
    """One of the two, and connections to it. topic_id: of TOPIC."""

    topic_id: UUID

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.port = port
        self._stack = stack
        self.admin = self.connect("admin")

    def connect(self, user: str) -> Connection:
        """An authenticated connection."""
        connection = Connection(self.port)
        self._stack.callback(connection.close)
        handshake: Any = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == 0
        token = f"\0{user}\0{USERS[user]}".encode()
        done: Any = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert done.error_code == 0
        return connection

    def held(self) -> list[Acl]:
        """All ACLs."""
        body = self.admin.ask(DescribeAclsRequest(**EVERYTHING), 3)
        assert body.error_code == 0
        return sorted(
            (
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for each in body.resources
            for one in each.acls
        )

    def set_rules(self, acls: Sequence[Acl]) -> None:
        """Have exactly these ACLs, in effect."""
        all_of_them = DeleteAclsRequest.DeleteAclsFilter(**EVERYTHING)
        self.admin.ask(DeleteAclsRequest(filters=[all_of_them]), 3)
        created: Any = self.admin.ask(CreateAclsRequest(creations=list(starmap(creation, acls))), 3)
        assert [each.error_code for each in created.results] == [0] * len(acls)
        wait_until(lambda: self.held() == sorted(acls), "the rules are in effect", WITHIN_S)

    def shapes(self, user: str, cases: Sequence[Case] = CASES) -> dict[str, Any]:
        """The shape that a user gets for each request of the table."""
        connection = self.connect(user)
        try:
            return {case.name: case.shape(connection.ask(case.make(self.topic_id), case.version)) for case in cases}
        finally:
            connection.close()


def creation(
    kind: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> CreateAclsRequest.AclCreation:
    """An ACL as CreateAcls has it."""
    whom = {"resource_pattern_type": pattern, "principal": principal, "host": host}
    return requests.acl(kind, name, operation, permission, **whom)


@pytest.fixture(scope="module")
def servers(kafka_is_here: None) -> Iterator[dict[str, Server]]:
    """Kafka and Tenure, each with two topics."""
    with ExitStack() as stack:
        kept = {"log.retention.ms": "-1"}  # the records are old: on a slow machine, Kafka deletes them meanwhile
        kafka = stack.enter_context(ApacheKafka(kept, listeners=LISTENERS, properties=PROPERTIES))
        settings = {"node.id": "1", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}
        tenure = stack.enter_context(Tenure(settings, listeners=LISTENERS, properties=PROPERTIES))
        found = {"Kafka": Server(kafka.ports["SASL"], stack), "Tenure": Server(tenure.ports[0], stack)}
        for server in found.values():
            make_both_topics(server)
            wait_until(partial(_gives_ids, server), "ids for producers", WITHIN_S)
        yield found


def make_both_topics(server: Server) -> None:
    """Make TOPIC and HIDDEN, and wait for a leader of TOPIC."""
    server.admin.ask(topics_request({TOPIC: 1, HIDDEN: 1}), 5)
    server.topic_id = wait_until(partial(_led, server), "the topic", WITHIN_S)


def _led(server: Server) -> UUID | None:
    """The id of the topic once it has a leader."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    (topic,) = server.admin.ask(asked, 12).topics
    return topic.topic_id if topic.partitions and not topic.partitions[0].error_code else None


def _holds(server: Server, count: int) -> bool:
    """Whether the server has so many ACLs."""
    return len(server.held()) == count


def _gives_ids(server: Server) -> bool:
    """Whether the server has ids for idempotent producers: Kafka's first one takes a while."""
    return bool(cast("Any", server.admin.ask(InitProducerIdRequest(transactional_id=None), 1)).error_code == 0)


NAMES = {Kind.TOPIC: TOPIC, Kind.GROUP: GROUP, Kind.CLUSTER: CLUSTER_NAME}
SETS: dict[str, list[Acl]] = {
    "none": [],
    "all": [acl(kind, name, Operation.ALL) for kind, name in NAMES.items()],
    "prefixes": [acl(kind, NAMES[kind][:3], Operation.ALL, pattern=PREFIXED) for kind in (Kind.TOPIC, Kind.GROUP)],
    "stars": [acl(kind, "*", Operation.ALL) for kind in (Kind.TOPIC, Kind.GROUP)],
    "everybody": [acl(kind, "*", Operation.ALL, principal="User:*") for kind in (Kind.TOPIC, Kind.GROUP)],
    "another host": [acl(Kind.TOPIC, TOPIC, Operation.ALL, host="10.0.0.1")],
    "this host": [acl(Kind.TOPIC, TOPIC, Operation.ALL, host="127.0.0.1")],
    "a denial": [
        acl(Kind.TOPIC, "*", Operation.ALL),
        acl(Kind.GROUP, "*", Operation.ALL),
        acl(Kind.TOPIC, HIDDEN, Operation.ALL, DENY),
        acl(Kind.GROUP, GROUP, Operation.DESCRIBE, DENY),
    ],
    "a consumer": [
        acl(Kind.TOPIC, TOPIC, Operation.READ),
        acl(Kind.GROUP, "w", Operation.READ, pattern=PREFIXED),
        acl(Kind.GROUP, "joined", Operation.READ),
    ],
    "denied writes": [
        acl(Kind.TOPIC, "ord", Operation.WRITE, pattern=PREFIXED),
        acl(Kind.TOPIC, "o", Operation.WRITE, DENY, pattern=PREFIXED),
    ],
    **{
        f"{kind.name} {Operation(operation).name}": [acl(kind, name, Operation(operation))]
        for kind, name in NAMES.items()
        for operation in OPERATIONS[kind]
    },
}


@pytest.mark.parametrize("name", SETS)
def test_each_api_answers_as_kafka(servers: dict[str, Server], name: str) -> None:
    """Under these rules, for alice: codes, silences and authorized operations."""
    kafka, tenure = servers.values()
    for server in servers.values():
        server.set_rules(SETS[name])
    assert tenure.shapes("alice") == kafka.shapes("alice")


def test_super_users_may_do_everything(servers: dict[str, Server]) -> None:
    """Whatever denies it."""
    kafka, tenure = servers.values()
    for server in servers.values():
        server.set_rules([acl(Kind.TOPIC, "*", Operation.ALL, DENY, principal="User:*")])
    assert tenure.shapes("admin") == kafka.shapes("admin")


ODD = [
    creation(4, 3, "another", ALICE, "*", 2, 3),
    creation(2, 3, "", ALICE, "*", 3, 3),
    creation(99, 3, TOPIC, ALICE, "*", 3, 3),
    creation(2, 99, TOPIC, ALICE, "*", 3, 3),
    creation(2, 3, TOPIC, ALICE, "*", 99, 3),
    creation(2, 3, TOPIC, ALICE, "*", 3, 99),
    creation(2, 3, TOPIC, ALICE, "*", 3, 3),
    creation(2, 3, TOPIC, ALICE, "*", 3, 3),
    creation(7, 3, ALICE, ALICE, "*", 13, 3),
]
FOR_FILTERS = [
    creation(1, 3, TOPIC, ALICE, "*", 3, 3),
    creation(2, 1, TOPIC, ALICE, "*", 3, 3),
    creation(2, 2, TOPIC, ALICE, "*", 3, 3),
    creation(2, 3, TOPIC, ALICE, "*", 1, 3),
    creation(2, 3, TOPIC, ALICE, "*", 3, 1),
]


def test_odd_acls(servers: dict[str, Server]) -> None:
    """Each is created or refused by itself, with Kafka's code; a second time changes nothing."""
    answers = []
    for server in servers.values():
        server.set_rules([])
        body: Any = server.admin.ask(CreateAclsRequest(creations=ODD), 3)
        answers.append([each.error_code for each in body.results])
    assert answers[0] == answers[1]
    assert answers[0].count(0) == 3
    for server in servers.values():
        wait_until(partial(_holds, server, 2), "two rules", WITHIN_S)


def test_a_principal_without_a_type_is_refused_in_kafkas_words(servers: dict[str, Server]) -> None:
    """It would never apply. Odd types and names are taken, because Kafka takes them."""
    principals = ("", "alice", "*", ":alice", "User:", "user:alice", ":", "User:a:b", " User:alice")
    acls = [creation(2, 3, "x", principal, "*", 3, 3) for principal in principals]
    answers = []
    for server in servers.values():
        body: Any = server.admin.ask(CreateAclsRequest(creations=acls), 3)
        answers.append([(each.error_code, each.error_message) for each in body.results])
    assert answers[0] == answers[1]
    assert [code for code, _message in answers[0]] == [ErrorCode.INVALID_REQUEST] * 3 + [0] * 6


@pytest.mark.parametrize("odd", FOR_FILTERS)
def test_what_only_a_filter_may_say(servers: dict[str, Server], odd: CreateAclsRequest.AclCreation) -> None:
    """It fails a whole CreateAcls, also an ACL that is right."""
    for server in servers.values():
        body: Any = server.admin.ask(CreateAclsRequest(creations=[odd, creation(2, 3, "x", ALICE, "*", 3, 3)]), 3)
        assert [each.error_code for each in body.results] == [-1, -1]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (CreateAclsRequest(creations=[creation(0, 3, "x", ALICE, "*", 3, 3)]), 3),
        (CreateAclsRequest(creations=[creation(2, 3, "x", ALICE, "*", 0, 3)]), 2),
    ],
)
def test_a_zero_closes_the_connection(servers: dict[str, Server], request_: Message, version: int) -> None:
    """As any request that can't be read."""
    for server in servers.values():
        connection = server.connect("admin")
        with pytest.raises(Closed):
            connection.ask(request_, version)


def test_filters_that_select(servers: dict[str, Server]) -> None:
    """Each filter of a deletion selects the same rules, and MATCH those about a name."""
    rules = [
        acl(Kind.TOPIC, TOPIC, Operation.READ),
        acl(Kind.TOPIC, "*", Operation.WRITE),
        acl(Kind.TOPIC, "ord", Operation.ALL, pattern=PREFIXED),
        acl(Kind.GROUP, TOPIC, Operation.READ, DENY, principal="User:bob", host="10.0.0.1"),
    ]
    changes: list[dict[str, Any]] = [
        {"pattern_type_filter": 2, "resource_name_filter": TOPIC},
        {"pattern_type_filter": 4, "resource_name_filter": None},
        {"pattern_type_filter": 1, "resource_name_filter": TOPIC},
        {"resource_type_filter": 3, "resource_name_filter": TOPIC, "host_filter": "10.0.0.1"},
        {"resource_type_filter": 99, "pattern_type_filter": 1, "resource_name_filter": None},
        {"operation": 99},
    ]
    found = []
    for server in servers.values():
        selected = []
        for change in changes:
            server.set_rules(rules)
            asked = DeleteAclsRequest.DeleteAclsFilter(**{**UNMATCHED, "pattern_type_filter": 3, **change})
            (result,) = cast("Any", server.admin.ask(DeleteAclsRequest(filters=[asked]), 3)).filter_results
            selected.append(
                (
                    result.error_code,
                    sorted(
                        (each.resource_type, each.pattern_type, each.resource_name) for each in result.matching_acls
                    ),
                )
            )
        found.append(selected)
    assert found[0] == found[1]


CONSUMER = "--allow-principal User:alice --consumer --topic orders --group billing- --resource-pattern-type prefixed"
TOOL = [
    f"--add {CONSUMER}",
    "--add --deny-principal User:bob --deny-host 10.0.0.1 --operation Write --topic * --force",
    "--add --allow-principal User:alice --producer --idempotent --topic orders",
    "--list",
    "--list --topic orders --resource-pattern-type match",
    "--list --principal User:bob",
    f"--remove --force {CONSUMER}",
    "--remove --force --topic *",
    "--list",
]


def test_kafkas_tool(servers: dict[str, Server], tmp_path: Path) -> None:
    """kafka-acls adds, lists and removes, with the same words."""
    login = f'{PLAIN} required username="admin" password="{USERS["admin"]}";'
    file = tmp_path / "admin.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    printed = []
    with Tools() as tools:
        for server in servers.values():
            server.set_rules([])
            where = ["--bootstrap-server", f"127.0.0.1:{server.port}", "--command-config", str(file)]
            done = [tools.run("acls", *where, *command.split()) for command in TOOL]
            printed.append([(each.code, sorted(map(str.strip, each.out.splitlines()))) for each in done])
    assert printed[0] == printed[1]
    assert {code for code, _ in printed[0]} == {0}


def test_a_rule_that_changes_reaches_a_living_member(servers: dict[str, Server]) -> None:
    """Its next heartbeat is refused, also one that repeats another; with the rule again it is answered."""
    may_read = [acl(Kind.GROUP, "living", Operation.READ)]
    for server in servers.values():
        server.set_rules(may_read)
        member = server.connect("alice")
        joined: Any = member.ask(join_request("living", instance="one"), 5)
        assert joined.error_code == 0
        who = ("living", joined.generation_id, joined.member_id, "one")
        member.ask(sync_request(*who, {joined.member_id: b""}), 3)
        beat = heartbeat_request(*who)

        def code(member: Connection = member, beat: Message = beat) -> int:
            return cast("Any", member.ask(beat, 3)).error_code  # type: ignore[no-any-return]

        assert [code() for _ in range(3)] == [0, 0, 0]
        server.set_rules([])
        assert [code() for _ in range(2)] == [30, 30]
        listed: Any = member.ask(ListGroupsRequest(), 4)
        assert listed.groups == []
        server.set_rules(may_read)
        assert code() == 0


def test_a_fetch_that_waits_gets_no_record_once_its_right_is_gone(servers: dict[str, Server]) -> None:
    """Kafka asks for the right when a Fetch comes, and hands out what is produced after that; Tenure asks again."""
    found = {}
    for name, server in servers.items():
        server.admin.ask(topics_request({"awaited": 1}), 5)
        server.set_rules([acl(Kind.TOPIC, "awaited", Operation.READ)])
        produce = produce_request({("awaited", 0): batch([(b"k", b"secret", 1_000)])})

        def produced(server: Server = server, produce: Message = produce) -> bool:
            answer: Any = server.admin.ask(produce, 9)
            return bool(answer.responses[0].partition_responses[0].error_code == 0)

        wait_until(produced, "a leader", WITHIN_S)
        fetch = fetch_request({("awaited", 0): 1}, max_wait_ms=60_000)
        reader = server.connect("alice")
        reader.send(fetch, 11)
        server.set_rules([])
        refused: Any = server.connect("alice").ask(fetch, 11)
        assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert reader.is_silent()
        assert produced()
        answer: Any = reader.receive()
        found[name] = answer.responses[0].partitions[0]
    assert (found["Kafka"].error_code, bool(found["Kafka"].records)) == (ErrorCode.NONE, True)
    assert (found["Tenure"].error_code, found["Tenure"].records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    assert found["Tenure"].high_watermark == -1
