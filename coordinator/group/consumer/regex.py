"""Subscriptions by regular expression (KIP-848; Kafka: maybeUpdateRegularExpressions, TopicRegexResolver).

The coordinator does not match itself: that may take long. It asks for a resolution (`effects.Resolution`), answers the
heartbeat without it, and takes the result as an event, which may bump the epoch. One resolution per group is under way
at a time, and the next begins at the earliest REFRESH_MIN_MS after the last. A topic that is created later makes the
next heartbeat of a member ask again.

An expression may match more topics than a record in the store of a cluster has room for. It then keeps its former
topics, or none, and counts as resolved: the next resolution comes no sooner than that of any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.group.bounds import following
from coordinator.group.causes import CauseKind
from coordinator.group.client import Client
from coordinator.group.consumer import course, reasons, records
from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, Resolved
from coordinator.group.effects import Resolution
from coordinator.group.events import RegexResolved
from coordinator.group.refusal import RefusedRequest
from coordinator.group.topics import metadata_hash
from coordinator.group.turn import Turn
from protocol.records.batch import Record
from schemas.errors import ErrorCode

REGEXES_MAX = 20
"""Expressions of a group. The members of one program have one, two while it changes; each may match all topics, and
their names are held, written and hashed for each. Kafka has no limit.
"""

REFRESH_MIN_MS = 10_000
"""The least time between two resolutions of a group (Kafka: REGEX_BATCH_REFRESH_MIN_INTERVAL_MS)."""


@dataclass(slots=True)
class RegexChange:
    """The change of regular expressions that a heartbeat brings.

    dropped: one that nobody subscribes to any more. asked: a resolution to ask for. changed: whether the member's is
    another one. bumps: whether that changes the group's topics at once.
    """

    dropped: str | None = None
    asked: Resolution | None = None
    changed: bool = False
    bumps: bool = False
    records: list[Record] = field(default_factory=list)

    def apply(self, turn: Turn, group: ConsumerGroup) -> None:
        """Put the change into the group."""
        if self.dropped is not None:
            group.regexes.pop(self.dropped, None)
        if self.asked is not None:
            group.resolving = True
            turn.effects.resolutions.append(self.asked)


def update_regex(
    turn: Turn,
    group: ConsumerGroup,
    before: ConsumerMember,
    member: ConsumerMember,
    client: Client,
    regex_error: str | None,
) -> RegexChange:
    """The change that a member's regular expression brings. Raises RefusedRequest for one that RE2 can't read.

    regex_error: what is wrong with it.
    """
    change = RegexChange()
    old, new = before.regex or "", member.regex or ""
    needed = False
    if old != new:
        change.changed = True
        if old and group.regex_members[old] == 1:
            change.dropped = old
            change.records.append(records.regex_tombstone(group.group_id, old, turn.now.wall_ms))
        if new and not group.regex_members[new]:
            if regex_error is not None:
                raise RefusedRequest(ErrorCode.INVALID_REGULAR_EXPRESSION, regex_error)
            if len(group.regex_members) - (group.regex_members[old] == 1) >= REGEXES_MAX:
                words = f"A group has at most {REGEXES_MAX} regular expressions."
                raise RefusedRequest(ErrorCode.INVALID_REGULAR_EXPRESSION, words)
            needed = True
        elif new:
            change.bumps = new in group.regexes
        else:
            change.bumps = bool(old)
    if (needed or group.regex_members) and not group.resolving:
        change.asked = resolution(turn, group, client, old, new, needed=needed)
    return change


def resolution(
    turn: Turn, group: ConsumerGroup, client: Client, old: str, new: str, *, needed: bool
) -> Resolution | None:
    """A resolution to ask for, if one is needed and the last one is long enough ago. old, new: of the member."""
    last = next(iter(group.regexes.values()), None)
    if last is not None and turn.now.wall_ms <= last.since_ms + REFRESH_MIN_MS:
        return None
    wanted = dict(group.regex_members)
    if old:
        wanted[old] -= 1
    if new:
        wanted[new] = wanted.get(new, 0) + 1
    regexes = frozenset(regex for regex, count in wanted.items() if count)
    refresh_ms = turn.config.group_consumer_regex_refresh_interval_ms
    if regexes and (
        needed
        or len(regexes) != len(group.regexes)
        or (0 if last is None else last.version) < turn.topics.created_version
        or (last is not None and turn.now.wall_ms > last.since_ms + refresh_ms)
    ):
        return Resolution(group.group_id, regexes, client)
    return None


def resolved(turn: Turn, group: ConsumerGroup, event: RegexResolved) -> None:
    """Take the result of a resolution."""
    group.resolving = False
    wall_ms = turn.now.wall_ms
    before: set[str] = set()
    after: set[str] = set()
    changed = False
    for regex, topics in event.topics.items():
        if not group.regex_members[regex]:
            continue
        former = group.regexes.get(regex)
        had = frozenset() if former is None else former.topics
        found = Resolved(topics, event.version, event.since_ms)
        record = records.regex_record(group.group_id, regex, found, wall_ms)
        if not turn.takes_each(group, [record]):
            found = found._replace(topics=had)
            record = records.regex_record(group.group_id, regex, found, wall_ms)
        changed = changed or found.topics != had
        before |= had
        after |= found.topics
        group.regexes[regex] = found
        turn.append(record)
    hashed = metadata_hash(turn.topics, group.subscribed_names())
    if changed or hashed != group.metadata_hash:
        course.opened(turn, group)
        changes = [*reasons.differences(before, after), *reasons.topic_changes(group)]
        cause = reasons.of_topics(CauseKind.REGEX_RESOLVED if changed else CauseKind.TOPICS_CHANGED, changes)
        group.generation = following(group.generation)
        group.metadata_hash = hashed
        group.is_stale = False
        turn.append(records.epoch_record(group.group_id, group.generation, hashed, wall_ms))
        course.bumped(turn, group, cause)
    course.settled(turn, group)
