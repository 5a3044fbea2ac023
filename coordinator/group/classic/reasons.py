"""Causes, made from the member and the request that start a rebalance.

House rule: a rule makes the cause where it decides. Only one reason decides anything: the number of KIP-423
(`join_reason_of`), which the rules read from the request itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

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
from coordinator.group.events import JoinGroup
from coordinator.group.group import Group, Member, subscribed_topics
from protocol.consumer import CONSUMER
from protocol.speed import new

CONTENTS_MAX = 100
"""Protocols of a member whose metadata are decoded to compare them. Consumers have a handful."""


def says_why(event: JoinGroup, *, is_asked: bool) -> bool:
    """Whether a JoinGroup gives a reason other than that the group is rebalancing.

    is_asked: as of Member. A client has its own words for that, so no text of a member that was asked counts.
    """
    if event.body.join_reason != NO_JOIN_REASON:
        return True
    reason = event.body.reason or ""
    return reason != "" and not is_asked and meaning_of(reason) not in ECHOES


def join_reason_of(event: JoinGroup, *, leads: bool) -> JoinReason | None:
    """The reason of a JoinGroup that the rules follow (KIP-423); None: they act as without a reason.

    Kafka's own rules come first. Only the leader watches the topics for the group, so a topic change is None from any
    other member. A number without a meaning is None too.
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
    """Whether a member that joins again, with other protocols, wants something else than before.

    For a consumer that means other topics or other assignors. Its metadata differ with each rebalance anyway: they name
    the partitions it owns, and since which generation (KIP-429, KIP-792). Of a member that the log restored only the
    selected protocol is known. So many changed metadata that comparing their contents takes long count as other ones.
    """
    now = dict(protocols)
    if member.joined_by is not None and [name for name, _ in member.protocols] != list(now):
        return True
    if not all(name in now for name, _ in member.protocols):
        return True
    differing = ((said, now[name]) for name, said in member.protocols if said != now[name])
    changed = list(islice(differing, CONTENTS_MAX + 1))
    return len(changed) > CONTENTS_MAX or any(
        _content(protocol_type, was) != _content(protocol_type, said) for was, said in changed
    )


def wants_other_topics(group: Group, former: list[tuple[str, bytes]], member: Member) -> bool:
    """Whether a consumer's metadata for the group's protocol name other topics than before; False if unknown."""
    name = group.protocol_name
    if name is None or group.protocol_type != CONSUMER:
        return False
    was, now = dict(former).get(name), member.metadata(name)
    if was is None or was == now:
        return False
    topics = subscribed_topics(now)
    return topics is not None and topics != subscribed_topics(was)


def _content(protocol_type: str | None, metadata: bytes) -> frozenset[str] | bytes:
    """The topics of a consumer's metadata; the bytes themselves if they can't be read or are no consumer's."""
    topics = subscribed_topics(metadata) if protocol_type == CONSUMER else None
    return metadata if topics is None else topics


def rejoined(*, leads: bool) -> CauseKind:
    """The kind of cause if a member joins again and nothing about it changed."""
    return CauseKind.LEADER_REJOINED if leads else CauseKind.MEMBER_REJOINED


def by_join(kind: CauseKind, member: Member, event: JoinGroup) -> Cause:
    """The cause: `member` with its JoinGroup."""
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
            event.client.principal,
            (),
            0,
        ),
    )


def by_members(kind: CauseKind, member_ids: tuple[str, ...], members: Sequence[Member]) -> Cause:
    """The cause: several members. member_ids: theirs, and former ids that are gone."""
    if len(members) == 1:
        return by_member(kind, members[0])
    parties = tuple(Party(*member.named, member.principal) for member in members[:PARTIES_MAX])
    return Cause(kind, member_ids, members=parties)


def by_member(kind: CauseKind, member: Member, reason: str = "", api_version: int | None = None) -> Cause:
    """The cause: `member` itself, which left (with a request of `api_version`) or expired."""
    return Cause(
        kind,
        (member.member_id,),
        member.group_instance_id,
        *member.client,
        reason,
        api_version=api_version,
        principal=member.principal,
    )
