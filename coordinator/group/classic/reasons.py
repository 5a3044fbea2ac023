"""Why a group rebalances: causes made from the member and the request that led to them.

House rule: a cause is made where the decision falls. The one reason that decides anything is KIP-423's number
(`join_reason_of`), which the rules read from the request itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator.group.causes import (
    ECHOES,
    NO_JOIN_REASON,
    PARTIES_MAX,
    Cause,
    CauseKind,
    JoinReason,
    Party,
    meaning_of,
)
from coordinator.group.group import subscribed_topics
from protocol.consumer import CONSUMER
from protocol.tuples import new

if TYPE_CHECKING:
    from coordinator.group.events import JoinGroup
    from coordinator.group.group import Group, Member


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
