"""Settings: their sources and the order of these, reading, ranges, and the text of errors."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config import (
    FIXED,
    FIXES,
    HTTP,
    Config,
    ConfigError,
    GroupConfig,
    Listener,
    ListenerConfig,
    asks_for_certificates,
    configs_of_workers,
    environment_name,
    load,
    parse_properties,
    served_listeners,
    settings,
    tls_listeners,
    topic_name_problem,
)


def config_of(**sources: object) -> Config:
    """Return the configuration that `sources` make."""
    return load(**sources)[0]  # type: ignore[arg-type]


def test_without_any_source_everything_has_kafkas_default() -> None:
    """Without any source each setting has its default, which is Kafka's."""
    config, warnings = load()
    assert config == Config()
    assert warnings == []
    assert config.group.group_max_session_timeout_ms == 1_800_000
    assert config.group.offsets_retention_ms == 7 * 24 * 60 * 60 * 1000
    assert config.offsets_topic_num_partitions == 50


def test_each_source_wins_over_the_ones_behind_it() -> None:
    """The order is flag, --set, TENURE_, KAFKA_, file, default. The test takes the sources away one by one."""
    sources: dict[str, object] = {
        "properties": "group.max.size=2",
        "environment": {"KAFKA_GROUP_MAX_SIZE": "3", "TENURE_GROUP_MAX_SIZE": "4"},
        "sets": ["group.max.size=5"],
        "flags": {"group.max.size": ("--size", "6")},
    }
    seen = [config_of(**sources).group.group_max_size]
    steps: list[dict[str, object]] = [
        {"flags": {}},
        {"sets": []},
        {"environment": {"KAFKA_GROUP_MAX_SIZE": "3"}},
        {"environment": {}},
        {"properties": ""},
    ]
    for step in steps:
        sources |= step
        seen.append(config_of(**sources).group.group_max_size)
    assert seen == [6, 5, 4, 3, 2, 2_147_483_647]


def test_ours_wins_over_kafkas_variable_under_either_of_two_names() -> None:
    """TENURE_BROKER_ID beats KAFKA_NODE_ID although node.id is the first name of the setting."""
    assert config_of(environment={"TENURE_BROKER_ID": "7", "KAFKA_NODE_ID": "8"}).node_id == 7


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in settings()
        if name not in {"listeners", "advertised.listeners", "sasl.jaas.config", "tenure.store", "tenure.cluster"}
    ],
)
def test_every_setting_can_be_given_in_every_way(name: str) -> None:
    """The file, --set and both kinds of variable can set each row of the table, and change nothing else."""
    setting = settings()[name]
    text = {
        "log.dirs": "elsewhere",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "group.consumer.assignor.offload.enable": "false",
        "group.consumer.assignors": "range",
        "group.consumer.migration.policy": "upgrade",
        "group.consumer.regex.refresh.interval.ms": "20000",
        "group.consumer.session.timeout.ms": "46000",
        "group.consumer.max.session.timeout.ms": "50000",
        "group.consumer.heartbeat.interval.ms": "6000",
        "group.consumer.max.heartbeat.interval.ms": "12000",
        "group.consumer.max.assignment.interval.ms": "12000",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "max.connections.per.ip.overrides": "127.0.0.1:7",
        "controller.listener.names": "CONTROLLER",
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
        "allow.everyone.if.no.acl.found": "true",
        "tenure.authorizer.log.allowed": "true",
        "tenure.topics": "orders:12",
        "tenure.log.format": "json",
        "tenure.http": "127.0.0.1:8080",
        "tenure.http.allow.anonymous": "true",
        "tenure.control": "127.0.0.1:8080",
        "tenure.control.nodes": "3",
        "tenure.statsd": "sink:8125",
        "tenure.statsd.interval.ms": "1000",
        "tenure.statsd.principals": "true",
        "tenure.statsd.tags": "false",
        "tenure.events.enable": "false",
        "tenure.journal.bytes": "65536",
        "tenure.journal.enable": "false",
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": "10",
        "group.max.session.timeout.ms": "7000",
        "fetch.max.bytes": "1024",
        "tenure.request.max.elements": "2000",
        "tenure.offset.fetch.verify": "quorum",
        "tenure.metrics.groups.max": "7",
        "tenure.store.lease.ms": "5000",
        "tenure.store.quota.bytes": "8589934592",
        "tenure.worker.timeout.ms": "2000",
        "queued.max.request.bytes": "200000000",
        "tenure.fix.kafka-21584": "false",
        "transaction.version": "0",
    }.get(name, "true" if name.startswith("tenure.fix.") else "42")
    by_set = config_of(sets=[f"{name}={text}"])
    assert by_set.stated == {name}
    assert setting.value_of(by_set) != setting.value_of(Config())
    assert [row for row in settings().values() if row.value_of(by_set) != row.value_of(Config())] == [setting]
    assert config_of(properties=f"{name}={text}") == by_set
    assert config_of(environment={f"TENURE_{environment_name(name)}": text}) == by_set
    if not name.startswith("tenure."):
        assert config_of(environment={f"KAFKA_{environment_name(name)}": text}) == by_set


