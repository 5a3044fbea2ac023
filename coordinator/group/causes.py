"""Why a group rebalances, as a value.

A rule makes the cause where it decides to rebalance, from the member and the request. Notes carry the cause to log
lines and events. The core never reads a cause back, so a text for people can't change what happens. One reason does
decide: the number of KIP-423, which the rules read from the request itself (`join_reason_of`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple, Self

from coordinator.group.client import ANONYMOUS
from protocol.speed import HashedById

NO_JOIN_REASON = -1
"""The value of JoinGroup's tagged field 423 where the client sent none."""

PARTIES_MAX = 100
"""Most members that a cause names where several caused a rebalance together."""

JOIN, SYNC, LEAVE, HEARTBEAT = "JoinGroup", "SyncGroup", "LeaveGroup", "ConsumerGroupHeartbeat"
NO_REQUEST = "by the coordinator itself: a time was over, a setting changed, or it loaded the group"

TOPICS_MAX = 20
"""Most topics that a cause names: a regular expression may match thousands that come at once."""


class Words(NamedTuple):
    """The words for a kind of cause, and its meaning. name: in events.

    seen: what the coordinator saw, in log lines and timelines; {who} stands for the members. possible: the same, as one
    of several events that the log of groups allows, and as why a seat went to a standby. short: in an audit's table.
    request: the API behind it, or NO_REQUEST. also_by_heartbeat: in the consumer protocol a heartbeat is behind it.
    of_topics: topics are its reason; with any other kind, topics may have changed beside it.
    is_inference: the server knows that a member rejoined, and only the client knows why; the other kinds are facts.
    is_gone: the member is gone after it, and no member has its member id again.
    """

    name: str
    seen: str
    possible: str
    short: str
    request: str
    also_by_heartbeat: bool = False
    of_topics: bool = False
    is_inference: bool = False
    is_gone: bool = False


class CauseKind(HashedById):
    """The kinds of causes for which a group rebalances. The last six are of the consumer protocol alone.

    A kind has all its words here. mypy refuses a row that lacks one, and so does the import.
    """

    _value_: str
    words: Words

    def __new__(cls, *row: Any) -> Self:
        """Take the words of a kind. Its value is its name in events."""
        kind = object.__new__(cls)
        kind.words = Words(*row)
        kind._value_ = kind.words.name
        return kind

    MEMBER_JOINED = Words(
        "member_joined", "new member {who}", "a member joined", "joined", JOIN, also_by_heartbeat=True
    )
    MEMBER_REJOINED = Words(
        "member_rejoined",
        "member {who} joins again",
        "a member joined again",
        "member rejoined",
        JOIN,
        is_inference=True,
    )
    LEADER_REJOINED = Words(
        "leader_rejoined",
        "leader {who} joins again",
        "the leader joined again",
        "leader rejoined",
        JOIN,
        is_inference=True,
    )
    METADATA_CHANGED = Words(
        "metadata_changed",
        "member {who} joins with other metadata",
        "a member joined with other metadata",
        "subscription changed",
        JOIN,
        is_inference=True,
    )
    PROTOCOL_CHANGED = Words(
        "protocol_changed",
        "static member {who} joins anew and changes the selected protocol",
        "a static member joined anew and changed the selected protocol",
        "protocol changed",
        JOIN,
    )
    STATIC_MEMBER_REPLACED = Words(
        "static_member_replaced",
        "static member {who} joins anew before the assignment is known",
        "a static member joined anew before the assignment was known",
        "static member returned",
        JOIN,
    )
    MEMBER_LEFT = Words(
        "member_left", "member {who} leaves", "it left", "left", LEAVE, also_by_heartbeat=True, is_gone=True
    )
    MEMBER_REMOVED = Words(
        "member_removed",
        "member {who} is removed by an operator",
        "an operator removed it",
        "removed",
        LEAVE,
        is_gone=True,
    )
    MEMBER_EXPIRED = Words(
        "member_expired", "member {who} expired, no heartbeat", "its session ended", "expired", NO_REQUEST, is_gone=True
    )
    SYNC_TIMED_OUT = Words(
        "sync_timed_out",
        "no sync in time from {who}",
        "it did not sync in time",
        "no sync in time",
        NO_REQUEST,
        is_gone=True,
    )
    ASSIGNMENT_TOO_LARGE = Words(
        "assignment_too_large",
        "the assignment by leader {who} does not fit into a record",
        "the leader's assignment did not fit into a record",
        "assignment too large",
        SYNC,
    )
    GROUP_OVER_CAPACITY = Words(
        "group_over_capacity",
        "loaded with more members than group.max.size",
        "the group was loaded with more members than group.max.size",
        "over capacity",
        NO_REQUEST,
    )
    TARGET_SIZE_CHANGED = Words(
        "target_size_changed",
        "target.group.size changed",
        "target.group.size changed",
        "target size changed",
        NO_REQUEST,
    )
    SUBSCRIPTION_CHANGED = Words(
        "subscription_changed",
        "member {who} subscribes to other topics",
        "a member subscribed to other topics",
        "subscription changed",
        HEARTBEAT,
        of_topics=True,
    )
    TOPICS_CHANGED = Words(
        "topics_changed",
        "topics that the group subscribes to changed",
        "topics changed",
        "topics changed",
        HEARTBEAT,
        of_topics=True,
    )
    REGEX_RESOLVED = Words(
        "regex_resolved",
        "a regular expression matches other topics",
        "a regular expression matched other topics",
        "regular expression resolved",
        NO_REQUEST,
        of_topics=True,
    )
    REVOCATION_TIMED_OUT = Words(
        "revocation_timed_out",
        "member {who} did not give up its partitions in time",
        "it did not give up its partitions in time",
        "partitions not given up",
        NO_REQUEST,
        is_gone=True,
    )
    TARGET_INCOMPLETE = Words(
        "target_incomplete",
        "the assignment leaves out members or partitions",
        "the assignment left out members or partitions",
        "assignment incomplete",
        HEARTBEAT,
    )
    ASSIGNOR_CHANGED = Words(
        "assignor_changed",
        "member {who} votes, and another assignor wins",
        "a member voted, and another assignor won",
        "assignor changed",
        HEARTBEAT,
    )


