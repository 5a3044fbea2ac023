"""The settings of groups, those of Kafka 4.4 and Tenure's own: which values they can have, and which are in effect.

A group can have settings before it exists, and keeps them after its end. The list of topics keeps them
(`nodes.topics.GROUPS`). A setting that a group does not have takes the broker's value, and the broker says how small
and how large it may be. Those of the consumer protocol have an effect (KIP-848). Kafka's tools also show and change
those of share groups and of streams groups, which Tenure does not serve: it checks and keeps them. Tenure's own:
expected members, standbys, and the better rules (docs/run/group-settings.md), nearly all of them off by default.

House rule: a setting is a row of the table here. Only the checks of expected members name theirs.
Source: Kafka's GroupConfig, release 4.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

from coordinator.config import (
    ALLOWED,
    EXPECTED_TIMEOUT_MS,
    FIXED,
    FIXES,
    HELD,
    REFUSED,
    Config,
    GroupSettings,
    settings,
)
from coordinator.server.nodes.broker_settings import prefix_of
from coordinator.server.nodes.topic_settings import BOOLEAN, INT, LIST, STRING, Bound, OwnSetting, value_problem

GROUP_CONFIG = 8
"""Config source: the group's own."""

KEPT_CHARACTERS_MAX = 1_000_000
"""The longest that the names and values of all kept settings may be together: those of about 15,000 groups. Each change
writes all of them.
"""


def _number(
    name: str, default: int, doc: str, low: int, least: int | None = None, most: int | None = None
) -> tuple[str, OwnSetting]:
    """The row of a setting that is a number. The broker's has "group." in front; its limits have min or max in it."""
    kind, rest = name.split(".", 1)
    return name, OwnSetting(
        str(default),
        INT,
        f"group.{name}",
        doc,
        low,
        least=None if least is None else Bound(f"group.{kind}.min.{rest}", least),
        most=None if most is None else Bound(f"group.{kind}.max.{rest.removeprefix('num.')}", most),
    )


_UNUSED = "Has no effect here: Tenure does not serve such groups."

_ASSIGNORS = "Has no effect here: an assignor never stops the server, and no heartbeat waits for one."

DEAD_LETTERS = "errors.deadletterqueue.topic.name"

EXPECTED_IDS = "expected.instance.ids"
"""The setting whose list has ranges."""

EXPECTED_MAX = 10_000
"""How many instance ids a group can expect: more than the members of any group that we know."""

EXPECTED_TIMEOUT_MAX_MS = 1_800_000
"""How long a group may wait for expected members at most: the default of group.max.session.timeout.ms."""

FIX = "tenure.fix."
"""How the settings of better rules begin, of a group as of the server."""

_INTERVAL = "The least time between two target assignments."
_BEATS = "The interval between heartbeats that the coordinator asks members for."
_SESSION = "How long a member may be silent. A new value counts from a member's next heartbeat on."

_NUMBERS = (
    _number("consumer.assignment.interval.ms", 1_000, _INTERVAL, 0, 0, 15_000),
    _number("consumer.heartbeat.interval.ms", 5_000, _BEATS, 1, 5_000, 15_000),
    _number("consumer.session.timeout.ms", 45_000, _SESSION, 1, 45_000, 60_000),
    _number("share.assignment.interval.ms", 1_000, _UNUSED, 0, 0, 15_000),
    _number("share.delivery.count.limit", 5, _UNUSED, 2, 2, 10),
    _number("share.heartbeat.interval.ms", 5_000, _UNUSED, 1, 5_000, 15_000),
    _number("share.partition.max.record.locks", 2_000, _UNUSED, 100, 100, 4_000),
    _number("share.record.lock.duration.ms", 30_000, _UNUSED, 1_000, 15_000, 60_000),
    _number("share.session.timeout.ms", 45_000, _UNUSED, 1, 45_000, 60_000),
    _number("streams.assignment.interval.ms", 1_000, _UNUSED, 0, 0, 15_000),
    _number("streams.heartbeat.interval.ms", 5_000, _UNUSED, 1, 5_000, 15_000),
    _number("streams.initial.rebalance.delay.ms", 3_000, _UNUSED, 0),
    _number("streams.num.standby.replicas", 0, _UNUSED, 0, None, 2),
    _number("streams.session.timeout.ms", 45_000, _UNUSED, 1, 45_000, 60_000),
)

