"""ACLs that no request can meet."""

from __future__ import annotations

from itertools import product

import pytest

from coordinator.apis import APIS
from coordinator.client.client import Client
from coordinator.security.acls import Acls, Kind, Operation, Pattern, Permission, Rule
from coordinator.server.idle_acls import why_idle
from protocol.messages import CreateAclsRequest
from tests.support.apache import AUTHORIZER
from tests.support.patience import WITHIN_S
from tests.support.requests import acl
from tests.support.tenure import Tenure

READS = Rule(Kind.TOPIC, Pattern.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW)


def test_each_rule_has_an_effect_or_a_reason() -> None:
    """Of every kind, operation and effect: a rule has no reason exactly if it decides what some API asks for."""
    kinds = [kind for kind in Kind if kind > Kind.ANY]
    operations = [operation for operation in Operation if operation > Operation.ANY]
    for kind, operation, permission in product(kinds, operations, (Permission.DENY, Permission.ALLOW)):
        rule = READS._replace(kind=kind, operation=operation, permission=permission)
        acls, others = Acls(), Acls()
        acls.set([rule.text()])
        # Beside it, a rule of another user makes the name known, and one of the same user allows what a denial takes.
        known = rule._replace(principal="User:bob", operation=Operation.ALL, permission=Permission.ALLOW)
        allows = [] if permission is Permission.ALLOW else [known._replace(principal="User:alice")]
        acls.set([each.text() for each in (rule, known, *allows)])
        others.set([each.text() for each in (known, *allows)])
        asked = [right for api in APIS.values() for right in api.rights]
        decides = any(
            acls.decide("User:alice", "10.0.0.1", right.operation, right.kind, "orders")
            is not others.decide("User:alice", "10.0.0.1", right.operation, right.kind, "orders")
            for right in asked
        )
        assert (why_idle(rule) is None) is decides, rule


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (READS._replace(principal="User:*", host="10.0.0.1"), None),
        (READS._replace(host="0:0:0:0:0:0:0:1"), None),
        (READS._replace(host="10.0.0.0/8"), "'10.0.0.0/8' is no address, and a rule has one address or *"),
        (READS._replace(host="web-1"), "'web-1' is no address, and a rule has one address or *"),
        (READS._replace(host="::1"), "clients at ::1 have the address 0:0:0:0:0:0:0:1 here: write that"),
        (READS._replace(principal="user:alice"), "no client is 'user:alice': each one is User:NAME"),
        (READS._replace(principal="User:"), "no client is 'User:': each one is User:NAME"),
        (
            READS._replace(operation=Operation.CLUSTER_ACTION),
            "no request needs CLUSTER_ACTION on a resource of type TOPIC",
        ),
    ],
)
def test_the_reason_is_named(rule: Rule, why: str | None) -> None:
    """A host in another form has the right one beside it."""
    assert why_idle(rule) == why


def test_a_new_acl_without_effect_has_a_line_and_each_start_repeats_it() -> None:
    """One line for each reason, with the first ACL and the number of others; an ACL with an effect has none."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    creations = [acl(Kind.TOPIC, name, host=host) for name, host in (("a", "*"), ("b", "web-1"), ("c", "web-1"))]
    with Tenure(settings) as server:
        with Client(server.bootstrap, WITHIN_S) as client:
            answer = client.request(CreateAclsRequest(creations=creations), at_least=1)
        assert [each.error_code for each in answer.results] == [0, 0, 0]
        server.restart()
        first, again = server.events("acl_ignored")
    assert first["message"] == again["message"]
    text = "An ACL (ALLOW READ on TOPIC 'b' to User:alice) and 1 more: no effect, because 'web-1' is no address, "
    assert first["message"].startswith(text)