GONE = frozenset(kind.value for kind in CauseKind if kind.words.is_gone)
"""Kinds, as events name them, after which a member is gone."""


class Change(HashedById):
    """The change of a topic that members subscribe to, or of a subscription to it."""

    CREATED = "created"
    GROWN = "grown"
    DELETED = "deleted"
    ADDED = "added"
    REMOVED = "removed"


CHANGES = {
    Change.CREATED: "created",
    Change.GROWN: "more partitions",
    Change.DELETED: "deleted",
    Change.ADDED: "new",
    Change.REMOVED: "gone",
}
"""How a topic changed, or the group's subscription to it, in words."""


class JoinReason(IntEnum):
    """The member's own reason to join (KIP-423)."""

    RESTART = 0
    TOPIC_METADATA_CHANGE = 1
    UPGRADE = 2


JOIN_REASONS = {int(reason): reason.name.lower().replace("_", " ") for reason in JoinReason}
"""The numbers of KIP-423, in words."""


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

SAY_NOTHING = frozenset({"", "member was removed by an admin", "removed by an admin"})
"""Reasons of a removal that give no reason: those of Kafka's KafkaAdminClient, and ours (KIP-800)."""


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


def topics_text(topics: Iterable[tuple[str, str]], further: int) -> str:
    """Topics with their changes, after a cause; empty without any. topics: names with words of CHANGES."""
    named = [f"{topic} ({how})" for topic, how in topics]
    if further:
        named.append(f"{further} more")
    return f": {', '.join(named)}" if named else ""


def reason_of(cause: Cause) -> str:
    """A cause in words: what the coordinator saw, and the client's own reason."""
    who = ", ".join(cause.member_ids)
    if cause.group_instance_id is not None:
        who = f"{who} with group instance id {cause.group_instance_id}"
    seen = cause.kind.words.seen
    if who:
        seen = seen.replace("{who}", who)
    elif "{who}" in seen:  # inferred: its generation left no record
        seen = f"{seen.replace(' {who}', '')}, the log doesn't say which"
    if cause.topics:
        topics = topics_text(((each.topic, CHANGES[each.change]) for each in cause.topics), cause.further_topics)
        seen += topics if cause.kind.words.of_topics else f", and topics changed{topics}"
    if cause.kind is CauseKind.MEMBER_REMOVED:
        # The operator's tool sent this reason, not the client. A default reason adds nothing.
        return seen if cause.reason in SAY_NOTHING else f"{seen}, who says: {cause.reason}"
    said = [cause.reason] if cause.reason else []
    if cause.join_reason is not None:
        said.append(JOIN_REASONS.get(cause.join_reason, f"number {cause.join_reason}"))
    if said:
        return f"{seen}; client reason: {', '.join(said)}"
    return f"{seen}; client reason: not provided" if cause.api_version is not None else seen
