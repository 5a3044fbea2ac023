"""`tenure seat run` and `tenure seats` through TLS and a login, on Tenure and on Apache Kafka.

alice has the rights of their pages, and no more: Read on the group of the names, and on that of the pods. bob has none.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from tests.interop.brokers import create_topic
from tests.interop.fleet import Fleet
from tests.kubernetes.stage import SESSION_MS, Controller
from tests.seats.api_server import ApiServer, a_pod, a_set
from tests.seats.leased import SETTINGS
from tests.seats.runs import Runs
from tests.support.apache import AUTHORIZER, ApacheKafka
from tests.support.certificates import Certificates
from tests.support.patience import WITHIN_S
from tests.support.preloaded import run
from tests.support.tenure import Tenure, tenure_command, wait_until

pytestmark = pytest.mark.together

LISTENERS = {"ADMIN": "PLAINTEXT", "CLIENTS": "SASL_SSL"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NAMES_GROUP, PODS_GROUP = "tenure-seats-w", "orders"
SETS, PODS = "/apis/apps/v1/namespaces/shop/statefulsets", "/api/v1/namespaces/shop/pods"
WRONG_PASSWORD = r"127\.0\.0\.1:\d+: PLAIN: Authentication failed: Invalid username or password"

Server = Tenure | ApacheKafka


@pytest.fixture(scope="module", params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def server(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Server]:
    """Yield a server with both users, and the rights of alice."""
    properties = f"""
ssl.keystore.type=PEM
ssl.keystore.location={certificates.server}
listener.name.clients.sasl.enabled.mechanisms=PLAIN
listener.name.clients.plain.sasl.jaas.config={MODULE} required user_alice="secret" user_bob="secret";
authorizer.class.name={AUTHORIZER}
super.users=User:ANONYMOUS
"""
    made = (ApacheKafka if request.param == "apache" else Tenure)(SETTINGS, listeners=LISTENERS, properties=properties)
    with made as started:
        kind, literal = ResourceType.GROUP, ResourcePatternType.LITERAL
        allowed = [
            AclBinding(kind, group, literal, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
            for group in (NAMES_GROUP, PODS_GROUP)
        ]
        admin = AdminClient({"bootstrap.servers": started.bootstrap_of("ADMIN")})
        for future in admin.create_acls(allowed).values():
            future.result(WITHIN_S)
        yield started


@pytest.fixture
def runs(server: Server, tmp_path: Path) -> Iterator[Runs]:
    """Yield the runs of a test, at the listener with TLS and logins."""
    with Runs(server.bootstrap_of("CLIENTS"), tmp_path) as made:
        yield made


def members(server: Server, group_id: str) -> list[str | None]:
    """The instance ids of a group's members; None for one that has none."""
    with Client(server.bootstrap_of("ADMIN"), WITHIN_S) as client:
        group = describe_groups(client, [group_id])[group_id]
    return [] if isinstance(group, Refused) else [member.group_instance_id for member in group.members]


def login(folder: Path, ca: Path, user: str = "alice", password: str = "secret") -> list[str]:
    """The options for a user's login, at a server whose certificate this CA signed."""
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
        f'sasl.jaas.config={MODULE} required username="{user}" password="{password}";\n'
    )
    return ["--command-config", str(file)]


def test_a_name_is_leased_and_given_back(server: Server, runs: Runs, certificates: Certificates) -> None:
    """All requests of the lease log in: those that get the name, keep it, and give it back."""
    process = runs.start("one", *login(runs.folder, certificates.ca))
    runs.wait_for("one", "began w-0")
    assert members(server, NAMES_GROUP) == [None]
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 128 + signal.SIGTERM
    assert members(server, NAMES_GROUP) == []


@pytest.mark.parametrize(
    ("ca", "user", "password", "text"),
    [
        ("ca", "alice", "wrong", WRONG_PASSWORD),
        ("ca", "bob", "secret", "the coordinator refuses: GROUP_AUTHORIZATION_FAILED"),
        ("foreign_ca", "alice", "secret", "the server's certificate: unable to get local issuer certificate"),
    ],
)
def test_a_login_that_is_refused_ends_the_command(
    runs: Runs, certificates: Certificates, ca: str, user: str, password: str, text: str
) -> None:
    """One line says why, the last one which group has the names; no program starts."""
    process = runs.start("one", *login(runs.folder, getattr(certificates, ca), user, password))
    assert process.wait(WITHIN_S) == 4
    runs.wait_for("one", text)
    assert runs.said("one").endswith("tenure: no name of w-[0..1] can be had from group tenure-seats-w\n")
    assert "began" not in runs.said("one")


async def test_a_seat_is_freed(server: Server, certificates: Certificates, tmp_path: Path) -> None:
    """The controller describes the group and removes the member as alice, who has Read on it alone."""
    admin = server.bootstrap_of("ADMIN")
    create_topic(admin, "orders", 2)
    async with ApiServer().serving() as kubernetes:
        await kubernetes.put(f"{SETS}/w", a_set(2))
        for ordinal in range(2):
            await kubernetes.put(f"{PODS}/w-{ordinal}", a_pod(ordinal))
        with Fleet(admin, "orders", 2) as fleet:
            timeouts = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
            consumers = [
                fleet.start("confluent-kafka", PODS_GROUP, group_instance_id=f"w-{ordinal}", **timeouts)
                for ordinal in range(2)
            ]
            await asyncio.to_thread(fleet.wait_until_shared, consumers)
            controller = Controller(
                tmp_path / "log",
                *("--free", "--namespace", "shop", "--kubeconfig", str(kubernetes.kubeconfig(tmp_path))),
                *("--bootstrap-server", server.bootstrap_of("CLIENTS"), *login(tmp_path, certificates.ca)),
            )
            try:
                await asyncio.to_thread(controller.wait_for, "has the lease")
                await kubernetes.put(f"{SETS}/w", a_set(1))
                await asyncio.to_thread(consumers[1].kill)
                await kubernetes.delete(f"{PODS}/w-1", a_pod(1, has_ended=True))
                await asyncio.to_thread(controller.wait_for, "freed w-1 of group orders")
                await asyncio.to_thread(
                    wait_until, lambda: members(server, PODS_GROUP) == ["w-0"], "w-0 is alone", WITHIN_S
                )
            finally:
                controller.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(controller.join) == 0, controller.log.read_text()


async def test_a_wrong_password_ends_the_controller_at_its_start(
    server: Server, certificates: Certificates, tmp_path: Path
) -> None:
    """It ends before a seat depends on it, with one line on standard error that says why."""
    async with ApiServer().serving() as kubernetes:
        options = ["--kubeconfig", str(kubernetes.kubeconfig(tmp_path)), "--bootstrap-server"]
        options += [server.bootstrap_of("CLIENTS"), *login(tmp_path, certificates.ca, password="wrong")]
        ran = await asyncio.to_thread(run, [*tenure_command(), "seats", *options])
    assert ran.returncode == 4
    assert ran.stderr.splitlines()[-1].endswith("PLAIN: Authentication failed: Invalid username or password")