@pytest.mark.parametrize("text", ["-0.1", "1.01", "half", "", ".", "nan", "1e-1"])
def test_a_ratio_is_between_0_and_1(text: str) -> None:
    """0 and 1 are ratios. The error about any other value names the setting."""
    with pytest.raises(ConfigError, match=r"log\.cleaner\.min\.cleanable\.ratio: .* is not a number between 0 and 1"):
        config_of(sets=[f"log.cleaner.min.cleanable.ratio={text}"])
    read = [config_of(sets=[f"log.cleaner.min.cleanable.ratio={end}"]) for end in ("0", "1", "1.0", ".5")]
    assert [config.log_cleaner_min_cleanable_ratio for config in read] == [0, 1, 1, 0.5]


def test_a_listener_has_limits_of_its_own() -> None:
    """Beside the server's, not in their place, as in Kafka; they are no security settings."""
    own = "listener.name.plaintext.max.connections=5", "listener.name.PLAINTEXT.ssl.client.auth=required"
    config = config_of(sets=["max.connections=9", *own])
    assert (config.limit_of("PLAINTEXT", "max_connections"), config.max_connections) == (5, 9)
    assert config.limit_of("PLAINTEXT", "max_connection_creation_rate") == 2**31 - 1
    assert config.of_listener("PLAINTEXT").ssl_client_auth == "required"
    with pytest.raises(ConfigError, match="is not a whole number"):
        config_of(sets=["listener.name.plaintext.max.connection.creation.rate=fast"])


@pytest.mark.parametrize("text", ["127.0.0.1", "localhost:5", "127.0.0.1:-1", "::1:x"])
def test_numbers_of_addresses(text: str) -> None:
    """An address and a number, which is behind the last colon."""
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        config_of(sets=[f"max.connections.per.ip.overrides={text}"])
    read = config_of(sets=["max.connections.per.ip.overrides=127.0.0.1:3, 0:0:0:0:0:0:0:1:4,[::2]:5"])
    assert read.max_connections_per_ip_overrides == (("127.0.0.1", 3), ("::1", 4), ("::2", 5))


def test_every_field_is_in_the_table() -> None:
    """Each field of the configuration has a row, except fields that are computed from others."""
    rows = {row.attribute for row in settings().values()}
    made = {"group", "security", "overrides", "stated", "topic_defaults", "stored_max_bytes", "stored_max_records"}
    assert {item.name for owner in (Config, GroupConfig, ListenerConfig) for item in fields(owner)} - made == rows
    assert all(row.doc.endswith(".") for row in settings().values())


