"""The states of a group, as a table.

    Empty                no members; committed offsets may stay
    PreparingRebalance   waits for the members to join; answers JoinGroup when all have joined, or time is up
    CompletingRebalance  waits for the leader's assignments; answers SyncGroup when they come
    Stable               every member has its assignment; the generation is on disk
    Dead                 deleted, or its partition was unloaded, or a group of the consumer protocol took its place
                         (upgraded); no transition leads out of it

A group of the consumer protocol has Empty, Stable and Dead too, and two of its own, Assigning and Reconciling. Its
state follows from its epochs and members (`consumer.group.ConsumerGroup.current_state`), so it has no transitions.

The answer to a request of a known member:

                         JoinGroup          SyncGroup               Heartbeat              OffsetCommit
    Empty                UNKNOWN_MEMBER_ID  UNKNOWN_MEMBER_ID       UNKNOWN_MEMBER_ID      UNKNOWN_MEMBER_ID
    PreparingRebalance   waits              REBALANCE_IN_PROGRESS   REBALANCE_IN_PROGRESS  stored
    CompletingRebalance  see `join`         waits for the leader's  NONE                   REBALANCE_IN_PROGRESS
    Stable               see `join`         its assignment          NONE                   stored
    Dead                 COORDINATOR_NOT_AVAILABLE everywhere

(An Empty group has no known members. It stores commits of generation -1.)

House rule: only `Group.transition_to` changes a state, and only along `TRANSITIONS`.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.speed import HashedById


class Kind(HashedById):
    """The protocol of a group; ListGroups shows it (Kafka: Group.GroupType, KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class State(HashedById):
    """Kafka's names (GroupState, ClassicGroupState), as DescribeGroups and ListGroups send them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    """A group of the consumer protocol whose epoch has no target yet."""
    RECONCILING = "Reconciling"
    """A group of the consumer protocol with members that do not have their target yet."""


# Short names: see `speed`.
EMPTY, DEAD = State.EMPTY, State.DEAD
PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE = State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE
ASSIGNING, RECONCILING = State.ASSIGNING, State.RECONCILING


class Transition(NamedTuple):
    """A step from one state to another, and its reasons."""

    before: State
    after: State
    why: str


TRANSITIONS = (
    Transition(State.EMPTY, State.PREPARING_REBALANCE, "a member joins"),
    Transition(State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, "all joined, or time is up"),
    Transition(State.PREPARING_REBALANCE, State.EMPTY, "nobody is left"),
    Transition(State.COMPLETING_REBALANCE, State.STABLE, "the leader's assignment comes"),
    Transition(
        State.COMPLETING_REBALANCE,
        State.PREPARING_REBALANCE,
        "a member joins, changes, leaves, expires, or does not sync in time",
    ),
    Transition(
        State.STABLE,
        State.PREPARING_REBALANCE,
        "a member joins, changes, leaves, expires, or does not sync in time, or the leader rejoins",
    ),
    Transition(State.STABLE, State.PREPARING_REBALANCE, "loaded with more members than group.max.size"),
    Transition(State.EMPTY, State.DEAD, "deleted, or no offsets left"),
    Transition(State.EMPTY, State.DEAD, "partition unloaded"),
    Transition(State.PREPARING_REBALANCE, State.DEAD, "partition unloaded, or upgraded"),
    Transition(State.COMPLETING_REBALANCE, State.DEAD, "partition unloaded, or upgraded"),
    Transition(State.STABLE, State.DEAD, "partition unloaded, or upgraded"),
)

NEXT: dict[State, frozenset[State]] = {
    state: frozenset(step.after for step in TRANSITIONS if step.before is state) for state in State
}
"""The states that each state may lead to."""
