"""Settings that a start warns of."""

from __future__ import annotations

import pytest

from coordinator.config import Config, ConfigError, load, settings
from coordinator.server.risks import idle, risks

ACLS = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = "listeners=PLAINTEXT://0.0.0.0:9092"
TLS = "listeners=SSL://127.0.0.1:9092"
SASL = "listeners=SASL_PLAINTEXT://127.0.0.1:9092"
TWO = "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093"


@pytest.mark.parametrize(
    ("sets", "begins"),
    [
        ((OPEN,), ["listeners: PLAINTEXT://0.0.0.0:9092 is open to every network"]),
        (("listeners=PLAINTEXT://:9092",), ["listeners: PLAINTEXT://:9092 is open to every network"]),
        (("listeners=PLAINTEXT://[::]:9092",), ["listeners: PLAINTEXT://[::]:9092 is open to every network"]),
        ((ACLS,), ["super.users is empty: "]),
        ((OPEN, ACLS), ["super.users is empty: "]),
        ((), []),
        (("listeners=PLAINTEXT://10.0.0.1:9092",), []),
        ((OPEN, ACLS, "super.users=User:admin"), []),
        ((ACLS, "allow.everyone.if.no.acl.found=true"), []),
    ],
)
def test_a_start_warns_of_what_an_operator_may_not_have_meant(sets: tuple[str, ...], begins: list[str]) -> None:
    """One text names the setting; an address of one network, a super user or an open default needs none."""
    texts = list(risks(load(sets=sets)[0]))
    assert len(texts) == len(begins)
    assert all(text.startswith(begin) for text, begin in zip(texts, begins, strict=True))


ALWAYS = frozenset({
    "advertised.listeners", "authorizer.class.name", "auto.create.topics.enable", "connections.max.idle.ms",
    "controller.listener.names", "controller.quota.window.num", "controller.quota.window.size.seconds",
    "fetch.max.bytes", "group.coordinator.rebalance.protocols", "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms", "group.max.size", "group.min.session.timeout.ms",
    "listener.security.protocol.map", "listeners", "log.cleaner.backoff.ms", "log.cleaner.delete.retention.ms",
    "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms", "log.dirs", "log.retention.bytes",
    "log.retention.check.interval.ms", "log.retention.ms", "log.roll.ms", "log.segment.bytes",
    "max.connection.creation.rate", "max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides",
    "message.max.bytes", "node.id", "num.partitions", "offset.metadata.max.bytes",
    "offsets.retention.check.interval.ms", "offsets.retention.minutes", "offsets.topic.num.partitions",
    "queued.max.request.bytes", "quota.window.num", "quota.window.size.seconds", "socket.listen.backlog.size",
    "socket.request.max.bytes", "tenure.control", "tenure.events.enable", "tenure.fix.kafka-12759",
    "tenure.fix.kafka-20601", "tenure.fix.kafka-20747", "tenure.fix.kafka-20754", "tenure.fix.kafka-20985",
    "tenure.fix.kafka-21584", "tenure.group.pending.timeout.ms", "tenure.http", "tenure.log.format",
    "tenure.request.max.elements", "tenure.statsd", "tenure.topics", "tenure.workers",
})  # fmt: skip
"""Settings with an effect on every server."""

REFUSED_ALONE = frozenset({"sasl.jaas.config", "tenure.cluster", "tenure.store"})
"""Settings of which `load` itself warns, or which it refuses, if they have no effect."""

NEVER = frozenset({"group.consumer.assignor.offload.enable", "group.coordinator.append.linger.ms", "ssl.protocol"})

STORE = ("tenure.store=etcd://127.0.0.1:2379", "tenure.cluster=c", "node.id=1")

WITH: dict[str, tuple[str, ...]] = {
    "allow.everyone.if.no.acl.found": (ACLS,),
    "connection.failed.authentication.delay.ms": (SASL,),
    "connections.max.reauth.ms": (SASL,),
    "group.consumer.": ("group.coordinator.rebalance.protocols=classic,consumer",),
    "inter.broker.listener.name": (TWO,),
    "offsets.topic.segment.bytes": (),
    "sasl.": (SASL, "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER"),
    "security.inter.broker.protocol": (TWO,),
    "ssl.": (TLS, "ssl.client.auth=required"),
    "super.users": (ACLS,),
    "tenure.authorizer.": (ACLS,),
    "tenure.control.": ("tenure.control=127.0.0.1:9095",),
    "tenure.events.retention.": (),
    "tenure.http.": ("tenure.http=127.0.0.1:9094", "tenure.workers=2"),
    "tenure.journal.": (),
    "tenure.metrics.groups.max": ("tenure.http=127.0.0.1:9094",),
    "tenure.offset.fetch.verify": STORE,
    "tenure.statsd.": ("tenure.statsd=127.0.0.1:8125",),
    "tenure.store.": STORE,
    "tenure.transaction.": (),
    "tenure.transactional.": (),
    "tenure.worker.timeout.ms": ("tenure.workers=2",),
    "transaction.": (),
    "transactional.": (),
}
"""What gives a setting an effect; a name that ends in a dot stands for all that begin with it."""