@pytest.mark.parametrize(
    "sources",
    [
        {
            "properties": "listener.name.out.ssl.client.auth=required\nlistener.name.out.plain.sasl.jaas.config=x y;\n"
            "listener.name.out.scram-sha-256.connections.max.reauth.ms=7"
        },
        {
            "environment": {
                "KAFKA_LISTENER_NAME_OUT_SSL_CLIENT_AUTH": "required",
                "KAFKA_LISTENER_NAME_OUT_PLAIN_SASL_JAAS_CONFIG": "x y;",
                "TENURE_LISTENER_NAME_OUT_SCRAM___SHA___256_CONNECTIONS_MAX_REAUTH_MS": "7",
            }
        },
    ],
)
def test_a_listener_and_its_mechanism_have_settings_of_their_own(sources: dict[str, object]) -> None:
    """The plain setting is every listener's; a listener's own wins over it, and a mechanism's own over that."""
    listeners = "listeners=OUT://h:1,PLAINTEXT://h:2"
    protocols = "listener.security.protocol.map=OUT:PLAINTEXT"
    config = config_of(sets=[listeners, protocols, "connections.max.reauth.ms=5"], **sources)
    assert (config.security_protocol("OUT"), config.security_protocol("SSL")) == ("PLAINTEXT", "SSL")
    assert config.of_listener("PLAINTEXT") == ListenerConfig(connections_max_reauth_ms=5)
    out = ListenerConfig(connections_max_reauth_ms=5, ssl_client_auth="required")
    assert config.of_listener("OUT") == out
    assert config.of_listener("OUT", "PLAIN") == replace(out, sasl_jaas_config="x y;")
    assert config.of_listener("OUT", "SCRAM-SHA-256") == replace(out, connections_max_reauth_ms=7)


def test_a_login_module_needs_a_mechanism() -> None:
    """Without a listener and a mechanism, sasl.jaas.config is ignored with a warning, as Kafka does."""
    config, warnings = load(sets=["sasl.jaas.config=x y;", "listener.name.plaintext.sasl.jaas.config=x y;"])
    assert config == Config()
    assert "listener.name.plaintext.sasl.jaas.config, sasl.jaas.config" in warnings[0]


def test_minutes_become_milliseconds() -> None:
    """The configuration keeps a setting in minutes as milliseconds and shows it in minutes."""
    config = config_of(sets=["offsets.retention.minutes=3"])
    assert config.group.offsets_retention_ms == 180_000
    assert settings()["offsets.retention.minutes"].value_of(config) == 3


@pytest.mark.parametrize("ticket", FIXES)
def test_a_fix_is_switched_on_by_its_ticket(ticket: str) -> None:
    """tenure.fix.<ticket>=true adds the ticket to the fixes, and false leaves it out. One is on by default."""
    assert config_of().group.fixes == FIXED == {"kafka-21584"}
    assert config_of(sets=[f"tenure.fix.{ticket}=true"]).group.fixes == FIXED | {ticket}
    assert config_of(sets=[f"tenure.fix.{ticket}=false"]).group.fixes == FIXED - {ticket}


