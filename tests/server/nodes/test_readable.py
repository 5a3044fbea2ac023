"""Entries in another form: each kind is checked as its user would read it, and what this version writes passes."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.log.topics.entries import topic_entry, topic_value
from coordinator.log.topics.list import Topic
from coordinator.security.acls import Kind, Operation, Pattern, Permission, Rule
from coordinator.security.credentials import DECOY_KEY, name_of, text_of
from coordinator.security.quotas import FETCHED, Entity
from coordinator.security.quotas import name_of as quota_name
from coordinator.security.sasl.scram import credential
from coordinator.server.nodes.readable import is_readable

ACL = Rule(Kind.TOPIC, Pattern.LITERAL, "t", "User:anna", "*", Operation.READ, Permission.ALLOW).text()
SCRAM = "SCRAM-SHA-256"
USER = text_of(credential(SCRAM, b"salted password", b"salt", 4_096))
QUOTA = quota_name(Entity("anna", "", None), FETCHED)
TOPIC = topic_value(Topic("t", UUID(int=1), 1, {"retention.ms": "5", "of.a.newer.version": "x"}))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (topic_entry("t"), TOPIC),
        (f"set/acls:{ACL}", b""),
        (f"set/credentials:{name_of(SCRAM, 'anna/b')}", USER.encode()),
        (f"set/credentials:{DECOY_KEY}", b"c2VjcmV0"),
        (f"set/quotas:{QUOTA}", b"1024.0"),
        ("set/:/log.retention.ms", b"9"),
        ("set/:1/num.io.threads", b"8"),
        ("set/:1/listener.name.plain.max.connections", b"9"),
        ("set/:1/of.a.newer.version", b"x"),
        ("set/groups:a/b/consumer.session.timeout.ms", b"45000"),
        ("set/groups:g/expected.instance.ids", b"worker-[0..31]"),
        ("set/groups:g/of.a.newer.version", b"x"),
        ("set/moons:a", b"\xff"),
        ("moon/1", b"\xff"),
    ],
)
def test_entries_of_this_version_and_of_other_kinds_pass(entry: str, value: bytes) -> None:
    """Also a setting, a list or a kind that this version doesn't know: it has no effect."""
    assert is_readable(entry, value)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("topic/t", b"nonsense"),
        ("topic/t", TOPIC.replace(b'"5"', b'"long"')),
        ("set/acls:nonsense", b""),
        ("set/acls:[]", b""),
        ("set/acls:{}", b""),
        (f"set/acls:{ACL.replace(str(int(Operation.READ)), '99', 1)}", b""),
        ('set/acls:[2,3,1,"User:a","*",3,3]', b""),
        (f"set/acls:{ACL}", b"\xff"),
        ("set/credentials:nonsense", USER.encode()),
        ("set/credentials:PLAIN/anna", USER.encode()),
        ("set/credentials:SCRAM-SHA-256/", USER.encode()),
        ("set/credentials:SCRAM-SHA-256/anna", b"nonsense"),
        ("set/credentials:SCRAM-SHA-256/anna", USER.encode().replace(b"4096", b"many")),
        ("set/credentials:SCRAM-SHA-256/anna", b"4096 a b c"),
        (f"set/credentials:{DECOY_KEY}", b"a"),
        ("set/quotas:nonsense", b"1"),
        ("set/quotas:[]", b"1"),
        ("set/quotas:7", b"1"),
        (f'set/quotas:["{FETCHED}",1,null,null]', b"1"),
        (f'set/quotas:["{FETCHED}","a",null,null,null]', b"1"),
        (f"set/quotas:{QUOTA}", b"much"),
        (f"set/quotas:{QUOTA}", b"nan"),
        ("set/:/log.retention.ms", b"long"),
        ("set/:1/node.id", b"2"),
        ("set/:1/listener.name.plain.max.connections", b"many"),
        ("set/groups:g/consumer.session.timeout.ms", b"long"),
        ("set/groups:g/expected.instance.ids", b"worker-[9..0]"),
    ],
)
def test_another_form_is_unreadable(entry: str, value: bytes) -> None:
    """The check says so, and raises nothing."""
    assert not is_readable(entry, value)
