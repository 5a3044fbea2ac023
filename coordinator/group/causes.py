"""Why a group rebalances, as a value.

A cause is made where the decision falls, from the member and the request that led to it, and travels in notes. It is
never read back by the core: what people are told must not be able to change what happens. The one reason that decides
anything is KIP-423's number (`join_reason_of`), which the rules read from the request itself.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group.group import CONSUMER, subscribed_topics
from coordinator.group.tuples import new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.group.events import JoinGroup
    from coordinator.group.group import Group, Member

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


def says_why(event: JoinGroup) -> bool:
    """Whether a JoinGroup gives a reason beside that the group is rebalancing, which all its members join for."""
    if event.body.join_reason != NO_JOIN_REASON:
        return True
    reason = event.body.reason or ""
    return reason != "" and meaning_of(reason) not in ECHOES


def join_reason_of(event: JoinGroup, *, leads: bool) -> JoinReason | None:
    """The reason of a JoinGroup that decides (KIP-423); None is unknown: the rules are as without one.

    What Kafka's own rules say goes before it. Only the leader watches the topics for the group, so their change is
    unknown from any other member; so is a number that nobody has given a meaning.
    """
    match event.body.join_reason:
        case JoinReason.RESTART:
            return JoinReason.RESTART
        case JoinReason.UPGRADE:
            return JoinReason.UPGRADE
        case JoinReason.TOPIC_METADATA_CHANGE if leads:
            return JoinReason.TOPIC_METADATA_CHANGE
    return None


def wants_other(protocol_type: str | None, member: Member, protocols: list[tuple[str, bytes]]) -> bool:
    """Whether a member that joins again, with other protocols than before, wants something else than before.

    Of a consumer that is what topics it subscribes to, and how they are to be assigned. Its metadata differ with each
    rebalance anyway: they say what it owns, and since which generation (KIP-429, KIP-792). Of a member that was read
    from the log only the chosen protocol is known.
    """
    now = dict(protocols)
    if member.joined_by is not None and [name for name, _ in member.protocols] != list(now):
        return True
    return any(
        name not in now or _content(protocol_type, said) != _content(protocol_type, now[name])
        for name, said in member.protocols
    )


def wants_other_topics(group: Group, former: list[tuple[str, bytes]], member: Member) -> bool:
    """Whether a consumer's metadata for the group's protocol name other topics than before; of others nobody knows."""
    name = group.protocol_name
    if name is None or group.protocol_type != CONSUMER:
        return False
    was, now = dict(former).get(name), member.metadata(name)
    if was is None or was == now:
        return False
    topics = subscribed_topics(now)
    return topics is not None and topics != subscribed_topics(was)


def _content(protocol_type: str | None, metadata: bytes) -> frozenset[str] | bytes:
    """The topics of a consumer's metadata; of others', and of what can't be read, all of it."""
    topics = subscribed_topics(metadata) if protocol_type == CONSUMER else None
    return metadata if topics is None else topics


def rejoined(*, leads: bool) -> CauseKind:
    """The cause that lies in a member's joining again, if nothing about it changed."""
    return CauseKind.LEADER_REJOINED if leads else CauseKind.MEMBER_REJOINED


def by_join(kind: CauseKind, member: Member, event: JoinGroup) -> Cause:
    """The cause that lies in a JoinGroup of `member`."""
    join_reason = event.body.join_reason
    return new(
        Cause,
        (
            kind,
            (member.member_id,),
            member.group_instance_id,
            event.client.id,
            event.client.host,
            event.body.reason or "",
            None if join_reason == NO_JOIN_REASON else join_reason,
            event.version,
            (),
        ),
    )


def by_members(kind: CauseKind, member_ids: tuple[str, ...], members: Sequence[Member]) -> Cause:
    """The cause that lies in members together; member_ids: theirs, and of who was one under an id that is gone."""
    if len(members) == 1:
        return by_member(kind, members[0])
    parties = tuple(
        Party(member.member_id, member.group_instance_id, *member.client) for member in members[:PARTIES_MAX]
    )
    return Cause(kind, member_ids, members=parties)


def by_member(kind: CauseKind, member: Member, reason: str = "", api_version: int | None = None) -> Cause:
    """The cause that lies in `member` itself: it left (with a request of `api_version`), or expired."""
    return Cause(
        kind,
        (member.member_id,),
        member.group_instance_id,
        *member.client,
        reason,
        api_version=api_version,
    )
