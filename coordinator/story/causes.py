"""The words for each kind of cause of a rebalance, and its meaning: one table.

House rule: a kind has all its words here. mypy refuses a row that lacks one, and the import a table that lacks a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coordinator.group.causes import CauseKind

JOIN, SYNC, LEAVE, HEARTBEAT = "JoinGroup", "SyncGroup", "LeaveGroup", "ConsumerGroupHeartbeat"
NO_REQUEST = "by the coordinator itself: a time was over, a setting changed, or it loaded the group"


class Words(NamedTuple):
    """A kind of cause.

    seen: what the coordinator saw, in log lines and timelines; {who} stands for the members. possible: the same, as one
    of several events that the log of groups allows, and as why a seat went to a standby. short: in an audit's table.
    request: the API behind it (but see BY_HEARTBEAT), or NO_REQUEST.
    """

    seen: str
    possible: str
    short: str
    request: str


CAUSES: Mapping[CauseKind, Words] = {
    CauseKind.MEMBER_JOINED: Words("new member {who}", "a member joined", "joined", JOIN),
    CauseKind.MEMBER_REJOINED: Words("member {who} joins again", "a member joined again", "member rejoined", JOIN),
    CauseKind.LEADER_REJOINED: Words("leader {who} joins again", "the leader joined again", "leader rejoined", JOIN),
    CauseKind.METADATA_CHANGED: Words(
        "member {who} joins with other metadata", "a member joined with other metadata", "subscription changed", JOIN
    ),
    CauseKind.PROTOCOL_CHANGED: Words(
        "static member {who} joins anew and changes the selected protocol",
        "a static member joined anew and changed the selected protocol",
        "protocol changed",
        JOIN,
    ),
    CauseKind.STATIC_MEMBER_REPLACED: Words(
        "static member {who} joins anew before the assignment is known",
        "a static member joined anew before the assignment was known",
        "static member returned",
        JOIN,
    ),
    CauseKind.MEMBER_LEFT: Words("member {who} leaves", "it left", "left", LEAVE),
    CauseKind.MEMBER_REMOVED: Words(
        "member {who} is removed by an operator", "an operator removed it", "removed", LEAVE
    ),
    CauseKind.MEMBER_EXPIRED: Words("member {who} expired, no heartbeat", "its session ended", "expired", NO_REQUEST),
    CauseKind.SYNC_TIMED_OUT: Words(
        "no sync in time from {who}", "it did not sync in time", "no sync in time", NO_REQUEST
    ),
    CauseKind.ASSIGNMENT_TOO_LARGE: Words(
        "the assignment by leader {who} does not fit into a record",
        "the leader's assignment did not fit into a record",
        "assignment too large",
        SYNC,
    ),
    CauseKind.GROUP_OVER_CAPACITY: Words(
        "loaded with more members than group.max.size",
        "the group was loaded with more members than group.max.size",
        "over capacity",
        NO_REQUEST,
    ),
    CauseKind.TARGET_SIZE_CHANGED: Words(
        "target.group.size changed", "target.group.size changed", "target size changed", NO_REQUEST
    ),
    CauseKind.SUBSCRIPTION_CHANGED: Words(
        "member {who} subscribes to other topics",
        "a member subscribed to other topics",
        "subscription changed",
        HEARTBEAT,
    ),
    CauseKind.TOPICS_CHANGED: Words(
        "topics that the group subscribes to changed", "topics changed", "topics changed", HEARTBEAT
    ),
    CauseKind.REGEX_RESOLVED: Words(
        "a regular expression matches other topics",
        "a regular expression matched other topics",
        "regular expression resolved",
        NO_REQUEST,
    ),
    CauseKind.REVOCATION_TIMED_OUT: Words(
        "member {who} did not give up its partitions in time",
        "it did not give up its partitions in time",
        "partitions not given up",
        NO_REQUEST,
    ),
    CauseKind.TARGET_INCOMPLETE: Words(
        "the assignment leaves out members or partitions",
        "the assignment left out members or partitions",
        "assignment incomplete",
        HEARTBEAT,
    ),
    CauseKind.ASSIGNOR_CHANGED: Words(
        "member {who} votes, and another assignor wins",
        "a member voted, and another assignor won",
        "assignor changed",
        HEARTBEAT,
    ),
}
assert set(CAUSES) == set(CauseKind)

OF_TOPICS = frozenset({CauseKind.SUBSCRIPTION_CHANGED, CauseKind.TOPICS_CHANGED, CauseKind.REGEX_RESOLVED})
"""Kinds that topics are. With any other kind, topics may have changed beside it."""

BY_HEARTBEAT = frozenset({CauseKind.MEMBER_JOINED, CauseKind.MEMBER_LEFT})
"""Kinds that have requests of their own in the classic protocol, and come with a heartbeat in the consumer protocol."""

INFERENCES = frozenset({CauseKind.MEMBER_REJOINED, CauseKind.LEADER_REJOINED, CauseKind.METADATA_CHANGED})
"""Kinds where the server knows that a member rejoined, and only the client knows why. The other kinds are facts."""

GONE = frozenset(
    kind.value
    for kind in (
        CauseKind.MEMBER_LEFT,
        CauseKind.MEMBER_REMOVED,
        CauseKind.MEMBER_EXPIRED,
        CauseKind.SYNC_TIMED_OUT,
        CauseKind.REVOCATION_TIMED_OUT,
    )
)
"""Kinds, as events name them, after which a member is gone: no member has its member id again."""
