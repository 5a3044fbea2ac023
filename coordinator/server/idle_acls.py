"""ACLs that can never have an effect: a line names them when they come into force, and at each start.

Kafka keeps such an ACL, so CreateAcls doesn't refuse it. Without the line an operator trusts a rule that no request
can meet.

House rule: a reason is about the rule alone, so that many rules with one reason have one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from ipaddress import ip_address
from itertools import islice

from coordinator.apis import APIS
from coordinator.loop.lines import Lines
from coordinator.security.acls import ANYTHING, Kind, Operation, Pattern, Permission, Rule
from coordinator.server.wire.connection import java_host

LINES_MAX = 10
"""Lines at a time: one request can create 5,000 ACLs."""


@cache
def _is_asked(kind: Kind, operation: Operation, permission: Permission) -> bool:
    """Whether some API asks for what such a rule decides."""
    rule = Rule(kind, Pattern.LITERAL, "", "", "", operation, permission)
    return any(right.kind is kind and rule.covers(right.operation) for api in APIS.values() for right in api.rights)


@lru_cache(1_000)
def _why_no_host(host: str) -> str | None:
    """Why no client can have this host."""
    try:
        address = java_host(str(ip_address(host)))[1:]
    except ValueError:
        return f"{host!r} is no address, and a rule has one address or *"
    return None if address == host else f"clients at {host} have the address {address} here: write that"


def why_idle(rule: Rule) -> str | None:
    """Why no request can meet this rule; None if one can."""
    if not rule.principal.startswith("User:") or rule.principal == "User:":
        return f"no client is {rule.principal!r}: each one is User:NAME"
    if rule.host != ANYTHING and (why := _why_no_host(rule.host)) is not None:
        return why
    if not _is_asked(rule.kind, rule.operation, rule.permission):
        return f"no request needs {rule.operation.name} on a resource of type {rule.kind.name}"
    return None


def warn_of_idle_acls(rules: Iterable[Rule], lines: Lines) -> None:
    """Write a line for each reason why rules have no effect, with the first such rule."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if (why := why_idle(rule)) is not None:
            found.setdefault(why, []).append(rule)
    for why, idle_rules in islice(found.items(), LINES_MAX):
        first = idle_rules[0]
        what = (
            f"{first.permission.name} {first.operation.name} on {first.kind.name} {first.name!r} to {first.principal}"
        )
        more = f" and {len(idle_rules) - 1} more" if len(idle_rules) > 1 else ""
        lines.warn("acl_ignored", f"An ACL ({what}){more}: no effect, because {why}", count=len(idle_rules))
