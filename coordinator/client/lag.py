"""How far a group is behind: its committed offsets beside the ends of the logs.

A server that only coordinates groups has no records of their topics. Then an end is unknown, or the log is empty and
the committed offset lies beyond its end. Neither is a lag, so sums leave such topic partitions out and count them.

House rule: a missing number is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coordinator.client.errors import Refused
from coordinator.client.groups import committed_offsets, share_offsets
from coordinator.client.topics import EARLIEST, Leaders, log_end_offsets
from coordinator.story.described import SHARE, Expiry, OffsetLine
from coordinator.story.lag_time import GroupLag, LagTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.client.client import Client
    from coordinator.client.groups import Group, Offsets
    from coordinator.client.retention import Retention
    from coordinator.client.topics import TopicPartition
    from coordinator.story.described import Member
    from coordinator.story.lag_time import Past

NOTHING = GroupLag({}, {}, {})
"""The lag in time of a group that no look saw."""

TIME_FIELDS = ("behind_ms", "behind_is_least", "in_per_s", "out_per_s", "catch_up_ms", "catches_up")


def offset_lines(client: Client, groups: Sequence[Group]) -> dict[str, list[OffsetLine]]:
    """As `known_lines`. Raises `Refused` if the offsets of a group are refused."""
    lines: dict[str, list[OffsetLine]] = {}
    for group_id, answer in known_lines(client, groups, stable=True).items():
        if isinstance(answer, Refused):
            raise answer
        lines[group_id] = answer
    return lines


def known_lines(
    client: Client,
    groups: Sequence[Group],
    *,
    starts: bool = False,
    stable: bool = False,
    leaders: Leaders | None = None,
    retention: Retention | None = None,
) -> dict[str, list[OffsetLine] | Refused]:
    """Lines by group: assigned topic partitions, the others that it has or lacks, then members that have none.

    The others have a committed offset, or no member has them though members have some of their topic.

    starts, stable: whether to ask for the first offset of logs with records that the group has not read, and where
    readers of committed records stop. leaders: of topic partitions, as far as known. retention: to ask how long the
    logs keep such records.
    """
    leaders = leaders or Leaders()
    committed = committed_offsets(client, [group.group_id for group in groups if group.kind != SHARE])
    # Several members of a share group have the same topic partition, so none is named.
    owners = {
        group.group_id: {
            pair: None if group.kind == SHARE else member
            for member in group.members
            for pair in member.topic_partitions
        }
        for group in groups
    }
    lags: dict[tuple[str, TopicPartition], int | None] = {}
    for name, shared in share_offsets(client, [group.group_id for group in groups if group.kind == SHARE]).items():
        committed[name] = shared if isinstance(shared, Refused) else {pair: each.start for pair, each in shared.items()}
        lags |= {} if isinstance(shared, Refused) else {(name, pair): each.lag for pair, each in shared.items()}
    offsets = {name: answer for name, answer in committed.items() if not isinstance(answer, Refused)}
    unowned = _unowned(client, [group for group in groups if group.group_id in offsets], owners, offsets, leaders)
    placed = [pair for name, each in offsets.items() for pair in (*each, *owners[name], *unowned.get(name, ()))]
    ends = log_end_offsets(client, placed, leaders=leaders)
    behind = [pair for each in offsets.values() for pair, offset in each.items() if (offset or 0) < ends.get(pair, 0)]
    behind += [pair for each in unowned.values() for pair in each if ends.get(pair)]
    firsts = log_end_offsets(client, behind, EARLIEST, leaders) if starts else {}
    stops = log_end_offsets(client, behind, leaders=leaders, only_committed=True) if stable else {}
    stops = {pair: offset for pair, offset in stops.items() if offset < ends[pair]}
    expiries = retention.expiries(client, {pair: ends[pair] for pair in behind}, leaders) if retention else {}

    def expiry(pair: TopicPartition, offset: int | None) -> Expiry | None:
        """The narrowest expiry of the record at the offset, or the widest one."""
        known = expiries.get(pair, ())
        return next((each for each in reversed(known) if (offset or 0) < each.offset), known[0] if known else None)

    def lines(group: Group, offsets: Offsets) -> Iterator[OffsetLine]:
        owned = owners[group.group_id]
        others = offsets.keys() - owned.keys()
        for pair in (*owned, *sorted({*others, *unowned[group.group_id]} if group.group_id in unowned else others)):
            offset, told = offsets.get(pair), lags.get((group.group_id, pair)) if lags else None
            until = expiry(pair, offset) if pair in expiries else None
            yield OffsetLine(
                *pair, offset, ends.get(pair), owned.get(pair), firsts.get(pair), until, told, stops.get(pair)
            )
        for member in group.members:
            if not member.topic_partitions:
                yield OffsetLine(None, None, None, None, member)

    return {
        group.group_id: answer
        if isinstance(answer := committed[group.group_id], Refused)
        else list(lines(group, answer))
        for group in groups
    }


def _unowned(
    client: Client,
    groups: Iterable[Group],
    owners: Mapping[str, Mapping[TopicPartition, Member | None]],
    offsets: Mapping[str, Offsets],
    leaders: Leaders,
) -> dict[str, list[TopicPartition]]:
    """The topic partitions without a member and without an offset, of topics of which members have others, by group."""
    stable = [group for group in groups if group.state == "Stable" and group.kind != SHARE]
    owned = {group.group_id: Counter(topic for topic, _ in owners[group.group_id]) for group in stable}
    counts = leaders.counts(client, {topic for each in owned.values() for topic in each})
    found: dict[str, list[TopicPartition]] = {}
    for name, topics in owned.items():
        for topic, number in topics.items():
            if number < counts.get(topic, 0):
                known = owners[name].keys() | offsets[name].keys()
                found.setdefault(name, []).extend(
                    pair for index in range(counts[topic]) if (pair := (topic, index)) not in known
                )
    return found


def lag_json(lines: Sequence[OffsetLine], known: LagTime | None = None) -> dict[str, Any]:
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


def group_lag_json(group_id: str, lines: Sequence[OffsetLine], known: GroupLag = NOTHING) -> dict[str, Any]:
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


def line_json(line: OffsetLine, known: GroupLag = NOTHING) -> dict[str, Any]:
    """A topic partition as JSON."""
    member = line.member
    return {
        "partition": line.partition,
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


def time_json(known: LagTime | None) -> dict[str, Any]:
    """A lag in time as JSON; None for what is not known."""
    if known is None:
        return dict.fromkeys(TIME_FIELDS)
    rates, wait_s, is_known = known.rates, known.catch_up_s, known.is_wait_known
    values = (
        known.behind_ms,
        known.is_least,
        None if rates is None else round(rates.in_s, 3),
        None if rates is None else round(rates.out_s, 3),
        round(wait_s * 1000) if is_known and wait_s is not None else None,
        wait_s is not None if is_known else None,
    )
    return dict(zip(TIME_FIELDS, values, strict=True))


def _past_json(past: Past | None) -> list[dict[str, int]]:
    return [] if past is None else [{"at_ms": each.at_ms, "lag": each.lag} for each in past.moments]


def _index(line: OffsetLine) -> int:
    return -1 if line.partition is None else line.partition
