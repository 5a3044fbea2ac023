"""Settings: which there are, where they come from, and which source wins.

A setting has Kafka's name and Kafka's default. The fields of `Config`, `GroupConfig` and `ListenerConfig` are the table
of settings: each has its name, range and meaning. The field `log_dirs` is the setting `log.dirs`; `_own` makes a field
whose setting begins with `tenure.`. `listener.name.X.NAME` gives listener X its own value of a setting of
`ListenerConfig`, `listener.name.X.MECHANISM.NAME` gives one to its SASL mechanism, and `tenure.http.ssl.NAME` one to
HTTP. `load` reads all sources and makes a `Config`. If several sources give a setting, the first of these wins:

    command line's flag > --set NAME=VALUE > TENURE_NAME > KAFKA_NAME (of Kafka's image) > properties file > default

A wrong value or an unknown name raises `ConfigError`, which names it. `load` ignores a setting that only Kafka has and
warns of it; KAFKA_ variables it ignores silently, since Kafka's images set many, unless one looks like a mistyped
setting.

House rule: imports nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

INT32_MAX = 2_147_483_647
INT64_MAX = 9_223_372_036_854_775_807

MS_PER_MINUTE = 60_000

PORT_MAX = 65_535

TOPIC_NAME_MAX = 249
"""Kafka's limit; with a partition number behind it a name still fits a file name."""

TOPIC_PARTITIONS_MAX = 10_000
"""Partitions of one topic. Kafka allows as many to one CreateTopics (ReplicationControlManager)."""

STORED_MAX_BYTES = 1_400_000
"""The most bytes of a record that etcd takes: its requests have 1.5 MiB (its flag --max-request-bytes)."""

STORED_MAX_RECORDS = 4_095
"""The most records that etcd takes in one request, beside the head of their partition (its flag --max-txn-ops)."""

NODE_ID_MAX = 999
"""The largest id of a node in a cluster: __rebalance_events has a partition for each id up to the largest."""

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
"""Hosts that stand for every interface. A server can listen at them; a client can't connect to them."""

FIXES = {
    "kafka-12759": "a static restart with another subscription rebalances a Stable group",
    "kafka-20601": "a static restart in a full group gets its seat back",
    "kafka-20747": "a member id that comes with another instance id gets INVALID_REQUEST",
    "kafka-20754": "the same rule as kafka-20747, since both tickets describe one fault",
    "kafka-20985": "a static member's own second JoinGroup doesn't fence its first, which gets NOT_COORDINATOR",
    "kafka-21584": "a target that leaves out members or partitions, as after an upgrade in a rebalance, is made anew",
}
"""Tickets with a better rule than Kafka's, and the rule: `tenure.fix.<ticket>=true` switches it on."""

FIXED = frozenset({"kafka-21584"})
"""Tickets whose better rule is on by default; see docs/start/differences.md."""

HTTP = "(http)"
CONTROL = "(control)"
"""The names of the addresses of HTTP and of the control. No listener for Kafka's clients can have them."""

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The ways in which a listener may speak: TLS or not, authentication by SASL or not."""

SASL_PROTOCOLS = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
"""The protocols of listeners whose clients authenticate by SASL."""

DOORS = {HTTP: "tenure.http.", CONTROL: "tenure.control."}
"""Addresses that are no listeners, and how the names of their TLS settings begin: `tenure.http.ssl.keystore.location`.
With any of them, HTTP or the control speaks TLS."""

ALLOWED, HELD, REFUSED = "allowed", "held", "refused"
"""A group lets a member with another instance id than it expects, or without any, come in, wait, or go away."""

EXPECTED_TIMEOUT_MS = 60_000
"""How long a rebalance is held for expected members, if the group doesn't say."""


class ConfigError(ValueError):
    """A setting is wrong; the message names it."""


