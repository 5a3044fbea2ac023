"""Reads the records, keys, values and members of many plain batches at once.

The steps are in lockstep: the first record of every batch, then the second record of every batch that has one, and so
on; then the fields of all keys and all values; then where the first member of every group begins, the second, and so
on; then the fields of all members.

A batch that has anything odd stops being plain: its flag in `plain` goes off, and parse.py reads the whole batch. Being
plain is cheap to give up, so each step rejects everything that could be odd.

House rule: nothing is judged here; a step only decides whether a batch stays plain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coordinator.audit.read.vectors import Data, Flags, Ints, Text
from coordinator.group.records import GROUP_KEY_VERSION, GROUP_VALUE_VERSION, OFFSET_KEY_VERSION, OFFSET_VALUE_VERSION
from coordinator.story.records.values import MEMBER_DATA_SIZE_MAX
from protocol.records.batch import HEADER_SIZE

MEMBERS_MAX = 5_000
"""Members of a group that is read here: lockstep pays while many groups have a next member."""
SANE_MAX = 2**62
"""Offsets and timestamps below this can be added without an overflow."""

_MEMBER_SIZE_MIN = 24
_INT16_MAX = 2**15 - 1


class Batches(NamedTuple):
    """The batches of a range: from `start` up to `end` of the data, and fields of their headers.

    plain: which of them are read here.
    """

    start: Ints
    end: Ints
    base_offset: Ints
    last_delta: Ints
    base_ts: Ints
    record_count: Ints
    plain: Flags


class Records(NamedTuple):
    """Records in the order of the log. batch: the index of its batch. is_group: a group's record, or an offset's."""

    batch: Ints
    offset: Ints
    ts: Ints
    key: Text
    value: Text
    is_group: Flags


class Keys(NamedTuple):
    """group: of every record. offset_rows, group_rows: indexes of the records of each kind.

    topic, topic_partition: of the records in offset_rows.
    """

    group: Text
    offset_rows: Ints
    group_rows: Ints
    topic: Text
    topic_partition: Ints


class Offsets(NamedTuple):
    """Committed offsets. row: the index of its record."""

    row: Ints
    null: Flags
    committed: Ints
    leader_epoch: Ints
    metadata: Text
    commit_ts: Ints


class Groups(NamedTuple):
    """Groups. row: the index of its record. members_at: where the first member begins, if `member_count` isn't 0."""

    row: Ints
    null: Flags
    protocol_type: Text
    generation: Ints
    protocol: Text
    leader: Text
    state_ts: Ints
    member_count: Ints
    members_at: Ints
    limit: Ints


class Members(NamedTuple):
    """Members. row: the index of its record. group: the index of its group.

    texts: member id, instance id, client id, client host, subscription, assignment. order: indexes of the members in
    the order of the log.
    """

    row: Ints
    group: Ints
    rebalance_ms: Ints
    session_ms: Ints
    texts: list[Text]
    order: Ints


