"""Quotas of clients: whom a quota is for, which values it can have, and which quota is a client's.

A quota belongs to an entity: a user, a client id, both together, or an IP address. DEFAULT in place of a name stands
for all that have no quota of their own. For each key (`KEYS`) the first quota of this list is a client's:

    user and client id > user and default client id > user > default user and client id >
    default user and default client id > default user > client id > default client id

Clients that share a quota by user alone share its sensor too (`quotas_rates`), whatever their client ids. Otherwise
each pair of user and client id, or each client id, has a sensor of its own.

House rule: pure. Source: Kafka's ClientQuotaManager, ClientQuotaControlManager and QuotaConfigs, release 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from math import isnan
from typing import NamedTuple

DEFAULT = ""
"""In place of a name: all that have no quota of their own. No entity can have this name."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of entities, on the wire."""

PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
TIME, MUTATIONS, CONNECTIONS = "request_percentage", "controller_mutation_rate", "connection_creation_rate"


class Key(NamedTuple):
    """A key of quotas. is_of_ip: it is for IP addresses, not for users and client ids.

    high: the largest value of a key that has whole numbers only; None for a key with fractions.
    """

    is_of_ip: bool
    high: float | None


KEYS = {
    PRODUCED: Key(is_of_ip=False, high=2.0**63),
    FETCHED: Key(is_of_ip=False, high=2.0**63),
    TIME: Key(is_of_ip=False, high=None),
    MUTATIONS: Key(is_of_ip=False, high=None),
    CONNECTIONS: Key(is_of_ip=True, high=2.0**31 - 1),
}

FRACTION_MAX = 1e-6
"""A value that differs from a whole number by no more counts as whole, as in Kafka."""

KEPT_BYTES_MAX = 1024 * 1024
"""Characters of the names of all quotas together, which is about 20,000 quotas. Each change reads and writes them all.
"""


class Entity(NamedTuple):
    """The entity of a quota. None: the quota doesn't name this type. DEFAULT: see there."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def named(self) -> list[tuple[str, str | None]]:
        """Types and names as on the wire, where None is the default."""
        pairs = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, name or None) for kind, name in pairs if name is not None]


Quota = Mapping[str, float]
"""The values of an entity, by key."""


class Wrong(ValueError):
    """An entity or a value that no quota can have."""


def entity_of(named: Sequence[tuple[str, str | None]]) -> Entity:
    """The entity of these types and names. Raises Wrong."""
    if not named:
        raise Wrong("Invalid empty client quota entity")
    found: dict[str, str] = {}
    for kind, name in named:
        if kind not in {USER, CLIENT_ID, IP}:
            raise Wrong(f"Unhandled client quota entity type: {kind}")
        if kind in found:
            raise Wrong(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise Wrong(f"Empty {kind} not supported")
        found[kind] = DEFAULT if name is None else name
    entity = Entity(found.get(USER), found.get(CLIENT_ID), found.get(IP))
    if entity.ip is not None:
        if len(found) > 1:
            raise Wrong("Invalid quota entity combination, an IP entity can't be combined with a user or a client id")
        if entity.ip and not _is_address(entity.ip):
            raise Wrong(f"{entity.ip} is not a valid IP address.")
    return entity


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_value(entity: Entity, key: str, value: float) -> None:
    """Check that an entity can have this value under this key. Raises Wrong."""
    known = KEYS.get(key)
    if known is None or known.is_of_ip != (entity.ip is not None):
        raise Wrong(f"Invalid configuration key {key}")
    if value <= 0 or isnan(value):
        raise Wrong(f"Quota {key} must be greater than 0")
    if known.high is None:
        return
    if value > known.high:
        raise Wrong(f"Proposed value for {key} is too large.")
    if abs(value % 1.0) > FRACTION_MAX:
        raise Wrong(f"{key} cannot be a fractional value.")


# The texts in the list of topics (log/topics/list.py, QUOTAS).


def name_of(entity: Entity, key: str) -> str:
    """The name under which a value is kept."""
    return json.dumps([key, *entity], separators=(",", ":"))


def quotas_of(texts: Mapping[str, str]) -> dict[Entity, dict[str, float]]:
    """All quotas of these texts."""
    found: dict[Entity, dict[str, float]] = {}
    for name, text in texts.items():
        key, *entity = json.loads(name)
        found.setdefault(Entity(*entity), {})[key] = float(text)
    return found


# Which quota is a client's.


class Limit(NamedTuple):
    """A client's quota under one key. shared_by: whose sensor it is, user and client id; None for any."""

    shared_by: tuple[str | None, str | None]
    bound: float


class Limits:
    """The quotas under one key of users and client ids."""

    def __init__(self, quotas: Mapping[Entity, Quota], key: str) -> None:
        self._bounds = {
            (entity.user, entity.client_id): values[key] for entity, values in quotas.items() if key in values
        }
        users = {user for user, _ in self._bounds}
        self._is_for_all = DEFAULT in users or None in users
        self._users = frozenset(users)

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def may_concern(self, user: str) -> bool:
        """Whether a client of this user may have a quota, under some client id."""
        return self._is_for_all or user in self._users

    def of(self, user: str, client_id: str) -> Limit | None:
        """The quota of a client; None if it has none."""
        for entity in _levels(user, client_id):
            bound = self._bounds.get(entity)
            if bound is not None:
                break
        else:
            return None
        name, id_ = entity
        if id_ is None:
            return Limit((user, None), bound)
        if client_id:
            return Limit((None if name is None else user, client_id), bound)
        # Kafka: a quota that depends on the client id passes over a client without one, which may have its user's.
        bound = self._bounds.get((user, None), self._bounds.get((DEFAULT, None)))
        return None if name is None or bound is None else Limit((user, None), bound)


def _levels(user: str, client_id: str) -> Iterator[tuple[str | None, str | None]]:
    """The entities whose quota may be a client's, the first one first."""
    for name in (user, DEFAULT):
        yield name, client_id
        yield name, DEFAULT
        yield name, None
    yield None, client_id
    yield None, DEFAULT
