"""Decisions by ACLs: Kafka's rules one by one, and the index against a model that looks at every rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.security.acls import (
    ANYTHING,
    EVERYBODY,
    IMPLYING,
    Acls,
    Filter,
    Kind,
    Operation,
    Pattern,
    Permission,
    Rule,
)

ALICE, HOST = "User:alice", "127.0.0.1"
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL


def rule(
    name: str = "orders",
    *,
    pattern: Pattern = LITERAL,
    principal: str = ALICE,
    host: str = ANYTHING,
    operation: Operation = READ,
    permission: Permission = ALLOW,
    kind: Kind = Kind.TOPIC,
) -> Rule:
    """A rule."""
    return Rule(kind, pattern, name, principal, host, operation, permission)


def acls(*rules: Rule) -> Acls:
    """All of these rules."""
    found = Acls()
    found.set([each.text() for each in rules])
    return found


def decide(rules: Acls, operation: Operation = READ, name: str = "orders", principal: str = ALICE) -> bool | None:
    """The decision about a topic."""
    return rules.decide(principal, HOST, operation, Kind.TOPIC, name)


def test_nothing_is_decided_about_a_name_without_rules() -> None:
    """A rule about another name, or another kind, says nothing."""
    assert decide(acls()) is None
    assert decide(acls(rule("others"), rule(kind=Kind.GROUP))) is None


def test_a_rule_for_others_denies() -> None:
    """A client that no rule about a name names is denied, even if the rule denies somebody else."""
    assert decide(acls(rule(principal="User:bob"))) is False
    assert decide(acls(rule(ANYTHING, principal="User:bob", permission=DENY))) is False


def test_a_rule_names_principal_host_and_operation() -> None:
    """Each has to fit; the wildcards fit all."""
    assert decide(acls(rule())) is True
    assert decide(acls(rule(principal=EVERYBODY, host=HOST))) is True
    assert decide(acls(rule(host="10.0.0.1"))) is False
    assert decide(acls(rule()), WRITE) is False
    assert decide(acls(rule(operation=ALL)), WRITE) is True


def test_a_denial_wins() -> None:
    """Over any permission, wherever it stands."""
    assert decide(acls(rule(), rule("ord", pattern=PREFIXED, permission=DENY))) is False
    assert decide(acls(rule(operation=ALL), rule(ANYTHING, principal=EVERYBODY, permission=DENY))) is False
    assert decide(acls(rule(), rule(permission=DENY, host="10.0.0.1"))) is True


@pytest.mark.parametrize(("implied", "by"), [(implied, by) for implied in IMPLYING for by in IMPLYING[implied]])
def test_a_permission_implies_to_describe_and_a_denial_nothing(implied: Operation, by: Operation) -> None:
    """READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS."""
    assert decide(acls(rule(operation=by)), implied) is True
    assert decide(acls(rule(operation=implied), rule(operation=by, permission=DENY)), implied) is True
    assert decide(acls(rule(operation=implied)), by) is False


def test_prefixes_and_the_star() -> None:
    """A prefix fits all names that begin so. A literal star fits all names, a prefixed one is a prefix like others."""
    for name, fits in (("ord", True), ("orders", True), ("or", None), ("xord", None)):
        assert decide(acls(rule("ord", pattern=PREFIXED)), name=name) is fits
    assert decide(acls(rule(ANYTHING))) is True
    assert decide(acls(rule(ANYTHING, pattern=PREFIXED))) is None
    assert decide(acls(rule(ANYTHING, pattern=PREFIXED)), name="*s") is True


def test_rules_go_and_come() -> None:
    """After each change the decision is that of the rules that are there."""
    changing = acls(rule(), rule("ord", pattern=PREFIXED, operation=WRITE))
    changing.set([rule("ord", pattern=PREFIXED, operation=WRITE).text()])
    assert (decide(changing), decide(changing, WRITE)) == (False, True)
    changing.set([])
    assert decide(changing) is None
    assert not list(changing)


ONE_OF = st.sampled_from
NAMES = st.text("ab*", min_size=1, max_size=4)
RULES = st.builds(
    Rule,
    ONE_OF([Kind.TOPIC, Kind.GROUP]),
    ONE_OF([LITERAL, PREFIXED]),
    NAMES,
    ONE_OF([ALICE, "User:bob", EVERYBODY]),
    ONE_OF([HOST, "10.0.0.1", ANYTHING]),
    ONE_OF([READ, WRITE, DESCRIBE, ALL]),
    ONE_OF([ALLOW, DENY]),
)


def model(rules: list[Rule], operation: Operation, name: str) -> bool | None:
    """The decision about a topic, for alice: one look at every rule."""
    about = [
        each
        for each in rules
        if each.kind is Kind.TOPIC
        and (name.startswith(each.name) if each.pattern is PREFIXED else each.name in (name, ANYTHING))
    ]
    mine = [each for each in about if each.principal in (ALICE, EVERYBODY) and each.host in (HOST, ANYTHING)]
    if any(each.permission is DENY and each.operation in (operation, ALL) for each in mine):
        return False
    implying = {operation, ALL, *IMPLYING.get(operation, ())}
    if any(each.permission is ALLOW and each.operation in implying for each in mine):
        return True
    return False if about else None


@given(st.lists(RULES, max_size=12), st.lists(RULES, max_size=12), ONE_OF([READ, WRITE, DESCRIBE]), NAMES)
def test_the_index_decides_as_a_look_at_every_rule(
    before: list[Rule], rules: list[Rule], operation: Operation, name: str
) -> None:
    """Also after other rules were there."""
    found = acls(*before)
    found.set([each.text() for each in rules])
    assert sorted(found) == sorted(set(rules))
    assert decide(found, operation, name) is model(rules, operation, name)


@given(RULES)
def test_a_rule_survives_as_text(one: Rule) -> None:
    """Text and back."""
    assert Rule.of_text(one.text()) == one


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ([], False),
        ([rule(operation=WRITE)], True),
        ([rule(operation=ALL)], True),
        ([rule(operation=READ)], False),
        ([rule(ANYTHING, operation=WRITE), rule("a", operation=WRITE, permission=DENY)], True),
        ([rule(operation=WRITE), rule(ANYTHING, permission=DENY, operation=WRITE)], False),
        ([rule(operation=WRITE), rule(permission=DENY, operation=WRITE)], False),
        ([rule(operation=WRITE), rule("or", pattern=PREFIXED, permission=DENY, operation=WRITE)], False),
        ([rule("orders", pattern=PREFIXED, operation=WRITE), rule("orders", permission=DENY, operation=ALL)], True),
        ([rule("a", operation=WRITE), rule("b", pattern=PREFIXED, permission=DENY, operation=WRITE)], True),
    ],
)
def test_some_resource(rules: list[Rule], may: bool) -> None:
    """Whether any topic could be written to: a denial of a longer or equal name takes a permission away."""
    assert acls(*rules).decide_somewhere(ALICE, HOST, WRITE, Kind.TOPIC) is may


def selects(one: Rule, **fields: object) -> bool:
    """Whether a filter with these fields selects a rule."""
    anything = Filter(Kind.ANY, Pattern.ANY, None, None, None, Operation.ANY, Permission.ANY)
    return anything._replace(**fields).selects(one)  # type: ignore[arg-type]


def test_filters() -> None:
    """Each field selects by itself; MATCH selects the rules about a name."""
    one, prefixed, star = rule(), rule("ord", pattern=PREFIXED), rule(ANYTHING)
    assert selects(one)
    assert selects(one, kind=Kind.TOPIC, name="orders", principal=ALICE, host=ANYTHING, operation=READ)
    for other in ({"kind": Kind.GROUP}, {"name": "x"}, {"principal": "User:bob"}, {"host": HOST}, {"operation": ALL}):
        assert not selects(one, **other)
    assert not selects(one, permission=DENY)
    assert not selects(one, pattern=PREFIXED)
    for each in (one, prefixed, star):
        assert selects(each, pattern=Pattern.MATCH, name="orders")
        assert not selects(each, pattern=Pattern.MATCH, name="payments") or each is star
    assert not selects(prefixed, pattern=Pattern.ANY, name="orders")
