"""The texts of log lines, made from notes. They keep Kafka's wording, because people and scripts search for it.

`reason_of` puts a cause in words, for log lines and timelines.

House rule: where Kafka has a wording, it is Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind, Change, JoinReason
from coordinator.group.client import ANONYMOUS
from coordinator.group.course import Outcome, Phase, Waited

JOIN_REASONS = {int(reason): reason.name.lower().replace("_", " ") for reason in JoinReason}
"""The numbers of KIP-423, in words."""

SAY_NOTHING = frozenset({"", "member was removed by an admin", "removed by an admin"})
"""Reasons of a removal that give no reason: those of Kafka's KafkaAdminClient, and ours (KIP-800)."""

OUTCOMES = {
    Outcome.COMPLETED: "every member has its assignment",
    Outcome.EMPTIED: "nobody is left",
    Outcome.SUPERSEDED: "another one starts before the assignments are known",
    Outcome.UNLOADED: "the partition goes away",
}
"""How a rebalance ended, in words."""


CHANGES = {
    Change.CREATED: "created",
    Change.GROWN: "more partitions",
    Change.DELETED: "deleted",
    Change.ADDED: "new",
    Change.REMOVED: "gone",
}
"""How a topic changed, or the group's subscription to it, in words."""


AWAITED = {
    Phase.PREPARING: "to join",
    Phase.COMPLETING: "to assign",
    Phase.REVOKING: "to give up partitions",
    Phase.ACKNOWLEDGING: "to take its new assignment",
}
"""The steps of a member that a group waits for, in words."""


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


def _waited_text(waited: Waited | None) -> str:
    if waited is None:
        return ""
    who = waited.member_id if waited.group_instance_id is None else waited.group_instance_id
    return f"; waited longest for {who} {AWAITED[waited.phase]}, {waited.ms} ms"


def _as(principal: str) -> str:
    """The principal of a client that authenticated."""
    return "" if principal == ANONYMOUS else f", {principal}"


def _completed_text(note: notes.RebalanceCompleted, _: str) -> str:
    text = (
        f"Assignment received from leader {note.leader} for group {note.group} for generation {note.generation}. "
        f"The group has {note.members} members, {note.static_members} of which are static."
    )
    return f"{text} Without an assignment: {', '.join(note.without_assignment)}." if note.without_assignment else text


def _joined_text(note: notes.MemberJoined, _: str) -> str:
    client = f"(client {note.client_id}, {note.client_host}{_as(note.principal)})"
    if note.group_instance_id is None:
        return f"Dynamic member {note.member_id} joins group {note.group}. Adding to the group now {client}"
    return (
        f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group {note.group}. "
        f"Created a new member id {note.member_id} for this member and added it to the group {client}"
    )


def _fenced_text(note: notes.MemberFenced, _: str) -> str:
    who = f"memberId={note.member_id}" if note.member_id else "without a member id"
    return (
        f"Request {who} for static member with groupInstanceId={note.group_instance_id} "
        f"is fenced by current memberId={note.current_member_id} during operation {note.operation} "
        f"in group {note.group}"
    )


def _expired_text(note: notes.MemberExpired, _: str) -> str:
    static = "" if note.group_instance_id is None else f" with groupInstanceId={note.group_instance_id}"
    return (
        f"Member {note.member_id}{static} in group {note.group} has been removed after session timeout expiration "
        f"(client {note.client_id}, {note.client_host}{_as(note.principal)})"
    )


def _pending_expired_text(note: notes.PendingExpired, _: str) -> str:
    if note.left:
        return f"Pending member {note.member_id} has left group {note.group} through explicit `LeaveGroup`"
    return f"Pending member {note.member_id} in group {note.group} has been removed after session timeout expiration."


