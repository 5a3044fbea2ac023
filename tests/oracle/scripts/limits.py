"""Servers with small limits refuse members, session timeouts and metadata, and delay initial rebalances.

The limited servers: group.max.size=2, group.initial.rebalance.delay.ms=500, session timeouts of 6 to 10 seconds,
offset.metadata.max.bytes=8, message.max.bytes=5000, no topics made by themselves.
"""

from __future__ import annotations

from typing import Any

from protocol.messages import OffsetCommitRequest
from tests.oracle.stage import Stage, commit_topics, script, script_for

SESSION: dict[str, Any] = {"session_timeout_ms": 10_000}


@script_for(0, 3, 4, 9, node="limited")
def full_group(stage: Stage, version: int) -> None:
    """KIP-389: a new member of a full group gets GROUP_MAX_SIZE_REACHED; the group's members may rejoin."""
    a, b, c = stage.clients("a b c", version=version, **SESSION)
    stage.form(a, b)
    c.join()
    c.joined()
    a.heartbeat()
    b.join()
    b.joined()
    c.describe()
    b.leave()
    c.join()
    a.join()
    if version >= 4:
        c.joined()
        c.join()
    a.joined()
    c.joined()


@script_for(5, 9, node="limited")
def full_group_and_static_members(stage: Stage, version: int) -> None:
    """KAFKA-20601: in a full Stable group even a member's restart gets GROUP_MAX_SIZE_REACHED."""
    a, b, c = stage.statics("a b c", version=version, **SESSION)
    stage.form(a, b)
    c.join()
    c.joined()
    again = b.restarted("again")
    again.join()
    again.joined()
    b.heartbeat()
    b.join()
    b.joined()
    again.describe()
    a.leave()
    again.join()
    again.joined()
    b.heartbeat()


@script("limited")
def pending_members_and_the_limit(stage: Stage) -> None:
    """KAFKA-9844: Kafka gives out more pending ids than the group has room for; the last to join is turned away."""
    a, b, c = stage.clients("a b c", **SESSION)
    stage.form(a)
    for pending in (b, c):
        pending.join()
        pending.joined()
    b.join()
    c.join()
    c.waits()
    a.join()
    a.joined()
    a.heartbeat()
    # Which of the others leads is left to chance.
    a.describe()


@script("limited")
def pending_members_of_an_empty_group(stage: Stage) -> None:
    """An Empty group gives ids to any number; as its first generation is delayed, the third one is turned away."""
    a, b, c = stage.clients("a b c", **SESSION)
    for member in (a, b, c):
        member.join()
        member.joined()
    for member in (a, b, c):
        member.join()
    c.joined()
    a.joined()
    b.joined()


@script("limited")
def full_group_while_it_prepares(stage: Stage) -> None:
    """While the group prepares, only members that wait count: an old member that comes last loses its place."""
    a, b, c = stage.clients("a b c", version=3, **SESSION)
    stage.form(a)
    b.join()
    c.join()
    c.waits()
    a.join()
    a.joined()
    a.heartbeat()
    a.describe()


@script("limited")
def new_member_while_a_full_group_prepares(stage: Stage) -> None:
    """A new member joins when the waiting members already fill the group."""
    a, b, c = stage.clients("a b c", version=3, **SESSION)
    stage.form(a)
    b.join()
    d = stage.client("d", version=3, **SESSION)
    c.join()
    d.join()
    d.joined()
    a.leave()
    a.describe()


@script("limited")
def full_group_in_which_one_has_not_rejoined(stage: Stage) -> None:
    """A new member can take the place of an old one that hasn't rejoined; the last to join is turned away."""
    a, b, c = stage.clients("a b c", version=3, **SESSION)
    stage.form(a, b)
    a.join()
    c.join()
    c.waits()
    b.join()
    b.joined()
    a.joined()
    c.joined()


@script_for(0, 5, 9, node="limited")
def session_timeout_bounds(stage: Stage, version: int) -> None:
    """INVALID_SESSION_TIMEOUT outside of group.min.session.timeout.ms and group.max.session.timeout.ms."""
    a = stage.client("a", version=version)
    for session_timeout_ms in (5_999, 10_001, 6_000):
        a.join(session_timeout_ms=session_timeout_ms)
        a.joined()


@script_for(0, 5, 9, node="limited")
def initial_delay(stage: Stage, version: int) -> None:
    """KIP-134: an Empty group waits for further members before its first generation, and longer as they come."""
    a = stage.client("a", version=version, **SESSION)
    b = stage.client("b", version=version, **SESSION)
    for member in (a, b):
        member.join()
        if version >= 4:
            member.joined()
            member.join()
        member.waits()
    a.joined()
    b.joined()
    a.describe()


@script("limited")
def initial_delay_of_an_emptied_group(stage: Stage) -> None:
    """The delay is for every first generation after Empty, not only for new groups."""
    a, b = stage.statics("a b", **SESSION)
    a.enter()
    a.leave()
    a.join(member_id="")
    b.join()
    a.joined()
    b.joined()


@script("limited")
def restart_during_the_initial_delay(stage: Stage) -> None:
    """A static member that restarts while the first generation is delayed takes its own place."""
    (a,) = stage.statics("a", **SESSION)
    a.join()
    again = a.restarted("again")
    again.join()
    a.joined()
    again.joined()


@script("limited")
def long_metadata(stage: Stage) -> None:
    """More than offset.metadata.max.bytes is OFFSET_METADATA_TOO_LARGE."""
    topic = stage.topic("limits", 1)
    a = stage.client("a")
    for metadata in ("12345678", "123456789"):
        a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: {0: 1}}, metadata)), 8)
        a.fetch_offsets(None)


@script_for(5, 9, node="limited")
def group_too_large_to_be_written(stage: Stage, version: int) -> None:
    """KAFKA-3590, KAFKA-19760: the leader's assignments are too large to write: all get an error, and rejoin."""
    a, b = stage.client("a", version=version, **SESSION), stage.client("b", version=version, **SESSION)
    stage.form(a, b, assign=False)
    b.sync()
    a.sync({a: b"a" * 6_000, b: b"b"})
    a.synced()
    b.synced()
    a.describe()
    a.heartbeat()
    b.heartbeat()
    a.join()
    b.join()
    a.joined()
    b.joined()
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.sync()
    b.synced()
    a.describe()


@script_for(5, 9, node="limited")
def restart_too_large_to_be_written(stage: Stage, version: int) -> None:
    """KAFKA-9659: a static restart that can't be written is refused, and the former member keeps its seat."""
    (a,) = stage.statics("a", version=version, **SESSION)
    stage.form(a)
    large = a.restarted("large", protocols={"range": b"\0\0" + b"\0" * 6_000})
    large.join()
    large.joined()
    # Kafka describes it with the refused metadata from now on: that isn't asked here.
    a.heartbeat()
    again = a.restarted("again")
    again.enter()
    again.heartbeat()


@script("limited")
def commit_too_large_to_be_written(stage: Stage) -> None:
    """More offsets at once than fit into a batch are refused, all of them."""
    topic = stage.topic("many-partitions", 100)
    a = stage.client("a")
    for count in (100, 2):
        offsets = dict.fromkeys(range(count), 1)
        a.ask(OffsetCommitRequest(group_id=stage.group, topics=commit_topics({topic: offsets})), 8)
        a.fetch_offsets(None)
        a.describe()
