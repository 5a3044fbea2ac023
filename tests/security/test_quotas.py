"""Whom a quota is for, and whose quota counts. tests/oracle/test_quotas.py compares both with Kafka."""

from __future__ import annotations

import math

import pytest

from coordinator.security.quotas import (
    CONNECTIONS,
    DEFAULT,
    FETCHED,
    PRODUCED,
    TIME,
    Entity,
    Limit,
    Limits,
    Wrong,
    check_value,
    entity_of,
    name_of,
    quotas_of,
)

ALL = {
    Entity("u", "c"): 1.0,
    Entity("u", DEFAULT): 2.0,
    Entity("u"): 3.0,
    Entity(DEFAULT, "c"): 4.0,
    Entity(DEFAULT, DEFAULT): 5.0,
    Entity(DEFAULT): 6.0,
    Entity(client_id="c"): 7.0,
    Entity(client_id=DEFAULT): 8.0,
}
"""One quota of each kind, the first one first."""

SHARED_BY = [("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None), (None, "c"), (None, "c")]


def test_the_first_quota_of_a_client_counts() -> None:
    """Without the first the second counts, and so on; the sensor is shared by user, by client id, or by neither."""
    left = dict(ALL)
    for bound, shared_by in zip(list(ALL.values()), SHARED_BY, strict=True):
        limits = Limits({entity: {PRODUCED: value} for entity, value in left.items()}, PRODUCED)
        assert limits.of("u", "c") == Limit(shared_by, bound)
        del left[next(iter(left))]
    assert not Limits({}, PRODUCED)


def test_a_client_without_client_id_has_its_users_quota_alone() -> None:
    """Quotas that depend on a client id pass over it."""
    assert Limits({Entity("u", DEFAULT): {TIME: 1.0}}, TIME).of("u", "") is None
    assert Limits({Entity(client_id=DEFAULT): {TIME: 1.0}}, TIME).of("u", "") is None
    both = {Entity("u", DEFAULT): {TIME: 1.0}, Entity(DEFAULT): {TIME: 2.0}}
    assert Limits(both, TIME).of("u", "") == Limit(("u", None), 2.0)


def test_a_key_has_quotas_of_its_own() -> None:
    """A quota of another key is none; and who may have one is known without the client id."""
    limits = Limits({Entity("u"): {TIME: 1.0}, Entity("v"): {FETCHED: 1.0}}, TIME)
    assert limits.of("v", "c") is None
    assert limits.may_concern("u")
    assert not limits.may_concern("v")
    assert Limits({Entity(DEFAULT): {TIME: 1.0}}, TIME).may_concern("v")
    assert Limits({Entity(client_id="c"): {TIME: 1.0}}, TIME).may_concern("v")


def test_texts_come_back_as_they_were_kept() -> None:
    """Whatever the names are."""
    quotas = {
        Entity("a", "b"): {PRODUCED: 5.0, TIME: 0.1},
        Entity('quo"ted,\n', DEFAULT): {FETCHED: 2.0**63},
        Entity(DEFAULT): {TIME: math.inf},
        Entity(ip="::1"): {CONNECTIONS: 1.0},
    }
    texts = {name_of(entity, key): repr(value) for entity, values in quotas.items() for key, value in values.items()}
    assert quotas_of(texts) == quotas


def test_a_wrong_entity_or_value_is_refused() -> None:
    """A type twice, no number, and an address that is none; the oracle's test has the rest."""
    for named in ([("user", "a"), ("user", "b")], [("ip", "localhost.invalid")], [("ip", "::1"), ("user", None)]):
        with pytest.raises(Wrong):
            entity_of(named)
    for value in (math.nan, 0.0, -1.0, 1.5):
        with pytest.raises(Wrong):
            check_value(Entity("a"), PRODUCED, value)
    check_value(entity_of([("ip", "127.0.0.1")]), CONNECTIONS, 5.0)
