"""Access: whether a client may do something, by the ACLs and the settings of the authorizer. Pure.

Decisions are kept until a rule changes, because clients ask for the same things again and again.

House rule: without an authorizer everything is allowed, and nothing is looked up. Source: Kafka's StandardAuthorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from coordinator.security.acls import OPERATIONS, Acls, Kind, Operation, Rule

DECISIONS_MAX = 20_000
"""Decisions that are kept. A client can ask for any number of names; then all are forgotten, and asked again."""

NAME_MAX = 300
"""Characters of a name whose decisions are kept; a topic's name has at most 249."""

OWN = "Server:http"
"""The principal of the server's own page. No client can have this type, so no user gets its rights."""

A_NAME = "hardcode"
"""The name that Kafka asks for where any name will do (Authorizer.authorizeByResourceType)."""


class Asked(NamedTuple):
    """One decision, for the authorizer's log."""

    principal: str
    host: str
    operation: Operation
    kind: Kind
    name: str


class Access:
    """Decides.

    is_open: there is no authorizer. everyone: allow.everyone.if.no.acl.found. supers: `super.users`.
    acls: the rules; only `set_rules` changes them.
    on_denied, on_allowed: called with decisions, for the log; None if nobody wants to know.
    """

    def __init__(self, *, is_open: bool, everyone: bool = False, supers: Collection[str] = ()) -> None:
        self.is_open = is_open
        self._everyone = everyone
        self._supers = frozenset([*supers, OWN])
        self.acls = Acls()
        self._decisions: dict[tuple[str, str, Operation, Kind, str], bool] = {}
        self.on_denied: Callable[[Asked], None] | None = None
        self.on_allowed: Callable[[Asked], None] | None = None

    def set_rules(self, texts: Collection[str]) -> list[Rule]:
        """Decide by exactly the rules of these texts (`Rule.text`); return the new ones."""
        self._decisions.clear()
        return self.acls.set(texts)

    def allows(
        self, principal: str, host: str, operation: Operation, kind: Kind, name: str, *, is_logged: bool = True
    ) -> bool:
        """Whether a client may do `operation`. host: its address. is_logged: whether the log may have the decision."""
        if self.is_open:
            return True
        # Nearly every decision is a kept one that nobody logs. A plain tuple finds it in half the time of an Asked.
        asked = (principal, host, operation, kind, name)
        decision = self._decisions.get(asked)
        if decision is None:
            found = True if principal in self._supers else self.acls.decide(*asked)
            decision = self._everyone if found is None else found
            if len(name) <= NAME_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[asked] = decision
        if is_logged:
            tell = self.on_allowed if decision else self.on_denied
            if tell is not None:
                tell(Asked(*asked))
        return decision

    def allows_somewhere(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether a client may do `operation` to some resource of a kind."""
        if self.allows(principal, host, operation, kind, A_NAME, is_logged=False):
            return True
        # No resource has the empty name, so the decision about all names is kept under it.
        asked = (principal, host, operation, kind, "")
        decision = self._decisions.get(asked)
        if decision is None:
            decision = self._decisions[asked] = self.acls.decide_somewhere(principal, host, operation, kind)
        return decision

    def operations(self, principal: str, host: str, kind: Kind, name: str, numbers: Iterable[int] = ()) -> int:
        """The operations on a resource that a client may do, as the bits of a response. numbers: those that count."""
        found = 0
        for number in numbers or OPERATIONS[kind]:
            if self.allows(principal, host, Operation(number), kind, name, is_logged=False):
                found |= 1 << number
        return found
