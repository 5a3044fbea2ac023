"""How a handler asks whether its client may do something; coordinator.apis lists what each asks for.

A handler asks by `may`, before it looks at anything that the client might not know of.

House rule: who may not describe something doesn't learn whether it exists.
"""

from __future__ import annotations

from coordinator.security.acls import CLUSTER_NAME, OPERATIONS_ON_GROUPS, Kind, Operation
from coordinator.server.wire.call import Call

NOT_ALLOWED = "Cluster authorization failed."
"""The message of an answer to who may not do something to the cluster."""


def may(call: Call, operation: Operation, kind: Kind, name: str = CLUSTER_NAME, *, is_logged: bool = True) -> bool:
    """Whether the client may do `operation`. is_logged: whether the authorizer's log may have the decision."""
    access, client = call.services.access, call.client
    if access.is_open:
        return True
    return access.allows(client.principal, client.host[1:], operation, kind, name, is_logged=is_logged)


def may_somewhere(call: Call, operation: Operation, kind: Kind) -> bool:
    """Whether the client may do `operation` to some resource of a kind."""
    access, client = call.services.access, call.client
    return access.is_open or access.allows_somewhere(client.principal, client.host[1:], operation, kind)


def operations(call: Call, kind: Kind, name: str = CLUSTER_NAME) -> int:
    """The authorized operations of a response: a bit for each."""
    client = call.client
    return call.services.access.operations(client.principal, client.host[1:], kind, name)


def operations_on_group(call: Call, group_id: str) -> int:
    """The authorized operations on a group as Kafka 4 counts them."""
    client = call.client
    return call.services.access.operations(
        client.principal, client.host[1:], Kind.GROUP, group_id, OPERATIONS_ON_GROUPS
    )