def _missing_text(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + ("" if count == len(names) else f" and {count - len(names)} more")


def _held_text(note: notes.RebalanceHeld, _: str) -> str:
    missing = _missing_text(note.missing, note.missing_count)
    return f"Group {note.group} holds new members until expected ones are there; missing: {missing}"


def _hold_ended_text(note: notes.HoldEnded, _: str) -> str:
    if not note.missing_count:
        return f"Group {note.group} lets {note.joins} held members in: no expected member is missing"
    missing = _missing_text(note.missing, note.missing_count)
    return f"Group {note.group} lets {note.joins} held members in and waits no longer; missing: {missing}"


def _refused_text(note: notes.ClientRefused, _: str) -> str:
    who = f"member {note.member_id}" if note.member_id else "a client"
    if note.group_instance_id is not None:
        who += f" with groupInstanceId={note.group_instance_id}"
    by = note.client
    return (
        f"Group {note.group} refuses {who} with {note.error}: {note.why.removesuffix('.')}, until {note.until} "
        f"(client {by.id}, {by.host}{_as(by.principal)})"
    )


def _deleted_text(note: notes.GroupDeleted, _: str) -> str:
    if note.expired:
        return f"Group {note.group} transitioned to Dead in generation {note.generation}"
    return f"Group {note.group} was deleted. A total of {note.offsets} offsets were removed."


def _removed_text(note: notes.OffsetsRemoved, _: str) -> str:
    what = ", ".join(f"{topic}-{index}" for topic, index in note.topic_partitions)
    return f"Group {note.group}: {'expired' if note.expired else 'deleted'} committed offsets of {what}"


def _started_text(note: notes.RebalanceStarted, place: str) -> str:
    if note.group_type == notes.CONSUMER:
        return (
            f"[GroupId {note.group}] Bumped group epoch to {note.generation + 1} {place} "
            f"(reason: {reason_of(note.cause)}; from state {note.state})"
        )
    return (
        f"Preparing to rebalance group {note.group} in state PreparingRebalance with old generation "
        f"{note.generation} {place} (reason: {reason_of(note.cause)}; from state {note.state})"
    )


def _cause_text(note: notes.RebalanceCause, place: str) -> str:
    if note.group_type == notes.CONSUMER:
        return (
            f"[GroupId {note.group}] Bumped group epoch to {note.generation + 1} {place} "
            f"(reason: {reason_of(note.cause)}; while it rebalances)"
        )
    return f"Group {note.group} is preparing to rebalance already; another reason: {reason_of(note.cause)}"


def _target_text(note: notes.TargetAssigned, _: str) -> str:
    return (
        f"[GroupId {note.group}] Computed a new target assignment for epoch {note.generation} with '{note.assignor}' "
        f"assignor: {note.members} members, {note.gained_partitions} topic partitions given, "
        f"{note.lost_partitions} taken away"
    )


def named(member_id: str, instance_id: str | None) -> str:
    """A member with its instance id, if it has one."""
    return member_id if instance_id is None else f"{member_id} with groupInstanceId={instance_id}"


def _revoking_text(note: notes.MemberRevoking, _: str) -> str:
    return (
        f"[GroupId {note.group}] Member {named(note.member_id, note.group_instance_id)} is asked to give up "
        f"{note.partitions} topic partitions (client {note.client_id}, {note.client_host})"
    )


def _away_text(note: notes.MemberAway, _: str) -> str:
    return (
        f"[GroupId {note.group}] Static member {note.member_id} with instance id {note.group_instance_id} temporarily "
        f"left the group; its seat is kept until its session ends (client {note.client_id}, {note.client_host})"
    )


def _unreleased_text(note: notes.InstanceIdUnreleased, _: str) -> str:
    heard = "" if note.silent_ms is None else f", heard of {note.silent_ms} ms ago"
    return (
        f"[GroupId {note.group}] Static member {note.member_id} with instance id {note.group_instance_id} cannot join "
        f"the group because the instance id is owned by member {note.current_member_id} "
        f"({note.client.id}, {note.client.host}; the owner is {note.current_client.id}, "
        f"{note.current_client.host}{heard})"
    )


# A table, because `match` would try one class after the other.
TEXTS: Mapping[type[notes.Note], Callable[[Any, str], str]] = {
    notes.RebalanceStarted: _started_text,
    notes.RebalanceCause: _cause_text,
    notes.TargetAssigned: _target_text,
    notes.MemberRevoking: _revoking_text,
    notes.MemberAway: _away_text,
    notes.InstanceIdUnreleased: _unreleased_text,
    notes.GenerationStarted: lambda note, place: (
        f"Stabilized group {note.group} generation {note.generation} {place} with {note.members} members"
    ),
    notes.RebalanceCompleted: _completed_text,
    notes.RebalanceEnded: lambda note, place: (
        f"Rebalance of group {note.group} from {'generation' if note.group_type == notes.CLASSIC else 'epoch'} "
        f"{note.generation_before} {place} is over: "
        f"{OUTCOMES[note.outcome]}{_waited_text(note.waited_for)}"
    ),
    notes.RebalanceStuck: lambda note, _: (
        f"Group {note.group} could not complete rebalance because no members rejoined"
    ),
    notes.GroupEmptied: lambda note, place: (
        f"Group {note.group} with generation {note.generation} is now empty {place}"
    ),
    notes.GroupConverted: lambda note, _: (
        f"Converted group {note.group} to a {note.kind} group in generation {note.generation} with {note.members} "
        f"members"
    ),
    notes.GroupLoaded: lambda note, place: (
        f"Loading group metadata for {note.group} with generation {note.generation} {place}: {note.state}, "
        f"{note.members} members"
    ),
    notes.GroupUnloaded: lambda note, place: (
        f"Unloading group metadata for {note.group} with generation {note.generation} {place}"
    ),
    notes.GroupDeleted: _deleted_text,
    notes.MemberPending: lambda note, _: (
        f"Dynamic member with unknown member id joins group {note.group}. Created a new member id "
        f"{note.member_id}, with which the member has to join again (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)})"
    ),
    notes.PendingExpired: _pending_expired_text,
    notes.RebalanceHeld: _held_text,
    notes.HoldEnded: _hold_ended_text,
    notes.ClientRefused: _refused_text,
    notes.MemberJoined: _joined_text,
    notes.MemberReplaced: lambda note, _: (
        f"Static member with groupInstanceId={note.group_instance_id} and unknown member id joins group "
        f"{note.group} in {note.state} state. Replacing previously mapped member {note.old_member_id} with "
        f"{note.member_id} (client {note.client_id}, {note.client_host}{_as(note.principal)})"
    ),
    notes.MemberFenced: _fenced_text,
    notes.MemberLeft: lambda note, _: (
        f"Member {note.member_id} has left group {note.group} through explicit `LeaveGroup`; client reason: "
        f"{note.reason or 'not provided'}"
    ),
    notes.MemberExpired: _expired_text,
    notes.StandbyJoined: lambda note, _: (
        f"Member {note.member_id} waits as a standby of group {note.group}, whose seats are taken: standby number "
        f"{note.standbys} (client {note.client_id}, {note.client_host}{_as(note.principal)})"
    ),
    notes.StandbySeated: lambda note, _: (
        f"Standby {note.member_id} gets a seat in the rebalance of group {note.group} after {note.waited_ms} ms "
        f"(client {note.client_id}, {note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    notes.StandbyGone: lambda note, _: (
        f"Standby {note.member_id} of group {note.group} is gone: {note.why} (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    notes.SeatTaken: lambda note, _: (
        f"Standby {note.member_id} takes the seat of {note.old_member_id} in group {note.group} at generation "
        f"{note.generation}, without a rebalance: {CauseKind(note.kind).words.possible} (client {note.client_id}, "
        f"{note.client_host}{_as(note.principal)}); {note.standbys} left"
    ),
    notes.MembersDropped: lambda note, _: (
        f"Group {note.group} removed members {', '.join(note.member_ids)}: {note.why}"
    ),
    notes.LeaderElected: lambda note, _: (
        f"Group {note.group}: leader {note.old_leader} did not rejoin in time, {note.leader} leads now"
    ),
    notes.OffsetsCreatedGroup: lambda note, _: f"Creating simple consumer group {note.group} via manual offset commit.",
    notes.OffsetsRemoved: _removed_text,
    notes.GroupTooLarge: lambda note, _: (
        f"Group {note.group} would need a record of {note.size} bytes, the limit (message.max.bytes, or that of the "
        f"cluster's store) is {note.limit}: not written, the group stays as it was"
    ),
    notes.UnexpectedRequest: lambda note, _: (
        f"Group {note.group} refused a request of member {note.member_id}: {note.detail}"
    ),
}
"""A function for each note: takes the note, and its group's partition in words."""


def text_of(note: notes.Note, partition: int) -> str:
    """A note in words."""
    return TEXTS[type(note)](note, place_text(partition))


@cache
def place_text(partition: int) -> str:
    """A partition of the metadata log, as Kafka's lines name it."""
    return f"(__consumer_offsets-{partition})"