_ISOLATION = frozenset({"read_committed", "read_uncommitted"})

_OTHERS = {
    "errors.deadletterqueue.copy.record.enable": OwnSetting("false", BOOLEAN, "", _UNUSED),
    DEAD_LETTERS: OwnSetting("", STRING, "", _UNUSED),
    EXPECTED_IDS: OwnSetting(
        "",
        LIST,
        "",
        "The members that should be there: names, and ranges such as worker-[0..31]. Empty: it expects nobody.",
    ),
    "expected.instance.ids.timeout.ms": OwnSetting(
        str(EXPECTED_TIMEOUT_MS), INT, "", "How long new members wait while expected members are missing.", 0
    ),
    "share.auto.offset.reset": OwnSetting("latest", STRING, "", _UNUSED),
    "share.isolation.level": OwnSetting("read_uncommitted", STRING, "", _UNUSED, choices=_ISOLATION),
    "share.renew.acknowledge.enable": OwnSetting("true", BOOLEAN, "", _UNUSED),
    "streams.assignor.name": OwnSetting(
        "sticky", STRING, "group.streams.assignors", _UNUSED, choices=frozenset({"sticky"})
    ),
    "streams.rack.aware.assignment.tags": OwnSetting("", LIST, "group.streams.rack.aware.assignment.tags", _UNUSED),
    "target.group.size": OwnSetting(
        "0",
        INT,
        "",
        "How many members get partitions; further ones are standbys. 0: all members get partitions.",
        0,
    ),
    "unexpected.instance.ids": OwnSetting(
        ALLOWED,
        STRING,
        "",
        "Members that are not expected: allowed, held until all expected members are there, or refused.",
        choices=frozenset({ALLOWED, HELD, REFUSED}),
    ),
}

_OFFLOADS = {
    f"{kind}.assignor.offload.enable": OwnSetting(
        "true", BOOLEAN, f"group.{kind}.assignor.offload.enable", _ASSIGNORS, is_internal=True
    )
    for kind in ("consumer", "share", "streams")
}

_BETTER_RULES = {
    f"{FIX}{ticket}": OwnSetting(
        str(ticket in FIXED).lower(), BOOLEAN, f"{FIX}{ticket}", f"A better rule than Kafka's: {rule}."
    )
    for ticket, rule in FIXES.items()
}

GROUP_CONFIGS: dict[str, OwnSetting] = dict(sorted([*_NUMBERS, *_OTHERS.items()])) | _OFFLOADS | _BETTER_RULES
"""Every setting of a group."""

IN_EFFECT = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
"""The numbers with limits of the broker that have an effect, and their fields of GroupSettings."""

OWN = {
    EXPECTED_IDS: "expected",
    "expected.instance.ids.timeout.ms": "expected_timeout_ms",
    "target.group.size": "target_size",
    "unexpected.instance.ids": "unexpected",
}
"""Tenure's own settings but for the better rules, and their fields of GroupSettings."""

OWN_NAMES = frozenset(OWN) | {f"{FIX}{ticket}" for ticket in FIXES}
"""All settings that Kafka doesn't have."""

LONGER = {f"{kind}.session.timeout.ms": f"{kind}.heartbeat.interval.ms" for kind in ("consumer", "share", "streams")}
"""Settings that must be greater than another one."""

PATTERNS = {
    DEAD_LETTERS: r"(?!__).*",
    "share.auto.offset.reset": (
        r"earliest|latest|by_duration:(?i:P(?=.)(\+?\d{1,9}D)?"
        r"(T(?=.)(\+?\d{1,9}H)?(\+?\d{1,9}M)?(\+?\d{1,9}([.,]\d{0,9})?S)?)?)"
    ),
}
"""Texts with a form (durations: ISO 8601, not negative)."""


def broker_number(config: Config, name: str, default: int) -> int:
    """The value of a broker's setting; the default if Tenure does not have that setting."""
    own = settings().get(name)
    return default if own is None else int(own.value_of(config))


def default_of(config: Config, name: str) -> str:
    """The value of a setting that a group does not have itself."""
    setting = GROUP_CONFIGS[name]
    own = settings().get(setting.broker)
    if own is None:
        return setting.default
    value = str(own.value_of(config))
    return value.lower() if setting.kind == BOOLEAN else value


