"""Findings about progress: whether a group is stuck, where, since when, and what to do. `progress` has the memory.

House rule: as in `diagnosis`: one function per kind, and no function asks a server. A finding about something that
stands still names the time since when looks show it: it may be longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coordinator.group.consumer.group import AWAY
from coordinator.story.counts import STORM_MIN, STORM_MS, away_after_ms, is_storm
from coordinator.story.described import Group, Member
from coordinator.story.diagnosis import (
    AWAITED_MS,
    RESTART_MAX_MS,
    Case,
    Finding,
    Severity,
    causes_of,
    members_text,
    span_text,
    unless_over,
)
from coordinator.story.entries import REBALANCING, Entry, Rebalance
from coordinator.story.progress import GroupProgress, TopicPartition
from coordinator.story.tracks import GROWS_MS, MARKERS_MAX, STUCK_MAX_MS, STUCK_MS, Track
from coordinator.story.transaction_diagnosis import abort_advice, restart_advice
from coordinator.text import client_text, names_text, time_text

LONG_MS = 60_000
"""A wait that is a problem: before that, a batch that takes a while or a restart looks the same."""

TRANSIENT_MS = 10_000
"""Partitions without a member, and members without a partition, are usual so long after a rebalance."""

REBALANCES_MS = 30_000
"""A rebalance that takes longer keeps members from working."""

OFFENSES_MIN = 3
"""A member that caused so many of them makes a loop; each member of a scale-up or a roll causes two at most."""

FIND_HOLDER = (
    "`tenure transactions list --state Ongoing` has the ids, and `tenure transactions describe ID` their topic "
    "partitions. Start the program of the one that has this topic partition again, and its new producer aborts the "
    "transaction. If none has it, see `tenure transactions find-hanging`"
)

HIDDEN = (
    "; these may be only the end of a transaction or its aborted records, which nobody reads: the user of this command "
    "needs Read on the topic to see it"
)

REJOINS = frozenset({"member_rejoined", "leader_rejoined"})

Placed = tuple[TopicPartition, Track]
"""A topic partition and its track."""


def progress_findings(case: Case) -> Iterator[Finding]:
    """The findings about a group's progress; none if its offsets can't be seen."""
    group_id, entries, group, _, now_ms, progress, transactions = case
    if group is None or progress is None:
        return
    yield from _rebalancing(group, progress, now_ms)
    late = [each for each in transactions if now_ms - each.since_ms >= AWAITED_MS]
    yield from _stuck(group, progress, {pair for each in late for pair in each.offsets}, now_ms)
    if progress.is_shared:
        yield from _unacknowledged(group, progress, now_ms)
    if group.state == "Stable" and _is_settled(entries, now_ms):
        yield from _ownerless(group_id, progress, now_ms)
        yield from _idle(group, progress)
    yield from _back(group_id, progress)
    yield from _behind_retention(group_id, progress)
    yield from _silent(group, entries, progress, now_ms)


class Work(NamedTuple):
    """Whether a member is at work. why: the reason that it isn't, or that it isn't known; empty if it is at work."""

    why: str = ""
    is_known: bool = True


def at_work(group: Group, progress: GroupProgress, now_ms: int) -> dict[str, Work]:
    """By instance id, whether a static member is at work. progress: of the look that has this description.

    It is if it takes part in a rebalance, or has topic partitions and reads them, or has read all.
    """
    return {
        member.group_instance_id: _work(group, member, progress, now_ms)
        for member in group.members
        if member.group_instance_id is not None
    }


def _work(group: Group, member: Member, progress: GroupProgress, now_ms: int) -> Work:
    if member.seat is not None and member.seat.epoch == AWAY:
        return Work("it left for a while")
    since_ms = progress.rebalancing_ms
    if group.state in REBALANCING and (since_ms is None or now_ms - since_ms < REBALANCES_MS):
        return Work()
    if group.state in REBALANCING:
        return Work("the group has rebalanced for long")
    pairs = member.topic_partitions
    if not pairs:
        return Work("it has no topic partition")
    stuck = [(pair, track) for pair in pairs if (track := progress.track(pair)) is not None and track.is_stuck]
    if stuck:
        return Work(f"records come, and it commits nothing of {_places(stuck)}{_hidden(stuck)}")
    unseen = names_text([_name(pair) for pair in pairs if not progress.is_seen(pair)])
    return Work(f"the cluster doesn't show how far the group is: {unseen}", is_known=False) if unseen else Work()


def undecided_text(progress: GroupProgress) -> str | None:
    """The topic partitions that may stand still, after looks that were too short to tell; None if there are none."""
    stand = progress.undecided
    if not stand:
        return None
    for_ms = progress.seen_ms - min(track.since_ms for _, track in stand)
    lag = sum(track.lag for _, track in stand)
    return (
        f"too early to tell whether it is stuck: in {span_text(for_ms)} nothing was committed of {_places(stand)}, and "
        f"{lag:,} records wait{_hidden(stand)}. Run the doctor again once more records came, or let `tenure observe` "
        "look on"
    )


def loop_findings(case: Case) -> Iterator[Finding]:
    """Rebalances that follow each other, most of them of the same members."""
    rebalances = [entry for entry in case.entries if isinstance(entry, Rebalance)]
    for last in range(len(rebalances), STORM_MIN - 1, -1):
        storm = rebalances[last - STORM_MIN : last]
        last_at_ms = storm[-1].at_ms
        if not is_storm([entry.at_ms for entry in storm], last_at_ms):
            continue
        near = [entry for entry in rebalances[:last] if last_at_ms - entry.at_ms < STORM_MS]
        causes = [cause.said for entry in near for cause in causes_of(entry)]
        # After a member came or went, cooperative members join again by themselves.
        causes = [each for each in causes if each.kind not in REJOINS] or causes
        named = Counter(each.group_instance_id or client_text(each) for each in causes if each.member_ids)
        often = [f"{name} {times} times" for name, times in named.most_common() if times >= OFFENSES_MIN]
        if not often:
            continue
        finding = Finding(
            Severity.WARNING,
            "rebalance_loop",
            case.group_id,
            f"{len(near)} rebalances within a minute, again and again of the same members: {names_text(often)}",
            "see the causes by `tenure explain`, and the log of this program: it ends and is started again, or leaves "
            "at max.poll.interval.ms and comes back. A group.instance.id keeps restarts from moving anything",
            last_at_ms,
            len(near),
        )
        yield unless_over(finding, case.now_ms)
        return


def _is_settled(entries: Sequence[Entry], now_ms: int) -> bool:
    """Whether the newest rebalance ended long ago. Right after it, cooperative members join once more."""
    newest = [each.ended_ms if isinstance(each, Rebalance) and each.ended_ms else each.at_ms for each in entries]
    return bool(newest) and now_ms - max(newest) >= TRANSIENT_MS


def _severity(for_ms: int) -> Severity:
    return Severity.WARNING if for_ms >= LONG_MS else Severity.NOTICE


def _name(pair: TopicPartition) -> str:
    return f"{pair[0]}-{pair[1]}"


def _places(tracks: Iterable[Placed]) -> str:
    """Topic partitions with their committed offsets."""
    return names_text(
        [
            f"{_name(pair)} (nothing committed)" if track.offset is None else f"{_name(pair)} at {track.offset}"
            for pair, track in tracks
        ]
    )


def _hidden(stuck: Iterable[Placed]) -> str:
    return HIDDEN if any(track.ahead is not None and track.ahead.is_refused for _, track in stuck) else ""


def _rebalancing(group: Group, progress: GroupProgress, now_ms: int) -> Iterator[Finding]:
    """A rebalance under way, of a server that names nobody for whom it waits; `diagnosis` has those of others."""
    if progress.rebalancing_ms is None:
        return
    for_ms = now_ms - progress.rebalancing_ms
    whom = ""
    if group.consumer is not None:
        behind = [each for each in group.members if not _is_there(each, group.consumer.target_epoch)]
        whom = f"; not at its target: {members_text(behind)}" if behind else ""
    yield Finding(
        Severity.ERROR if for_ms >= REBALANCES_MS else Severity.NOTICE,
        "rebalancing",
        group.group_id,
        f"it has rebalanced since {time_text(progress.rebalancing_ms)} or longer ({group.state}, members known: "
        f"{len(group.members)}){whom or '; its server does not say whom it waits for'}",
        "a member takes part when it polls: see what keeps it from that. The longest max.poll.interval.ms of the "
        "group's members is how long the others wait",
        since_ms=progress.rebalancing_ms,
    )


def _is_there(member: Member, target_epoch: int) -> bool:
    seat = member.seat
    return seat is None or (seat.epoch >= target_epoch and (member.assignment or {}) == seat.target)


class Pulse(NamedTuple):
    """How a member shows that it lives: in words, and as the advice for one that reads nothing."""

    said: str
    advice: str


HANGS_ADVICE = (
    "the program hangs in a handler, or paused everything: take a dump of its threads, then mend or restart it. A "
    "handler that is only slow moves on by itself"
)

ALIVE = Pulse("is alive, but", f"its client sends heartbeats, so {HANGS_ADVICE}")

PERHAPS_ALIVE = Pulse(
    "is in the group, but",
    f"{HANGS_ADVICE}. Or its process is frozen, killed or cut off: then its session ends after session.timeout.ms "
    "(45 s by default), and other members get its topic partitions. If it is there for longer, its client sends "
    "heartbeats",
)


def _pulse(member: Member, waits_ms: int, now_ms: int) -> Pulse:
    """Whether a member's client sends heartbeats. waits_ms: since when all that it doesn't read waits.

    A server that doesn't tell when the last request came has the member until its session ends, also if nothing comes.
    """
    silent_ms, session_ms = member.silent_ms, member.session_timeout_ms
    if silent_ms is None or session_ms is None:
        return ALIVE if now_ms - waits_ms > RESTART_MAX_MS + GROWS_MS else PERHAPS_ALIVE
    if silent_ms < away_after_ms(session_ms):
        return ALIVE
    return Pulse(
        f"has sent nothing for {span_text(silent_ms)}, and",
        "its process is frozen, killed or cut off from the server: see whether it runs, and continue or restart it. "
        f"Its session ends by {time_text(now_ms - silent_ms + session_ms)} at the latest, and other members get its "
        "topic partitions",
    )


def _stuck(group: Group, progress: GroupProgress, pending: set[TopicPartition], now_ms: int) -> Iterator[Finding]:
    """Topic partitions that stand still in the hands of a member: one finding for each member.

    pending: those whose offsets wait for the end of a transaction.
    """
    if group.state in REBALANCING:
        return
    by_member: dict[str, list[Placed]] = {}
    for pair, track in progress.uneasy.items():
        if track.is_stuck and track.member is not None:
            by_member.setdefault(track.member.member_id, []).append((pair, track))
    placed = progress.of_members(by_member) if by_member else {}
    for member_id, stuck in by_member.items():
        member = stuck[0][1].member
        assert member is not None
        since_ms = min(track.since_ms for _, track in stuck)
        lag = sum(track.lag or track.end or 0 for _, track in stuck)
        moves = any(  # not in the last commit before the member stood still
            track.has_moved and now_ms - track.since_ms < STUCK_MS < 2 * (track.since_ms - since_ms)
            for track in placed[member_id]
        )
        never = all(track.offset is None for _, track in stuck)
        others = "others of its partitions move" if moves else "none of its partitions moves"
        is_held = all(track.is_held for _, track in stuck)
        others += _held_text(stuck) if is_held else ""
        others += _hidden(stuck)
        pulse = ALIVE if moves else _pulse(member, max(track.waits_ms or 0 for _, track in stuck), now_ms)
        advice = (_held_advice(stuck) if is_held else "") + _stuck_advice(pulse, is_whole=not moves, never=never)
        if pending.issuperset(pair for pair, _ in stuck):
            advice = (
                "its offsets are pending in a transaction, whose end commits or drops them: see hanging_transaction"
            )
        oldest_ms = min([since_ms, *(track.made_ms for _, track in stuck if track.made_ms is not None)])
        oldest = f", the oldest since {time_text(oldest_ms)} or longer" if oldest_ms < since_ms else ""
        is_few = bool(_hidden(stuck)) and all(track.lag <= MARKERS_MAX for _, track in stuck)
        yield Finding(
            Severity.NOTICE if never or is_few else _severity(now_ms - oldest_ms),
            "partition_stuck",
            group.group_id,
            f"{members_text([member])} {pulse.said} has committed nothing since {time_text(since_ms)} or longer "
            f"of {_places(stuck)}: {lag:,} records wait{oldest}; {others}",
            advice,
            since_ms=oldest_ms,
            member_id=member_id,
        )


def _held_text(stuck: Iterable[Placed]) -> str:
    """That readers of committed records wait, and for which transactions, as far as looks show."""
    holders = dict.fromkeys(track.holder._replace(start_offset=0) for _, track in stuck if track.holder is not None)
    named = [
        each.producer_text + (f" (since {time_text(each.since_ms)})" if each.since_ms is not None else "")
        for each in holders
        if each.producer_id is not None
    ]
    said = "; a transaction is open, so readers of committed records wait there"
    return f"{said}: for {names_text(named)}" if named else said


def _held_advice(stuck: Iterable[Placed]) -> str:
    """The way to end the oldest transaction of these that has a name."""
    named = [(pair, track.holder) for pair, track in stuck if track.holder and track.holder.since_ms is not None]
    advice = FIND_HOLDER
    if named:
        (topic, index), holder = min(named, key=lambda each: each[1].since_ms or 0)
        if holder.until_ms is None:
            advice = abort_advice(topic, index, holder.start_offset, "its records there")
        else:
            advice = restart_advice(holder.transactional_id, holder.until_ms)
    return (
        "if its program reads committed records (isolation.level=read_committed), nothing is wrong with it: "
        f"{advice}. Else "
    )


def _unacknowledged(group: Group, progress: GroupProgress, now_ms: int) -> Iterator[Finding]:
    """Topic partitions of a share group that stand still, though members read them: one finding for all."""
    stuck = {pair: track for pair, track in progress.uneasy.items() if track.stands}
    readers = [member for member in group.members if any(pair in stuck for pair in member.topic_partitions)]
    if readers:
        since_ms, lag = min(track.since_ms for track in stuck.values()), sum(track.lag for track in stuck.values())
        yield Finding(
            _severity(now_ms - since_ms),
            "partition_stuck",
            group.group_id,
            f"members are there, but nobody has acknowledged the next record since {time_text(since_ms)} or longer of "
            f"{_places(stuck.items())}: {members_text(readers)}; {lag:,} records wait",
            "one of these programs has the record at this offset and hangs in its handler, or each of them releases it "
            "again: take a dump of their threads, then mend or restart them. Or its process is frozen, killed or cut "
            "off. The lock of a record ends after share.record.lock.duration.ms, and another member gets it",
            since_ms=since_ms,
        )


def _stuck_advice(pulse: Pulse, *, is_whole: bool, never: bool) -> str:
    if never:
        return "nothing needs to be done if its program keeps offsets elsewhere; else it never got through a record"
    if is_whole:
        return pulse.advice
    return (
        "look at the record at this offset: a handler that fails on it tries again for ever, and a program may have "
        "paused the partition. Mend the handler, resume the partition, or stop the group and move its offset behind "
        "the record (kafka-consumer-groups --reset-offsets)"
    )


def _ownerless(group_id: str, progress: GroupProgress, now_ms: int) -> Iterator[Finding]:
    """Topic partitions that no member has, of topics of which members have others.

    One that an earlier look didn't show is young for a while: somebody added it, and members haven't heard of it yet.
    """
    found = {
        pair: at_ms
        for pair, at_ms in progress.ownerless.items()
        if at_ms == progress.first_ms or now_ms - at_ms >= TRANSIENT_MS
    }
    if not found:
        return
    since_ms = min(found.values())
    names = names_text(list(map(_name, found)))
    tracks = [track for pair in found if (track := progress.track(pair)) is not None and track.end is not None]
    waiting = f": {sum(track.unread for track in tracks):,} records wait" if tracks else ""
    yield Finding(
        Severity.WARNING if now_ms - since_ms >= STUCK_MAX_MS else Severity.NOTICE,
        "partition_ownerless",
        group_id,
        f"no member has {names}, since {time_text(since_ms)} or longer, though the group is Stable and members have "
        f"others of the topic{waiting}",
        "clients find new partitions of a topic within metadata.max.age.ms (librdkafka: "
        "topic.metadata.refresh.interval.ms), 5 minutes by default. After that, let the group rebalance once, as by a "
        "member that joins or leaves (KAFKA-21584)",
        since_ms=since_ms,
    )


def _idle(group: Group, progress: GroupProgress) -> Iterator[Finding]:
    """Members that have nothing to read."""
    idle = [member for member in group.members if member.member_id in progress.idle]
    if idle:
        since_ms = min(progress.idle[member.member_id] for member in idle)
        yield Finding(
            Severity.NOTICE,
            "member_ready_but_idle",
            group.group_id,
            f"alive, but without a topic partition: {members_text(idle)}, since {time_text(since_ms)} or longer",
            "nothing needs to be done if they are spare. Else stop them, or give their topics more partitions: a "
            "partition has one member at most",
            since_ms=since_ms,
        )


def _back(group_id: str, progress: GroupProgress) -> Iterator[Finding]:
    """Committed offsets that went back: one finding for all."""
    tracks = [(pair, track, track.back) for pair, track in progress.uneasy.items() if track.back is not None]
    if tracks:
        told = [
            f"{_name(pair)} from {back.former} to {back.offset}"
            + ("" if track.member is None else f" ({members_text([track.member])})")
            for pair, track, back in tracks
        ]
        yield Finding(
            Severity.NOTICE,
            "commit_back",
            group_id,
            f"committed offsets went back: {names_text(told)}: the records in between are read a second time",
            "nothing needs to be done if somebody reset them. Else a consumer that had lost the partition still "
            "committed: let it commit when it gives up partitions (a listener for revoked partitions), or see how long "
            "its handler takes",
            max(back.at_ms for _, _, back in tracks),
            len(tracks),
        )


def _behind_retention(group_id: str, progress: GroupProgress) -> Iterator[Finding]:
    """Records that were deleted before the group read them, else those that will be."""
    tracks = progress.uneasy.items()
    lost = [(pair, track) for pair, track in tracks if track.lost]
    left = [(pair, track, left_ms) for pair, track in tracks if (left_ms := track.left_ms) is not None]
    if lost:
        yield Finding(
            Severity.ERROR,
            "behind_retention",
            group_id,
            f"the log deleted {sum(track.lost for _, track in lost):,} records before the group read them: "
            f"{_places(lost)}",
            "raise the topic's retention.ms or retention.bytes, and see why the group is so far behind. Its next "
            "commit behind the first record of the log ends this; auto.offset.reset says where it goes on",
        )
    elif left:
        yield Finding(
            Severity.WARNING,
            "behind_retention",
            group_id,
            "the log will delete records before the group reads them, the first ones within "
            f"{span_text(min(left_ms for _, _, left_ms in left))}: {_places((pair, track) for pair, track, _ in left)}",
            "raise the topic's retention.ms or retention.bytes at once, then see why the group is so far behind: start "
            "members if it has none, or more of them, up to one for each topic partition",
        )


def _silent(group: Group, entries: Sequence[Entry], progress: GroupProgress, now_ms: int) -> Iterator[Finding]:
    """A group that had members and has none, while records wait."""
    last = next((entry for entry in reversed(entries) if isinstance(entry, Rebalance)), None)
    if group.members or last is None or last.ended is None or last.outcome != "emptied":
        return
    for_ms = now_ms - last.ended.at_ms
    behind = [(pair, track) for pair, track in progress.uneasy.items() if track.lag > 0]
    if not behind or for_ms < STUCK_MS:
        return
    went = names_text([f"{each.said.group_instance_id or client_text(each.said)}" for each in causes_of(last)])
    yield Finding(
        _severity(for_ms),
        "silent_group",
        group.group_id,
        f"it has had no members since {time_text(last.ended.at_ms)}, and {sum(track.lag for _, track in behind):,} "
        f"records wait: {_places(behind)}; the last members: {went}",
        "start its programs; `tenure explain` has the reason why the last ones went. A group that nobody needs ends "
        "with `tenure groups delete`",
        since_ms=last.ended.at_ms,
    )
