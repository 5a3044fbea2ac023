"""Reconciliation: brings a member from what it has to what it shall have (Kafka: CurrentAssignmentBuilder).

First the member gives up what others shall have, and says so in a heartbeat; until then it stays at its epoch. Then it
comes to the epoch of the target and gets those of its partitions that nobody holds. It waits for the rest. So no
partition has two holders at any time.

House rule: pure arithmetic on values. The caller puts the result into the group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from coordinator.group.consumer.group import (
    NO_TARGET,
    NOTHING,
    SETTLED,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    ConsumerMember,
    Held,
    Target,
)

Owned = Mapping[UUID, frozenset[int]]
"""The partitions that a member says it owns."""


class Aim(NamedTuple):
    """The aim of a step: the target of a member.

    epoch: of the target. target: the member's. topic_ids: of the topics that it subscribes to.
    holders: topic id -> partition -> the member that holds it.
    changed: whether its subscription has just changed.
    """

    epoch: int
    target: Target
    topic_ids: Collection[UUID]
    holders: Mapping[UUID, Mapping[int, str]]
    changed: bool


def reconcile(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember | None:
    """The member after one step; the same member if there is none to take.

    None: it must give up everything and join again (FENCED_MEMBER_EPOCH). owned: None if the member did not say.
    """
    if not aim.changed and member.is_at(aim.epoch):
        return member
    if member.state is UNKNOWN:
        if owned is None or owned:
            return None
        return next_step(member, aim, owned, aim.epoch)
    if member.state is SETTLED and member.epoch == aim.epoch:
        return drop_unsubscribed(member, aim, owned)
    if member.state is UNREVOKED and holds(owned, member.revoking):
        return drop_unsubscribed(member, aim, owned) if aim.changed else member
    return next_step(member, aim, owned, member.epoch)


def next_step(member: ConsumerMember, aim: Aim, owned: Owned | None, epoch: int) -> ConsumerMember:
    """Revoke what the target takes away; if that is done, give what it adds and nobody holds."""
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, list[int]] = {}
    must_wait = False
    for topic_id in aim.target.keys() | member.assigned.keys():
        wanted = aim.target.get(topic_id, frozenset()) if topic_id in aim.topic_ids else frozenset()
        has = member.assigned.get(topic_id, {})
        stay = {partition: since for partition, since in has.items() if partition in wanted}
        if stay:
            kept[topic_id] = stay
        if len(stay) < len(has):
            revoking[topic_id] = {partition: since for partition, since in has.items() if partition not in wanted}
        own = member.revoking.get(topic_id, {})
        missing = [partition for partition in wanted if partition not in stay]
        taken = aim.holders.get(topic_id, {})
        free = [partition for partition in missing if partition not in taken or partition in own]
        must_wait = must_wait or len(free) < len(missing)
        if free:
            added[topic_id] = free
    if revoking and holds(owned, revoking):
        return member.moved_to(epoch)._replace(state=UNREVOKED, assigned=kept, revoking=revoking)
    for topic_id, partitions in added.items():
        kept[topic_id] = dict(kept.get(topic_id, {})) | dict.fromkeys(partitions, aim.epoch)
    state = UNRELEASED if must_wait else SETTLED
    return member.moved_to(aim.epoch)._replace(state=state, assigned=kept, revoking=NOTHING)


def drop_unsubscribed(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember:
    """Revoke partitions of topics that the member left; the next target follows later."""
    dropped = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in aim.topic_ids}
    if not dropped:
        return member
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in dropped}
    revoking: dict[UUID, Mapping[int, int]] = dict(member.revoking)
    for topic_id, held in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **held}
    if holds(owned, revoking):
        return member.moved_to(member.epoch)._replace(state=UNREVOKED, assigned=assigned, revoking=revoking)
    return member.moved_to(member.epoch)._replace(assigned=assigned)


def holds(owned: Owned | None, revoking: Held) -> bool:
    """Whether a member may still hold one of these partitions; it does unless it says otherwise."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, NO_TARGET)) for topic_id, partitions in owned.items())


def is_within(owned: Owned | None, assigned: Held) -> bool:
    """Whether a member says what it owns, and that is part of what it was given."""
    return owned is not None and all(
        topic_id in assigned and partitions <= assigned[topic_id].keys() for topic_id, partitions in owned.items()
    )
