"""The settings of groups: the table, the checks, what is in effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.config import Config, GroupConfig, GroupSettings, settings, with_values
from coordinator.server.nodes.group_settings import (
    GROUP_CONFIGS,
    IN_EFFECT,
    KEPT_CHARACTERS_MAX,
    LONGER,
    OWN,
    OWN_NAMES,
    SettingsOfGroups,
    default_of,
    expected_ids,
    group_problem,
    has_room,
    plain_text,
    text_problem,
    without_ids,
)
from coordinator.server.nodes.topics import at_once

SESSION, HEARTBEAT, INTERVAL = IN_EFFECT
EXPECTED = "expected.instance.ids"


def test_every_default_is_allowed() -> None:
    """A group can have each setting's default, and the limits of those in effect are settings of the broker."""
    config = Config()
    defaults = {name: default_of(config, name) for name in GROUP_CONFIGS}
    assert not [name for name, value in defaults.items() if text_problem(name, value)]
    assert group_problem(config, defaults) is None
    assert {name: value.default for name, value in GROUP_CONFIGS.items()} == defaults
    for name in IN_EFFECT:
        setting = GROUP_CONFIGS[name]
        assert setting.least is not None
        assert setting.most is not None
        assert {setting.broker, setting.least.name, setting.most.name} <= settings().keys()
        for bound in (setting.least, setting.most):
            assert settings()[bound.name].value_of(config) == bound.default
    assert LONGER.keys() | set(LONGER.values()) <= GROUP_CONFIGS.keys()


@pytest.mark.parametrize(
    ("name", "value", "is_allowed"),
    [
        ("no.such", "1", False),
        ("expected.instance.ids", "", True),
        ("expected.instance.ids", "a, b ,worker-[0..31]", True),
        ("expected.instance.ids", "worker-[5..4]", False),
        ("expected.instance.ids", "worker-[0..10000]", False),
        ("expected.instance.ids", "a[0..9999],b", False),
        ("expected.instance.ids.timeout.ms", "-1", False),
        ("unexpected.instance.ids", "held", True),
        ("unexpected.instance.ids", "unwanted", False),
        ("target.group.size", "-1", False),
        (SESSION, "long", False),
        (SESSION, "0", False),
        (SESSION, str(2**31), False),
        (SESSION, " +50000 ", True),
        ("share.isolation.level", "read_committed", True),
        ("share.isolation.level", "READ_COMMITTED", False),
        ("share.renew.acknowledge.enable", "maybe", False),
        ("share.auto.offset.reset", "earliest", True),
        ("share.auto.offset.reset", "none", False),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", True),
        ("share.auto.offset.reset", "by_duration:pt1h", True),
        ("share.auto.offset.reset", "by_duration:P", False),
        ("share.auto.offset.reset", "by_duration:P1DT", False),
        ("share.auto.offset.reset", "by_duration:-PT1H", False),
    ],
)
def test_a_value_that_no_group_can_have(name: str, value: str, is_allowed: bool) -> None:
    """It is named with its setting."""
    problem = text_problem(name, value)
    assert (problem is None) == is_allowed
    assert problem is None or name in problem


@pytest.mark.parametrize(
    ("configs", "is_allowed"),
    [
        ({SESSION: "44999"}, False),
        ({SESSION: "60001"}, False),
        ({SESSION: "60000", HEARTBEAT: "15000"}, True),
        ({HEARTBEAT: "4999"}, False),
        ({HEARTBEAT: "15001"}, False),
        ({INTERVAL: "15001"}, False),
        ({INTERVAL: "0"}, True),
        ({"share.delivery.count.limit": "11"}, False),
        ({"streams.num.standby.replicas": "3"}, False),
        ({EXPECTED: "a", f"{EXPECTED}.timeout.ms": "1800000"}, True),
        ({EXPECTED: "a", f"{EXPECTED}.timeout.ms": "1800001"}, False),
        ({EXPECTED: "a", "unexpected.instance.ids": "refused"}, True),
        ({"unexpected.instance.ids": "refused"}, False),
        ({EXPECTED: "", "unexpected.instance.ids": "held"}, False),
        ({"streams.initial.rebalance.delay.ms": str(2**31 - 1)}, True),
    ],
)
def test_the_broker_says_how_small_and_how_large(configs: dict[str, str], is_allowed: bool) -> None:
    """By its limits for groups of that kind."""
    assert (group_problem(Config(), configs) is None) == is_allowed


def test_a_session_is_longer_than_the_interval_between_heartbeats() -> None:
    """Also if one of the two is the broker's."""
    config = with_values(
        Config(),
        {
            "group.consumer.min.session.timeout.ms": "1",
            "group.consumer.min.heartbeat.interval.ms": "1",
            "group.consumer.session.timeout.ms": "10000",
        },
    )
    assert group_problem(config, {SESSION: "5000"}) is not None
    assert group_problem(config, {SESSION: "5001"}) is None
    assert group_problem(config, {HEARTBEAT: "10000"}) is not None
    assert group_problem(config, {SESSION: "7000", HEARTBEAT: "7000"}) is not None


def test_what_is_in_effect() -> None:
    """A group's own settings; the broker's for the others; limits of a broker that was started with others."""
    kept = {f"a/b/{SESSION}": "50000", f"c/{INTERVAL}": "0", "d/share.isolation.level": "read_committed"}
    groups = SettingsOfGroups()
    at_once(groups.put_into_effect(Config(), kept))
    first = groups.by_group
    assert first == {"a/b": GroupSettings(50_000, 5_000, 1_000), "c": GroupSettings(45_000, 5_000, 0)}
    at_once(groups.put_into_effect(Config(), {f"c/{INTERVAL}": "0", f"c/{HEARTBEAT}": "6000"}))
    assert groups.by_group == {"c": GroupSettings(45_000, 6_000, 0)}
    assert groups.changed == {"a/b", "c", "d"}
    assert len(first) == 2
    limited = with_values(Config(), {"group.consumer.max.session.timeout.ms": "48000"})
    groups = SettingsOfGroups()
    at_once(groups.put_into_effect(limited, {f"a/{SESSION}": "50000"}))
    assert groups.by_group["a"].session_timeout_ms == 48_000


