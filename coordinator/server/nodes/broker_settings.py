"""The settings of brokers as tools see and change them: which there are, where their values come from.

A broker shows Tenure's settings, and those of Kafka's that clients and tools read and whose value is true of Tenure.
`CHANGEABLE` settings can be changed while the server runs, for one node or for all; Topics keeps the changes
(`nodes.topics.BROKERS`). The first of these sources gives the value: the change for this node, the change for all
nodes, the settings that the server was started with, the default. A listener's own limits on connections are changed
in the same way; a broker shows those that somebody has set.

House rule: a setting is a row of a table here, in topic_settings or in coordinator.config; no function knows its name.
Source: Kafka's DynamicBrokerConfig, ConfigHelper and ServerTopicConfigSynonyms, release 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from coordinator.config import (
    CONTROL,
    HTTP,
    INT64_MAX,
    LIMITS,
    LISTENER_NAME,
    Config,
    Listener,
    Setting,
    served_listeners,
    settings,
    with_values,
)
from coordinator.server.nodes.topic_settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    TOPIC_CONFIG_OF,
    TOPIC_CONFIGS,
    value_problem,
)

TOPIC_CONFIG, NODE_CHANGE, ALL_NODES_CHANGE, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 2, 3, 4, 5
"""Config sources. Kafka names the second and third DYNAMIC_BROKER_CONFIG and DYNAMIC_DEFAULT_BROKER_CONFIG."""


class BrokerSetting(NamedTuple):
    """A setting of a broker. default: None if it has none, or another setting has it (DEFAULT_ELSEWHERE)."""

    default: str | None
    kind: int
    doc: str


KAFKA_SETTINGS = {
    "broker.rack": BrokerSetting(None, STRING, "Nodes have no rack."),
    "default.replication.factor": BrokerSetting("1", INT, "Every partition has one replica."),
    "delete.topic.enable": BrokerSetting("true", BOOLEAN, "Topics can be deleted."),
    "inter.broker.protocol.version": BrokerSetting("3.9-IV0", STRING, "The release of Kafka that Tenure answers as."),
    "log.cleaner.enable": BrokerSetting("true", BOOLEAN, "Compacted topics are compacted."),
    "log.flush.scheduler.interval.ms": BrokerSetting(str(INT64_MAX), LONG, "Every append is flushed."),
    "log.retention.hours": BrokerSetting("168", INT, "How long records stay if log.retention.ms is not set."),
    "log.retention.minutes": BrokerSetting(None, INT, "Not used: log.retention.ms is."),
    "log.roll.hours": BrokerSetting(
        "168", INT, "The age of a segment at which it is closed if log.roll.ms is not set."
    ),
    "log.roll.jitter.hours": BrokerSetting("0", INT, "Segments are closed without jitter."),
    "offsets.topic.replication.factor": BrokerSetting("1", SHORT, "Every partition has one replica."),
    "remote.log.storage.system.enable": BrokerSetting("false", BOOLEAN, "There is no tiered storage."),
    "sasl.kerberos.min.time.before.relogin": BrokerSetting(
        "60000", LONG, "Has no effect, as in a Kafka whose listeners don't use SASL."
    ),
}
"""Settings of Kafka that Tenure has not, with the value that is true of Tenure. librdkafka's tests change the last."""

DEFAULT_ELSEWHERE = {
    "log.flush.interval.ms": "log.flush.scheduler.interval.ms",
    "log.retention.ms": "log.retention.hours",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
    "log.roll.ms": "log.roll.hours",
}
"""Settings that have no value unless somebody sets them, and the setting that has the default."""

ALIASES = {"broker.id": "node.id"}
"""Other names of settings, which show the same value."""

NODE_ONLY = frozenset({"sasl.kerberos.min.time.before.relogin"})
"""Settings that can be changed for one node, but not for all at once."""

CHANGEABLE = (
    (frozenset(TOPIC_CONFIG_OF) - {"log.message.format.version"})
    | {"log.cleaner.backoff.ms", "max.connection.creation.rate"}
    | {"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"}
    | NODE_ONLY
)
"""Settings that can be changed while the server runs: those that Kafka lets one change, and Tenure shows."""

