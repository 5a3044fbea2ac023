"""Makes the events of the inference. Their classes are those of `coordinator.story.events`.

House rule: a field whose value only a coordinator knows is null or empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from coordinator.group import notes
from coordinator.group.causes import TOPICS_MAX, Origin
from coordinator.group.course import CAUSES_MAX, Outcome, Snapshot
from coordinator.story.events import Cause, GroupEvent, RebalanceEnded, TopicChange
from coordinator.story.inference.seen import Member, Seen
from coordinator.story.making import ended_of, event_of
from coordinator.story.schema import UNKNOWN, TimedNote
from protocol.messages import ConsumerGroupMemberMetadataValue


def cause_of(
    kind: str, member_ids: Sequence[str] = (), member: Member | None = None, possible: Sequence[str] = ()
) -> Cause:
    """A cause. possible: the kinds that fit, where `kind` is UNKNOWN."""
    return Cause(
        kind=kind,
        member_ids=list(member_ids) if member is None else [member.member_id],
        group_instance_id=None if member is None else member.group_instance_id,
        client_id="" if member is None else member.client_id,
        client_host="" if member is None else member.client_host,
        source=Origin.INFERRED.value,
        reason="",
        meaning=None,
        join_reason=None,
        api_version=None,
        possible=list(possible) if possible or kind == UNKNOWN else UNSET,
    )


def unknown(possible: Sequence[str], member: Member | None = None) -> Cause:
    """A cause of one of the possible kinds; of that kind if it is only one."""
    if len(possible) == 1:
        return cause_of(possible[0], member=member)
    return cause_of(UNKNOWN, member=member, possible=possible)


def client_cause(
    kind: str,
    name: str | None = None,
    said: ConsumerGroupMemberMetadataValue | None = None,
    *,
    possible: Sequence[str] = (),
) -> Cause:
    """A cause in a group of the consumer protocol: a member by its id and record."""
    made = cause_of(kind, () if name is None else (name,), possible=possible)
    if said is None:
        return made
    return replace(made, group_instance_id=said.instance_id, client_id=said.client_id, client_host=said.client_host)


def with_topics(cause: Cause, changes: list[TopicChange]) -> Cause:
    """A cause with the topics that changed."""
    if not changes:
        return cause
    return replace(cause, topics=changes[:TOPICS_MAX], further_topics=max(len(changes) - TOPICS_MAX, 0) or UNSET)


def subscribed(former: Collection[str], topics: Collection[str]) -> list[TopicChange]:
    """The changes of a subscription."""
    return [
        *(TopicChange(topic, "added") for topic in sorted(set(topics) - set(former))),
        *(TopicChange(topic, "removed") for topic in sorted(set(former) - set(topics))),
    ]


def event(at_ms: int, note: notes.Note, **other: Any) -> GroupEvent:
    """The event of a note, marked as inferred. other: fields with other values than the note's."""
    made = event_of(TimedNote(at_ms, note))
    assert isinstance(made, GroupEvent)
    return replace(made, inferred=True, **other)


def snapshots(seen: Seen | None) -> tuple[Snapshot, ...]:
    """The members of a record."""
    if seen is None:
        return ()
    return tuple(
        Snapshot(
            member.member_id, member.group_instance_id, member.client_id, member.client_host, bytes(member.assignment)
        )
        for member in seen.value.members
    )


def ended(
    group: str, before: Seen | None, seen: Seen, generation_before: int, causes: list[Cause], *, in_order: bool
) -> RebalanceEnded:
    """The end of a rebalance that led to a record."""
    is_empty = not seen.value.members
    began_ms = max(seen.joined_ms, 0)
    was_empty = before is None or not before.value.members
    note = notes.RebalanceEnded(
        group, seen.value.generation, Outcome.EMPTIED if is_empty else Outcome.COMPLETED, generation_before,
        "Empty" if was_empty else "Stable", (), 0, began_ms, 0,
        None if is_empty else max(seen.ts - began_ms, 0), None, (), (),
        seen.value.leader, seen.value.protocol_type, seen.value.protocol,
        snapshots(before), snapshots(seen),
    )  # fmt: skip
    return ended_event(seen.ts, note, causes, in_order=in_order, preparing_ms=None)


def superseded(group: str, before: Seen | None, at_ms: int, generation_before: int, cause: Cause) -> RebalanceEnded:
    """A rebalance whose generation left no record, because the next one began before its assignments came."""
    members = snapshots(before)
    first = before is not None and generation_before == before.value.generation
    state = ("Stable" if members else "Empty") if first or before is None else "CompletingRebalance"
    note = notes.RebalanceEnded(
        group, generation_before + 1, Outcome.SUPERSEDED, generation_before, state, (), 0, at_ms, 0, None, None,
        (), (), None, None, None, members, (),
    )  # fmt: skip
    return ended_event(at_ms, note, [cause], in_order=True, preparing_ms=None)


def ended_event(
    at_ms: int, note: notes.RebalanceEnded, causes: list[Cause], *, in_order: bool, **other: Any
) -> RebalanceEnded:
    """The end of a rebalance with these causes. in_order: whether the first one is known to have started it."""
    return replace(
        ended_of(at_ms, note),
        inferred=True,
        causes=causes[:CAUSES_MAX],
        further_causes=max(len(causes) - CAUSES_MAX, 0),
        causes_in_order=UNSET if in_order else False,
        **other,
    )