class Listener(NamedTuple):
    """A listener's name and address. Host "" stands for every interface."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def topic_name_problem(name: str) -> str | None:
    """The fault in a topic's name; None if it has none (Kafka: Topic.validate)."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_MAX}"
    if re.fullmatch(r"[a-zA-Z0-9._-]+", name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


# Readers make a value of a text. They raise ValueError; a user sees its message behind the setting's name.


ASSIGNORS = ("uniform", "range")
"""The server-side assignors of the consumer protocol (KIP-848)."""


def _read_number(low: int | None, high: int, factor: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,20}", text) is None:
            raise ValueError(f"{text!r} is not a whole number")
        number = int(text)
        if low is not None and not low <= number <= high:
            raise ValueError(f"{number} is not between {low} and {high}")
        return number * factor

    return read


def _read_bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _read_assignors(text: str) -> tuple[str, ...]:
    names = _read_names(text)
    unknown = sorted(set(names) - set(ASSIGNORS))
    if not names or unknown:
        raise ConfigError(f"{text!r} is not a list of {', '.join(ASSIGNORS)}")
    return names


def _read_principals(text: str) -> tuple[str, ...]:
    principals = tuple(name for name in (part.strip() for part in text.split(";")) if name)
    for name in principals:
        if ":" not in name:
            raise ValueError(f"{name!r} is not User:NAME")
    return principals


def _read_listeners(text: str) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for part in _read_names(text):
        match = re.fullmatch(r"(?i)([a-z][a-z0-9_-]*)://(?:\[([0-9a-f:.%\w]*)\]|([^\s:/\[\]]*)):(\d{1,5})", part)
        if match is None:
            raise ValueError(f"{part!r} is not NAME://HOST:PORT")
        if int(match[4]) > PORT_MAX:
            raise ValueError(f"{part!r}: a port is at most {PORT_MAX}")
        if any(other.name == match[1].upper() for other in listeners):
            raise ValueError(f"{match[1].upper()} stands there twice")
        listeners.append(Listener(match[1].upper(), match[2] or match[3] or "", int(match[4])))
    return tuple(listeners)


def _read_address(name: str) -> Callable[[str], tuple[Listener, ...]]:
    def read(text: str) -> tuple[Listener, ...]:
        if not text:
            return ()
        if "/" in text or "," in text:
            raise ValueError(f"{text!r} is not HOST:PORT")
        try:
            return tuple(listener._replace(name=name) for listener in _read_listeners(f"HTTP://{text}"))
        except ValueError as error:
            raise ValueError(str(error).replace("HTTP://", "").replace("NAME://", "")) from error

    return read


def _read_sink(text: str) -> tuple[str, int] | None:
    found = _read_address(HTTP)(text)
    if found and not (found[0].host and found[0].port):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return (found[0].host, found[0].port) if found else None


def _read_protocols(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.upper().partition(":") for part in _read_names(text)]
    if any(not name or not protocol for name, _, protocol in pairs):
        raise ValueError(f"{text!r} is not NAME:PROTOCOL,...")
    return tuple((name, protocol) for name, _, protocol in pairs)


def _read_topics(text: str) -> tuple[tuple[str, int], ...]:
    topics: dict[str, int] = {}
    for part in _read_names(text):
        name, _, count = part.partition(":")
        problem = topic_name_problem(name)
        if problem is not None:
            raise ValueError(problem)
        if name in topics:
            raise ValueError(f"{name} stands there twice")
        if not (count.isdecimal() and 1 <= int(count) <= TOPIC_PARTITIONS_MAX):
            raise ValueError(f"{part!r} is not NAME:PARTITIONS with 1 to {TOPIC_PARTITIONS_MAX} partitions")
        topics[name] = int(count)
    return tuple(topics.items())


def _read_numbers_of_addresses(text: str) -> tuple[tuple[str, int], ...]:
    from ipaddress import ip_address  # noqa: PLC0415 - only a server with such numbers pays for it

    numbers: dict[str, int] = {}
    for part in _read_names(text):
        address, _, number = part.rpartition(":")
        if not number.isdecimal() or int(number) > INT32_MAX:
            raise ValueError(f"{part!r} is not ADDRESS:CONNECTIONS")
        numbers[str(ip_address(address.strip("[]")))] = int(number)
    return tuple(numbers.items())


def _read_ratio(text: str) -> float:
    if re.fullmatch(r"[0-9]*\.?[0-9]+|[0-9]+\.", text) is None or not 0 <= float(text) <= 1:
        raise ValueError(f"{text!r} is not a number between 0 and 1")
    return float(text)


def _read_retention_ms(text: str) -> int:
    number: int = _read_number(-1, INT64_MAX, 1)(text)
    if number == 0:
        raise ValueError("0 is neither -1 nor positive")
    return number


def _read_store(text: str) -> tuple[str, ...]:
    """The endpoints of an URL etcd://HOST:PORT,HOST:PORT,..."""
    scheme, _, places = text.partition("://")
    endpoints = tuple(each.strip() for each in places.removesuffix("/").split(","))
    whole = [each.rpartition(":") for each in endpoints]
    if scheme != "etcd" or not all(host and port.isdecimal() and 0 < int(port) <= PORT_MAX for host, _, port in whole):
        raise ValueError(f"{text!r} is not etcd://HOST:PORT,HOST:PORT,...")
    return endpoints


def _read_cluster(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text) is None:
        raise ValueError(f"{text!r} is not a name of at most 100 letters, digits, '.', '_' and '-'")
    return text


def _choice(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(filter(None, choices))}")
        return text

    return read


AUTHORIZERS = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's authorizers, which both decide as this server's. Empty: none, so everybody may do everything."""


class Setting(NamedTuple):
    """One row of the table.

    attribute: its field. part: the attribute of `Config` whose class has the field, "" if `Config` has it.
    low, high: bounds of a number as it is written. factor: the written number times this is in the field's unit.
    read: makes a value of a text.
    """

    name: str
    default: Any
    doc: str
    low: int | None
    high: int
    factor: int
    read: Callable[[str], Any]
    attribute: str = ""
    part: str = ""

    def value_of(self, config: Config) -> Any:
        """Its value in `config`, in the unit of its name."""
        if self.attribute == "fixes":
            return self.name.removeprefix("tenure.fix.") in config.group.fixes
        value = getattr(getattr(config, self.part) if self.part else config, self.attribute)
        return value // self.factor if self.factor != 1 else value


Value = TypeVar("Value")


def _setting(
    default: Value,
    doc: str,
    *,
    name: str = "",
    prefix: str = "",
    low: int | None = None,
    high: int = INT32_MAX,
    factor: int = 1,
    read: Callable[[str], Value] | None = None,
) -> Value:
    """A field that is a setting.

    name: by default `prefix` and the field's name, with dots in place of underscores. read: by default it follows from
    the type of the default: a bool, a whole number or a text.
    """
    if read is None:
        read = _reader_like(default, low, high, factor)
    row = Setting(name, default, doc, low, high, factor, read)
    return field(default=default, metadata={"setting": row, "prefix": prefix})


def _own(default: Value, doc: str, **limits: Any) -> Value:
    """A field that is a setting of Tenure's own: `tenure.` stands before its name."""
    return _setting(default, doc, prefix="tenure.", **limits)


def _reader_like(default: Any, low: int | None, high: int, factor: int) -> Callable[[str], Any]:
    if isinstance(default, bool):
        return _read_bool
    return _read_number(low, high, factor) if isinstance(default, int) else str


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of the group core. The defaults are Kafka's (GroupCoordinatorConfig).

    fixes: tickets whose better rule is switched on, in lower case ("kafka-12759"); docs/run/group-settings.md has each.
    stored_max_bytes: the most bytes that the store takes of a group's record, or of a batch that must not be divided,
    packed; 0 if it takes any number. stored_max_records: the most records of such a batch.
    """

    group_min_session_timeout_ms: int = _setting(6_000, "The shortest session timeout a member may ask for.", low=0)
    group_max_session_timeout_ms: int = _setting(1_800_000, "The longest session timeout a member may ask for.", low=0)
    group_max_size: int = _setting(INT32_MAX, "How many members a group may have (KIP-389).", low=1)
    group_initial_rebalance_delay_ms: int = _setting(
        3_000, "How long the first rebalance of an empty group waits for more members (KIP-134).", low=0
    )
    group_pending_timeout_ms: int = _own(
        INT32_MAX,
        "How long a client that got a member id may take to join with it; a rebalance waits for that join. By "
        "default only the client's session timeout limits the wait, as in Kafka.",
        low=1,
    )
    offset_metadata_max_bytes: int = _setting(4_096, "The longest metadata of a committed offset.", low=0)
    transaction_offsets_max: int = _own(
        100_000, "How many offsets of a group a transaction may have: 58 MB by default.", low=1
    )
    offsets_retention_ms: int = _setting(
        7 * 24 * 60 * MS_PER_MINUTE,
        "How long committed offsets outlive the last member of their group.",
        name="offsets.retention.minutes",
        low=1,
        factor=MS_PER_MINUTE,
    )
    group_consumer_session_timeout_ms: int = _setting(
        45_000, "How long a member of the consumer protocol may be silent (KIP-848).", low=1
    )
    group_consumer_min_session_timeout_ms: int = _setting(
        45_000, "The shortest session timeout that a group of the consumer protocol may have.", low=1
    )
    group_consumer_max_session_timeout_ms: int = _setting(
        60_000, "The longest session timeout that a group of the consumer protocol may have.", low=1
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        5_000, "How often the coordinator asks members of the consumer protocol to send a heartbeat.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = _setting(
        5_000, "The shortest heartbeat interval that a group of the consumer protocol may have.", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = _setting(
        15_000, "The longest heartbeat interval that a group of the consumer protocol may have.", low=1
    )
    group_consumer_max_size: int = _setting(
        INT32_MAX, "How many members a group of the consumer protocol may have.", low=1
    )
    group_consumer_assignment_interval_ms: int = _setting(
        1_000, "The least time between two target assignments of a group of the consumer protocol (KIP-1263).", low=0
    )
    group_consumer_min_assignment_interval_ms: int = _setting(
        0, "The shortest assignment interval that a group may have.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = _setting(
        15_000, "The longest assignment interval that a group may have.", low=0
    )
    group_consumer_regex_refresh_interval_ms: int = _setting(
        600_000, "How often the topics of regular expressions are looked up anew.", low=10_000
    )
    group_consumer_assignor_offload_enable: bool = _setting(
        True, "Kafka's setting, without effect here: the heartbeat that needs a target makes it."
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Which way a group with members may change its protocol: to the consumer protocol (upgrade), back "
        "(downgrade), both ways (bidirectional) or neither (disabled).",
        read=_choice("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = _setting(
        ("classic", "consumer"),
        "The protocols of groups. Without consumer, the server refuses ConsumerGroupHeartbeat; classic is always on.",
        read=_read_names,
    )
    group_coordinator_append_linger_ms: int = _setting(
        -1, "Kafka's setting, without effect here: a record waits for others only while the disk is busy.", low=-1
    )
    group_consumer_assignors: tuple[str, ...] = _setting(
        ("uniform", "range"),
        "The assignors that members of the consumer protocol may choose; the first is the default.",
        read=_read_assignors,
    )
    message_max_bytes: int = _setting(1_048_588, "The largest record batch of the log.", low=0)
    fixes: frozenset[str] = FIXED
    stored_max_bytes: int = 0
    stored_max_records: int = STORED_MAX_RECORDS

    @property
    def group_settings(self) -> GroupSettings:
        """The settings of a group that has none of its own."""
        return GroupSettings(
            self.group_consumer_session_timeout_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_assignment_interval_ms,
            fixes=self.fixes,
        )


class GroupSettings(NamedTuple):
    """The settings that one group may have.

    session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: in the consumer protocol (Kafka: GroupConfig).
    expected: the instance ids that should be there; none: the group expects nobody. expected_timeout_ms: how long a
    rebalance is held for them. unexpected: what becomes of other members: allowed, held or refused. target_size: how
    many members get partitions, while further ones are standbys; 0 for all. fixes: as in GroupConfig. All but the first
    three are Tenure's own.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    expected: tuple[str, ...] = ()
    expected_timeout_ms: int = EXPECTED_TIMEOUT_MS
    unexpected: str = ALLOWED
    target_size: int = 0
    fixes: frozenset[str] = FIXED


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """The security settings of a listener, with Kafka's defaults (SslConfigs, SaslConfigs, BrokerSecurityConfigs)."""

    connections_max_reauth_ms: int = _setting(
        0,
        "How long a client that authenticated by SASL may go on before it has to authenticate again (KIP-368); "
        "0: for ever.",
        low=0,
        high=INT64_MAX,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = _setting(
        ("GSSAPI",),
        "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "Kafka's default, GSSAPI, is not served.",
        read=_read_names,
    )
    sasl_jaas_config: str = _setting(
        "",
        "The login module with its options, for one mechanism of one listener: listener.name.X.plain.sasl.jaas.config.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = _setting(
        30, "How many seconds the clock that signs tokens may be ahead of or behind this machine's clock.", low=0
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _setting(
        (),
        "The audiences of which a token must name one. Empty: a token must name none, as in Kafka.",
        read=_read_names,
    )
    sasl_oauthbearer_expected_issuer: str = _setting("", "The issuer that a token must name. Empty: any.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _setting(
        3_600_000,
        "How often the server reads the keys of sasl.oauthbearer.jwks.endpoint.url again.",
        low=1,
        high=INT64_MAX,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = _setting(
        "", "The URL (http, https or file) of the keys that sign tokens."
    )
    sasl_oauthbearer_sub_claim_name: str = _setting("sub", "The claim of a token that contains the user's name.")
    sasl_server_max_receive_size: int = _setting(
        524_288, "The largest request of a client that hasn't authenticated.", low=1
    )
    ssl_cipher_suites: tuple[str, ...] = _setting(
        (),
        "The cipher suites that clients may use, by their IANA names. Empty: those with forward secrecy and AEAD.",
        read=_read_names,
    )
    ssl_client_auth: str = _setting(
        "none",
        "Whether a client has to show a certificate: none, requested or required.",
        read=_choice("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = _setting(
        ("TLSv1.2", "TLSv1.3"), "The versions of TLS that clients may use.", read=_read_names
    )
    ssl_key_password: str = _setting("", "The password of an encrypted private key.")
    ssl_keystore_certificate_chain: str = _setting(
        "", "The server's certificate and those between it and the CA, as PEM text."
    )
    ssl_keystore_key: str = _setting("", "The server's private key (PKCS#8), as PEM text.")
    ssl_keystore_location: str = _setting("", "The file with the server's private key and certificates.")
    ssl_keystore_password: str = _setting("", "The password of a keystore of the type PKCS12.")
    ssl_keystore_type: str = _setting(
        "JKS", "PEM or PKCS12. JKS, Kafka's default, opens PKCS12 files too, as in Java, but not the older JKS files."
    )
    ssl_principal_mapping_rules: str = _setting(
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes the name of its user: RULE:PATTERN/NAME/[LU] "
        "and DEFAULT, separated by commas.",
    )
    ssl_protocol: str = _setting(
        "TLSv1.3", "TLS, TLSv1.2 or TLSv1.3. As in Kafka, a listener speaks what ssl.enabled.protocols lists."
    )
    ssl_truststore_certificates: str = _setting(
        "", "The certificates of the CAs of clients' certificates, as PEM text."
    )
    ssl_truststore_location: str = _setting("", "The file with the certificates of the CAs of clients' certificates.")
    ssl_truststore_password: str = _setting("", "The password of a truststore of the type PKCS12.")
    ssl_truststore_type: str = _setting(
        "JKS", "PEM or PKCS12. JKS, Kafka's default, opens PKCS12 files too, as in Java, but not the older JKS files."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings; those of the group core are in `group`, those of listeners in `security`.

    overrides: settings of listeners that differ from `security`, by the attribute's name, under LISTENER or
    LISTENER.MECHANISM in small letters.
    stated: names of the settings that some source gave.
    topic_defaults: changed defaults of topics' settings, by the topic's names; only settings without a row here.
    """

    listeners: tuple[Listener, ...] = _setting(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        "Where to listen: NAME://HOST:PORT,... Without a host: on every interface.",
        read=_read_listeners,
    )
    advertised_listeners: tuple[Listener, ...] = _setting(
        (),
        "The addresses that clients connect to, each under its listener's name. Default: the listener's own "
        "address; if it listens on every interface, the address that the client connected to.",
        read=_read_listeners,
    )
    listener_security_protocol_map: tuple[tuple[str, str], ...] = _setting(
        (),
        "The security protocol of each listener's name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        read=_read_protocols,
    )
    inter_broker_listener_name: str = _setting(
        "",
        "The listener of brokers. Once max.connections is reached, a new connection to it closes one of another "
        "listener, as in Kafka. Default: the listener whose name is the value of security.inter.broker.protocol.",
    )
    security_inter_broker_protocol: str = _setting(
        "PLAINTEXT", "The default of inter.broker.listener.name, and nothing else: no broker connects to Tenure."
    )
    controller_listener_names: tuple[str, ...] = _setting(
        (), "Listeners of Kafka's controller; the server doesn't open them.", read=_read_names
    )
    node_id: int = _setting(1, "This server's number among the brokers; broker.id is another name.", low=0)
    log_dirs: str = _setting("data", "The folder for all data; log.dir is another name.")
    num_partitions: int = _setting(
        1, "Partitions of a topic whose creator gives no number.", low=1, high=TOPIC_PARTITIONS_MAX
    )
    auto_create_topics_enable: bool = _setting(
        True, "Create an unknown topic when a client asks for its metadata and allows it."
    )
    topics: tuple[tuple[str, int], ...] = _own((), "Topics to create at start: NAME:PARTITIONS,...", read=_read_topics)
    max_connections: int = _setting(INT32_MAX, "Connections at a time; further ones wait.", low=0)
    max_connections_per_ip: int = _setting(INT32_MAX, "Connections at a time from one address.", low=0)
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = _setting(
        (), "Other numbers for some addresses: ADDRESS:CONNECTIONS,...", read=_read_numbers_of_addresses
    )
    max_connection_creation_rate: int = _setting(INT32_MAX, "New connections a second; further ones wait.", low=0)
    connections_max_idle_ms: int = _setting(
        600_000,
        "The server closes a connection if the client sends nothing, or reads nothing of its answers, for longer "
        "than this; -1: never.",
        low=-1,
        high=INT64_MAX,
    )
    connection_failed_authentication_delay_ms: int = _setting(
        100, "How long the server waits before it answers a failed login and closes the connection.", low=0
    )
    socket_request_max_bytes: int = _setting(
        104_857_600, "The largest request; the server closes the connection of a larger one.", low=1
    )
    request_max_elements: int = _own(
        100_000,
        "How many elements all arrays of a request may have together; the server closes the connection of a "
        "larger request.",
        low=1_000,
    )
    queued_max_request_bytes: int = _setting(
        268_435_456,
        "The memory for large requests of all connections; above it the server reads no further ones. At least "
        "socket.request.max.bytes; -1: no limit.",
        low=-1,
        high=INT64_MAX,
    )
    quota_window_num: int = _setting(
        11, "How many samples the rate of a client, or of connections, is averaged over.", low=1
    )
    quota_window_size_seconds: int = _setting(1, "How many seconds one sample covers.", low=1)
    controller_quota_window_num: int = _setting(
        11, "How many samples the rate of controller_mutation_rate is averaged over.", low=1
    )
    controller_quota_window_size_seconds: int = _setting(
        1, "How many seconds one sample of controller_mutation_rate covers.", low=1
    )
    socket_listen_backlog_size: int = _setting(1024, "How many connections may wait to be accepted.", low=1)
    offsets_topic_num_partitions: int = _setting(
        50, "Partitions of __consumer_offsets. Never change it once there are groups.", low=1, high=TOPIC_PARTITIONS_MAX
    )
    offsets_topic_segment_bytes: int = _setting(
        4 * 1024 * 1024, "The size at which a segment of __consumer_offsets is closed and a new one begins.", low=14
    )
    transaction_state_log_num_partitions: int = _setting(
        50,
        "Partitions of __transaction_state. Never change it once there are transactional ids.",
        low=1,
        high=TOPIC_PARTITIONS_MAX,
    )
    transaction_max_timeout_ms: int = _setting(900_000, "The longest timeout a producer may ask for.", low=1)
    transaction_version: int = _setting(
        2,
        "The version of transactions that producers find: 2 has an epoch for each (KIP-890), 0 is Kafka 3.9's.",
        low=0,
        high=2,
    )
    transactional_id_expiration_ms: int = _setting(
        604_800_000, "After so long the server forgets a transactional id.", low=1
    )
    transactional_ids_max: int = _own(
        100_000, "How many transactional ids of a user a node keeps: 60 MB by default.", low=1
    )
    log_segment_bytes: int = _setting(
        1_073_741_824, "The size at which a segment of a topic partition is closed and a new one begins.", low=14
    )
    log_retention_ms: int = _setting(
        604_800_000,
        "How long records of a topic without its own retention.ms stay; -1: for ever.",
        low=-1,
        high=INT64_MAX,
        read=_read_retention_ms,
    )
    log_retention_bytes: int = _setting(
        -1,
        "How large a partition of a topic without its own retention.bytes may get; -1: no limit.",
        low=-1,
        high=INT64_MAX,
    )
    log_retention_check_interval_ms: int = _setting(
        300_000, "How often the server looks for old segments of topics.", low=1, high=INT64_MAX
    )
    fetch_max_bytes: int = _setting(
        57_671_680, "The largest answer to one Fetch; its first batch may exceed it.", low=1024
    )
    log_roll_ms: int = _setting(
        604_800_000,
        "The server closes a segment whose first record is this old; then it may compact the segment.",
        low=1,
        high=INT64_MAX,
    )
    log_cleaner_min_cleanable_ratio: float = _setting(
        0.5,
        "The server compacts a partition when more than this part of its closed segments has never been compacted.",
        read=_read_ratio,
    )
    log_cleaner_min_compaction_lag_ms: int = _setting(
        0, "How old a record must be before compaction may remove it.", low=0, high=INT64_MAX
    )
    log_cleaner_delete_retention_ms: int = _setting(
        86_400_000,
        "How long a tombstone stays after its timestamp; in a topic's log, after the first compaction that saw it.",
        low=0,
        high=INT64_MAX,
    )
    log_cleaner_backoff_ms: int = _setting(15_000, "How often the server looks for partitions to compact.", low=1)
    offsets_retention_check_interval_ms: int = _setting(
        600_000, "How often the server looks for expired offsets.", low=1, high=INT64_MAX
    )
    journal_enable: bool = _own(
        True, "Write the records of groups and transactional ids to a journal first: one sync for all partitions."
    )
    journal_bytes: int = _own(
        16_777_216, "The size of the journal on disk; the server keeps as much in memory at most.", low=65_536
    )
    events_enable: bool = _own(True, "Write what happens to groups to the topic __rebalance_events.")
    events_retention_ms: int = _own(
        604_800_000, "How long events stay in __rebalance_events; -1: for ever.", low=-1, high=INT64_MAX
    )
    events_retention_bytes: int = _own(
        268_435_456, "How large a partition of __rebalance_events may get; -1: no limit.", low=-1, high=INT64_MAX
    )
    http: tuple[Listener, ...] = _own(
        (),
        "HOST:PORT of HTTP: a page, groups, metrics, health. Empty: no HTTP. With several workers the first "
        "listens there, and each further one a port higher. An address that is not of the loopback needs "
        "tenure.http.token.",
        read=_read_address(HTTP),
    )
    http_token: str = _own(
        "",
        "The token that each request over HTTP has to bring, but for /healthz and /readyz: Authorization: Bearer "
        "TOKEN, or as the password of Basic under any name. Empty: none.",
    )
    http_allow_anonymous: bool = _own(
        False, "Whether tenure.http may be an address that is not of the loopback although there is no token."
    )
    http_hosts: tuple[str, ...] = _own(
        (),
        "Names of this server that a Host header may have, beside localhost and addresses: NAME,...",
        read=_read_names,
    )
    http_max_connections: int = _own(100, "HTTP connections at a time; the server closes further ones.", low=1)
    http_idle_timeout_ms: int = _own(
        30_000,
        "The server closes an HTTP connection that completes no request, or reads nothing of its answer, for this "
        "long.",
        low=1,
    )
    http_client_config: str = _own(
        "",
        "A file with client properties, by which HTTP asks the other workers: for tenure.workers without a "
        "PLAINTEXT listener.",
    )
    control: tuple[Listener, ...] = _own(
        (),
        "HOST:PORT of the control: a test moves time, plans faults and looks at groups over HTTP. For tests only. "
        "Empty: no control. An address that is not of the loopback needs tenure.control.token.",
        read=_read_address(CONTROL),
    )
    control_token: str = _own(
        "", "The token that each request to the control has to bring (Authorization: Bearer TOKEN). Empty: none."
    )
    control_nodes: int = _own(
        1,
        "How many nodes a server with control has, all in its process and in memory: tests move coordinators "
        "between them, and kill nodes. The first has the ports of listeners and advertised.listeners, each "
        "further one a port higher.",
        low=1,
    )
    statsd: tuple[str, int] | None = _own(
        None, "HOST:PORT of a StatsD server, which gets the metrics by UDP. Empty: none.", read=_read_sink
    )
    metrics_groups_max: int = _own(
        100,
        "How many groups have metrics of their own; all others are summed up under an empty group.",
        low=0,
        high=10_000,
    )
    statsd_interval_ms: int = _own(10_000, "How often the server sends metrics to StatsD.", low=100)
    statsd_principals: bool = _own(
        False,
        "Whether StatsD gets metrics under the names of users, which UDP doesn't encrypt; else it gets one sum of "
        "all users.",
    )
    statsd_tags: bool = _own(
        True, "Send labels as DogStatsD's tags; false: as parts of the metrics' names, for a plain StatsD."
    )
    workers: int = _own(
        1,
        "Server processes. Each is a node: the first has the ports of listeners and advertised.listeners, each "
        "further one a port higher. Node ids count up from node.id, or from 0 if it isn't set.",
        low=1,
        high=TOPIC_PARTITIONS_MAX,
    )
    store: tuple[str, ...] = _own(
        (),
        "The etcd that keeps groups and offsets, etcd://HOST:PORT,HOST:PORT,...; it makes the server one node of "
        "a cluster. Empty: log.dirs keeps them.",
        read=_read_store,
    )
    cluster: str = _own(
        "",
        "The name of the cluster in tenure.store: letters, digits, '.', '_' and '-'. Each of its nodes needs a "
        "node.id of its own.",
        read=_read_cluster,
    )
    store_lease_ms: int = _own(
        3_000,
        "If tenure.store hears nothing from a node for this long, other nodes take over its groups.",
        low=1_000,
        high=60_000,
    )
    store_quota_bytes: int = _own(
        2 * 1024 * 1024 * 1024,
        "The value of etcd's flag --quota-backend-bytes. Nodes warn above 60 % of it, and take no new groups "
        "above 80 %.",
        low=1,
        high=INT64_MAX,
    )
    store_ssl_truststore_location: str = _own(
        "", "A PEM file with the certificates of the CAs of tenure.store. Empty: no TLS."
    )
    store_ssl_keystore_location: str = _own(
        "", "A PEM file with the private key and the certificates that this node shows to tenure.store. Empty: none."
    )
    store_user: str = _own("", "The name under which this node logs in to tenure.store. Empty: it doesn't log in.")
    store_password_file: str = _own("", "A file with the password of tenure.store.user.")
    offset_fetch_verify: str = _own(
        "none",
        "quorum: before it answers an OffsetFetch, a node asks tenure.store whether the group is still its own. "
        "none: it trusts its lease; a node that was frozen in the middle of an answer may then return an older "
        "offset.",
        read=_choice("none", "quorum"),
    )
    worker_timeout_ms: int = _own(
        10_000, "A worker that doesn't answer its supervisor for this long is killed and started again.", low=100
    )
    log_format: str = _own(
        "text", "The form of log lines: text, or json with one object a line.", read=_choice("text", "json")
    )
    authorizer_class_name: str = _setting(
        "",
        "The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer stands for ACLs. Empty: every "
        "client may do everything.",
        read=_choice(*AUTHORIZERS),
    )
    super_users: tuple[str, ...] = _setting(
        (), "Principals that may do everything, separated by semicolons.", read=_read_principals
    )
    allow_everyone_if_no_acl_found: bool = _setting(False, "Whether every client may use a resource that no ACL names.")
    authorizer_log_allowed: bool = _own(
        False, "Whether the server logs allowed requests too, not only denied ones. Kafka logs them at the level DEBUG."
    )
    group: GroupConfig = GroupConfig()
    security: ListenerConfig = ListenerConfig()
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    stated: frozenset[str] = frozenset()
    topic_defaults: tuple[tuple[str, str], ...] = ()

    def topic_list(self) -> dict[str, int]:
        """The topics of tenure.topics with their partitions."""
        return dict(self.topics)

    def security_protocol(self, listener: str) -> str:
        """The security protocol of the listener of that name: the name itself, unless the map has another."""
        return dict(self.listener_security_protocol_map).get(listener, listener)

    def has_tls(self, listener: str) -> bool:
        """Whether the connections of a listener, of HTTP or of the control are encrypted."""
        if listener in DOORS:
            return listener in self.overrides
        return self.security_protocol(listener) in {"SSL", "SASL_SSL"}

    def of_listener(self, listener: str, mechanism: str = "") -> ListenerConfig:
        """The security settings of a listener, or of a SASL mechanism of it."""
        names = (listener.lower(), f"{listener}.{mechanism}".lower())
        changes: dict[str, Any] = {}
        for name in names:
            changes |= self.overrides.get(name, {})
        return replace(self.security, **{name: value for name, value in changes.items() if name not in LIMITS.values()})

    def is_of_brokers(self, listener: str) -> bool:
        """Whether a listener is the one of Kafka's brokers, and not the only one."""
        name = self.inter_broker_listener_name or self.security_inter_broker_protocol
        return listener.upper() == name.upper() and len(served_listeners(self)) > 1

    def limit_of(self, listener: str, attribute: str) -> int:
        """The value of one of LIMITS for a listener by itself: its own, else as large as the server's, as in Kafka."""
        limit: int = self.overrides.get(listener.lower(), {}).get(attribute, getattr(self, attribute))
        return limit


LIMITS = {"max.connections": "max_connections", "max.connection.creation.rate": "max_connection_creation_rate"}
"""Settings of the server that a listener can have too, beside the server's. Each with its attribute."""

_PARTS = {"": Config, "group": GroupConfig, "security": ListenerConfig}


@cache
def settings() -> dict[str, Setting]:
    """Every setting by its name."""
    return {row.name: row for row in _rows()}


def _rows() -> Iterator[Setting]:
    for part, owner in _PARTS.items():
        for item in fields(owner):
            if "setting" in item.metadata:
                row = item.metadata["setting"]
                name = row.name or item.metadata["prefix"] + item.name.replace("_", ".")
                yield row._replace(name=name, attribute=item.name, part=part)
    for ticket, rule in FIXES.items():
        name, doc = f"tenure.fix.{ticket}", f"A better rule than Kafka's: {rule}."
        yield Setting(name, ticket in FIXED, doc, None, INT32_MAX, 1, _read_bool, "fixes", "group")


_ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}


class _Value(NamedTuple):
    text: str
    where: str


def load(
    *,
    flags: Mapping[str, tuple[str, str]] | None = None,
    sets: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    properties: str = "",
    file_name: str = "",
) -> tuple[Config, list[str]]:
    """Make a `Config` of all sources, and the warnings to log.

    flags: setting's name -> flag and text. sets: NAME=VALUE. properties: the text of the file `file_name`.

    Raises:
        ConfigError: names the setting, what is wrong and where it stands.
    """
    environment = environment or {}
    passed_over: list[str] = []
    warnings: list[str] = []
    values: dict[str, _Value] = {}
    for where, given in (
        (file_name, parse_properties(properties)),
        ("environment", _from_environment(environment, passed_over, warnings)),
        ("--set", _from_sets(sets)),
    ):
        _merge(values, where, given, passed_over)
    for name, (flag, text) in (flags or {}).items():
        _merge(values, flag, {name: text}, passed_over)
    config = _build(values)
    _check(config)
    if passed_over:
        warnings.append(f"not used here, although Kafka knows it: {', '.join(sorted(set(passed_over)))}")
    return config, warnings


LISTENER_NAME = "listener.name."
"""The settings of one listener begin with this."""

_OF_PRINCIPALS = "ssl.principal.mapping.rules"

_MECHANISM_ONLY = "sasl.jaas.config"
"""Kafka, too, ignores this setting unless it names a listener and a mechanism (JaasContext.loadServerContext)."""


class Override(NamedTuple):
    """A setting of one listener. owner: the listener, or the listener, a dot and a mechanism; in small letters."""

    owner: str
    setting: Setting


@cache
def _door_settings() -> dict[str, Override]:
    """The TLS settings of HTTP and of the control, by their names."""
    own = [row for row in settings().values() if row.name.startswith("ssl.") and row.name != _OF_PRINCIPALS]
    return {f"{prefix}{row.name}": Override(door, row) for door, prefix in DOORS.items() for row in own}


def override_of(name: str) -> Override | None:
    """The meaning of `listener.name.X.NAME`; None if no setting of listeners has that name."""
    if name in _door_settings():
        return _door_settings()[name]
    if not name.startswith(LISTENER_NAME):
        return None
    listener, _, rest = name.removeprefix(LISTENER_NAME).partition(".")
    mechanism, _, last = rest.partition(".")
    owners = ((listener, rest), (f"{listener}.{mechanism}", last))
    for owner, plain in owners:
        setting = settings().get(plain)
        if setting is not None and setting.part == "security" and (plain != _MECHANISM_ONLY or "." in owner):
            return Override(owner.lower(), setting)
        if setting is not None and plain in LIMITS and "." not in owner:
            return Override(owner.lower(), setting)
    return None


def _merge(values: dict[str, _Value], where: str, given: Mapping[str, str], passed_over: list[str]) -> None:
    """Add the settings of one source; they win over those of the sources before it."""
    for name, text in given.items():
        known = _ALIASES.get(name, name)
        if known == _MECHANISM_ONLY:
            passed_over.append(name)
        elif known in settings() or override_of(name) is not None:
            if known == name or known not in given:
                values[known] = _Value(text.strip(), where)
        elif _kafka_knows(name):
            passed_over.append(name)
        else:
            raise ConfigError(f"{name}: no such setting{_suggestion(name)} (from {where})")


def _build(values: Mapping[str, _Value]) -> Config:
    config = Config()
    for name, (text, where) in values.items():
        try:
            config = with_values(config, {name: text})
        except ValueError as error:
            is_flag = where.startswith("--") and where != "--set"
            raise ConfigError(f"{where}: {error}" if is_flag else f"{name}: {error} (from {where})") from None
    group = replace(config.group, stored_max_bytes=STORED_MAX_BYTES if config.store else 0)
    return replace(config, group=group, stated=frozenset(values))


def with_values(config: Config, texts: Mapping[str, str]) -> Config:
    """The configuration with other values of some settings. Raises ValueError."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    overrides = {owner: dict(values) for owner, values in config.overrides.items()}
    fixes = set(config.group.fixes)
    for name, text in texts.items():
        override = override_of(name)
        setting = settings()[name] if override is None else override.setting
        value = setting.read(text)
        if override is not None:
            overrides.setdefault(override.owner, {})[setting.attribute] = value
        elif setting.attribute == "fixes":
            (fixes.add if value else fixes.discard)(name.removeprefix("tenure.fix."))
        else:
            parts[setting.part][setting.attribute] = value
    group = replace(config.group, **parts["group"], fixes=frozenset(fixes))
    security = replace(config.security, **parts["security"])
    return replace(config, **parts[""], group=group, security=security, overrides=overrides)


def _check(config: Config) -> None:
    """Check settings that depend on each other. Raises ConfigError."""
    group = config.group
    if group.group_min_session_timeout_ms > group.group_max_session_timeout_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms: {group.group_min_session_timeout_ms} is more than "
            f"group.max.session.timeout.ms, {group.group_max_session_timeout_ms}"
        )
    _check_consumer_groups(group)
    if not config.log_dirs or "," in config.log_dirs:
        raise ConfigError(f"log.dirs: {config.log_dirs!r} is not one folder")
    served = served_listeners(config)
    if not served:
        raise ConfigError("listeners: there is none to serve")
    for listener in served:
        protocol = config.security_protocol(listener.name)
        if protocol not in SECURITY_PROTOCOLS:
            hint = "" if protocol != listener.name else " (listener.security.protocol.map may map the name)"
            raise ConfigError(
                f"listeners: {listener.name} asks for {protocol}, which is none of "
                f"{', '.join(SECURITY_PROTOCOLS)}{hint}"
            )
    known = {listener.name.lower() for listener in config.listeners}
    known |= {name.lower() for name in config.controller_listener_names} | DOORS.keys()
    for owner in config.overrides:
        if owner.partition(".")[0] not in known:
            raise ConfigError(f"{LISTENER_NAME}{owner}: listeners has no {owner.partition('.')[0].upper()}")
    places = [(each.host, each.port) for each in (*served, *config.http, *config.control) if each.port]
    if len(places) != len(set(places)):
        raise ConfigError("listeners: two listeners have one address")
    names = {listener.name for listener in config.listeners}
    opened = {listener.name for listener in served}
    for listener in config.advertised_listeners:
        if listener.name not in names:
            raise ConfigError(f"advertised.listeners: {listener.name} is not among listeners")
        if listener.host in EVERYWHERE and listener.name in opened:
            raise ConfigError(f"advertised.listeners: nobody can connect to {listener}")
    _check_http(config)
    queued_max = config.queued_max_request_bytes
    if "queued.max.request.bytes" in config.stated and 0 < queued_max < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes: {queued_max} is less than socket.request.max.bytes, "
            f"{config.socket_request_max_bytes}"
        )
    _check_control_nodes(config)
    _check_store(config)
    if config.workers > config.offsets_topic_num_partitions:
        raise ConfigError(
            f"tenure.workers: {config.workers} can't share the {config.offsets_topic_num_partitions} partitions of "
            "offsets.topic.num.partitions"
        )
    taken: set[tuple[str, int]] = set()
    for worker in configs_of_workers(config):
        for listener in (*worker.listeners, *worker.advertised_listeners, *worker.http):
            if listener.port > PORT_MAX:
                raise ConfigError(f"tenure.workers: node {worker.node_id} would be at {listener}")
        opened_here = {(each.host, each.port) for each in (*served_listeners(worker), *worker.http) if each.port}
        if opened_here & taken:
            host, port = min(opened_here & taken)
            raise ConfigError(f"tenure.workers: two nodes would be at {host}:{port}")
        taken |= opened_here


def _check_consumer_groups(group: GroupConfig) -> None:
    """Check settings of the consumer protocol that depend on each other, as Kafka does (GroupCoordinatorConfig)."""
    for kind in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        value, least, most = (
            getattr(group, f"group_consumer_{limit}{kind}".replace(".", "_")) for limit in ("", "min.", "max.")
        )
        if least > most:
            raise ConfigError(f"group.consumer.min.{kind}: {least} is more than group.consumer.max.{kind}, {most}")
        if value < least:
            raise ConfigError(f"group.consumer.{kind}: {value} is less than group.consumer.min.{kind}, {least}")
        if value > most:
            raise ConfigError(f"group.consumer.{kind}: {value} is more than group.consumer.max.{kind}, {most}")
    if group.group_consumer_heartbeat_interval_ms >= group.group_consumer_session_timeout_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms: {group.group_consumer_heartbeat_interval_ms} is not less than "
            f"group.consumer.session.timeout.ms, {group.group_consumer_session_timeout_ms}"
        )


def _check_http(config: Config) -> None:
    """Check that strangers reach neither HTTP nor the control unless a setting says so. Raises ConfigError."""
    for name, token in (("tenure.http.token", config.http_token), ("tenure.control.token", config.control_token)):
        if re.fullmatch(r"[!-~]*", token) is None:
            raise ConfigError(f"{name}: a token has printable ASCII characters without spaces")
    for listener in config.http:
        is_closed = config.http_token or asks_for_certificates(config, HTTP)
        if not (is_closed or config.http_allow_anonymous or _is_loopback(listener.host)):
            raise ConfigError(
                f"tenure.http: {listener.address} is not of the loopback: set tenure.http.token "
                "(or tenure.http.allow.anonymous=true, and everybody may read)"
            )
    protocols = {config.security_protocol(listener.name) for listener in served_listeners(config)}
    if config.http and config.workers > 1 and "PLAINTEXT" not in protocols and not config.http_client_config:
        raise ConfigError(
            "tenure.http.client.config: with tenure.workers and without a PLAINTEXT listener, HTTP needs this file to "
            "ask other workers"
        )
    for listener in config.control:
        if config.workers > 1:
            raise ConfigError("tenure.control: it controls one process, so it excludes tenure.workers")
        if not (config.control_token or _is_loopback(listener.host)):
            raise ConfigError(f"tenure.control: {listener.address} is not of the loopback: set tenure.control.token")


def _check_store(config: Config) -> None:
    """Check the settings of a node of a cluster. Raises ConfigError."""
    if not config.store:
        if config.cluster:
            raise ConfigError("tenure.cluster: it needs tenure.store=etcd://HOST:PORT,...")
        return
    if not config.cluster:
        raise ConfigError("tenure.cluster: a node of tenure.store needs the name of its cluster, --cluster NAME")
    if "node.id" not in config.stated:
        raise ConfigError("node.id: each node of a cluster needs its own id")
    if config.node_id > NODE_ID_MAX:
        raise ConfigError(f"node.id: {config.node_id}: in a cluster it is at most {NODE_ID_MAX}")
    if config.workers > 1:
        raise ConfigError("tenure.workers: a node of a cluster is one process; start more nodes")
    if config.control:
        raise ConfigError("tenure.control: its servers keep everything in memory, so it excludes tenure.store")
    if bool(config.store_user) != bool(config.store_password_file):
        raise ConfigError("tenure.store.user: it goes with tenure.store.password.file")
    if config.store_ssl_keystore_location and not config.store_ssl_truststore_location:
        raise ConfigError("tenure.store.ssl.keystore.location: it needs tenure.store.ssl.truststore.location")


def _check_control_nodes(config: Config) -> None:
    """Check that several nodes fit into the process of a control. Raises ConfigError."""
    name, count = "tenure.control.nodes", config.control_nodes
    if count == 1 or not config.control:
        return
    for refused in ("log.dirs", "tenure.http"):
        if refused in config.stated:
            raise ConfigError(f"{name}: {count} nodes keep everything in memory and have no page: leave {refused} out")
    if "tenure.events.enable" in config.stated and config.events_enable:
        raise ConfigError(f"{name}: {count} nodes have no topic of events: leave tenure.events.enable out")
    if len(config.listeners) > 1:
        raise ConfigError(f"{name}: each of {count} nodes has one listener, and listeners has {len(config.listeners)}")
    for listener in (*config.listeners, *config.advertised_listeners):
        if listener.port + count - 1 > PORT_MAX:
            raise ConfigError(f"{name}: the ports of {count} nodes, from {listener.port} on, end beyond {PORT_MAX}")


def asks_for_certificates(config: Config, door: str) -> bool:
    """Whether HTTP or the control lets only clients with certificates in.

    Only a setting of its own says so: `ssl.client.auth` is meant for Kafka's clients.
    """
    return config.overrides.get(door, {}).get("ssl_client_auth") == "required"


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 - only a server with HTTP pays for it

    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def configs_of_workers(config: Config) -> list[Config]:
    """The configuration of each worker, in their order. If there is one worker, that is `config` itself."""
    if config.workers == 1:
        return [config]
    first_id = config.node_id if "node.id" in config.stated else 0
    return [
        replace(
            config,
            node_id=first_id + index,
            listeners=tuple(_shifted(listener, index) for listener in config.listeners),
            advertised_listeners=tuple(_shifted(listener, index) for listener in config.advertised_listeners),
            http=tuple(_shifted(listener, index) for listener in config.http),
        )
        for index in range(config.workers)
    ]


def _shifted(listener: Listener, index: int) -> Listener:
    """The listener of the worker with that index. Port 0, for which the system chooses one, stays 0."""
    return listener._replace(port=listener.port + index) if listener.port else listener


def served_listeners(config: Config) -> tuple[Listener, ...]:
    """The listeners to open: all but those of Kafka's controller."""
    controller = {name.upper() for name in config.controller_listener_names}
    return tuple(listener for listener in config.listeners if listener.name not in controller)


def tls_listeners(config: Config) -> list[str]:
    """The names of the listeners with TLS; those of HTTP and of the control are among them."""
    opened = (*served_listeners(config), *config.http, *config.control)
    return [listener.name for listener in opened if config.has_tls(listener.name)]


def _from_sets(sets: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for item in sets:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set: {item!r} is not NAME=VALUE")
        given[name.strip()] = text
    return given


def environment_name(name: str) -> str:
    """A setting's name in the environment, behind TENURE_ or KAFKA_, as Kafka's image forms it."""
    return name.removeprefix("tenure.").upper().replace(".", "_").replace("-", "_")


def _dotted(variable: str) -> str:
    """The name of a listener's setting, of its variable in Kafka's image: `_` is a dot, `__` a `_`, `___` a dash."""
    marks = {"_": ".", "__": "_", "___": "-"}
    return re.sub("_{1,3}", lambda found: marks[found[0]], variable).lower()


# Kubernetes sets these in every pod beside a service named "tenure". They are no settings.
_SERVICE_LINK = r"TENURE_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"


def _from_environment(environment: Mapping[str, str], passed_over: list[str], warnings: list[str]) -> dict[str, str]:
    names = {environment_name(name): name for name in (*settings(), *_door_settings(), *_ALIASES)}
    of_kafka = {key: name for key, name in names.items() if not name.startswith("tenure.")}
    given = {
        of_kafka[key[6:]]: text for key, text in environment.items() if key.startswith("KAFKA_") and key[6:] in of_kafka
    }
    own: dict[str, str] = {}
    for key, text in environment.items():
        if key.startswith(("TENURE_LISTENER_NAME_", "KAFKA_LISTENER_NAME_")):
            dotted = _dotted(key.partition("_")[2])
            if key.startswith("TENURE_"):
                own[dotted] = text
            elif override_of(dotted) is not None:
                given[dotted] = text
            continue
        dotted = key.partition("_")[2].lower().replace("_", ".")
        if key.startswith("KAFKA_") and key[6:] not in of_kafka and not _kafka_knows(dotted):
            hint = _suggestion(dotted)
            warnings += [f"{key}: no such setting{hint}"] if hint else []
        if not key.startswith("TENURE_") or re.fullmatch(_SERVICE_LINK, key):
            continue
        name = names.get(key[7:])
        if name is not None:
            own[name] = text
        elif _kafka_knows(dotted):
            passed_over.append(key)
        else:
            raise ConfigError(f"{key}: no such setting{_suggestion(dotted)}")
    for name in own:
        # A TENURE_ variable wins over a KAFKA_ variable, even if they use different names of the setting.
        given.pop(_ALIASES.get(name, name), None)
    return given | own


def parse_properties(text: str) -> dict[str, str]:
    r"""Read Java's properties format: comments, continued lines, escapes; `=`, `:` or a space behind the name."""
    given: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            logical = logical[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:\\.|[^\\\s=:])*)\s*[=:]?\s*(.*)", logical, re.DOTALL)
        assert match is not None
        given[_unescape(match[1])] = _unescape(match[2])
    return given


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    special = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else special.get(found[2], found[2]),
        text,
    )


def _suggestion(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake pays for it

    close = get_close_matches(name, settings(), n=1, cutoff=0.8)
    return f", perhaps {close[0]}" if close else ""


# Settings of a broker of Kafka 3.9 that Tenure doesn't have. A prefix here stands for all names that begin with it.
_KAFKA_FAMILIES = """
    alter. compression. confluent. controlled.shutdown. controller.quorum. delegation.token. follower.replication.
    group.consumer. group.coordinator. group.share. kafka.metrics. leader. listener.name. log.cleaner. log.flush.
    log.local. log.message. log.retention. log.roll. metadata. metric. metrics. offsets.topic.compression.
    offsets.topic.replication. password.encoder. producer. queued.max. remote. replica. replication.quota. sasl.
    share. ssl. transaction. transactional. unstable. zookeeper.
"""
_KAFKA_NAMES = """
    auto.include.jmx.reporter auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms
    broker.id.generation.enable broker.rack broker.session.timeout.ms client.quota.callback.class
    control.plane.listener.name controller.socket.timeout.ms create.topic.policy.class.name default.replication.factor
    delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
    eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests initial.broker.registration.timeout.ms
    inter.broker.protocol.version log.cleanup.policy log.dir.failure.timeout.ms log.index.interval.bytes
    log.index.size.max.bytes log.preallocate log.segment.delete.delay.ms max.incremental.fetch.session.cache.slots
    max.request.partition.size.limit min.insync.replicas num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers offsets.commit.timeout.ms
    offsets.load.buffer.size principal.builder.class process.roles request.timeout.ms reserved.broker.max.id
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.receive.buffer.bytes
    socket.send.buffer.bytes telemetry.max.bytes unclean.leader.election.enable unclean.leader.election.interval.ms
"""


def _kafka_knows(name: str) -> bool:
    return name.startswith(tuple(_KAFKA_FAMILIES.split())) or name in _KAFKA_NAMES.split()