SECRETS = frozenset(
    {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "tenure.control.token",
        "tenure.http.token",
    }
)
"""Settings of the type PASSWORD: no client gets their values."""

NO_DEFAULT = SECRETS | {
    "inter.broker.listener.name",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.url",
    "ssl.keystore.location",
    "ssl.truststore.location",
}
"""Settings that have no value unless somebody sets them. An empty text in coordinator.config stands for that."""

CHANGED_MIN = {
    "max.connections": 1,
    "max.connections.per.ip": 1,
    "max.connections.per.ip.overrides": 1,
    "max.connection.creation.rate": 1,
}
"""The smallest numbers that a client can change settings to. With 0 nobody could connect any more, not even to undo it.
Kafka refuses 0 too, but takes it for an address of max.connections.per.ip.overrides.
"""

OF_AUTHORIZER = ("allow.everyone.if.no.acl.found", "super.users")
"""Settings that Kafka's authorizer reads by itself. A broker doesn't show them."""

LONGS = frozenset({"log.cleaner.backoff.ms"})
"""Settings of Kafka's type LONG that are smaller numbers here."""


class Value(NamedTuple):
    """A value of a setting from one source."""

    name: str
    value: str
    source: int


class Changes(NamedTuple):
    """The settings that were changed while the server ran: for this node, and for all nodes."""

    node: Mapping[str, str]
    all_nodes: Mapping[str, str]


def _all_settings() -> dict[str, BrokerSetting]:
    of_topics = {
        setting.broker: BrokerSetting(setting.default, setting.kind, setting.doc)
        for setting in TOPIC_CONFIGS.values()
        if setting.broker
    }
    default = Config()
    own = {
        name: BrokerSetting(text_of(setting.value_of(default)), _kind(setting), setting.doc)
        for name, setting in settings().items()
    }
    found = {**KAFKA_SETTINGS, **of_topics, **own}
    for name in OF_AUTHORIZER:
        del found[name]
    found |= {name: found[name]._replace(default=None) for name in (*DEFAULT_ELSEWHERE, *NO_DEFAULT)}
    return found | {alias: found[name] for alias, name in ALIASES.items()}


def is_read_only(name: str) -> bool:
    """Whether a setting can't be changed while the server runs."""
    return name not in CHANGEABLE


def limits_of_listeners(config: Config) -> dict[str, str]:
    """The names of the limits that listeners can have by themselves, each with that of the server."""
    names = [each.name.lower() for each in served_listeners(config)]
    return {f"{LISTENER_NAME}{listener}.{name}": name for listener in names for name in LIMITS}


def prefix_of(node: str) -> str:
    """The start of the names of changed settings of a node ("": of all nodes), in BROKERS; or of a group, in GROUPS."""
    return f"{node}/"


def changes_of(brokers: Mapping[str, str], node_id: int) -> Changes:
    """The changed settings, of the settings of BROKERS."""

    def named(node: str) -> dict[str, str]:
        prefix = prefix_of(node)
        return {name.removeprefix(prefix): value for name, value in brokers.items() if name.startswith(prefix)}

    return Changes(named(str(node_id)), named(""))


def changed_config(config: Config, changes: Changes) -> Config:
    """The configuration that is in effect. config: the one that the server was started with."""
    texts = {**changes.all_nodes, **changes.node}
    limits = limits_of_listeners(config)  # a change of a listener that was there before the start is passed over
    own = {name: text for name, text in texts.items() if name in settings() or name in limits}
    others = {
        TOPIC_CONFIG_OF[name]: text for name, text in texts.items() if name in TOPIC_CONFIG_OF and name not in own
    }
    changed = with_values(config, own)
    return changed if not others else replace(changed, topic_defaults=tuple(sorted(others.items())))


