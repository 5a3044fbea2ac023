"""The rules keep the course of a rebalance (`group.course`).

    opened    before anything changes, so that a member that leaves is among the members before
    begun     the group goes to PreparingRebalance
    joined    the next generation has started
    ended     completed, emptied, superseded by the next rebalance, or unloaded: the course becomes a note

The note has the assignments as bytes. Code that shows them to people decodes them; the way of a request never does.

House rule: no rule reads a course.
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.course import LATE_MAX, Course, Outcome, Snapshot
from coordinator.group.group import Group
from coordinator.group.state import PREPARING_REBALANCE
from coordinator.group.turn import Turn
from protocol.speed import new


def snapshots(group: Group) -> tuple[Snapshot, ...]:
    """The group's members at this moment."""
    # `Member.client`, written out: each rebalance does this twice for all members.
    return tuple(
        [
            new(
                Snapshot,
                (
                    member.member_id,
                    member.group_instance_id,
                    member.client_id if (client := member.joined_by) is None else client[0],
                    member.client_host if client is None else client[1],
                    member.assignment,
                ),
            )
            for member in group.members.values()
        ]
    )


def opened(group: Group) -> Course:
    """The course of the open rebalance; a new one if a rebalance is about to begin."""
    course = group.course
    if course is None:
        course = group.course = Course(snapshots(group))
    return course


def arrived(turn: Turn, group: Group, member_id: str) -> None:
    """A member came or went: the open rebalance waited for it, or it starts a rebalance."""
    course = opened(group)
    if group.state is PREPARING_REBALANCE:
        course.last_to_join = member_id
        course.last_ms = turn.now.ms


def end(turn: Turn, group: Group, outcome: Outcome) -> None:
    """Note the end of the rebalance. The group is already in the state that the rebalance leads to."""
    course = group.course
    assert course is not None
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
            course.waited(joined_ms, now_ms),
            course.late[:LATE_MAX],
            tuple(course.lapsed),
            group.leader if course.joined_ms is None else course.leader,
            group.protocol_type,
            group.protocol_name,
            course.before,
            snapshots(group) if outcome is Outcome.COMPLETED else (),
            notes.CLASSIC,
            notes.NO_NAMES,
        )
    )
    group.course = None
