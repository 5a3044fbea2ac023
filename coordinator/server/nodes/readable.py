"""Which entries of a cluster this version can read: topics, ACLs, users, quotas, settings of brokers and of groups.

Any node of a cluster may write an entry (log/topics/entries.py), also one of a newer version, or a person with etcdctl.
One entry in another form must not hold up the others. So a node checks each entry before it uses it, and leaves out
those that it can't read. An entry of another kind, and a setting that this version doesn't know, have no effect here:
they count as readable.

House rule: a check makes the value that its user makes, or asks for the problem that a client would hear.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable

from coordinator.config import LIMITS, LISTENER_NAME
from coordinator.log.topics.entries import SET, TOPIC, parse_set_entry, read_topic
from coordinator.log.topics.list import ACLS, BROKERS, CREDENTIALS, GROUPS, QUOTAS
from coordinator.security.acls import Rule
from coordinator.security.credentials import DECOY_KEY, MECHANISMS, credential_of
from coordinator.security.quotas import Entity, Wrong, check_value
from coordinator.server.nodes.broker_settings import BROKER_SETTINGS, setting_problem
from coordinator.server.nodes.group_settings import GROUP_CONFIGS, text_problem
from coordinator.server.nodes.topic_settings import TOPIC_CONFIGS, config_problem


def is_readable(entry: str, value: bytes) -> bool:
    """Whether this version can read an entry."""
    try:
        if entry.startswith(TOPIC):
            _check_topic(entry, value)
        elif entry.startswith(SET):
            set_name, name = parse_set_entry(entry)
            check = _CHECKS.get(set_name)
            if check is not None:
                check(name, value.decode())
    except (ValueError, TypeError, RecursionError, Wrong):
        return False
    return True


def _check_topic(entry: str, value: bytes) -> None:
    configs = read_topic(entry, value).configs
    _raise_first(config_problem(name, text) for name, text in configs.items() if name in TOPIC_CONFIGS)


def _check_acl(name: str, _text: str) -> None:
    rule = Rule.of_text(name)
    if not all(isinstance(text, str) for text in (rule.name, rule.principal, rule.host)):
        raise ValueError(name)


def _check_user(name: str, text: str) -> None:
    if name == DECOY_KEY:
        b64decode(text)
        return
    mechanism, slash, user = name.partition("/")
    if mechanism not in MECHANISMS.values() or not slash or not user:
        raise ValueError(name)
    credential_of(text)


def _check_quota(name: str, text: str) -> None:
    key, *names = json.loads(name)
    if not isinstance(key, str) or not all(each is None or isinstance(each, str) for each in names):
        raise ValueError(name)
    check_value(Entity(*names), key, float(text))


def _check_broker_setting(name: str, text: str) -> None:
    node, _, setting = name.partition("/")
    if setting.startswith(LISTENER_NAME):
        limit = setting.removeprefix(LISTENER_NAME).partition(".")[2]
        limits = {setting: limit} if limit in LIMITS else {}
    else:
        limits = {}
    if setting in limits or setting in BROKER_SETTINGS:
        _raise_first([setting_problem(setting, text, limits, for_all=not node)])


def _check_group_setting(name: str, text: str) -> None:
    setting = name.rpartition("/")[2]
    if setting in GROUP_CONFIGS:
        _raise_first([text_problem(setting, text)])


def _raise_first(problems: Iterable[str | None]) -> None:
    for problem in filter(None, problems):
        raise ValueError(problem)


_CHECKS: dict[str, Callable[[str, str], None]] = {
    ACLS.name: _check_acl,
    BROKERS.name: _check_broker_setting,
    CREDENTIALS.name: _check_user,
    GROUPS.name: _check_group_setting,
    QUOTAS.name: _check_quota,
}
"""The check of each list that is no topic, by the list's name."""
