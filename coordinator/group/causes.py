"""Why a group rebalances, as a value.

A cause is made where the decision falls, from the member and the request that led to it, and travels in notes. It is
never read back by the core: what people are told must not be able to change what happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.group.events import JoinGroup
    from coordinator.group.group import Member

NO_JOIN_REASON = -1
"""JoinGroup's tagged field 423 where the client sent none."""


class CauseKind(Enum):
    """Why a group prepares to rebalance."""

    MEMBER_JOINED = "member_joined"
    MEMBER_REJOINED = "member_rejoined"
    LEADER_REJOINED = "leader_rejoined"
    METADATA_CHANGED = "metadata_changed"
    PROTOCOL_CHANGED = "protocol_changed"
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    MEMBER_LEFT = "member_left"
    MEMBER_EXPIRED = "member_expired"
    SYNC_TIMED_OUT = "sync_timed_out"
    ASSIGNMENT_TOO_LARGE = "assignment_too_large"
    GROUP_OVER_CAPACITY = "group_over_capacity"


class Source(Enum):
    """Who says so: the client with its request (KIP-800, KIP-423), or the coordinator that inferred it."""

    CLIENT = "client"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Cause:
    """Who caused a rebalance, and how it is known.

    member_ids: usually one; several when they failed to sync together.
    reason: the client's own words (KIP-800), "" if it gave none.
    join_reason: KIP-423's number, None if it gave none.
    api_version: of the JoinGroup or LeaveGroup that caused it, None if none did (a timer).
    """

    kind: CauseKind
    member_ids: tuple[str, ...] = ()
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = ""
    join_reason: int | None = None
    api_version: int | None = None

    @property
    def source(self) -> Source:
        """CLIENT if the client gave a reason of its own."""
        return Source.CLIENT if self.reason or self.join_reason is not None else Source.INFERRED


def by_join(kind: CauseKind, member: Member, event: JoinGroup) -> Cause:
    """The cause that lies in a JoinGroup of `member`."""
    join_reason = event.body.join_reason
    return Cause(
        kind,
        (member.member_id,),
        member.group_instance_id,
        event.client.id,
        event.client.host,
        event.body.reason or "",
        None if join_reason == NO_JOIN_REASON else join_reason,
        event.version,
    )


def by_member(kind: CauseKind, member: Member, reason: str = "", api_version: int | None = None) -> Cause:
    """The cause that lies in `member` itself: it left (with a request of `api_version`), or expired."""
    return Cause(
        kind,
        (member.member_id,),
        member.group_instance_id,
        member.client_id,
        member.client_host,
        reason,
        api_version=api_version,
    )