WITHOUT: dict[str, tuple[str, ...]] = {
    "group.consumer.": ("group.coordinator.rebalance.protocols=classic",),
    "offsets.topic.segment.bytes": STORE,
    "tenure.events.retention.": ("tenure.events.enable=false",),
    "tenure.journal.": STORE,
    "tenure.transaction.": STORE,
    "tenure.transactional.": STORE,
    "transaction.": STORE,
    "transactional.": STORE,
}
"""What takes the effect away; for the others: nothing but the defaults."""

TOGETHER = {
    "tenure.store.user": "tenure.store.password.file=f",
    "tenure.store.password.file": "tenure.store.user=u",
    "tenure.store.ssl.keystore.location": "tenure.store.ssl.truststore.location=f",
}
"""Settings that `load` takes together only."""

TEXTS = (
    "SSL", "required", "requested", "quorum", "upgrade", "range", "TLSv1.2", "User:u", "json", "0.25", "classic",
    "PLAINTEXT://127.0.0.1:1", "A:SSL", "127.0.0.1:1", "127.0.0.1:2", "::1:3", ACLS.partition("=")[2], "x",
)  # fmt: skip
"""Values to try, beside numbers and booleans."""


def family_of(name: str) -> str:
    """The name in WITH that stands for a setting."""
    return next(each for each in WITH if name == each or (each.endswith(".") and name.startswith(each)))


def set_to_another(name: str, sets: tuple[str, ...]) -> Config:
    """A configuration in which this setting is not the default, besides `sets`."""
    setting = settings()[name]
    number = setting.default if isinstance(setting.default, int) else 0
    for text in (*TEXTS, "true", "false", str(number + 1), str(number - 1)):
        try:
            config, _ = load(sets=[*sets, *([TOGETHER[name]] if name in TOGETHER else []), f"{name}={text}"])
        except ConfigError:
            continue
        if setting.value_of(config) != setting.default:
            return config
    raise AssertionError(f"{name}: which value may it have?")


def is_idle(name: str, config: Config) -> bool:
    """Whether a start names the setting as one without effect."""
    return any(name in text.partition(": ")[0].split(", ") for text in idle(config))


def test_each_setting_has_an_effect_or_a_warning() -> None:
    """Every setting is in one of the tables of this file, and the start names it exactly if nothing comes of it."""
    conditional = set(settings()) - ALWAYS - REFUSED_ALONE - NEVER
    assert {family_of(name) for name in conditional} == WITH.keys(), "each family has a setting"
    for name in conditional:
        family = family_of(name)
        assert is_idle(name, set_to_another(name, WITHOUT.get(family, ()))), name
        assert not is_idle(name, set_to_another(name, WITH[family])), name
    for name in NEVER:
        assert is_idle(name, set_to_another(name, (TLS,))), name
    for name in ALWAYS:
        assert not is_idle(name, set_to_another(name, ())), name


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (("ssl.client.auth=none", "tenure.statsd.tags=true"), None),
        (
            ("ssl.client.auth=required", "ssl.keystore.location=f"),
            "ssl.client.auth, ssl.keystore.location: no effect, ",
        ),
        ((TWO, "listener.name.plaintext.ssl.client.auth=required"), "listener.name.plaintext.ssl.client.auth: no e"),
        ((TWO, "listener.name.ssl.ssl.client.auth=required"), None),
        ((SASL, "sasl.oauthbearer.expected.issuer=i", "sasl.enabled.mechanisms=PLAIN"), "sasl.oauthbearer.expected."),
        ((SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config=j"), "listener.name.sasl_plaintext.plain."),
        (("tenure.http.ssl.keystore.location=f",), "tenure.http.ssl.keystore.location: no effect, because there is no"),
        (("tenure.http.ssl.keystore.location=f", "tenure.http=127.0.0.1:1"), None),
        (("controller.listener.names=C", "listener.name.c.ssl.client.auth=required"), None),
        (("tenure.journal.enable=false", "tenure.journal.bytes=65536"), "tenure.journal.bytes: no effect, because "),
    ],
)
def test_what_has_no_effect_and_why(sets: tuple[str, ...], text: str | None) -> None:
    """A default says nothing; a listener's own setting is about that listener; one line has all with one reason."""
    texts = list(idle(load(sets=sets)[0]))
    assert len(texts) == (text is not None)
    assert text is None or texts[0].startswith(text)