@pytest.mark.parametrize(
    "sources, words",
    [
        ({"sets": ["group.max.size=none"]}, ["group.max.size", "'none' is not a whole number", "--set"]),
        ({"sets": ["group.max.size=0"]}, ["group.max.size", "not between 1 and 2147483647"]),
        ({"sets": ["group.max.size=2147483648"]}, ["group.max.size", "not between"]),
        ({"sets": ["group.max.size=1_0"]}, ["group.max.size", "not a whole number"]),
        ({"sets": ["group.max.size=" + "9" * 5000]}, ["group.max.size", "not a whole number"]),
        ({"sets": ["group.max.sise=1"]}, ["group.max.sise: no such setting, perhaps group.max.size"]),
        ({"sets": ["=1"]}, ["--set", "NAME=VALUE"]),
        ({"sets": ["group.max.size"]}, ["--set", "NAME=VALUE"]),
        ({"environment": {"TENURE_GROUP_MAX_SISE": "1"}}, ["TENURE_GROUP_MAX_SISE", "perhaps group.max.size"]),
        ({"environment": {"KAFKA_GROUP_MAX_SIZE": "x"}}, ["group.max.size", "environment"]),
        ({"properties": "nosuch=1", "file_name": "a.properties"}, ["nosuch", "a.properties"]),
        ({"sets": ["auto.create.topics.enable=yes"]}, ["auto.create.topics.enable", "neither true nor false"]),
        ({"sets": ["listeners=127.0.0.1:9092"]}, ["listeners", "NAME://HOST:PORT"]),
        ({"sets": ["listeners=PLAINTEXT://h:70000"]}, ["listeners", "a port is at most 65535"]),
        ({"sets": ["listeners=PLAINTEXT://h:1,plaintext://h:2"]}, ["listeners", "PLAINTEXT stands there twice"]),
        ({"sets": ["listeners="]}, ["listeners", "none to serve"]),
        ({"sets": ["listeners=A://h:1", "listener.security.protocol.map=A:TLS"]}, ["listeners", "A asks for TLS"]),
        (
            {"sets": ["listener.name.a.ssl.client.auth=none"]},
            ["listener.name.a: listeners has no A"],
        ),
        (
            {"sets": ["listener.name.plaintext.ssl.client.auth=maybe"]},
            ["listener.name.plaintext.ssl.client.auth: 'maybe' is none of none, requested, required"],
        ),
        ({"sets": ["listeners=INSIDE://h:1"]}, ["listeners", "listener.security.protocol.map may map"]),
        (
            {"sets": ["listeners=A://h:1,B://h:1", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"]},
            ["one address"],
        ),
        ({"sets": ["listener.security.protocol.map=A"]}, ["listener.security.protocol.map", "NAME:PROTOCOL"]),
        ({"sets": ["advertised.listeners=OUT://h:1"]}, ["advertised.listeners", "OUT is not among listeners"]),
        ({"sets": ["advertised.listeners=PLAINTEXT://0.0.0.0:1"]}, ["advertised.listeners", "nobody can connect"]),
        ({"sets": ["log.dirs=a,b"]}, ["log.dirs", "not one folder"]),
        ({"sets": ["group.min.session.timeout.ms=1800001"]}, ["group.min.session.timeout.ms", "is more than"]),
        ({"sets": ["tenure.topics=a:0"]}, ["tenure.topics", "'a:0' is not NAME:PARTITIONS with 1 to 10000"]),
        ({"sets": ["tenure.topics=b:2,a"]}, ["tenure.topics", "'a' is not NAME:PARTITIONS"]),
        ({"sets": ["offsets.topic.segment.bytes=13"]}, ["offsets.topic.segment.bytes", "13 is not between 14 and"]),
        ({"sets": ["tenure.topics=a:1,a:1"]}, ["tenure.topics", "a stands there twice"]),
        ({"sets": ["tenure.topics=a/b:1"]}, ["tenure.topics", "ASCII alphanumerics"]),
        ({"sets": ["tenure.log.format=xml"]}, ["tenure.log.format", "none of text, json"]),
        ({"sets": ["tenure.fix.kafka-1=true"]}, ["tenure.fix.kafka-1", "no such setting"]),
    ],
)
def test_a_mistake_is_named_in_one_line(sources: dict[str, object], words: list[str]) -> None:
    """A wrong value raises ConfigError with one line that names the setting."""
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_only_kafka_knows_is_one_warning_unless_it_is_kafkas_variable() -> None:
    """One warning names Kafka's other settings; in KAFKA_ variables they are ignored without a warning."""
    _, warnings = load(
        properties="log.retention.hours=1\nzookeeper.connect=x",
        sets=["num.io.threads=3"],
        environment={"TENURE_MIN_INSYNC_REPLICAS": "1", "KAFKA_NUM_IO_THREADS": "1", "KAFKA_NO_SUCH_THING": "1"},
    )
    assert len(warnings) == 1
    assert warnings[0].endswith("TENURE_MIN_INSYNC_REPLICAS, log.retention.hours, num.io.threads, zookeeper.connect")


def test_a_variable_that_looks_like_a_mistyped_setting_is_a_warning() -> None:
    """Kafka's image takes any KAFKA_ variable, so it stops no start; those of the image itself get no warning."""
    of_image = {f"KAFKA_{name}": "1" for name in ("HEAP_OPTS", "JMX_PORT", "LOG4J_LOGGERS", "OPTS", "HOME", "VERSION")}
    _, warnings = load(environment={"KAFKA_GROUP_MAX_SIZ": "5", "KAFKA_LISTENER": "x", **of_image})
    assert warnings == [
        "KAFKA_GROUP_MAX_SIZ: no such setting, perhaps group.max.size",
        "KAFKA_LISTENER: no such setting, perhaps listeners",
    ]


def test_variables_of_kubernetes_service_links_are_not_settings() -> None:
    """A Kubernetes service named tenure puts TENURE_PORT and similar variables into each pod; they change nothing."""
    environment = {
        "TENURE_PORT": "tcp://10.0.0.1:9092",
        "TENURE_SERVICE_HOST": "10.0.0.1",
        "TENURE_SERVICE_PORT_KAFKA": "9092",
        "TENURE_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert load(environment=environment) == (Config(), [])


def test_listeners_of_kafkas_image_work_as_they_are() -> None:
    """With a usual compose file's variables, the controller's listener is left out and names map to PLAINTEXT."""
    config = config_of(
        environment={
            "KAFKA_NODE_ID": "3",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "INSIDE://:29092,CONTROLLER://:29093,OUTSIDE://0.0.0.0:9092",
            "KAFKA_ADVERTISED_LISTENERS": "INSIDE://broker:29092,OUTSIDE://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:SSL,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "3@broker:29093",
        }
    )
    assert config.node_id == 3
    assert served_listeners(config) == (Listener("INSIDE", "", 29092), Listener("OUTSIDE", "0.0.0.0", 9092))
    assert config.advertised_listeners == (Listener("INSIDE", "broker", 29092), Listener("OUTSIDE", "localhost", 9092))


def test_a_listener_is_written_as_it_is_read() -> None:
    """An IPv6 host has brackets, in the text that is read and in the text that is shown."""
    (listener,) = config_of(sets=["listeners=PLAINTEXT://[::1]:9092"]).listeners
    assert listener == Listener("PLAINTEXT", "::1", 9092)
    assert str(listener) == "PLAINTEXT://[::1]:9092"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a: 1\nb 2\nc", {"a": "1", "b": "2", "c": ""}),
        ("# no\n! no\n\n  a=1", {"a": "1"}),
        ("a=1,\\\n   2\nb=3", {"a": "1,2", "b": "3"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\ b=\\u0041\\tc", {"a b": "A\tc"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\", {"a": ""}),
    ],
)
def test_properties_are_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    """The reader follows java.util.Properties: separators, comments, continued lines and escapes."""
    assert parse_properties(text) == expected


@given(st.text())
def test_any_text_is_some_properties_file(text: str) -> None:
    """Reading a properties file never fails; the settings in it are checked later."""
    assert all(isinstance(value, str) for value in parse_properties(text).values())


@pytest.mark.parametrize(
    "name, good",
    [("orders", True), ("a.b_c-D9", True), ("", False), (".", False), ("..", False), ("é", False), ("a\n", False),
     ("x" * 249, True), ("x" * 250, False)],
)  # fmt: skip
def test_names_of_topics_follow_kafkas_rule(name: str, good: bool) -> None:
    """A topic's name has Kafka's letters, at most 249 of them, and isn't "." or ".."."""
    assert (topic_name_problem(name) is None) == good


def test_config_loads_nothing_of_ours() -> None:
    """To import the settings imports no other package of the project, and no asyncio."""
    code = "import sys, coordinator.config; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    ours = {name for name in modules if name.split(".")[0] in {"coordinator", "protocol", "schemas", "asyncio"}}
    assert ours == {"coordinator", "coordinator.config"}


# Workers.


def workers_of(*sets: str) -> list[Config]:
    """Return the configuration of each worker."""
    return configs_of_workers(config_of(sets=list(sets)))


def test_one_worker_is_the_server_itself() -> None:
    """With one worker, the worker's configuration is the server's."""
    config = config_of(sets=["listeners=PLAINTEXT://a:9092"])
    assert configs_of_workers(config) == [config]


def test_workers_differ_in_node_id_and_ports_alone() -> None:
    """Node ids and ports count up, also advertised ports; port 0 stays 0 for each worker."""
    names = "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT"
    advertised = "advertised.listeners=OUT://kafka:19092"
    one, two = workers_of(
        "tenure.workers=2",
        "listeners=IN://a:0,OUT://:9092",
        names,
        advertised,
        "tenure.http=b:80",
        "tenure.http.token=t",
    )
    assert (one.node_id, two.node_id) == (0, 1)
    assert one.listeners == (Listener("IN", "a", 0), Listener("OUT", "", 9092))
    assert two.listeners == (Listener("IN", "a", 0), Listener("OUT", "", 9093))
    assert (one.advertised_listeners[0].port, two.advertised_listeners[0].port) == (19092, 19093)
    assert [str(listener) for listener in (*one.http, *two.http)] == ["(http)://b:80", "(http)://b:81"]
    changed = {"node_id", "listeners", "advertised_listeners", "http"}
    assert all(getattr(one, item.name) == getattr(two, item.name) for item in fields(one) if item.name not in changed)


def test_a_node_id_that_is_set_is_the_first_workers() -> None:
    """The first worker has the node id that is set, and the others count up from it."""
    assert [each.node_id for each in workers_of("tenure.workers=3", "node.id=1")] == [1, 2, 3]


@pytest.mark.parametrize(
    "sets, words",
    [
        (["tenure.workers=0"], "tenure.workers: 0 is not between"),
        (["tenure.workers=51"], "tenure.workers: 51 can't share the 50 partitions"),
        (["tenure.workers=2", "listeners=PLAINTEXT://a:65535"], "node 1 would be at PLAINTEXT://a:65536"),
        (["tenure.workers=2", "advertised.listeners=PLAINTEXT://a:65535"], "node 1 would be at PLAINTEXT://a:65536"),
        (
            [
                "tenure.workers=2",
                "listeners=A://a:9092,B://a:9093",
                "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            ],
            "tenure.workers: two nodes would be at a:9093",
        ),
        (
            ["tenure.workers=2", "listeners=PLAINTEXT://a:1", "tenure.http=a:2", "tenure.http.token=t"],
            "two nodes would be at a:2",
        ),
        (["listeners=PLAINTEXT://a:1", "tenure.http=a:1"], "listeners: two listeners have one address"),
        (["tenure.http=a"], "tenure.http: 'a' is not HOST:PORT"),
        (["tenure.http=http://a:1/"], "tenure.http: 'http://a:1/' is not HOST:PORT"),
        (["tenure.statsd=a"], "tenure.statsd: 'a' is not HOST:PORT"),
        (["tenure.statsd=:8125"], "tenure.statsd: ':8125' is not HOST:PORT"),
        (["tenure.http=a:1,b:2"], "tenure.http: 'a:1,b:2' is not HOST:PORT"),
        (["tenure.workers=2", "tenure.control=localhost:1"], "tenure.control: it controls one process"),
        (["listeners=PLAINTEXT://127.0.0.1:1", "tenure.control=127.0.0.1:1"], "listeners: two listeners have one"),
    ],
)
def test_workers_that_can_not_be_are_refused(sets: list[str], words: str) -> None:
    """The error about each wrong combination names the setting."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        workers_of(*sets)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (
            ["min.session.timeout.ms=60001"],
            "group.consumer.min.session.timeout.ms: 60001 is more than group.consumer.max.",
        ),
        (["session.timeout.ms=44999"], "group.consumer.session.timeout.ms: 44999 is less than group.consumer.min."),
        (["session.timeout.ms=60001"], "group.consumer.session.timeout.ms: 60001 is more than group.consumer.max."),
        (["heartbeat.interval.ms=4999"], "group.consumer.heartbeat.interval.ms: 4999 is less than"),
        (["assignment.interval.ms=15001"], "group.consumer.assignment.interval.ms: 15001 is more than"),
        (
            ["max.heartbeat.interval.ms=45000", "heartbeat.interval.ms=45000"],
            "group.consumer.heartbeat.interval.ms: 45000 is not less than group.consumer.session.timeout.ms, 45000",
        ),
    ],
)
def test_times_of_the_consumer_protocol_agree(sets: list[str], words: str) -> None:
    """A time outside its limits, and a session that ends before its next heartbeat, are refused, as Kafka does."""
    with pytest.raises(ConfigError, match="^" + re.escape(words)):
        config_of(sets=[f"group.consumer.{each}" for each in sets])


NODE = ["tenure.store=etcd://127.0.0.1:2379,[::1]:2380", "tenure.cluster=c", "node.id=1"]
"""The settings of a node of a cluster."""


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (NODE[:1], "tenure.cluster: a node of tenure.store needs the name of its cluster, --cluster NAME"),
        (NODE[:2], "node.id: each node of a cluster needs its own id"),
        ([*NODE, "node.id=1000"], "node.id: 1000: in a cluster it is at most 999"),
        ([*NODE, "tenure.workers=2"], "tenure.workers: a node of a cluster is one process"),
        ([*NODE, "tenure.control=127.0.0.1:0"], "tenure.control: its servers keep everything in memory"),
        ([*NODE, "tenure.store.user=u"], "tenure.store.user: it goes with tenure.store.password.file"),
        ([*NODE, "tenure.store.ssl.keystore.location=f"], "tenure.store.ssl.keystore.location: it needs"),
        (NODE[1:], "tenure.cluster: it needs tenure.store=etcd://HOST:PORT,..."),
        ([*NODE, "tenure.cluster=a/b"], "tenure.cluster: 'a/b' is not a name"),
        ([*NODE, "tenure.store=etcd://127.0.0.1"], "tenure.store: 'etcd://127.0.0.1' is not etcd://HOST:PORT,HOST"),
        ([*NODE, "tenure.store=zk://127.0.0.1:1"], "tenure.store: 'zk://127.0.0.1:1' is not etcd://"),
    ],
)
def test_what_a_node_of_a_cluster_needs(sets: list[str], words: str) -> None:
    """A node without a name, an id or a sound address is refused in one line; so is what no node can have."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        config_of(sets=sets)


def test_a_node_of_a_cluster_has_its_endpoints() -> None:
    """The URL names HOST:PORT of each member of etcd."""
    assert config_of(sets=NODE).store == ("127.0.0.1:2379", "[::1]:2380")


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.0.0.1", "tenure", "localhost.example", "[fe80::1]"])
def test_a_control_beyond_the_loopback_needs_a_token(host: str) -> None:
    """Without a token the control is refused at an address that others can reach, and with one it isn't."""
    with pytest.raises(ConfigError, match=r"^tenure.control: .*:1 is not of the loopback: set tenure.control.token$"):
        config_of(sets=[f"tenure.control={host}:1"])
    assert config_of(sets=[f"tenure.control={host}:1", "tenure.control.token=t"]).control_token == "t"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.0.0.1", "tenure", "localhost.example", "[fe80::1]"])
def test_http_beyond_the_loopback_needs_a_token_or_a_decision(host: str) -> None:
    """Nobody shows groups to a network without having said so: with a token, or by a setting for everybody."""
    with pytest.raises(ConfigError, match=r"^tenure.http: .*:1 is not of the loopback: set tenure.http.token \(or"):
        config_of(sets=[f"tenure.http={host}:1"])
    assert config_of(sets=[f"tenure.http={host}:1", "tenure.http.token=t"]).http_token == "t"
    assert config_of(sets=[f"tenure.http={host}:1", "tenure.http.allow.anonymous=true"]).http_allow_anonymous


def test_http_has_tls_settings_of_its_own() -> None:
    """With any of them HTTP has TLS; the others come from those of all listeners, and a listener's name is no door."""
    config = config_of(sets=["tenure.http=127.0.0.1:1", "ssl.keystore.type=PEM", "ssl.client.auth=required"])
    assert (config.has_tls(HTTP), tls_listeners(config)) == (False, [])
    for source in (
        {"sets": ["tenure.http=127.0.0.1:1", "tenure.http.ssl.keystore.location=k"]},
        {"environment": {"TENURE_HTTP": "127.0.0.1:1", "TENURE_HTTP_SSL_KEYSTORE_LOCATION": "k"}},
        {"properties": "tenure.http=127.0.0.1:1\ntenure.http.ssl.keystore.location=k"},
    ):
        config = config_of(**source)
        assert tls_listeners(config) == [HTTP]
        assert config.of_listener(HTTP).ssl_keystore_location == "k"
        assert config.of_listener("PLAINTEXT").ssl_keystore_location == ""
        assert not asks_for_certificates(config, HTTP)
    for name in ("tenure.http.ssl.principal.mapping.rules", "tenure.http.sasl.enabled.mechanisms"):
        with pytest.raises(ConfigError, match="no such setting"):
            config_of(sets=[f"{name}=x"])


def test_certificates_of_clients_close_http_too() -> None:
    """An address beyond the loopback is allowed if only clients with certificates get in."""
    sets = ["tenure.http=0.0.0.0:1", "tenure.http.ssl.client.auth=required"]
    assert asks_for_certificates(config_of(sets=sets), HTTP)
    with pytest.raises(ConfigError, match=r"tenure\.http: "):
        config_of(sets=["tenure.http=0.0.0.0:1", "tenure.http.ssl.client.auth=requested"])
    with pytest.raises(ConfigError, match=r"tenure\.http: "):
        config_of(sets=["tenure.http=0.0.0.0:1", "ssl.client.auth=required"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "[::1]"])
def test_an_address_of_the_loopback_needs_no_token(host: str) -> None:
    """Only programs of this machine reach it."""
    assert config_of(sets=[f"tenure.control={host}:1"]).control[0].port == 1
    assert config_of(sets=[f"tenure.http={host}:1"]).http[0].port == 1


@pytest.mark.parametrize("door", ["http", "control"])
@pytest.mark.parametrize("token", ["two words", "n\xe4", "a\tb"])
def test_a_token_fits_into_a_header(token: str, door: str) -> None:
    """A token that no client could send is refused, and the error doesn't repeat it."""
    with pytest.raises(ConfigError, match=rf"^tenure.{door}.token: a token has printable ASCII") as refused:
        config_of(sets=[f"tenure.{door}.token={token}"])
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["log.dirs=data"], "3 nodes keep everything in memory and have no page: leave log.dirs out"),
        (["tenure.http=127.0.0.1:0"], "leave tenure.http out"),
        (["tenure.events.enable=true"], "leave tenure.events.enable out"),
        (["listeners=PLAINTEXT://a:1,B://a:2"], "each of 3 nodes has one listener, and listeners has 2"),
        (["listeners=PLAINTEXT://a:65534"], "the ports of 3 nodes, from 65534 on, end beyond 65535"),
    ],
)
def test_what_several_nodes_of_a_control_exclude(sets: list[str], words: str) -> None:
    """The error names the setting; one node has none of these limits."""
    control = ["tenure.control=127.0.0.1:0", "listener.security.protocol.map=B:PLAINTEXT,PLAINTEXT:PLAINTEXT", *sets]
    with pytest.raises(ConfigError, match=f"^tenure.control.nodes: .*{re.escape(words)}"):
        config_of(sets=[*control, "tenure.control.nodes=3"])
    assert config_of(sets=control).control_nodes == 1


def ports_of(*sets: str) -> list[int]:
    """The port of each worker."""
    return [each.listeners[0].port for each in configs_of_workers(config_of(sets=list(sets)))]


def test_nodes_have_ports_one_after_the_other() -> None:
    """A free port stays a free one."""
    assert ports_of("listeners=PLAINTEXT://a:7", "tenure.workers=3") == [7, 8, 9]
    assert ports_of("listeners=PLAINTEXT://a:0", "tenure.workers=2") == [0, 0]
