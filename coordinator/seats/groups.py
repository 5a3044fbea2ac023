"""Seats of groups, as any Kafka knows them: who has them, and their removal.

House rule: a removal names the member id. Without it, a member that came back would go.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups, is_unknown, remove_seats
from coordinator.seats.core import Holder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.client.client import Client


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


def remove(client: Client, group_id: str, member_ids: Mapping[str, str]) -> dict[str, int]:
    """Remove members, whose ids are given by instance id; error codes by instance id, 0 for success.

    Raises as the client does.
    """
    return remove_seats(client, group_id, member_ids)


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
