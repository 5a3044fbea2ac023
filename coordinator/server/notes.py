"""Notes become log lines here; in one place, so that the lines, and what will be made of notes later, agree.

A text line says what Kafka's says, in the words that people grep for. A JSON line carries the note's name in snake_case
as `event` and its fields as they are, with a cause as an object (kind, member_ids, ..., source). Of the members before
and after a rebalance it has the numbers.

House rule: a note's name and its fields are an interface (design.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind, JoinReason
from coordinator.group.course import Outcome, Phase, Waited
from coordinator.group.events import Client
from coordinator.server.lines import Level, Lines

JOIN_REASONS = {int(reason): reason.name.lower().replace("_", " ") for reason in JoinReason}
"""What the numbers of KIP-423 mean."""

LEVELS = {
    notes.RebalanceStuck: Level.WARN,
    notes.MemberFenced: Level.WARN,
    notes.UnexpectedRequest: Level.WARN,
    notes.GroupTooLarge: Level.ERROR,
}
"""All others are INFO."""

# Before Python 3.12, naming an enum's member is a call.
INFO = Level.INFO

_happened = itemgetter(1)


SEEN = {
    CauseKind.MEMBER_JOINED: "new member {who}{instance}",
    CauseKind.MEMBER_REJOINED: "member {who}{instance} joins again",
    CauseKind.LEADER_REJOINED: "leader {who}{instance} joins again",
    CauseKind.METADATA_CHANGED: "member {who}{instance} joins with other metadata",
    CauseKind.PROTOCOL_CHANGED: "static member {who}{instance} joins anew and changes the selected protocol",
    CauseKind.STATIC_MEMBER_REPLACED: "static member {who}{instance} joins anew before the assignment is known",
    CauseKind.MEMBER_LEFT: "member {who}{instance} leaves",
    CauseKind.MEMBER_REMOVED: "member {who}{instance} is removed by an operator",
    CauseKind.MEMBER_EXPIRED: "member {who}{instance} expired, no heartbeat",
    CauseKind.SYNC_TIMED_OUT: "no sync in time from {who}{instance}",
    CauseKind.ASSIGNMENT_TOO_LARGE: "the assignment by leader {who}{instance} does not fit into a record",
    CauseKind.GROUP_OVER_CAPACITY: "loaded with more members than group.max.size",
}
"""What the coordinator saw, of each cause."""


SAY_NOTHING = frozenset({"", "member was removed by an admin", "removed by an admin"})
"""Reasons of a removal whose operator gave none: those of Kafka's KafkaAdminClient, and ours (KIP-800)."""


OUTCOMES = {
    Outcome.COMPLETED: "every member has its assignment",
    Outcome.EMPTIED: "nobody is left",
    Outcome.SUPERSEDED: "another one starts before the assignments are known",
    Outcome.UNLOADED: "the partition goes away",
}
"""How a rebalance ended, in words."""


class NoteLines:
    """Writes notes as log lines.

    also: who else is told of them, behind the lines.
    """

    def __init__(self, lines: Lines, *also: Callable[[Sequence[notes.Note]], None]) -> None:
        self._lines = lines
        self._also = also

    def take(self, noted: Sequence[tuple[int, Sequence[notes.Note]]]) -> None:
        """Write what happened, with one write: notes of groups, each time with their partition."""
        if self._lines.has_fields:
            self._lines.put([self._object(partition, note) for partition, happened in noted for note in happened])
        else:
            self._lines.put_texts(
                [
                    (LEVELS.get(type(note), INFO), text_of(note, partition))
                    for partition, happened in noted
                    for note in happened
                ]
            )
        told = list(chain.from_iterable(map(_happened, noted)))
        for take in self._also:
            take(told)

    def _object(self, partition: int, note: notes.Note) -> str:
        kind = type(note)
        fields = {"partition": partition} | {name: _field(note, name) for name in kind.FIELDS}
        level = LEVELS.get(kind, INFO)
        return self._lines.object_line(level, event_name(kind.__name__), text_of(note, partition), fields)


