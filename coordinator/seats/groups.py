"""Seats of groups, as any Kafka knows them: who has one, and its removal.

House rule: a removal names the member id. Without it, a member that came back would go.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups, is_unknown, remove_seats
from coordinator.seats.core import Holder

if TYPE_CHECKING:
    from coordinator.client.client import Client
    from coordinator.seats.pods import Seat


def holder(client: Client, seat: Seat) -> Holder | None:
    """The member that has a seat; None if there is no such member or group. Raises as the client does."""
    group = describe_groups(client, [seat.group_id])[seat.group_id]
    if isinstance(group, Refused):
        if is_unknown(group):
            return None
        raise group
    for member in group.members:
        if member.group_instance_id == seat.instance_id:
            return Holder(member.member_id, _address(member.client_host))
    return None


def remove(client: Client, seat: Seat, member_id: str) -> int:
    """Remove the member; its error code, 0 for success. Raises as the client does."""
    return remove_seats(client, seat.group_id, {seat.instance_id: member_id})[seat.instance_id]


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
