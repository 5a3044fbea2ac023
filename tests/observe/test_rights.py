"""The rights that docs/ask-why/observe.md asks for are enough, and a line says if they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from coordinator.cli.exit_codes import ExitCode
from tests.cli.conftest import at, make_app, run_app
from tests.observe.test_observer import observing
from tests.support.apache import AUTHORIZER
from tests.support.patience import WITHIN_S
from tests.support.polled import polled
from tests.support.tenure import Tenure, wait_until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
GROUP = "workers"


@contextmanager
def consuming(bootstrap: str, client_id: str, **more: Any) -> Iterator[None]:
    """A real consumer that polls until the block ends, and then leaves."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": client_id}
    if "group.protocol" not in more:
        settings["session.timeout.ms"] = 30_000
    consumer = Consumer(settings | {"log_level": 0} | more)
    consumer.subscribe(["orders"])
    with closing(consumer), polled(lambda: consumer.poll(0.1)):
        yield


SECURED = """\
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={module} required user_admin="secret" user_eve="secret";
authorizer.class.name={authorizer}
super.users=User:admin
"""
GROUPS = (ResourceType.GROUP, "*", AclOperation.DESCRIBE)
TOPICS = (ResourceType.TOPIC, "*", AclOperation.DESCRIBE)
"""These two are what docs/ask-why/stuck.md asks for."""

RIGHTS = (
    (ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ),
    (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
)
"""The further rights that docs/ask-why/observe.md asks for, without `--events`. Read brings Describe."""


def test_the_documented_rights_are_enough(tmp_path: Path) -> None:
    """A user with the rights of the page sees everything; before they are given, a line names what is refused."""
    properties = SECURED.format(module=PLAIN, authorizer=AUTHORIZER)
    with Tenure(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as secured:
        assert observe_with_rights(secured.bootstrap_of("SASL"), tmp_path, "classic") == [1]


def observe_with_rights(bootstrap: str, tmp_path: Path, *protocols: str, ca: Path | None = None) -> list[int]:
    """Observe a secured server, and probe a member, first without the rights, then with them.

    protocols: of a group each. ca: the certificate that signed the server's; None: it speaks no TLS. Returns how many
    members each group has in the end.
    """
    login = {"security.protocol": "SASL_PLAINTEXT" if ca is None else "SASL_SSL", "sasl.mechanism": "PLAIN"}
    trust = {} if ca is None else {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    admin_login = login | {"bootstrap.servers": bootstrap, "sasl.username": "admin", "sasl.password": "secret"}
    if ca is not None:
        admin_login["ssl.ca.location"] = str(ca)
    admin = AdminClient(admin_login | {"log_level": 0})
    admin.create_topics([NewTopic("orders", 6, 1)])["orders"].result(WITHIN_S)
    file = tmp_path / "client.properties"
    jaas = f'sasl.jaas.config={PLAIN} required username="eve" password="secret";'
    file.write_text("\n".join([f"{name}={value}" for name, value in (login | trust).items()] + [jaas]))
    groups = [f"{GROUP}-{protocol}" for protocol in protocols]
    with ExitStack() as stack:
        for group, protocol in zip(groups, protocols, strict=True):
            modern = {} if protocol == "classic" else {"group.protocol": protocol}
            named = {"group.id": group, "group.instance.id": "seat"}
            stack.enter_context(consuming(bootstrap, f"one-{protocol}", **admin_login, **modern, **named))
        observer = stack.enter_context(observing(bootstrap, tmp_path, "--command-config", str(file)))
        wait_until(lambda: "cluster_away" in observer.lines, "a refusal", WITHIN_S)
        assert "The cluster refuses the observer" in observer.log
        assert "User:eve lacks Read on topic '__consumer_offsets'" in observer.log

        def allow(*rights: tuple[Any, str, Any]) -> None:
            allowed = [
                AclBinding(kind, name, ResourcePatternType.LITERAL, "User:eve", "*", operation, AclPermissionType.ALLOW)
                for kind, name, operation in rights
            ]
            for future in admin.create_acls(allowed).values():
                future.result(WITHIN_S)

        def probed(group: str) -> tuple[int, str]:
            options = ("--group", group, "--instance-id", "seat", "--command-config", str(file))
            ran = run_app(make_app("members"), "members", "alive", *options, *at(bootstrap))
            return ran.code, ran.err

        def is_at_work(group: str) -> bool:
            return probed(group)[0] == ExitCode.DONE

        # Describe on topics is missing: a probe says neither yes nor no.
        allow(GROUPS)
        wait_until(lambda: probed(groups[0])[0] == ExitCode.REFUSED, "a right", WITHIN_S)
        assert "it isn't known whether seat is at work" in probed(groups[0])[1]
        allow(TOPICS)
        for group in groups:
            wait_until(partial(is_at_work, group), "a member at work", WITHIN_S)
        allow(*RIGHTS)
        wait_until(lambda: "cluster_back" in observer.lines, "rights", WITHIN_S)
        for group, protocol in zip(groups, protocols, strict=True):
            first = observer.entries(group, 1)[0]
            assert (first["cause"]["kind"], first["cause"]["client_id"]) == ("member_joined", f"one-{protocol}")
            assert observer.status(f"/lag?group={group}") == 200
            assert observer.status(f"/alive?group={group}&instance-id=seat") == 200
        wait_until(lambda: len(observer.get("/groups")) == len(groups) or None, "groups", WITHIN_S)
        return [len(observer.get(f"/groups/{group}")["members"]) for group in groups]
