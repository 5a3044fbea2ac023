"""Why a group rebalances, as a value.

A cause is made where the decision falls, from the member and the request that led to it, and travels in notes. It is
never read back by the core: what people are told must not be able to change what happens. The one reason that decides
anything is KIP-423's number (`join_reason_of`), which the rules read from the request itself.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

NO_JOIN_REASON = -1
"""JoinGroup's tagged field 423 where the client sent none."""

PARTIES_MAX = 100
"""Members whose instance ids and clients are kept where several caused a rebalance together."""


class CauseKind(Enum):
    """Why a group prepares to rebalance."""

    # To be put in words. Enum's own takes four times as long, and there is one member of each kind.
    __hash__ = object.__hash__

    MEMBER_JOINED = "member_joined"
    MEMBER_REJOINED = "member_rejoined"
    LEADER_REJOINED = "leader_rejoined"
    METADATA_CHANGED = "metadata_changed"
    PROTOCOL_CHANGED = "protocol_changed"
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    MEMBER_LEFT = "member_left"
    MEMBER_REMOVED = "member_removed"
    MEMBER_EXPIRED = "member_expired"
    SYNC_TIMED_OUT = "sync_timed_out"
    ASSIGNMENT_TOO_LARGE = "assignment_too_large"
    GROUP_OVER_CAPACITY = "group_over_capacity"


class JoinReason(IntEnum):
    """Why a member joins, as it says itself (KIP-423)."""

    RESTART = 0
    TOPIC_METADATA_CHANGE = 1
    UPGRADE = 2


class Meaning(Enum):
    """What a client's own words mean, where that is certain."""

    __hash__ = object.__hash__  # as CauseKind's

    TOPIC_METADATA_CHANGE = "topic_metadata_change"
    SUBSCRIPTION_CHANGE = "subscription_change"
    PARTITIONS_REVOKED = "partitions_revoked"
    CLOSED = "closed"
    UNSUBSCRIBED = "unsubscribed"
    POLL_TIMEOUT = "poll_timeout"
    REMOVED_BY_ADMIN = "removed_by_admin"
    ALREADY_REBALANCING = "already_rebalancing"
    MEMBER_ID_GIVEN = "member_id_given"
    REBALANCE_FAILED = "rebalance_failed"


MEANINGS = {
    "cached metadata has changed": Meaning.TOPIC_METADATA_CHANGE,
    "subscription has changed": Meaning.SUBSCRIPTION_CHANGE,
    "need to revoke partitions": Meaning.PARTITIONS_REVOKED,
    "the consumer is being closed": Meaning.CLOSED,
    "the consumer unsubscribed from all topics": Meaning.UNSUBSCRIBED,
    "consumer poll timeout has expired": Meaning.POLL_TIMEOUT,
    "member was removed by an admin": Meaning.REMOVED_BY_ADMIN,
    "removed by an admin": Meaning.REMOVED_BY_ADMIN,
    "group is already rebalancing": Meaning.ALREADY_REBALANCING,
    "need to re-join with the given member-id": Meaning.MEMBER_ID_GIVEN,
    "rebalance failed due to": Meaning.REBALANCE_FAILED,
}
"""How the words of Kafka's Java client begin (AbstractCoordinator, ConsumerCoordinator, KafkaAdminClient), and ours."""

ECHOES: set[Meaning | None] = {Meaning.ALREADY_REBALANCING, Meaning.MEMBER_ID_GIVEN, Meaning.REBALANCE_FAILED}
"""What a member says that joins because it was told to: no cause of anything."""


class Source(Enum):
    """Who says so: the client with its request (KIP-800, KIP-423), or the coordinator that inferred it."""

    __hash__ = object.__hash__  # as CauseKind's

    CLIENT = "client"
    INFERRED = "inferred"


# As those of `state`.
CLIENT, INFERRED = Source.CLIENT, Source.INFERRED


class Party(NamedTuple):
    """One of several members that caused a rebalance together."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class Cause(NamedTuple):
    """Who caused a rebalance, and how it is known.

    member_ids: usually one; several when they failed to sync together. members: who they are then, PARTIES_MAX at most.
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
    members: tuple[Party, ...] = ()

    @property
    def meaning(self) -> Meaning | None:
        """What the client's words mean, if that is certain."""
        return meaning_of(self.reason)

    @property
    def source(self) -> Source:
        """CLIENT if the client gave a reason of its own."""
        return CLIENT if self.reason or self.join_reason is not None else INFERRED


def meaning_of(reason: str) -> Meaning | None:
    """What a client's words mean; None if nobody can be sure."""
    if not reason:
        return None
    return next((meaning for start, meaning in MEANINGS.items() if reason.startswith(start)), None)
