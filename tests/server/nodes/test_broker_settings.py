"""The settings of brokers: their values by source, and the configuration that changes of them make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.config import Config, load, settings
from coordinator.server.nodes.broker_settings import (
    BROKER_SETTINGS,
    CHANGEABLE,
    DEFAULT_ELSEWHERE,
    KAFKA_SETTINGS,
    NO_DEFAULT,
    OF_AUTHORIZER,
    SECRETS,
    Changes,
    Value,
    changed_config,
    changes_of,
    limits_of_listeners,
    setting_problem,
    text_of,
    values_of,
    values_of_limit,
)
from coordinator.server.nodes.topic_settings import LIST, PASSWORD, topic_defaults

NOTHING = Changes({}, {})


def test_each_row_of_the_tables_is_shown() -> None:
    """Kafka's rows repeat no setting of Tenure's; settings that can change or have a default elsewhere are shown."""
    shown = BROKER_SETTINGS
    assert set(settings()) - set(OF_AUTHORIZER) < set(shown)
    assert not set(KAFKA_SETTINGS) & set(settings())
    assert set(CHANGEABLE) | set(DEFAULT_ELSEWHERE) | set(DEFAULT_ELSEWHERE.values()) <= set(shown)
    assert all(setting.doc.endswith(".") for setting in shown.values())


def test_each_default_can_be_set() -> None:
    """A setting that can be changed takes its own default."""
    for name in CHANGEABLE:
        default = BROKER_SETTINGS[name].default
        assert default is None or setting_problem(name, default, {}, for_all=False) is None


def test_changes_are_of_one_node_or_of_all() -> None:
    """Changes of other nodes are not this one's, even if their ids begin alike."""
    kept = {"1/a": "1", "11/a": "2", "/a": "3", "/b": "4"}
    assert changes_of(kept, 1) == Changes({"a": "1"}, {"a": "3", "b": "4"})
    assert changes_of(kept, 2) == Changes({}, {"a": "3", "b": "4"})


def test_the_nearest_change_is_in_effect() -> None:
    """Of this node, of all nodes, of the start: in the configuration as in the list of values."""
    config, _ = load(sets=["message.max.bytes=10"])
    changes = Changes({"message.max.bytes": "30"}, {"message.max.bytes": "20", "log.cleanup.policy": "compact"})
    changed = changed_config(config, changes)
    assert changed.group.message_max_bytes == 30
    assert changed.stated == config.stated
    assert (topic_defaults(changed)["max.message.bytes"], topic_defaults(changed)["cleanup.policy"]) == (
        "30",
        "compact",
    )
    assert [(each.value, each.source) for each in values_of(config, changes, "message.max.bytes")] == [
        ("30", 2),
        ("20", 3),
        ("10", 4),
        ("1048588", 5),
    ]
    assert changed_config(config, NOTHING) == config


LIMITS_OF_LISTENERS = limits_of_listeners(Config())


def test_a_listeners_own_limit_is_shown_if_somebody_has_set_it() -> None:
    """With all its values by their source, and behind them the server's, but for those of a stronger source."""
    name, limit = "listener.name.plaintext.max.connections", "max.connections"
    config, _ = load(sets=[f"{name}=2", "max.connections=9"])
    changes = Changes({name: "7", limit: "5"}, {name: "8", limit: "6"})

    def shown(config: Config, changes: Changes) -> list[tuple[str, str, int]]:
        found = values_of_limit(config, changes, name, limit)
        return [(each.name.removesuffix(limit), each.value, each.source) for each in found]

    own = name.removesuffix(limit)
    assert shown(Config(), NOTHING) == []
    assert shown(config, NOTHING) == [(own, "2", 4), ("", "9", 4), ("", "2147483647", 5)]
    assert shown(Config(), Changes({limit: "5"}, {name: "8"})) == [(own, "8", 3), ("", "2147483647", 5)]
    expected = [(own, "7", 2), ("", "5", 2), (own, "8", 3), ("", "6", 3), (own, "2", 4), ("", "9", 4)]
    assert shown(config, changes) == [*expected, ("", "2147483647", 5)]
    assert changed_config(config, changes).limit_of("PLAINTEXT", "max_connections") == 7
    assert changed_config(config, Changes({"listener.name.gone.max.connections": "3"}, {})) == config


