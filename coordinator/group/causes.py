"""Why a group rebalances, as a value.

A rule makes the cause where it decides to rebalance, from the member and the request. Notes carry the cause to log
lines and events. The core never reads a cause back, so a text for people can't change what happens. One reason does
decide: the number of KIP-423, which the rules read from the request itself (`join_reason_of`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from coordinator.group.client import ANONYMOUS
from protocol.speed import HashedById

NO_JOIN_REASON = -1
"""The value of JoinGroup's tagged field 423 where the client sent none."""

PARTIES_MAX = 100
"""Most members that a cause names where several caused a rebalance together."""

TOPICS_MAX = 20
"""Most topics that a cause names: a regular expression may match thousands that come at once."""


class CauseKind(HashedById):
    """The kinds of causes for which a group rebalances. The last six are of the consumer protocol alone."""

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
    TARGET_SIZE_CHANGED = "target_size_changed"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    TOPICS_CHANGED = "topics_changed"
    REGEX_RESOLVED = "regex_resolved"
    REVOCATION_TIMED_OUT = "revocation_timed_out"
    TARGET_INCOMPLETE = "target_incomplete"
    ASSIGNOR_CHANGED = "assignor_changed"


class Change(HashedById):
    """The change of a topic that members subscribe to, or of a subscription to it."""

    CREATED = "created"
    GROWN = "grown"
    DELETED = "deleted"
    ADDED = "added"
    REMOVED = "removed"


class JoinReason(IntEnum):
    """The member's own reason to join (KIP-423)."""

    RESTART = 0
    TOPIC_METADATA_CHANGE = 1
    UPGRADE = 2


class Meaning(HashedById):
    """The meaning of a client's free-text reason (KIP-800), where the text is certain."""

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
    "rejoining from normal rebalance": Meaning.ALREADY_REBALANCING,
    "rejoining after we previously errored": Meaning.REBALANCE_FAILED,
    "cooperative rejoin after revoking": Meaning.PARTITIONS_REVOKED,
    "client leaving group per normal operation": Meaning.CLOSED,
}
"""How texts begin that clients always send alike: Kafka's Java client (AbstractCoordinator, ConsumerCoordinator,
KafkaAdminClient), our own commands, and franz-go (kgo, consumer_group.go).
"""

ECHOES: set[Meaning | None] = {Meaning.ALREADY_REBALANCING, Meaning.MEMBER_ID_GIVEN, Meaning.REBALANCE_FAILED}
"""Reasons of a member that joins because the coordinator asked it to. They are the cause of nothing."""


class Origin(HashedById):
    """Where a reason comes from: the client sent it (KIP-800, KIP-423), or the coordinator inferred it."""

    CLIENT = "client"
    INFERRED = "inferred"


# Short names: see `speed`.
CLIENT, INFERRED = Origin.CLIENT, Origin.INFERRED


class Party(NamedTuple):
    """One of several members that caused a rebalance together."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str = ANONYMOUS


class TopicChange(NamedTuple):
    """A topic that is part of a cause."""

    topic: str
    change: Change


class Cause(NamedTuple):
    """A cause of a rebalance, and how the coordinator knows it.

    member_ids: the members that caused it; usually one, several when they failed to sync together.
    members: the same members with their clients, PARTIES_MAX at most, where there are several.
    reason: the client's free-text reason (KIP-800), "" if it sent none.
    join_reason: the number of KIP-423, None if the client sent none.
    api_version: version of the JoinGroup or LeaveGroup that caused it; None for a timer, and for a heartbeat.
    principal: of the client.
    topics: topics that changed, TOPICS_MAX at most. further_topics: how many others did.
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
    principal: str = ANONYMOUS
    topics: tuple[TopicChange, ...] = ()
    further_topics: int = 0

    @property
    def meaning(self) -> Meaning | None:
        """The meaning of the client's reason, if it is certain."""
        return meaning_of(self.reason)

    @property
    def source(self) -> Origin:
        """CLIENT if the client gave a reason."""
        return CLIENT if self.reason or self.join_reason is not None else INFERRED


def meaning_of(reason: str) -> Meaning | None:
    """The meaning of a client's reason; None if it is not certain."""
    if not reason:
        return None
    return next((meaning for start, meaning in MEANINGS.items() if reason.startswith(start)), None)
