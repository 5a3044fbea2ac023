"""Makes the events of the inference. Their form is that of `coordinator.story.schema`.

House rule: a field whose value only a coordinator knows is null or empty.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.group import notes
from coordinator.group.course import CAUSES_MAX, Outcome, Snapshot
from coordinator.story.schema import UNKNOWN, RebalanceEvent, TimedNote, record_of

if TYPE_CHECKING:
    from coordinator.story.inference.seen import Member, Seen
    from protocol.messages import ConsumerGroupMemberMetadataValue


def cause_of(
    kind: str, member_ids: Sequence[str] = (), member: Member | None = None, possible: Sequence[str] = ()
) -> dict[str, Any]:
    """A cause as a JSON object. possible: the kinds that fit, where `kind` is UNKNOWN."""
    made = {
        "kind": kind,
        "member_ids": list(member_ids) if member is None else [member.member_id],
        "group_instance_id": None if member is None else member.group_instance_id,
        "client_id": "" if member is None else member.client_id,
        "client_host": "" if member is None else member.client_host,
        "source": "inferred",
        "reason": "",
        "meaning": None,
        "join_reason": None,
        "api_version": None,
    }
    return made | {"possible": list(possible)} if possible or kind == UNKNOWN else made


def unknown(possible: Sequence[str], member: Member | None = None, member_ids: Sequence[str] = ()) -> dict[str, Any]:
    """A cause of one of the possible kinds; of that kind if it is only one."""
    if len(possible) == 1:
        return cause_of(possible[0], member_ids, member)
    return cause_of(UNKNOWN, member_ids, member, possible)


def client_cause(
    kind: str,
    name: str | None = None,
    said: ConsumerGroupMemberMetadataValue | None = None,
    *,
    possible: Sequence[str] = (),
) -> dict[str, Any]:
    """A cause in a group of the consumer protocol: a member by its id and record."""
    made = cause_of(kind, () if name is None else (name,), possible=possible)
    if said is not None:
        made |= {
            "group_instance_id": said.instance_id, "client_id": said.client_id, "client_host": said.client_host,
        }  # fmt: skip
    return made


def event(at_ms: int, note: notes.Note) -> RebalanceEvent:
    """The event of a note, marked as inferred."""
    said = record_of(TimedNote(at_ms, note), 0, at_ms).value
    assert said is not None
    made: RebalanceEvent = json.loads(said)
    del made["node"]
    return made | {"inferred": True}


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
    group: str, before: Seen | None, seen: Seen, generation_before: int, causes: list[dict[str, Any]], *, in_order: bool
) -> RebalanceEvent:
    """The end of a rebalance that led to a record."""
    is_empty = not seen.value.members
    began_ms = max(seen.joined_ms, 0)
    was_empty = before is None or not before.value.members
    made = event(
        seen.ts,
        notes.RebalanceEnded(
            group, seen.value.generation, Outcome.EMPTIED if is_empty else Outcome.COMPLETED, generation_before,
            "Empty" if was_empty else "Stable", (), 0, began_ms, 0,
            None if is_empty else max(seen.ts - began_ms, 0), None, (), (),
            seen.value.leader, seen.value.protocol_type, seen.value.protocol,
            snapshots(before), snapshots(seen),
        ),
    )  # fmt: skip
    return made | causes_fields(causes, in_order=in_order) | {"preparing_ms": None}


def superseded(
    group: str, before: Seen | None, at_ms: int, generation_before: int, cause: dict[str, Any]
) -> RebalanceEvent:
    """A rebalance whose generation left no record, because the next one began before its assignments came."""
    members = snapshots(before)
    first = before is not None and generation_before == before.value.generation
    state = ("Stable" if members else "Empty") if first or before is None else "CompletingRebalance"
    made = event(
        at_ms,
        notes.RebalanceEnded(
            group, generation_before + 1, Outcome.SUPERSEDED, generation_before, state, (), 0, at_ms, 0, None, None,
            (), (), None, None, None, members, (),
        ),
    )  # fmt: skip
    return made | causes_fields([cause], in_order=True) | {"preparing_ms": None}


def causes_fields(causes: list[dict[str, Any]], *, in_order: bool) -> dict[str, Any]:
    """The fields of an event about its causes."""
    shown = {"causes": causes[:CAUSES_MAX], "further_causes": max(len(causes) - CAUSES_MAX, 0)}
    return shown if in_order else shown | {"causes_in_order": False}
