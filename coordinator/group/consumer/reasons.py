"""Why the epoch of a group of the consumer protocol grows, as a cause (`group.causes`).

A cause names the member behind it, or the topics: those that were created, got partitions or were deleted, and those
that a subscription or a regular expression gained or lost. Topics are known by what the coordinator heard since the
last epoch; topics that changed while no coordinator had the group have no names.

House rule: one cause for one epoch.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group.causes import (
    PARTIES_MAX,
    TOPICS_MAX,
    Cause,
    CauseKind,
    Change,
    Meaning,
    Party,
    TopicChange,
    meaning_of,
)
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from coordinator.group.events import LeaveGroup
from coordinator.group.turn import Turn
from protocol.speed import new


def of_member(
    group: ConsumerGroup,
    kind: CauseKind,
    member: ConsumerMember,
    client: Client | None = None,
    topics: Collection[TopicChange] = (),
) -> Cause:
    """The cause that one member is. client: the sender of its request; None for a timer."""
    # A thousand members may join together, each with a cause of its own.
    changes = [*topics, *topic_changes(group)] if topics or group.changed_topics else ()
    return new(
        Cause,
        (
            kind,
            (member.member_id,),
            member.instance_id,
            member.client_id if client is None else client.id,
            member.client_host if client is None else client.host,
            "",
            None,
            None,
            (),
            ANONYMOUS if client is None else client.principal,
            tuple(changes[:TOPICS_MAX]),
            max(len(changes) - TOPICS_MAX, 0),
        ),
    )


def of_topics(kind: CauseKind, changes: Collection[TopicChange]) -> Cause:
    """The cause that topics are, whatever members do."""
    named = list(changes)
    return Cause(kind, topics=tuple(named[:TOPICS_MAX]), further_topics=max(len(named) - TOPICS_MAX, 0))


def topics_changed(turn: Turn, group: ConsumerGroup, names: Collection[str]) -> None:
    """Topics of these names changed, perhaps some that the group subscribes to.

    A topic whose partitions members hold, as many as it has, only got other settings.
    """
    topics = turn.topics
    change = Change.CREATED if topics.version == topics.created_version else Change.GROWN
    own = {name for name in names if group.is_subscribed(name)}
    for topic in topics.find(own):
        own.discard(topic.name)
        if len(group.holders.get(topic.topic_id, ())) != topic.partitions:
            group.note_topic(topic.name, change)
    for name in own:
        group.note_topic(name, Change.DELETED)


def topic_changes(group: ConsumerGroup) -> list[TopicChange]:
    """The topics that changed since the last epoch, as far as the coordinator knows."""
    return [TopicChange(name, change) for name, change in sorted(group.changed_topics.items())]


def differences(before: Collection[str], after: Collection[str]) -> list[TopicChange]:
    """The names that came and went."""
    came, went = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    return [TopicChange(name, Change.ADDED) for name in came] + [TopicChange(name, Change.REMOVED) for name in went]


def of_members(group: ConsumerGroup, kind: CauseKind, members: Collection[ConsumerMember]) -> Cause:
    """The cause that members are which go together."""
    one = of_member(group, kind, next(iter(members)))
    if len(members) == 1:
        return one
    parties = (Party(*each.named) for each in list(members)[:PARTIES_MAX])
    return one._replace(
        member_ids=tuple(each.member_id for each in members),
        group_instance_id=None,
        client_id="",
        client_host="",
        members=tuple(parties),
    )


def of_removal(group: ConsumerGroup, members: Collection[ConsumerMember], event: LeaveGroup, reason: str) -> Cause:
    """The cause that a LeaveGroup is. reason: of the last member that has one."""
    leave_themselves = (  # classic members, which name their own ids
        all(member.classic is not None for member in members)
        and all(identity.member_id for identity in event.leaving)
        and meaning_of(reason) is not Meaning.REMOVED_BY_ADMIN
    )
    kind = CauseKind.MEMBER_LEFT if leave_themselves else CauseKind.MEMBER_REMOVED
    return of_members(group, kind, members)._replace(reason=reason, api_version=event.version)
