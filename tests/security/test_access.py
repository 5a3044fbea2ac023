"""Access: super users, the default, kept decisions, and what the log gets."""

from __future__ import annotations

from coordinator.security.access import DECISIONS_MAX, OWN, Access, Asked
from coordinator.security.acls import EVERYBODY, OPERATIONS_ON_GROUPS, Kind, Operation, Pattern, Permission, Rule

ALICE, HOST = "User:alice", "127.0.0.1"


def rule(permission: Permission = Permission.ALLOW, operation: Operation = Operation.READ) -> str:
    """The text of a rule about the group `workers`, for everybody."""
    return Rule(Kind.GROUP, Pattern.LITERAL, "workers", EVERYBODY, "*", operation, permission).text()


def may_read(access: Access, principal: str = ALICE, group: str = "workers") -> bool:
    """Whether the group may be read."""
    return access.allows(principal, HOST, Operation.READ, Kind.GROUP, group)


def test_without_an_authorizer_everything_is_allowed() -> None:
    """Also if there are rules from before."""
    access = Access(is_open=True)
    access.set_rules([rule(Permission.DENY)])
    assert may_read(access)
    assert access.operations(ALICE, HOST, Kind.GROUP, "workers") == 1 << 3 | 1 << 6 | 1 << 8
    assert access.operations(ALICE, HOST, Kind.GROUP, "workers", OPERATIONS_ON_GROUPS) == 0b1101_0100_1000


def test_without_a_rule_the_setting_decides() -> None:
    """allow.everyone.if.no.acl.found counts only where no rule is about the name."""
    assert not may_read(Access(is_open=False))
    generous = Access(is_open=False, everyone=True)
    assert may_read(generous)
    generous.set_rules([rule(operation=Operation.DELETE)])
    assert not may_read(generous)
    assert may_read(generous, group="others")


def test_super_users_may_do_everything() -> None:
    """Whatever denies it. The server's own page is one."""
    access = Access(is_open=False, supers=[ALICE])
    access.set_rules([rule(Permission.DENY, Operation.ALL)])
    assert may_read(access)
    assert may_read(access, OWN)
    assert not may_read(access, "User:bob")


def test_a_change_of_rules_counts_at_once() -> None:
    """No kept decision outlives it."""
    access = Access(is_open=False)
    assert not may_read(access)
    access.set_rules([rule()])
    assert may_read(access)
    access.set_rules([rule(), rule(Permission.DENY)])
    assert not may_read(access)


def test_kept_decisions_are_bounded() -> None:
    """However many names a client asks for, and however long they are."""
    access = Access(is_open=False)
    for number in range(DECISIONS_MAX + 10):
        may_read(access, group=str(number))
    assert len(access._decisions) <= DECISIONS_MAX
    kept = len(access._decisions)
    may_read(access, group="x" * 10_000)
    assert len(access._decisions) == kept


def test_the_log_gets_each_decision() -> None:
    """A kept one too, but none that Kafka doesn't log."""
    access, denied = Access(is_open=False), list[Asked]()
    access.on_denied = denied.append
    for _ in range(2):
        may_read(access)
    assert denied == [Asked(ALICE, HOST, Operation.READ, Kind.GROUP, "workers")] * 2
    assert not access.allows(ALICE, HOST, Operation.READ, Kind.GROUP, "workers", is_logged=False)
    assert len(denied) == 2


def test_authorized_operations() -> None:
    """A bit for each operation that is allowed, implied ones too."""
    access = Access(is_open=False)
    access.set_rules([rule()])
    assert access.operations(ALICE, HOST, Kind.GROUP, "workers") == 1 << 3 | 1 << 8
    assert access.operations(ALICE, HOST, Kind.CLUSTER, "kafka-cluster") == 0


def test_the_decision_about_some_resource_is_kept_until_a_rule_changes() -> None:
    """A client may ask for it as often as it likes: the rules are gone through once."""
    access = Access(is_open=False)
    assert not access.allows_somewhere(ALICE, HOST, Operation.READ, Kind.GROUP)
    access.set_rules([rule()])
    assert access.allows_somewhere(ALICE, HOST, Operation.READ, Kind.GROUP)
    assert not access.allows_somewhere(ALICE, HOST, Operation.DELETE, Kind.GROUP)