def text_problem(name: str, value: str) -> str | None:
    """The reason that no group can have this setting; None if one can."""
    if name not in GROUP_CONFIGS:
        return f"Unknown group config name: {name}"
    setting = GROUP_CONFIGS[name]
    problem = value_problem(name, value, setting.kind, setting.low, setting.choices)
    if problem is None and name == EXPECTED_IDS:
        return expected_problem(value)
    if problem is None and setting.kind == LIST and value.strip():
        parts = [part.strip() for part in value.split(",")]
        if "" in parts or len(set(parts)) < len(parts):
            return f"Invalid value {value} for configuration {name}: no part may be empty, or there twice"
    if problem is None and name in PATTERNS and not re.fullmatch(PATTERNS[name], value.strip()):
        return f"Invalid value {value} for configuration {name}"
    return problem


def group_problem(config: Config, configs: Mapping[str, str]) -> str | None:
    """The reason that a group can't have all of these settings; None if it can. Each has passed `text_problem`."""
    for name, value in configs.items():
        setting = GROUP_CONFIGS[name]
        if setting.most is None:
            continue
        most = broker_number(config, *setting.most)
        least = None if setting.least is None else broker_number(config, *setting.least)
        if least is None and int(value) > most:
            return f"{name} must be less than or equal to {most}"
        if least is not None and not least <= int(value) <= most:
            return f"{name} must be in the range {least} to {most} inclusive."
    for longer, shorter in LONGER.items():
        long, short = (int(configs.get(name, default_of(config, name))) for name in (longer, shorter))
        if long <= short:
            return f"{longer} must be greater than {shorter}"
    return _expected_problem(config, configs)


def _expected_problem(config: Config, configs: Mapping[str, str]) -> str | None:
    """The reason that a group can't expect members like this; None if it can."""
    count = len(expected_ids(configs.get(EXPECTED_IDS, "")))
    if count > config.group.group_max_size:
        return f"expected.instance.ids has {count} names, but group.max.size is {config.group.group_max_size}"
    if int(configs.get("expected.instance.ids.timeout.ms", 0)) > EXPECTED_TIMEOUT_MAX_MS:
        return f"expected.instance.ids.timeout.ms must be less than or equal to {EXPECTED_TIMEOUT_MAX_MS}"
    others = configs.get("unexpected.instance.ids", ALLOWED)
    if count == 0 and others != ALLOWED:
        return f"unexpected.instance.ids={others} needs names in expected.instance.ids: no member could join"
    return None


def plain_text(name: str, value: str) -> str:
    """A value that has passed `text_problem` as Kafka shows it."""
    kind = GROUP_CONFIGS[name].kind
    return str(int(value)) if kind == INT else value.strip().lower() if kind == BOOLEAN else value.strip()


# The texts in the list of topics (nodes.topics.GROUPS).


def group_of(name: str) -> str:
    """The group that a kept setting is of. The name of a setting has no slash; a group id may have some."""
    return name.rpartition("/")[0]


def configs_of(kept: Mapping[str, str], group_id: str) -> dict[str, str]:
    """A group's own settings."""
    names = ((name, f"{prefix_of(group_id)}{name}") for name in GROUP_CONFIGS)
    return {name: kept[key] for name, key in names if key in kept}


def has_room(kept: Mapping[str, str], changed: Mapping[str, str | None], removed: set[str]) -> bool:
    """Whether the settings, changed by `changed`, are not too many. It has no loop in Python: it runs in one step.

    removed: the names in `changed` without a value. A change that doesn't lengthen the settings always has room.
    """
    size = _size({**kept, **changed}) - len("".join(removed))
    return size <= KEPT_CHARACTERS_MAX or size <= _size(kept)


def _size(kept: Mapping[str, str | None]) -> int:
    """The characters of names and values."""
    return len("".join(kept)) + len("".join(filter(None, kept.values())))