@cache
def event_name(class_name: str) -> str:
    """The stable name of a note by its class: rebalance_started for RebalanceStarted."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def _field(note: notes.Note, name: str) -> Any:
    """A field as a line has it."""
    value = getattr(note, name)
    return len(value) if name in {"before", "after"} else plain(value)


def plain(value: Any) -> Any:
    """A field of a note as JSON has it."""
    if isinstance(value, Cause):
        return {
            "kind": value.kind.value,
            "member_ids": value.member_ids,
            "group_instance_id": value.group_instance_id,
            "client_id": value.client_id,
            "client_host": value.client_host,
            "source": value.source.value,
            "reason": value.reason,
            "meaning": None if value.meaning is None else value.meaning.value,
            "join_reason": value.join_reason,
            "api_version": value.api_version,
        } | ({"members": plain(value.members)} if value.members else {})
    if isinstance(value, Client):
        return {"client_id": value.id, "client_host": value.host}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        parts = [plain(part) for part in value]
        return parts if fields is None else dict(zip(fields, parts, strict=True))
    return value


def reason_of(cause: Cause) -> str:
    """A cause in words: what the coordinator saw, and what the client says about it."""
    who = ", ".join(cause.member_ids)
    instance = "" if cause.group_instance_id is None else f" with group instance id {cause.group_instance_id}"
    seen = SEEN[cause.kind].format(who=who, instance=instance)
    if cause.kind is CauseKind.MEMBER_REMOVED:
        # The reason is the operator's tool's, not the client's; of one that was given none it says what is seen anyway.
        return seen if cause.reason in SAY_NOTHING else f"{seen}, who says: {cause.reason}"
    said = [cause.reason] if cause.reason else []
    if cause.join_reason is not None:
        said.append(JOIN_REASONS.get(cause.join_reason, f"number {cause.join_reason}"))
    if said:
        return f"{seen}; client reason: {', '.join(said)}"
    return f"{seen}; client reason: not provided" if cause.api_version is not None else seen


def _waited_text(waited: Waited | None) -> str:
    if waited is None:
        return ""
    what = "to join" if waited.phase is Phase.PREPARING else "to assign"
    return f"; waited longest for {waited.member_id} {what}, {waited.ms} ms"


def text_of(note: notes.Note, partition: int) -> str:
    """A note in words."""
    group, place = note.group, f"(__consumer_offsets-{partition})"
    match note:
        case notes.RebalanceStarted():
            return (
                f"Preparing to rebalance group {group} in state PreparingRebalance with old generation "
                f"{note.generation} {place} (reason: {reason_of(note.cause)}; from state {note.state})"
            )
        case notes.RebalanceCause():
            return f"Group {group} is preparing to rebalance already; another reason: {reason_of(note.cause)}"
        case notes.GenerationStarted():
            return f"Stabilized group {group} generation {note.generation} {place} with {note.members} members"
        case notes.RebalanceCompleted():
            text = (
                f"Assignment received from leader {note.leader} for group {group} for generation {note.generation}. "
                f"The group has {note.members} members, {note.static_members} of which are static."
            )
            if note.without_assignment:
                text += f" Without an assignment: {', '.join(note.without_assignment)}."
            return text
        case notes.RebalanceEnded():
            return (
                f"Rebalance of group {group} from generation {note.generation_before} {place} is over: "
                f"{OUTCOMES[note.outcome]}{_waited_text(note.waited_for)}"
            )
        case notes.RebalanceStuck():
            return f"Group {group} could not complete rebalance because no members rejoined"
        case notes.GroupEmptied():
            return f"Group {group} with generation {note.generation} is now empty {place}"
        case notes.GroupLoaded():
            return (
                f"Loading group metadata for {group} with generation {note.generation} {place}: {note.state}, "
                f"{note.members} members"
            )
        case notes.GroupUnloaded():
            undone = "" if note.undone_since_ms is None else ": its last changes could not be written and are undone"
            return f"Unloading group metadata for {group} with generation {note.generation} {place}{undone}"
        case notes.GroupDeleted(expired=True):
            return f"Group {group} transitioned to Dead in generation {note.generation}"
        case notes.GroupDeleted():
            return f"Group {group} was deleted. A total of {note.offsets} offsets were removed."
        case notes.MemberPending():
            return (
                f"Dynamic member with unknown member id joins group {group}. Created a new member id "
                f"{note.member_id}, with which the member has to join again (client {note.client_id}, "
                f"{note.client_host})"
            )
        case notes.PendingExpired(left=True):
            return f"Pending member {note.member_id} has left group {group} through explicit `LeaveGroup`"
        case notes.PendingExpired():
            return (
                f"Pending member {note.member_id} in group {group} has been removed after session timeout expiration."
            )
        case notes.MemberJoined(group_instance_id=None):
            return (
                f"Dynamic member {note.member_id} joins group {group}. Adding to the group now "
                f"(client {note.client_id}, {note.client_host})"
            )
        case notes.MemberJoined():
            return (
                f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group "
                f"{group}. Created a new member id {note.member_id} for this member and added it to the group "
                f"(client {note.client_id}, {note.client_host})"
            )
        case notes.MemberReplaced():
            return (
                f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group "
                f"{group} in {note.state} state. Replacing previously mapped member {note.old_member_id} with "
                f"{note.member_id} (client {note.client_id}, {note.client_host})"
            )
        case notes.MemberFenced():
            return (
                f"Request memberId={note.member_id} for static member with groupInstanceId={note.group_instance_id} "
                f"is fenced by current memberId={note.current_member_id} during operation {note.operation} "
                f"in group {group}"
            )
        case notes.MemberLeft():
            return (
                f"Member {note.member_id} has left group {group} through explicit `LeaveGroup`; client reason: "
                f"{note.reason or 'not provided'}"
            )
        case notes.MemberExpired():
            static = "" if note.group_instance_id is None else f" with groupInstanceId={note.group_instance_id}"
            return (
                f"Member {note.member_id}{static} in group {group} has been removed after session timeout expiration "
                f"(client {note.client_id}, {note.client_host})"
            )
        case notes.MembersDropped():
            return f"Group {group} removed members {', '.join(note.member_ids)}: {note.why}"
        case notes.LeaderElected():
            return f"Group {group}: leader {note.old_leader} did not rejoin in time, {note.leader} leads now"
        case notes.OffsetsCreatedGroup():
            return f"Creating simple consumer group {group} via manual offset commit."
        case notes.OffsetsRemoved():
            what = ", ".join(f"{topic}-{index}" for topic, index in note.topic_partitions)
            return f"Group {group}: {'expired' if note.expired else 'deleted'} committed offsets of {what}"
        case notes.GroupTooLarge():
            return (
                f"Group {group} would need a record of {note.size} bytes, message.max.bytes is {note.limit}: refused, "
                f"the group stays as it was"
            )
        case notes.UnexpectedRequest():
            return f"Group {group} refused a request of member {note.member_id}: {note.detail}"
    raise AssertionError(note)
