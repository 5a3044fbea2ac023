"""ACLs: rules that allow or deny operations on resources, and the decision that follows from them. Pure.

A rule names a principal, a host, an operation and a resource. A literal rule covers one name, or all names if its name
is `*`; a prefixed rule covers all names that begin with its name. The decision over one name:

    a rule denies it                                     denied
    a rule allows it, or an operation that implies it    allowed
    rules are about that name, but for others            denied
    no rule is about that name                           None: allow.everyone.if.no.acl.found decides

`Acls` finds the rules about a name by its prefixes, so the number of rules doesn't change the time of a decision.

House rule: a rule never changes. Source: Kafka's StandardAuthorizerData, AclEntry and ResourcePatternFilter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, Self


class Kind(IntEnum):
    """Types of resources."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How the name of a rule covers names of resources. ANY and MATCH stand in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations that a rule allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """The effect of a rule."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


ANYTHING = "*"
"""The name of a literal rule for every name, and the host of a rule for every host."""

EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The one name of a resource of the kind CLUSTER."""

IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""The operations whose permission also allows another one. A denial implies nothing."""

OPERATIONS = {
    Kind.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    Kind.GROUP: (3, 6, 8),
    Kind.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""The operations on a resource of each kind, for the kinds whose authorized operations a client can request."""

OPERATIONS_ON_GROUPS = (*OPERATIONS[Kind.GROUP], 10, 11)
"""The operations on a group in Kafka 4, whose groups have settings."""


class Rule(NamedTuple):
    """One ACL: what `principal` at `host` may, or may not, do to the resources that the first three fields select."""

    kind: Kind
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def text(self) -> str:
        """Return the rule as text, which `of_text` reads."""
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the rule that a text of `text` stands for."""
        kind, pattern, name, principal, host, operation, permission = json.loads(text)
        enums = Operation(operation), Permission(permission)
        return cls(Kind(kind), Pattern(pattern), name, principal, host, *enums)

    def is_for(self, principal: str, host: str) -> bool:
        """Whether the rule covers this client."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, ANYTHING)

    def covers(self, operation: Operation) -> bool:
        """Whether the rule allows, or denies, this operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLYING.get(operation, ())


class Filter(NamedTuple):
    """Selects rules; None and ANY select all. pattern MATCH: the rules about resources of that name."""

    kind: Kind
    pattern: Pattern
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @property
    def is_unknown(self) -> bool:
        """Whether this version doesn't know one of its values."""
        return 0 in (self.kind, self.pattern, self.operation, self.permission)

    def selects(self, rule: Rule) -> bool:
        """Whether the filter selects this rule."""
        return (
            self.kind in (Kind.ANY, rule.kind)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self._selects_name(rule)
        )

    def _selects_name(self, rule: Rule) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, rule.pattern):
            return False
        if self.name is None or self.name == rule.name:
            return True
        if self.pattern is not Pattern.MATCH:
            return False
        return self.name.startswith(rule.name) if rule.pattern is Pattern.PREFIXED else rule.name == ANYTHING


class Acls:
    """All rules."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._at: dict[tuple[Kind, Pattern, str], dict[str, Rule]] = {}
        # By kind, how many prefixes of each length have rules.
        self._lengths: dict[Kind, Counter[int]] = {}

    def __iter__(self) -> Iterator[Rule]:
        return iter(list(self._rules.values()))

    def rule_of(self, text: str) -> Rule:
        """Return the rule of a text: one of these rules, or a new one."""
        return self._rules.get(text) or Rule.of_text(text)

    def set(self, texts: Collection[str]) -> list[Rule]:
        """Replace all rules by those of these texts; return the new ones. The time grows with what changes only."""
        wanted = dict.fromkeys(texts)
        for text in self._rules.keys() - wanted.keys():
            self._remove(text)
        return [self._add(text) for text in wanted if text not in self._rules]

    def _add(self, text: str) -> Rule:
        rule = self._rules[text] = Rule.of_text(text)
        place = rule.kind, rule.pattern, rule.name
        if place not in self._at:
            self._at[place] = {}
            if rule.pattern is Pattern.PREFIXED:
                self._lengths.setdefault(rule.kind, Counter())[len(rule.name)] += 1
        self._at[place][text] = rule
        return rule

    def _remove(self, text: str) -> None:
        rule = self._rules.pop(text)
        place = rule.kind, rule.pattern, rule.name
        del self._at[place][text]
        if not self._at[place]:
            del self._at[place]
            if rule.pattern is Pattern.PREFIXED:
                lengths = self._lengths[rule.kind]
                lengths[len(rule.name)] -= 1
                if not lengths[len(rule.name)]:
                    del lengths[len(rule.name)]

    def about(self, kind: Kind, name: str) -> Iterator[Rule]:
        """The rules that cover one name."""
        lengths = [length for length in self._lengths.get(kind, ()) if length <= len(name)]
        places = chain(
            {(kind, Pattern.LITERAL, name), (kind, Pattern.LITERAL, ANYTHING)},
            ((kind, Pattern.PREFIXED, name[:length]) for length in lengths),
        )
        return chain.from_iterable(found.values() for place in places if (found := self._at.get(place)))

    def decide(self, principal: str, host: str, operation: Operation, kind: Kind, name: str) -> bool | None:
        """Whether the rules allow this; None if no rule is about that name."""
        decision: bool | None = None
        for rule in self.about(kind, name):
            if decision is None:
                decision = False
            if rule.is_for(principal, host) and rule.covers(operation):
                if rule.permission is Permission.DENY:
                    return False
                decision = True
        return decision

    def decide_somewhere(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether some resource of a kind may have a name for which the rules allow this.

        Source: Kafka's Authorizer.authorizeByResourceType. In Kafka too, a permission that implies this one doesn't
        count.
        """
        denied: set[tuple[Pattern, str]] = set()
        allowed: set[tuple[Pattern, str]] = set()
        for rule in self._rules.values():
            is_about = rule.kind is kind and rule.is_for(principal, host)
            if is_about and rule.operation in (operation, Operation.ALL):
                (denied if rule.permission is Permission.DENY else allowed).add((rule.pattern, rule.name))
        everything = Pattern.LITERAL, ANYTHING
        if everything in denied:
            return False
        if everything in allowed:
            return True
        lengths = {len(name) for pattern, name in denied if pattern is Pattern.PREFIXED}
        return any(
            place not in denied and not any((Pattern.PREFIXED, place[1][:length]) in denied for length in lengths)
            for place in allowed
        )
