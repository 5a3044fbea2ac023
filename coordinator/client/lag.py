"""How far a group is behind: its committed offsets beside the ends of the logs.

A server that only coordinates groups has no records of their topics. Then an end is unknown, or the log is empty and
the committed offset lies beyond its end. Neither is a lag, so sums leave such topic partitions out and count them.

House rule: a missing number is None, never 0. JSON has the fields of the classes below, of which OpenAPI is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Annotated, NamedTuple, TypedDict

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import ShareOffsets, committed_offsets, share_offsets
from coordinator.client.retention import Retention
from coordinator.client.topics import EARLIEST, Leaders, log_end_offsets
from coordinator.story.described import SHARE, Group, Member
from coordinator.story.events import UnixMs, says
from coordinator.story.lag_time import GroupLag, LagTime, Past
from coordinator.story.offsets import NO_OFFSET, GroupOffsets, OffsetLine, TopicOffsets

NOTHING = GroupLag({}, {}, {})
"""The lag in time of a group that no look saw."""

StableLag = Annotated[
    int | None, says("the same, for readers of committed records: records of open transactions don't count")
]


class TimeJson(TypedDict):
    """A lag in time as JSON."""

    behind_ms: Annotated[
        int | None, says("the age of the oldest record to read; this and the next are null if no look tells them")
    ]
    behind_is_least: Annotated[bool | None, says("whether it may be older")]
    in_per_s: Annotated[float | None, says("records that come in a second")]
    out_per_s: Annotated[float | None, says("records that the group reads in a second")]
    catch_up_ms: Annotated[int | None, says("until all is read; 0: it keeps up; null for never, too")]
    catches_up: Annotated[bool | None, says("false for never")]


class SumsJson(TimeJson):
    """Sums of topic partitions as JSON."""

    partitions: Annotated[int, says("topic partitions that are assigned, or of which a client committed an offset")]
    assigned_partitions: int
    lag: Annotated[int | None, says("the sum, of topic partitions where it is known; null if there are none")]
    stable_lag: StableLag
    without_end: Annotated[int, says("topic partitions with a committed offset, without a known end of the log")]
    beyond_end: Annotated[int, says("those whose committed offset is beyond the end of the log")]


class OffsetJson(TimeJson):
    """A topic partition as JSON."""

    partition: int
    current_offset: Annotated[int | None, says("the committed offset; null for none, or one below 0")]
    log_end_offset: int | None
    last_stable_offset: Annotated[
        int | None,
        says(
            "where readers of committed records stop, if a transaction is open before the end; no request of a group "
            "tells its members' isolation.level"
        ),
    ]
    lag: Annotated[int | None, says("negative if the committed offset is beyond the end")]
    stable_lag: StableLag
    member_id: str | None
    group_instance_id: str | None
    client_id: str | None
    client_host: str | None


class MomentJson(TypedDict):
    """A look as JSON."""

    at_ms: UnixMs
    lag: int


PastJson = Annotated[list[MomentJson], says("some looks of the last hour")]


class TopicLagJson(SumsJson):
    """A topic of a group as JSON."""

    topic: str
    past: PastJson
    offsets: list[OffsetJson]


class GroupLagJson(SumsJson):
    """The lag of a group as JSON."""

    group_id: str
    past: PastJson
    topics: list[TopicLagJson]


def offset_lines(client: Client, groups: Sequence[Group]) -> dict[str, list[OffsetLine]]:
    """As `known_lines`. Raises `Refused` if the offsets of a group are refused."""
    lines: dict[str, list[OffsetLine]] = {}
    for group_id, answer in known_lines(client, groups, stable=True).items():
        if isinstance(answer, Refused):
            raise answer
        lines[group_id] = answer
    return lines


def known_lines(
    client: Client, groups: Sequence[Group], *, starts: bool = False, stable: bool = False
) -> dict[str, list[OffsetLine] | Refused]:
    """The lines of these groups, as `lines_of`. starts, stable: as of `known_offsets`."""
    known = known_offsets(client, groups, starts=starts, stable=stable)
    return {
        group.group_id: told if isinstance(told := known[group.group_id], Refused) else lines_of(group, told)
        for group in groups
    }


def lines_of(group: Group, offsets: GroupOffsets) -> list[OffsetLine]:
    """Assigned topic partitions, the others that the group has or lacks, then members that have none.

    The others have a committed offset, or no member has them though members have some of their topic.
    """
    lines = {(topic, line.partition or 0): line for topic, told in offsets.items() for line in told.all_lines(topic)}
    owned = dict.fromkeys(pair for member in group.members for pair in member.topic_partitions)
    pairs = [*owned, *sorted(lines.keys() - owned.keys())]
    without = [member for member in group.members if not member.topic_partitions]
    return [*map(lines.__getitem__, pairs), *(OffsetLine(None, None, None, None, member) for member in without)]


class _Part(NamedTuple):
    """A topic of a group. members, offsets, lags: by index. lacked: as in `lines_of`. lags: of a share group."""

    group_id: str
    topic: str
    members: Mapping[int, Member | None]
    offsets: Mapping[int, int]
    lacked: Sequence[int]
    lags: Mapping[int, int | None]


def known_offsets(
    client: Client,
    groups: Sequence[Group],
    *,
    starts: bool = False,
    stable: bool = False,
    leaders: Leaders | None = None,
    retention: Retention | None = None,
) -> dict[str, GroupOffsets | Refused]:
    """The offsets of these groups.

    starts, stable: whether to ask for the first offset of logs with records that the group has not read, and where
    readers of committed records stop. leaders: of topic partitions, as far as known. retention: to ask how long the
    logs keep such records.
    """
    leaders = leaders or Leaders()
    committed = committed_offsets(client, [group.group_id for group in groups if group.kind != SHARE])
    shared = share_offsets(client, [group.group_id for group in groups if group.kind == SHARE])
    counts = leaders.counts(client, {topic for group in groups if _is_whole(group) for topic in _owned(group)})
    told: dict[str, dict[str, TopicOffsets]] = {}
    refused: dict[str, Refused] = {}
    parts: list[_Part] = []
    for group in groups:
        answer = shared[group.group_id] if group.kind == SHARE else committed[group.group_id]
        if isinstance(answer, Refused):
            refused[group.group_id] = answer
            continue
        told[group.group_id] = {}
        own = answer if isinstance(answer, ShareOffsets) else ShareOffsets(answer, {})
        parts += _parts(group, own, counts)
    ends = _ends(client, parts, leaders)
    columns = [_columns(part, ends[part.topic]) for part in parts]
    behind = {
        (part.topic, index): end
        for part, (_, waiting) in zip(parts, columns, strict=True)
        for index in waiting
        if index in part.offsets or index not in part.members
        if (end := ends[part.topic].get(index, 0)) > max(part.offsets.get(index, 0), 0)
    }
    firsts = log_end_offsets(client, behind, EARLIEST, leaders) if starts else {}
    stops = log_end_offsets(client, behind, leaders=leaders, only_committed=True) if stable else {}
    stops = {pair: offset for pair, offset in stops.items() if offset < behind[pair]}
    expiries = retention.expiries(client, behind, leaders) if retention else {}

    def line(part: _Part, index: int) -> OffsetLine:
        pair, offset = (part.topic, index), part.offsets.get(index, NO_OFFSET)
        until = None
        if pair in expiries:  # the narrowest one of the record at the offset, or the widest one
            known = expiries[pair]
            until = next((each for each in reversed(known) if max(offset, 0) < each.offset), known[0])
        return OffsetLine(
            part.topic,
            index,
            None if offset < 0 else offset,
            ends[part.topic].get(index),
            part.members.get(index),
            firsts.get(pair),
            until,
            part.lags.get(index) if part.lags else None,
            stops.get(pair),
        )

    for part, (topic_offsets, waiting) in zip(parts, columns, strict=True):
        lines = {index: line(part, index) for index in waiting}
        told[part.group_id][part.topic] = topic_offsets._replace(lines=lines)
    return {**told, **refused}


def _owned(group: Group) -> dict[str, dict[int, Member | None]]:
    """The topic partitions that members have. Several members of a share group have the same one: none is named."""
    owned: dict[str, dict[int, Member | None]] = {}
    for member in group.members:
        for topic, indexes in (member.assignment or {}).items():
            if indexes:
                owned.setdefault(topic, {}).update(dict.fromkeys(indexes, None if group.kind == SHARE else member))
    return owned


def _is_whole(group: Group) -> bool:
    """Whether members should have all topic partitions of their topics."""
    return group.state == "Stable" and group.kind != SHARE


def _parts(group: Group, known: ShareOffsets, counts: Mapping[str, int]) -> Iterator[_Part]:
    owned = _owned(group)
    for topic in owned | known.starts:
        members, offsets = owned.get(topic, {}), known.starts.get(topic, {})
        count = counts.get(topic, 0) if members and _is_whole(group) else 0
        lacked = [index for index in range(count) if index not in members and index not in offsets]
        yield _Part(group.group_id, topic, members, offsets, lacked, known.lags.get(topic, {}))


def _ends(client: Client, parts: Iterable[_Part], leaders: Leaders) -> dict[str, dict[int, int]]:
    """The ends of the logs, by topic and partition."""
    wanted: dict[str, set[int]] = {}
    for part in parts:
        wanted.setdefault(part.topic, set()).update(part.members, part.offsets, part.lacked)
    ends: dict[str, dict[int, int]] = {topic: {} for topic in wanted}
    pairs = [(topic, index) for topic, indexes in wanted.items() for index in indexes]
    for (topic, index), end in log_end_offsets(client, pairs, leaders=leaders).items():
        ends[topic][index] = end
    return ends


def _columns(part: _Part, ends: Mapping[int, int]) -> tuple[TopicOffsets, Sequence[int]]:
    """The columns of a topic of a group, and the topic partitions that may have records to read."""
    indexes = sorted({*part.members, *part.offsets, *part.lacked})
    members = list(map(part.members.get, indexes))
    offsets, own = (list(map(known.get, indexes, repeat(NO_OFFSET))) for known in (part.offsets, ends))
    columns = TopicOffsets(indexes, members, offsets, own, {})
    if part.lags:
        return columns, indexes
    return columns, [index for index, offset, end in zip(indexes, offsets, own, strict=True) if not 0 <= end <= offset]


def lag_json(lines: Sequence[OffsetLine], known: LagTime | None = None) -> SumsJson:
    """The sums of these lines as JSON.

    lag, stable_lag: of the topic partitions where it is known; None if there are none. without_end, beyond_end: how
    many topic partitions with a committed offset have no lag, and why. known: the lag in time, if looks tell it.
    """
    placed = [line for line in lines if line.topic is not None]
    behind = [line for line in placed if line.lag is not None and not line.is_beyond_end]
    committed = [line for line in placed if line.current_offset is not None]
    return {
        "partitions": len(placed),
        "assigned_partitions": sum(line.member is not None for line in placed),
        "lag": sum(line.lag or 0 for line in behind) if behind else None,
        "stable_lag": sum(line.stable_lag or 0 for line in behind) if behind else None,
        "without_end": sum(line.has_no_end for line in committed),
        "beyond_end": sum(line.is_beyond_end for line in committed),
        **time_json(known),
    }


def group_lag_json(group_id: str, lines: Sequence[OffsetLine], known: GroupLag = NOTHING) -> GroupLagJson:
    """The lag of a group as JSON: its sums, and its topics by name, each with its sums and its topic partitions."""
    by_topic: dict[str, list[OffsetLine]] = {}
    for line in lines:
        if line.topic is not None:
            by_topic.setdefault(line.topic, []).append(line)
    return {
        "group_id": group_id,
        **lag_json(lines, known.sums.get(None)),
        "past": _past_json(known.past.get(None)),
        "topics": [
            {
                "topic": topic,
                **lag_json(own, known.sums.get(topic)),
                "past": _past_json(known.past.get(topic)),
                "offsets": [line_json(line, known) for line in sorted(own, key=_index)],
            }
            for topic, own in sorted(by_topic.items())
        ],
    }


def line_json(line: OffsetLine, known: GroupLag = NOTHING) -> OffsetJson:
    """A topic partition as JSON."""
    member = line.member
    return {
        "partition": _index(line),
        "current_offset": line.current_offset,
        "log_end_offset": line.log_end_offset,
        "last_stable_offset": line.stable_offset,
        "lag": line.lag,
        "stable_lag": line.stable_lag,
        **time_json(line_time(line, known)),
        "member_id": None if member is None else member.member_id,
        "group_instance_id": None if member is None else member.group_instance_id,
        "client_id": None if member is None else member.client_id,
        "client_host": None if member is None else member.client_host,
    }


def line_time(line: OffsetLine, known: GroupLag) -> LagTime | None:
    """The lag in time of a topic partition; None if no look tells it."""
    if line.topic is None or line.partition is None:
        return None
    return known.partitions.get((line.topic, line.partition)) or (LagTime() if line.lag == 0 else None)


def time_json(known: LagTime | None) -> TimeJson:
    """A lag in time as JSON; None for what is not known."""
    rates = None if known is None else known.rates
    is_wait_known = known is not None and known.is_wait_known
    wait_s = None if known is None or not is_wait_known else known.catch_up_s
    return {
        "behind_ms": None if known is None else known.behind_ms,
        "behind_is_least": None if known is None else known.is_least,
        "in_per_s": None if rates is None else round(rates.in_s, 3),
        "out_per_s": None if rates is None else round(rates.out_s, 3),
        "catch_up_ms": None if wait_s is None else round(wait_s * 1000),
        "catches_up": wait_s is not None if is_wait_known else None,
    }


def _past_json(past: Past | None) -> list[MomentJson]:
    return [] if past is None else [{"at_ms": each.at_ms, "lag": each.lag} for each in past.moments]


def _index(line: OffsetLine) -> int:
    return -1 if line.partition is None else line.partition
