"""The rules of the consumer protocol keep the course of a rebalance (`group.course`): who held it up, what moved.

A rebalance begins when the group epoch grows while every member is at its target; further epochs belong to it. It ends
when all members are at the target of the newest epoch, or when none is left.

    opened      before anything changes, so that a member that leaves is among the members before
    bumped      the group epoch grew
    targeted    the epoch has its target
    moved       a member took a step: the coordinator asks it to give up partitions, or it has done so
    settled     the last thing of each rule; it ends the rebalance if nobody is on the way

A member holds the others up in two ways: it has not given up partitions that it was asked for, or no heartbeat of it
came since there is a target, or since the partitions that it shall have are free. The longest of these waits goes into
the note of the end. A static member that goes away and comes back makes no epoch, and so no rebalance.

House rule: no rule reads a course, and a heartbeat that changes nothing never gets here.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group import notes
from coordinator.group.causes import Cause
from coordinator.group.consumer.group import (
    NOTHING,
    UNRELEASED,
    UNREVOKED,
    ConsumerCourse,
    ConsumerGroup,
    ConsumerMember,
    Held,
)
from coordinator.group.course import LATE_MAX, Outcome, Phase, Snapshot
from coordinator.group.state import EMPTY, STABLE
from coordinator.group.turn import Turn
from protocol.speed import new


def opened(turn: Turn, group: ConsumerGroup) -> ConsumerCourse:
    """The course of the open rebalance; a new one if the group epoch is about to grow."""
    course = group.course
    if course is None:
        course = group.course = ConsumerCourse(members=tuple(group.members.values()))
        learn_names(turn, group)
    return course


def learn_names(turn: Turn, group: ConsumerGroup) -> None:
    """Remember the names of topics that members hold: a deleted topic has none any more."""
    for topic_id in group.holders.keys() - group.topic_names.keys():
        topic = turn.topics.by_id(topic_id)
        if topic is not None:
            group.topic_names[topic_id] = topic.name


def bumped(turn: Turn, group: ConsumerGroup, cause: Cause) -> None:
    """The group epoch has grown by one."""
    course = group.course
    assert course is not None
    group.changed_topics.clear()
    ended = group.generation - 1
    if course.causes:
        course.add(cause)
        turn.note(notes.RebalanceCause(group.group_id, ended, cause, notes.CONSUMER))
        return
    course.begin(group.state, ended, cause, turn.now)
    turn.note(
        notes.RebalanceStarted(
            group.group_id, ended, group.state.value, cause, group.size, (), len(course.members), notes.CONSUMER
        )
    )


def targeted(turn: Turn, group: ConsumerGroup, note: notes.TargetAssigned) -> None:
    """The group epoch has a target."""
    course = group.course
    if course is not None and course.joined_ms is None:
        course.joined_ms = turn.now.ms
    group.assignor = note.assignor
    turn.note(note)


def moved(turn: Turn, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember) -> None:
    """A member took a step towards its target."""
    if before.revoking:
        # It may have been asked for more: then it has given up nothing, and the group waits on.
        if not has_all(member.revoking, before.revoking):
            waited_for(turn, group, before)
            group.waits_since.pop(before.member_id, None)
    elif before.epoch < group.target_epoch:
        waited_for(turn, group, before)
        if member.state is not UNREVOKED and not has_all(member.assigned, before.assigned):
            freed(turn, group)
    elif before.state is UNRELEASED and group.course is not None and group.course.freed_ms:
        group.course.waited_for(before, Phase.ACKNOWLEDGING, turn.now.wall_ms - group.course.freed_ms)
    if member.state is UNREVOKED and member.revoking != before.revoking:
        group.waits_since.setdefault(member.member_id, turn.now.wall_ms)
        asked = sum(map(len, member.revoking.values()))
        until_ms = turn.now.wall_ms + member.rebalance_timeout_ms
        turn.note(notes.MemberRevoking(group.group_id, group.generation, *member.named, asked, until_ms))


def freed(turn: Turn, group: ConsumerGroup) -> None:
    """A member gave up partitions: from here on the group waits for a heartbeat of the members that shall have them."""
    if group.course is not None:
        group.course.freed_ms = turn.now.wall_ms


def went_away(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member leaves for a while."""
    waited_for(turn, group, member)
    group.waits_since[member.member_id] = turn.now.wall_ms
    turn.note(notes.MemberAway(group.group_id, group.generation, *member.named))


def has_all(held: Held, partitions: Held) -> bool:
    """Whether all of these partitions are among those that are held."""
    return all(wanted.keys() <= held.get(topic_id, NOTHING).keys() for topic_id, wanted in partitions.items())


def waited_for(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The wait for a member is over: it did its part, or it goes. member: as it was."""
    course = group.course
    if course is None or not course.causes or member.is_at(group.target_epoch):
        return  # without a cause the rebalance begins with this step, and has waited for nobody
    if member.revoking:
        since_ms = group.waits_since.get(member.member_id)
        phase = Phase.REVOKING
        freed(turn, group)
    elif member.epoch < group.target_epoch:
        began_ms = 0 if course.joined_ms is None else group.target_ms
        since_ms = max(began_ms, course.began_wall_ms)
        phase = Phase.ACKNOWLEDGING
    else:
        return
    if since_ms is not None:
        course.waited_for(member, phase, turn.now.wall_ms - since_ms)


def settled(turn: Turn, group: ConsumerGroup) -> None:
    """Bring the group's state in line, and end its rebalance if nobody is on the way; each rule ends with it."""
    group.settle(turn.now.wall_ms)
    if group.changed_topics and not group.is_stale:
        group.changed_topics.clear()
    if group.course is not None and group.state in (STABLE, EMPTY):
        end(turn, group, Outcome.COMPLETED if group.state is STABLE else Outcome.EMPTIED)


def end(turn: Turn, group: ConsumerGroup, outcome: Outcome) -> None:
    """Note the end of the rebalance. The group is already in the state that the rebalance leads to."""
    course = group.course
    assert course is not None
    learn_names(turn, group)
    now_ms = turn.now.ms
    joined_ms = now_ms if course.joined_ms is None else course.joined_ms
    turn.note(
        notes.RebalanceEnded(
            group.group_id,
            group.generation,
            outcome,
            course.generation,
            course.state.value,
            tuple(course.causes),
            course.further_causes,
            course.began_wall_ms,
            joined_ms - course.began_ms,
            None if course.joined_ms is None else now_ms - joined_ms,
            course.longest,
            course.late[:LATE_MAX],
            (),
            None,
            group.protocol_type,
            group.assignor,
            snapshots(course.members),
            snapshots(group.members.values()) if outcome is Outcome.COMPLETED else (),
            notes.CONSUMER,
            group.topic_names,
        )
    )
    # The note's table is the note's: another thread reads it.
    group.topic_names = {topic_id: name for topic_id, name in group.topic_names.items() if topic_id in group.holders}
    group.course = None


def snapshots(members: Iterable[ConsumerMember]) -> tuple[Snapshot, ...]:
    """Members with all that they hold."""
    return tuple(
        [
            new(
                Snapshot,
                (member.member_id, member.instance_id, member.client_id, member.client_host, held_by(member)),
            )
            for member in members
        ]
    )


def held_by(member: ConsumerMember) -> Held:
    """The partitions of a member, with those that it must give up."""
    if not member.revoking:
        return member.assigned
    held = dict(member.assigned)
    for topic_id, partitions in member.revoking.items():
        held[topic_id] = {**held.get(topic_id, {}), **partitions}
    return held