class Fields:
    """Reads the plain ones of some batches, and takes the flag from those that are odd."""

    def __init__(self, data: Data, batches: Batches) -> None:
        self._data = data
        self._batches = batches

    def records(self, *, needs_offsets: bool, needs_groups: bool) -> Records:
        """The needed records of all plain batches, in the order of the log.

        A record that is neither of an offset nor of a group makes its batch odd.
        """
        data, every = self._data, self._batches
        batches = np.flatnonzero(every.plain)
        cursor = every.start + HEADER_SIZE
        former = np.full(len(every.start), -1, np.int64)
        parts: list[tuple[Ints, ...]] = []
        step = 0
        while len(batches):
            at, limit = cursor[batches], every.end[batches]
            size, at, bad = data.varint(at)
            end = at + (size >> 1)
            bad |= (size & 1 == 1) | (end > limit)
            end = np.minimum(end, limit)
            ts, at, long = data.varint(np.minimum(at + 1, limit))
            bad |= long
            delta, at, long = data.varint(np.minimum(at, limit))
            bad |= long | (delta & 1 == 1) | (delta >> 1 <= former[batches]) | (delta >> 1 > every.last_delta[batches])
            key_size, key_at, long = data.varint(np.minimum(at, limit))
            bad |= long | (key_size & 1 == 1)
            at = key_at + (key_size >> 1)
            bad |= at > end
            value_size, value_at, long = data.varint(np.minimum(at, limit))
            is_null = value_size == 1
            bad |= long | ((value_size & 1 == 1) & ~is_null)
            at = value_at + np.where(is_null, 0, value_size >> 1)
            # The last byte is the count of headers, 0.
            bad |= (at + 1 != end) | (data.at(np.minimum(at, limit)) != 0)
            ts_delta = (ts >> 1) ^ -(ts & 1)
            bad |= np.abs(ts_delta) >= SANE_MAX
            every.plain[batches[bad]] = False
            good = ~bad
            batches = batches[good]
            former[batches] = delta[good] >> 1
            cursor[batches] = end[good]
            parts.append((
                batches, every.base_offset[batches] + (delta[good] >> 1), every.base_ts[batches] + ts_delta[good],
                key_at[good], key_size[good] >> 1, value_at[good], np.where(is_null, -1, value_size >> 1)[good],
            ))  # fmt: skip
            step += 1
            done = every.record_count[batches] == step
            every.plain[batches[done & (cursor[batches] != every.end[batches])]] = False
            batches = batches[~done]
        return self._needed(parts, needs_offsets=needs_offsets, needs_groups=needs_groups)

    def _needed(self, parts: list[tuple[Ints, ...]], *, needs_offsets: bool, needs_groups: bool) -> Records:
        """The records of all steps that are needed, in the order of the log."""
        columns = (
            [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0, np.int64)] * 7
        )
        batch, _, _, key_at, key_size, _, _ = columns
        version = np.where(key_size >= 2, self._data.signed(key_at, 2), -1)
        is_offset, is_group = version == OFFSET_KEY_VERSION, version == GROUP_KEY_VERSION
        self._batches.plain[batch[~(is_offset | is_group)]] = False
        needed = np.flatnonzero((is_offset & needs_offsets) | (is_group & needs_groups))
        needed = needed[np.argsort(batch[needed], kind="stable")]
        batch, offset, ts, key_at, key_size, value_at, value_size = (column[needed] for column in columns)
        return Records(batch, offset, ts, Text(key_at, key_size), Text(value_at, value_size), is_group[needed])

    def _not_plain(self, records: Records, bad: Flags, rows: Ints) -> None:
        self._batches.plain[records.batch[rows[bad]]] = False

    def keys(self, records: Records) -> Keys:
        """The fields of the keys."""
        data = self._data
        at, limit = records.key.start, records.key.start + records.key.size
        group, end, bad = data.text(np.minimum(at + 2, limit), limit)
        bad |= limit - at < 4
        self._not_plain(records, bad, np.arange(len(records.batch)))
        offset_rows = np.flatnonzero(~records.is_group)
        limit = limit[offset_rows]
        topic, end, bad = data.text(end[offset_rows], limit)
        bad |= end + 4 > limit
        self._not_plain(records, bad, offset_rows)
        return Keys(group, offset_rows, np.flatnonzero(records.is_group), topic, data.signed(end, 4))

    def _starts_of_values(
        self, records: Records, rows: Ints, version: int, size_min: int
    ) -> tuple[Ints, Ints, Flags, Flags]:
        """Where the fields of values begin (behind the version) and end; flags for tombstones and for odd values."""
        value = records.value.take(rows)
        null = value.size < 0
        limit = value.start + np.maximum(value.size, 0)
        bad = ~null & (value.size < size_min)
        bad |= ~null & (self._data.signed(value.start, 2) != version)
        return np.minimum(value.start + 2, limit), limit, null, bad

    def offsets(self, records: Records, rows: Ints) -> Offsets:
        """The values of the committed offsets in these rows."""
        data = self._data
        at, limit, null, bad = self._starts_of_values(records, rows, OFFSET_VALUE_VERSION, 2 + 8 + 4 + 2 + 8)
        metadata, end, odd = data.text(np.minimum(at + 12, limit), limit)
        bad |= ~null & (odd | (end + 8 > limit))
        self._not_plain(records, bad, rows)
        return Offsets(
            rows, null, data.signed(at, 8), data.signed(at + 8, 4),
            Text(metadata.start, np.where(null, -1, metadata.size)), data.signed(end, 8),
        )  # fmt: skip

    def groups(self, records: Records, rows: Ints) -> Groups:
        """The values of the groups in these rows, up to their members."""
        data = self._data
        at, limit, null, bad = self._starts_of_values(records, rows, GROUP_VALUE_VERSION, 2 + 2 + 4 + 2 + 2 + 8 + 4)
        protocol_type, end, odd = data.text(at, limit)
        bad |= ~null & odd
        generation = data.signed(end, 4)
        protocol, end, odd = data.text(np.minimum(end + 4, limit), limit, nullable=True)
        bad |= ~null & odd
        leader, end, odd = data.text(end, limit, nullable=True)
        bad |= ~null & (odd | (end + 12 > limit))
        state_ts, count = data.signed(end, 8), data.signed(end + 8, 4)
        bad |= ~null & ((count < 0) | (count > MEMBERS_MAX) | (count * _MEMBER_SIZE_MIN > limit - end - 12))
        bad |= limit - at > MEMBER_DATA_SIZE_MAX  # parse.py must count members and partitions before it decodes them
        self._not_plain(records, bad, rows)
        count = np.where(null | bad, 0, count)

        def text(of: Text) -> Text:
            return Text(of.start, np.where(null, -1, of.size))

        return Groups(
            rows, null, text(protocol_type), generation, text(protocol), text(leader), state_ts, count,
            np.minimum(end + 12, limit), limit,
        )  # fmt: skip

    def members(self, records: Records, groups: Groups) -> Members:
        """The members of all groups."""
        group, start, sizes = self._walk(groups)
        texts: list[Text] = []
        at = start
        bad = np.zeros(len(group), np.bool_)
        for size in sizes[:4]:
            texts.append(Text(at + 2, size))
            at = at + 2 + np.maximum(size, 0)
            bad |= size > _INT16_MAX
        timeouts = self._data.signed(np.minimum(at, groups.limit[group]), 8)
        at = at + 8
        for size in sizes[4:]:
            texts.append(Text(at + 4, size))
            at = at + 4 + size
        # `_walk` reads sizes as unsigned: a negative one is either above the signed maximum or ends beyond the limit.
        bad |= at > groups.limit[group]
        row = groups.row[group]
        self._not_plain(records, bad, row)
        order = np.argsort(group, kind="stable")
        return Members(row, group, timeouts >> 32, timeouts.astype(np.int32), texts, order)

    def _walk(self, groups: Groups) -> tuple[Ints, Ints, Ints]:
        """For each member: the index of its group, its start, and the sizes of its six texts.

        The first members of all groups come first, then the second ones, and so on. A step takes a few calls, as it
        checks nothing. Each view is shifted by the bytes that lie between two sizes, so `at` only adds sizes. Numbers
        that lie beyond a group's end have no meaning.
        """
        count = groups.member_count
        group = np.zeros(int(count.sum()), np.int64)
        start = np.zeros(len(group), np.int64)
        sizes = np.zeros((6, len(group)), np.int64)
        # Groups with the most members first: the groups that have a next member are then always the first ones.
        order = np.argsort(-count, kind="stable")
        at, limit = groups.members_at[order], groups.limit[order]
        have_more = len(count) - np.cumsum(np.bincount(count, minlength=1))
        every = self._data.every
        member_id, instance_id = every(">u2"), every(">i2", 2)
        client_id, client_host = every(">u2", 4), every(">u2", 6)
        subscription, assignment = every(">u4", 16), every(">u4", 20)
        done = 0
        for active in have_more.tolist():
            at, limit = at[:active], limit[:active]
            group[done : done + active] = order[:active]
            start[done : done + active] = at
            of_step = sizes[:, done : done + active]
            done += active
            of_step[0] = member_id[at]
            at += of_step[0]
            of_step[1] = instance_id[at]
            at += np.maximum(of_step[1], 0)
            of_step[2] = client_id[at]
            at += of_step[2]
            of_step[3] = client_host[at]
            at += of_step[3]
            of_step[4] = subscription[at]
            at += of_step[4]
            np.minimum(at, limit, out=at)
            of_step[5] = assignment[at]
            at += of_step[5]
            at += _MEMBER_SIZE_MIN
            np.minimum(at, limit, out=at)
        return group, start, sizes