def test_a_default_may_stand_in_another_setting() -> None:
    """As in Kafka: log.retention.ms has a value only if somebody sets it, and log.retention.hours has the default."""
    assert values_of(Config(), NOTHING, "log.retention.ms") == ()
    changes = Changes({"log.retention.ms": "5"}, {})
    assert [each.name for each in values_of(Config(), changes, "log.retention.ms")] == [
        "log.retention.ms",
        "log.retention.hours",
    ]
    assert topic_defaults(Config())["retention.ms"] == str(168 * 3_600_000)
    assert topic_defaults(Config())["segment.ms"] == str(168 * 3_600_000)


def test_a_password_has_no_default() -> None:
    """Secrets have Kafka's type PASSWORD; like the files of keys, they have a value only if somebody sets them."""
    assert all(BROKER_SETTINGS[name].kind == PASSWORD for name in SECRETS)
    assert all(values_of(Config(), NOTHING, name) == () for name in NO_DEFAULT)
    config, _ = load(sets=["ssl.keystore.location=/keys.pem", "ssl.cipher.suites=A,B"])
    assert values_of(config, NOTHING, "ssl.keystore.location") == (Value("ssl.keystore.location", "/keys.pem", 4),)
    assert [each.value for each in values_of(config, NOTHING, "ssl.cipher.suites")] == ["A,B", ""]
    assert BROKER_SETTINGS["ssl.cipher.suites"].kind == LIST


def test_a_worker_shows_its_own_id() -> None:
    """A worker's id follows from its place, so nobody sets it."""
    assert [each.value for each in values_of(Config(node_id=3), NOTHING, "broker.id")] == ["3"]


@pytest.mark.parametrize(
    ("name", "value", "for_all", "said"),
    [
        ("node.id", "2", False, "Cannot update these configs dynamically: Set(node.id)"),
        ("no.such", "2", True, "Cannot update these configs dynamically: Set(no.such)"),
        ("sasl.kerberos.min.time.before.relogin", "2", True, "broker id must be specified"),
        ("sasl.kerberos.min.time.before.relogin", "x", False, "Not a number of type LONG"),
        ("max.connections", "-1", True, "Invalid value -1 for configuration max.connections"),
        ("max.connections", "0", True, "nobody could connect"),
        ("max.connections.per.ip", "0", False, "nobody could connect"),
        ("max.connections.per.ip.overrides", "10.0.0.1:5,127.0.0.1:0", True, "nobody could connect"),
        ("max.connection.creation.rate", "0", True, "nobody could connect"),
        ("listener.name.plaintext.max.connections", "0", True, "nobody could connect"),
        ("listener.name.plaintext.max.connections", "-1", False, "Invalid value -1 for configuration max.connections"),
        ("listener.name.plaintext.max.connection.creation.rate", "x", False, "Not a number of type INT"),
        ("listener.name.other.max.connections", "5", False, "Cannot update these configs dynamically"),
        ("listener.name.plaintext.max.connections.per.ip", "5", False, "Cannot update these configs dynamically"),
        ("log.retention.ms", "0", False, "Invalid value 0"),
        ("log.cleanup.policy", "burn", False, "String must be one of: compact, delete"),
        ("min.insync.replicas", "0", False, "Value must be at least 1"),
        ("log.preallocate", "x" * 40_000, False, "It has more than 32767 bytes"),
    ],
)
def test_what_can_not_be_changed_is_said(name: str, value: str, for_all: bool, said: str) -> None:
    """Names that are read-only, and values out of range."""
    assert said in (setting_problem(name, value, LIMITS_OF_LISTENERS, for_all=for_all) or "")


def test_a_value_is_shown_as_it_is_written() -> None:
    """A tool's output can be written into a properties file, which is read as the same setting."""
    given = {
        "listeners": "A://h:1,B://[::1]:2",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "tenure.topics": "a:1,b:2",
        "tenure.http": "127.0.0.1:8080",
        "tenure.control": "[::1]:8081",
        "tenure.statsd": "sink:8125",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }
    config, _ = load(sets=[f"{name}={value}" for name, value in given.items()])
    assert {name: text_of(settings()[name].value_of(config)) for name in given} == given
    assert text_of(None) == ""


def test_the_documentation_names_what_can_be_changed() -> None:
    """Each of Tenure's settings, and no other."""
    page = (Path(__file__).parents[3] / "docs/run/settings.md").read_text()
    section = page.partition("| can be changed |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z.]+)`", section)) & set(settings()) == set(CHANGEABLE) & set(settings())
