"""The members that have the seats of a group, as any Kafka knows them.

House rule: a member has its id here, because a removal names it. Without it, a member that came back would go.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups, is_unknown
from coordinator.seats.core import Holder


def holders(client: Client, group_id: str) -> dict[str, Holder]:
    """The static members of a group, by instance id; none if there is no such group. Raises as the client does."""
    group = describe_groups(client, [group_id])[group_id]
    if isinstance(group, Refused):
        if is_unknown(group):
            return {}
        raise group
    return {
        member.group_instance_id: Holder(member.member_id, _address(member.client_host))
        for member in group.members
        if member.group_instance_id is not None
    }


def _address(host: str) -> str:
    """A member's host, which Kafka writes as "/10.1.2.3", in the form that Kubernetes has."""
    text = host.rpartition("/")[2]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
