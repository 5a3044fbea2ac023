"""The course of a group's rebalance (`group.course`), kept while the group goes on.

    opened    before anything changes, so that a member that leaves is still among those that were there
    begun     the group goes to PreparingRebalance
    joined    the next generation has started
    ended     completed, emptied, superseded by the next rebalance, or unloaded: the course becomes a note

The assignments of members stay bytes in the note; they are read on the way to people, never on the way of a request.

House rule: as that of `group.course`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import notes
from coordinator.group.course import LATE_MAX, Course, Outcome, Snapshot
from coordinator.group.state import PREPARING_REBALANCE
from protocol.tuples import new

if TYPE_CHECKING:
    from coordinator.group.group import Group
    from coordinator.group.turn import Turn


def snapshots(group: Group) -> tuple[Snapshot, ...]:
    """The members as they are."""
    # As `Member.client` does, in place: each rebalance does it twice for all of them.
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
    """The course of the rebalance that is open, or of one that is about to begin."""
    course = group.course
    if course is None:
        course = group.course = Course(snapshots(group))
    return course


def arrived(turn: Turn, group: Group, member_id: str) -> None:
    """A member came, or went, that a rebalance waits for, or that starts one."""
    course = opened(group)
    if group.state is PREPARING_REBALANCE:
        course.last_to_join = member_id
        course.last_ms = turn.now.ms


def end(turn: Turn, group: Group, outcome: Outcome) -> None:
    """Make a note of the rebalance that ends here; the group is as it leaves it."""
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
        )
    )
    group.course = None
