"""Every client over SASL_SSL: it logs in by SCRAM (sarama by PLAIN), restarts, and a wrong password keeps it out.

Both servers have the same properties file: a listener where the fleet joins, and a plain one that only makes topics and
users. The authorizer is on, so that the group is seen by who may read it.

House rule: conftest.py's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.security.acls import Kind
from coordinator.security.sasl.scram import salted
from protocol.messages import AlterUserScramCredentialsRequest, CreateAclsRequest
from tests.interop.brokers import Broker, create_topic
from tests.interop.client import Ability
from tests.interop.clients import CLIENTS, clients_that
from tests.interop.conftest import BOTH, PARTITION_COUNT, secured_broker
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.interop.worker import Login
from tests.support.apache import AUTHORIZER, ApacheKafka
from tests.support.certificates import Certificates
from tests.support.raw import Connection
from tests.support.requests import acl
from tests.support.tenure import Tenure

LISTENERS = {"ADMIN": "PLAINTEXT", "CLIENTS": "SASL_SSL"}
USER, PASSWORD, WRONG = "alice", "a-long-password", "a-wrong-one"
MECHANISM = "SCRAM-SHA-512"
SCRAM_SHA_512 = 2
ITERATIONS = 4_096
SALT = b"a salt of a test"
SEATS = ("seat-0", "seat-1")
SETTLED_S = 1.0


class Secured:
    """A server under test. clients: the address of the listener with TLS and SASL."""

    def __init__(self, broker: Broker, server: Tenure | ApacheKafka) -> None:
        self.broker = broker
        self.admin = server.bootstrap_of("ADMIN")
        self.clients = server.bootstrap_of("CLIENTS")


@pytest.fixture(scope="module", params=BOTH)
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Secured]:
    """Yield one server with these listeners, a user, and the rules that let it consume."""
    properties = f"""
ssl.keystore.type=PEM
ssl.keystore.location={certificates.server}
listener.name.clients.sasl.enabled.mechanisms=PLAIN,{MECHANISM}
listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    user_{USER}="{PASSWORD}";
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name={AUTHORIZER}
super.users=User:ANONYMOUS
"""
    with secured_broker(request, LISTENERS, properties) as made:
        found = Secured(*made)
        add_user(found)
        yield found


def add_user(server: Secured) -> None:
    """Add the user, with the right to read each topic and each group."""
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=USER,
        mechanism=SCRAM_SHA_512,
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=salted(MECHANISM, PASSWORD, SALT, ITERATIONS),
    )
    rules = [acl(kind, "*", principal=f"User:{USER}") for kind in (Kind.TOPIC, Kind.GROUP)]
    connection = Connection(int(server.admin.rpartition(":")[2]))
    try:
        users: Any = connection.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        created: Any = connection.ask(CreateAclsRequest(creations=rules), 3)
        assert [each.error_code for each in (*users.results, *created.results)] == [0, 0, 0]
    finally:
        connection.close()


@pytest.fixture
def fleet(secured: Secured) -> Iterator[Fleet]:
    """Yield consumers of the listener with TLS and SASL, on a topic of this test alone."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(secured.admin, topic, PARTITION_COUNT)
    with Fleet(secured.clients, topic, PARTITION_COUNT) as fleet:
        yield fleet


@pytest.fixture
def ca(certificates: Certificates) -> str:
    """Return the file of the CA that signed the server's certificate."""
    return str(certificates.ca)


@pytest.mark.parametrize(
    "client", clients_that(often={"confluent-kafka"}, long={"aiokafka", "kafka-python"}), indirect=True
)
def test_a_restart_over_sasl_ssl(secured: Secured, fleet: Fleet, client: str, group: str, ca: str) -> None:
    """Members join and share the partitions. A static member that is killed and comes back costs no rebalance."""
    is_static = Ability.STATIC not in CLIENTS[client].cannot

    def start(seat: str) -> ConsumerProcess:
        named = {"group_instance_id": seat, "session_timeout_ms": 15_000} if is_static else {}
        return fleet.start(client, group, login=Login(ca, MECHANISM, USER, PASSWORD), **named)

    consumers = {seat: start(seat) for seat in SEATS}
    generation = fleet.wait_until_shared(list(consumers.values()))
    if is_static:
        mark = secured.broker.mark()
        consumers[SEATS[1]].kill()
        consumers[SEATS[1]] = start(SEATS[1])
        assert fleet.wait_until_shared(list(consumers.values())) == generation
        fleet.wait_while_polling(list(consumers.values()), SETTLED_S)
        assert secured.broker.rebalances(group, mark) == 0
        assert secured.broker.replacements(group, mark) == 1


@pytest.mark.parametrize(
    "client", clients_that(often={"confluent-kafka"}, long={"aiokafka", "kafka-python"}), indirect=True
)
def test_a_wrong_password_keeps_out(secured: Secured, fleet: Fleet, client: str, group: str, ca: str) -> None:
    """The client never joins. One that has the right password joins alone, which shows that the other had its time."""
    wrong = fleet.start(client, group, login=Login(ca, MECHANISM, USER, WRONG))
    right = fleet.start(client, group, login=Login(ca, MECHANISM, USER, PASSWORD))
    fleet.wait_until_shared([right])
    assert not wrong.membership.partitions