def setting_problem(name: str, value: str, limits: Mapping[str, str], *, for_all: bool) -> str | None:
    """The reason that a setting can't be changed to this value; None if it can.

    limits: limits_of_listeners. for_all: on all nodes.
    """
    name = limits.get(name, name)
    if name not in CHANGEABLE:
        return f"Cannot update these configs dynamically: Set({name})"
    if for_all and name in NODE_ONLY:
        return f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
    own, topic = settings().get(name), TOPIC_CONFIGS.get(TOPIC_CONFIG_OF.get(name, ""))
    low, choices = (topic.low, topic.choices) if topic else (own.low if own else None, frozenset[str]())
    problem = value_problem(name, value, BROKER_SETTINGS[name].kind, low, choices)
    if problem is None and own is not None:
        try:
            read = own.read(value.strip())
        except ValueError as error:
            return f"Invalid value {value} for configuration {name}: {error}"
        numbers = [number for _, number in read] if isinstance(read, tuple) else [read]
        if name in CHANGED_MIN and any(number < CHANGED_MIN[name] for number in numbers):
            return f"Invalid value {value} for configuration {name}: nobody could connect any more to undo it"
    return problem


def values_of_limit(config: Config, changes: Changes, name: str, limit: str) -> tuple[Value, ...]:
    """All values of a listener's own limit, the one in effect first; none if nobody has set it.

    limit: the server's, which counts for the listener too and stands behind it, as in Kafka.
    """
    values = _changed(changes, name)
    listener = name.removeprefix(LISTENER_NAME).removesuffix(f".{limit}")
    started = config.overrides.get(listener, {}).get(LIMITS[limit])
    if started is not None:
        values.append(Value(name, str(started), STATIC_BROKER_CONFIG))
    if not values:
        return ()
    others = [each for each in values_of(config, changes, limit) if each.source >= values[0].source]
    return tuple(sorted([*values, *others], key=lambda each: each.source))


def _changed(changes: Changes, name: str) -> list[Value]:
    return [
        Value(name, changed[name], source)
        for changed, source in ((changes.node, NODE_CHANGE), (changes.all_nodes, ALL_NODES_CHANGE))
        if name in changed
    ]


def values_of(config: Config, changes: Changes, name: str) -> tuple[Value, ...]:
    """All values of a setting, the one in effect first. config: as the server was started."""
    values = _changed(changes, name)
    default = BROKER_SETTINGS[name].default
    own = settings().get(ALIASES.get(name, name))
    if own is not None and own.name in config.stated:
        values.append(Value(name, text_of(own.value_of(config)), STATIC_BROKER_CONFIG))
    elif own is not None and default is not None:
        default = text_of(own.value_of(config))  # a worker's node.id, for example, follows from others
    if default is not None:
        values.append(Value(name, default, DEFAULT_CONFIG))
    elif values and name in DEFAULT_ELSEWHERE:
        other = DEFAULT_ELSEWHERE[name]
        values.append(Value(other, KAFKA_SETTINGS[other].default or "", DEFAULT_CONFIG))
    return tuple(values)


def text_of(value: Any, separator: str = ",") -> str:
    """A value as a properties file has it. separator: of the items of a tuple, which may be pairs NAME:VALUE."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Listener):
        return value.address if value.name in {HTTP, CONTROL} else str(value)
    if isinstance(value, tuple):
        is_address = bool(value) and isinstance(value[-1], int)
        return (":" if is_address else separator).join(text_of(item, ":") for item in value)
    return str(value)


def _kind(setting: Setting) -> int:
    """The config type: Kafka's, whose lists of listeners are of the type STRING."""
    if setting.name in SECRETS:
        return PASSWORD
    if isinstance(setting.default, bool):
        return BOOLEAN
    if isinstance(setting.default, int):
        return LONG if setting.high == INT64_MAX or setting.name in LONGS else INT
    if isinstance(setting.default, float):
        return DOUBLE
    is_list = setting.part in {"security", "group"} or setting.name.startswith("tenure.")
    return LIST if isinstance(setting.default, tuple) and is_list else STRING


BROKER_SETTINGS = _all_settings()
"""All settings that a broker shows, by name. Made at the start, because it would make the first request's turn long."""