def test_no_group_expects_more_members_than_it_may_have() -> None:
    """Else it could never be complete."""
    config = with_values(Config(), {"group.max.size": "3"})
    assert group_problem(config, {EXPECTED: "w-[0..2]"}) is None
    assert group_problem(config, {EXPECTED: "w-[0..3]"}) == f"{EXPECTED} has 4 names, but group.max.size is 3"


def test_values_are_kept_as_they_are_shown() -> None:
    """Numbers without a sign, booleans in small letters, as Kafka shows them."""
    assert plain_text(SESSION, " +050000 ") == "50000"
    assert plain_text("share.renew.acknowledge.enable", "FALSE ") == "false"
    assert plain_text("share.auto.offset.reset", " by_duration:pt1H ") == "by_duration:pt1H"


def test_the_kept_settings_have_a_limit() -> None:
    """More than it has no room, whatever is removed besides; to remove has always room."""
    name = f"{'g' * 1_000}/{SESSION}"
    full = {f"{number:04}{name}": "50000" for number in range(KEPT_CHARACTERS_MAX // (len(name) + 9))}
    other = {f"more{name}": "50000"}
    assert has_room({}, other, set())
    assert not has_room(full, other, set())
    first = next(iter(full))
    assert has_room(full, {first: "45000"}, set())
    assert has_room(full, {first: None}, {first})
    assert has_room(full, {first: None, **other}, {first})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("a, b,,a", ("a", "b")),
        ("worker-[8..11]", ("worker-8", "worker-9", "worker-10", "worker-11")),
        ("worker-8..9", ("worker-8", "worker-9")),
        ("w[0..1].eu,x", ("w0.eu", "w1.eu", "x")),
        ("1..2", ("1", "2")),
        ("w-[08..10]", ("w-08", "w-09", "w-10")),
        ("a..b", ("a..b",)),
    ],
)
def test_expected_members_are_names_and_ranges(text: str, names: tuple[str, ...]) -> None:
    """A range stands for its names, with brackets or, as Kafka's tool sends it, without."""
    assert expected_ids(text) == names


@pytest.mark.parametrize(
    ("text", "taken", "left"),
    [
        ("a,b", "b", "a"),
        ("w-[0..31]", "w-[10..31]", "w-[0..9]"),
        ("w-0..5,x", "w-3", "w-[0..2],w-[4..5],x"),
        ("w-[0..4]-b", "w-0-b,w-2-b,w-4", "w-1-b,w-[3..4]-b"),
        ("w-[08..11]", "w-10,w-9", "w-[08..09],w-11"),
        ("w-[0..3]", "w-[0..3],other", ""),
        ("w-[0..3],y", "z", "w-[0..3],y"),
        ("w1-[0..2]", "w1-1", "w1-0,w1-2"),
    ],
)
def test_names_are_taken_out_of_ranges(text: str, taken: str, left: str) -> None:
    """The rest of a range keeps the zeros in front of its numbers."""
    assert without_ids(text, taken) == left
    assert expected_ids(left) == tuple(name for name in expected_ids(text) if name not in expected_ids(taken))


def test_tenures_own_settings_take_effect() -> None:
    """A group that sets one of them keeps the broker's values for all others."""
    groups = SettingsOfGroups()
    kept = {"g/expected.instance.ids": "a,b", "g/target.group.size": "5", "g/unexpected.instance.ids": "held"}
    at_once(groups.put_into_effect(Config(), kept))
    default = Config().group.group_settings
    assert groups.by_group == {"g": default._replace(expected=("a", "b"), target_size=5, unexpected="held")}


def test_a_group_switches_better_rules_on_and_off() -> None:
    """The server's value holds for each rule that the group doesn't name."""
    config = Config(group=GroupConfig(fixes=frozenset({"kafka-12759", "kafka-20601"})))
    assert default_of(config, "tenure.fix.kafka-12759") == "true"
    assert default_of(config, "tenure.fix.kafka-20985") == "false"
    groups = SettingsOfGroups()
    kept = {"g/tenure.fix.kafka-12759": "false", "g/tenure.fix.kafka-20985": "true"}
    at_once(groups.put_into_effect(config, kept))
    assert groups.by_group["g"].fixes == {"kafka-20601", "kafka-20985"}


def test_the_page_has_each_setting() -> None:
    """docs/run/group-settings.md has each with its default, and a table of those without an effect."""
    page = (Path(__file__).parents[3] / "docs/run/group-settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (?:classic|consumer|both) \| ([^|]+) \|", page, re.MULTILINE))
    assert rows.keys() == IN_EFFECT.keys() | OWN.keys()
    for name, default in rows.items():
        setting = GROUP_CONFIGS[name]
        assert (f"`{setting.broker}` ({setting.default})" if setting.broker else setting.default or "empty") in default
    assert set(re.findall(r"`(tenure\.fix\.kafka-\d+)", page)) == OWN_NAMES - OWN.keys()
    others = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|$", page, re.MULTILINE))
    assert others == {
        name: f"`{setting.broker}` ({setting.default or 'empty'})" if setting.broker else setting.default or "empty"
        for name, setting in GROUP_CONFIGS.items()
        if name not in IN_EFFECT.keys() | OWN_NAMES
    }