class SettingsOfGroups:
    """The settings in effect, by group.

    by_group: only groups that set some themselves. It is another mapping after each change.
    changed: the groups of the last change.
    """

    def __init__(self) -> None:
        self.by_group: Mapping[str, GroupSettings] = {}
        self.changed: Collection[str] = ()
        self._kept: Mapping[str, str] = {}

    def put_into_effect(self, config: Config, kept: Mapping[str, str]) -> Iterator[None]:
        """Use the settings that are kept. They are in effect after the last step."""
        changed = self._kept.items() ^ kept.items()
        self._kept = kept
        group_ids = set()
        for name, _ in changed:
            group_ids.add(group_of(name))
            yield
        by_group = dict(self.by_group)
        for group_id in group_ids:
            by_group.pop(group_id, None)
            settings_of_group = _in_effect(config, kept, group_id)
            if settings_of_group is not None:
                by_group[group_id] = settings_of_group
            yield
        self.by_group, self.changed = by_group, group_ids


def _in_effect(config: Config, kept: Mapping[str, str], group_id: str) -> GroupSettings | None:
    """The settings of a group; None if it sets none of them. Values that the broker no longer allows are cut."""
    own: dict[str, Any] = {}
    for name, field in IN_EFFECT.items():
        value = kept.get(f"{prefix_of(group_id)}{name}")
        if value is not None:
            least, most = GROUP_CONFIGS[name].least, GROUP_CONFIGS[name].most
            assert least is not None
            assert most is not None
            number = max(int(value), broker_number(config, *least))
            own[field] = min(number, broker_number(config, *most))
    for name, field in OWN.items():
        value = kept.get(f"{prefix_of(group_id)}{name}")
        if value is not None:
            kind = GROUP_CONFIGS[name].kind
            own[field] = expected_ids(value) if kind == LIST else int(value) if kind == INT else value
    switched = {ticket: kept.get(f"{prefix_of(group_id)}{FIX}{ticket}") for ticket in FIXES}
    if any(switched.values()):
        on = {ticket for ticket, value in switched.items() if value == "true"}
        off = {ticket for ticket, value in switched.items() if value == "false"}
        own["fixes"] = config.group.fixes - off | on
    return config.group.group_settings._replace(**own) if own else None


def expected_ids(text: str) -> tuple[str, ...]:
    """The instance ids that a list names, in its order, each once. Raises ValueError.

    `worker-[0..31]` is worker-0 to worker-31, and so is `worker-0..31`, because Kafka's tool drops brackets. Zeros in
    front of the first number set a width: `worker-[00..31]`.
    """
    found: dict[str, None] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        match = _RANGE.fullmatch(item)
        if match is None:
            found[item] = None
            continue
        first, last = int(match["first"]), int(match["last"])
        if last < first or last - first >= EXPECTED_MAX:
            raise ValueError(f"the range {item} has no members, or more than {EXPECTED_MAX}")
        width = len(match["first"]) if match["first"].startswith("0") else 0
        found.update((f"{match['name']}{number:0{width}}{match['rest']}", None) for number in range(first, last + 1))
    if len(found) > EXPECTED_MAX:
        raise ValueError(f"{len(found)} instance ids are more than {EXPECTED_MAX}")
    return tuple(found)


def without_ids(text: str, taken: str) -> str:
    """A list of instance ids without those that another one names. A range becomes the ranges beside those names.

    Both have passed `expected_problem`.
    """
    gone = set(expected_ids(taken))
    left: list[str] = []
    for item in filter(None, map(str.strip, text.split(","))):
        names = expected_ids(item)
        if gone.isdisjoint(names):
            left.append(item)
            continue
        match = _RANGE.fullmatch(item)
        if match is None:
            continue
        first, name, rest = int(match["first"]), match["name"], match["rest"]
        numbers = [n for n, each in enumerate(names) if each not in gone]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            places = [place for _, place in run]
            # As wide as the range writes them.
            low, high = (names[place][len(name) : len(names[place]) - len(rest)] for place in (places[0], places[-1]))
            assert int(low) == first + places[0]
            left.append(names[places[0]] if low == high else f"{name}[{low}..{high}]{rest}")
    return ",".join(left)


_RANGE = re.compile(r"(?P<name>.*?)\[?(?P<first>\d{1,9})\.\.(?P<last>\d{1,9})\]?(?P<rest>[^\d\[\]]*)")


def expected_problem(text: str) -> str | None:
    """The reason that a group can't expect these instance ids; None if it can."""
    try:
        expected_ids(text)
    except ValueError as error:
        return f"Invalid value for configuration expected.instance.ids: {error}"
    return None
