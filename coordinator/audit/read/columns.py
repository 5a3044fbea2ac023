"""A byte range as the tables in Arrow: many records at a time, with the rows of parse.py.

A loop goes from batch to batch, and another one takes the CRCs of those that give rows; all else is done in lockstep
by numpy: the first record of every batch, then the second of every batch that has one, and so on; then the fields of
all keys and values, then where the first member of every group begins, the second, and so on, and the fields of all
members. Texts never become Python's: Arrow takes them out of the file's bytes, a column at a time.

Only what is plain goes this way: batches without codec, transaction or headers, with the keys that Kafka writes since
0.11 and values of version 3 (and tombstones), which is nearly all there is. Every other batch is read by parse.py, and
its rows are put where they belong, some at a time: a batch may hold a hundred times as many as its bytes let expect.
What makes a batch not plain is decided generously: whatever could be odd is. What nobody wants is not looked for.

House rule: nothing is judged here; the rows are parse.py's, in its order, or this is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.audit.read.logs import Piece, Range, batches_in, read_into
from coordinator.audit.read.parse import CODEC_NAMES, TABLES, Rows, add_piece, batch_parts, new_rows
from coordinator.audit.read.records import GROUP_KIND, OFFSET_KIND, TOLD_SIZE_MAX, read_assignment
from coordinator.audit.read.tables import SCHEMAS, to_arrow
from coordinator.group.records import GROUP_KEY_VERSION, GROUP_VALUE_VERSION, OFFSET_KEY_VERSION, OFFSET_VALUE_VERSION
from protocol.checksum import crc32c
from protocol.consumer import CONSUMER
from protocol.records.batch import CODEC_MASK, CRC_START, HEADER_SIZE

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

RECORDS_MAX = 500
MEMBERS_MAX = 5_000
"""Lockstep pays while many are in step; a batch, or a group, with more than that is read by itself."""
STEP_SIZE = 32 * 1024 * 1024
"""Bytes of rows that are not in columns, about, that are held at a time."""
VALUE_AT = SCHEMAS["records"].get_field_index("value")
ROW_SIZE = 300
"""Bytes of a row in Python, about, without its value."""

_HEADER = np.dtype([
    ("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"), ("attrs", ">i2"),
    ("last_delta", ">i4"), ("base_ts", ">i8"), ("max_ts", ">i8"), ("producer_id", ">i8"), ("producer_epoch", ">i2"),
    ("sequence", ">i4"), ("count", ">i4"),
])  # fmt: skip
assert _HEADER.itemsize == HEADER_SIZE

_PADDING = 4 * (2**16 + 8)
"""A member's short texts, all of the greatest length, reach no further behind a value's end than that."""
_MEMBER_SIZE_MIN = 24
_INT16_MAX = 2**15 - 1
_VARINT_MAX = 9
_SANE = 2**62
_INLINE_MAX = 12

Plain = dict[str, tuple[pa.RecordBatch, Ints]]
"""Table -> its rows that are in columns, and where in the file the batch of each is, ascending."""
Tables = dict[str, pa.RecordBatch]


class Text(NamedTuple):
    """Where texts, or bytes, are: `start` in the data, and `size`, -1 for null."""

    start: Ints
    size: Ints

    def take(self, of: Ints) -> Text:
        """Some of them."""
        return Text(self.start[of], self.size[of])


def read_tables(range_: Range, wanted: Collection[str] = TABLES) -> Iterator[Tables]:
    """The tables of a range, those `wanted`, a part of its rows at a time, in the order of the log; one part at least.

    Raises Replaced, OSError too.
    """
    reader = _Reader(range_) if any(range_.stretches) else None
    plain = reader.tables(wanted) if reader is not None else {}
    given = dict.fromkeys(wanted, 0)
    parts: list[tuple[int, Rows]] = []
    weight = 0
    for position, rows in _others(range_, reader):
        parts.append((position, rows))
        weight += _weight(rows)
        if weight > STEP_SIZE:
            yield _merged(wanted, plain, given, parts, position)
            parts.clear()
            weight = 0
    yield _merged(wanted, plain, given, parts, range_.end)


def _others(range_: Range, reader: _Reader | None) -> Iterator[tuple[int, Rows]]:
    """What is not in columns, in order: its position in the file, and its rows."""
    odd = [] if reader is None else reader.odd()
    pieces: Iterator[tuple[int, Piece | None]] = merge(
        ((at, None) for at in odd), ((gap.position, gap) for gap in range_.gaps), key=itemgetter(0)
    )
    for position, gap in pieces:
        if gap is not None:
            rows = new_rows()
            add_piece(rows, range_, gap)
            yield position, rows
        else:
            assert reader is not None
            for rows in batch_parts(range_, reader.data, position - range_.start, position):
                yield position, rows


def _weight(rows: Rows) -> int:
    """Bytes that rows take, about."""
    count = sum(map(len, rows.values()))
    return ROW_SIZE * count + sum(len(row[VALUE_AT] or b"") for row in rows["records"])


def _merged(
    wanted: Collection[str], plain: Plain, given: dict[str, int], parts: list[tuple[int, Rows]], last: int
) -> Tables:
    """Plain rows up to a position, from where they were `given` on, and the others, in the order of the log."""
    tables = {}
    for table in wanted:
        rows = [row for _, of_piece in parts for row in of_piece[table]]
        if table in plain:
            columns, positions = plain[table]
            start, end = given[table], int(np.searchsorted(positions, last, "right"))
            given[table] = end
            columns, positions = columns.slice(start, end - start), positions[start:end]
            if not rows:
                tables[table] = columns
                continue
            if columns.num_rows:
                others = to_arrow(table, rows)
                places = [position for position, of_piece in parts for _ in of_piece[table]]
                order = np.argsort(np.concatenate([positions, np.array(places, np.int64)]), kind="stable")
                tables[table] = pa.concat_batches([columns, others]).take(pa.array(order))
                continue
        tables[table] = to_arrow(table, rows)
    return tables


class _Reader:
    """The batches of a range.

    data: its bytes, and zeros behind them. plain: which batches are in the tables, once these were made.
    """

    def __init__(self, range_: Range) -> None:
        size = range_.end - range_.start
        self._a = np.empty(size + _PADDING, np.uint8)
        self._a[size:] = 0
        self.data = self._a.data
        read_into(range_, self.data[:size])
        self._range = range_
        self._buffer = pa.py_buffer(self._a)
        starts, ends = batches_in(self.data, range_)
        self._at: Ints = np.array(starts, np.int64)
        self._end: Ints = np.array(ends, np.int64)
        self._head = self._every(_HEADER)[self._at]
        self.plain: Flags = np.ones(len(starts), np.bool_)

    def odd(self) -> list[int]:
        """Where in the file the batches are that are not plain, in order."""
        odd: list[int] = (self._at[~self.plain] + self._range.start).tolist()
        return odd

    def tables(self, wanted: Collection[str]) -> Plain:
        """The rows of all plain batches, and where in the file the batch of each is."""
        try:
            return self._tables(frozenset(wanted))
        except pa.ArrowInvalid:  # text that is none
            self.plain[:] = False
            return {}

    def _tables(self, wanted: frozenset[str]) -> Plain:
        head = self._head
        base_offset = self._field("base_offset")
        self.plain &= base_offset < _SANE
        made: Plain = {}
        if not wanted.isdisjoint({"batches", "other"}):
            self._check_crcs(np.flatnonzero(self.plain))
        if wanted != {"batches"}:
            count, base_ts = self._field("count"), self._field("base_ts")
            self.plain &= (head["attrs"] == 0) & (count > 0) & (count <= RECORDS_MAX)
            self.plain &= (np.abs(base_ts) < _SANE) & (head["last_delta"] >= 0)
            # What is odd in an offset changes nothing about the tables of groups, nor the other way round.
            needs_offsets = not wanted <= {"batches", "groups", "members", "assignments"}
            needs_groups = not wanted <= {"batches", "offsets"}
            records = self._records(needs_offsets=needs_offsets, needs_groups=needs_groups)
            if wanted.isdisjoint({"batches", "other"}):
                # Where no record is needed there are no rows, be the CRC right or wrong.
                self._check_crcs(np.unique(records.batch))
            keys = self._keys(records)
            offsets = self._offset_values(records, keys.offset_rows)
            groups = self._group_values(records, keys.group_rows)
            members = self._members(records, groups)
            stay = self.plain[records.batch]
            chosen = members.order[stay[members.row[members.order]]]
            if needs_groups:
                self._check_texts(wanted, stay, keys, offsets, groups, members, chosen)
            position = self._at[records.batch] + self._range.start
            builder = _Builder(self, self._range, records, keys, position)
            if "records" in wanted:
                rows = np.flatnonzero(stay)
                made["records"] = builder.records(rows), position[rows]
            if "offsets" in wanted:
                rows = offsets.row[stay[offsets.row]]
                made["offsets"] = builder.offsets(offsets, rows), position[rows]
            if "groups" in wanted:
                rows = groups.row[stay[groups.row]]
                made["groups"] = builder.groups(groups, rows), position[rows]
            if not wanted.isdisjoint({"members", "assignments"}):
                of_members = position[members.row[chosen]]
                if "members" in wanted:
                    made["members"] = builder.members(groups, members, chosen), of_members
                if "assignments" in wanted:
                    batch, of_member = builder.assignments(groups, members, chosen)
                    made["assignments"] = batch, of_members[of_member]
            if "other" in wanted:
                made["other"] = to_arrow("other", []), position[:0]
        if "batches" in wanted:
            rows = np.flatnonzero(self.plain)
            made["batches"] = self._batches_table(rows), self._at[rows] + self._range.start
        return made

    def _check_crcs(self, batches: Ints) -> None:
        """Of these batches, those with a wrong CRC are plain no more."""
        places = zip((self._at[batches] + CRC_START).tolist(), self._end[batches].tolist(), strict=True)
        data = self.data
        crcs = [crc32c(data[start:end]) for start, end in places]
        self.plain[batches[self._head["crc"][batches] != np.array(crcs, np.uint32)]] = False

    def _check_texts(
        self,
        wanted: frozenset[str],
        stay: Flags,
        keys: _Keys,
        offsets: _Offsets,
        groups: _Groups,
        members: _Members,
        chosen: Ints,
    ) -> None:
        """Raise pa.ArrowInvalid for text that is none, where no table that is wanted has it: its record is none."""
        unseen: list[Text] = [] if "records" in wanted else [keys.group.take(np.flatnonzero(stay))]
        if "offsets" not in wanted:
            rows = np.flatnonzero(stay[offsets.row])
            unseen += [text.take(rows) for text in (keys.topic, offsets.metadata)]
        if "groups" not in wanted:
            rows = np.flatnonzero(stay[groups.row])
            unseen += [text.take(rows) for text in (groups.protocol_type, groups.protocol, groups.leader)]
        if "members" not in wanted:
            unseen += [text.take(chosen) for text in members.texts[:4]]
        for text in unseen:
            self.array(text, pa.string())

    def _field(self, name: str) -> Ints:
        field: Ints = self._head[name].astype(np.int64)
        return field

    def _batches_table(self, rows: Ints) -> pa.RecordBatch:
        head = self._head[rows]
        base_offset = self._field("base_offset")[rows]
        columns = {
            "partition": np.full(len(rows), self._range.partition),
            "segment": np.full(len(rows), self._range.segment),
            "position": self._at[rows] + self._range.start,
            "length": self._end[rows] - self._at[rows],
            "base_offset": base_offset,
            "last_offset": base_offset + head["last_delta"],
            "attrs": head["attrs"],
            "codec": pa.array(CODEC_NAMES).take(pa.array(head["attrs"].astype(np.int64) & CODEC_MASK)),
            "crc_stored": head["crc"],
            "crc_ok": np.ones(len(rows), np.bool_),
            "record_count": head["count"],
        }
        return _table("batches", {
            name: columns[name] if name in columns else head[name] for name in SCHEMAS["batches"].names
        })  # fmt: skip

    # -- reading, at many places at once

    def be(self, at: Ints, size: int) -> Ints:
        """Signed big-endian integers of 2, 4 or 8 bytes."""
        read: Ints = self._every(f">i{size}")[at].astype(np.int64)
        return read

    def _every(self, kind: str | np.dtype[Any], ahead: int = 0) -> Any:
        """The data from `ahead` on as values of that type, one beginning at each byte."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self._a) - ahead - size + 1,), kind, self._a.data, ahead, (1,))

    def varint(self, at: Ints) -> tuple[Ints, Ints, Flags]:
        """Zigzag numbers as they stand, where they end, and which are too long to be read here."""
        first = self._a[at]
        number: Ints = (first & 0x7F).astype(np.int64)
        end = at + 1
        rest = np.flatnonzero(first >= 0x80)
        size = 1
        while len(rest) and size < _VARINT_MAX:
            byte = self._a[at[rest] + size]
            number[rest] |= (byte & 0x7F).astype(np.int64) << (7 * size)
            end[rest] += 1
            rest = rest[byte >= 0x80]
            size += 1
        long = np.zeros(len(at), np.bool_)
        long[rest] = True
        return number, end, long

    def text(self, at: Ints, limit: Ints, *, nullable: bool = False) -> tuple[Text, Ints, Flags]:
        """Texts behind a length of 2 bytes, where they end, and which can't be right."""
        size = self.be(at, 2)
        end = at + 2 + np.maximum(size, 0)
        bad = (end > limit) | (size < (-1 if nullable else 0))
        return Text(at + 2, size), np.minimum(end, limit), bad

    def array(self, text: Text, kind: pa.DataType) -> pa.Array:
        """Texts that lie one behind the other, as Arrow's.

        Raises pa.ArrowInvalid for what is no UTF-8 where `kind` is text.
        """
        count = len(text.size)
        if not count:
            return pa.array([], kind)
        # To Arrow, the data are a column that is cut where each text begins and ends: every second value is a text.
        places = np.empty((count, 2), np.int32)
        places[:, 0] = text.start
        places[:, 1] = text.start + np.maximum(text.size, 0)
        cut = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(places), self._buffer])
        _, ends, data = cut.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))).buffers()
        null = text.size < 0
        valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        # All that is below 0x80 is UTF-8, and nearly all text is: that is seen much faster than what UTF-8 asks for.
        is_ascii = kind == pa.binary() or np.frombuffer(data, np.uint8).max(initial=0) < 0x80
        array = pa.Array.from_buffers(kind if is_ascii else pa.binary(), count, [valid, ends, data])
        return array if is_ascii else pc.cast(array, kind)

    # -- what is in there

    def _records(self, *, needs_offsets: bool, needs_groups: bool) -> _Records:
        """The records that are needed of all plain batches, in the order of the log; one that is odd is plain no more.

        A record that is neither of an offset nor of a group makes its batch odd.
        """
        batches = np.flatnonzero(self.plain)
        count = self._field("count")
        cursor = self._at + HEADER_SIZE
        former = np.full(len(self._at), -1, np.int64)
        base_offset, base_ts = self._field("base_offset"), self._field("base_ts")
        last_delta = self._field("last_delta")
        parts: list[tuple[Ints, ...]] = []
        step = 0
        while len(batches):
            at, limit = cursor[batches], self._end[batches]
            size, at, bad = self.varint(at)
            end = at + (size >> 1)
            bad |= (size & 1 == 1) | (end > limit)
            end = np.minimum(end, limit)
            ts, at, long = self.varint(np.minimum(at + 1, limit))
            bad |= long
            delta, at, long = self.varint(np.minimum(at, limit))
            bad |= long | (delta & 1 == 1) | (delta >> 1 <= former[batches]) | (delta >> 1 > last_delta[batches])
            key_size, key_at, long = self.varint(np.minimum(at, limit))
            bad |= long | (key_size & 1 == 1)
            at = key_at + (key_size >> 1)
            bad |= at > end
            value_size, value_at, long = self.varint(np.minimum(at, limit))
            is_null = value_size == 1
            bad |= long | ((value_size & 1 == 1) & ~is_null)
            at = value_at + np.where(is_null, 0, value_size >> 1)
            # One byte is left: no headers.
            bad |= (at + 1 != end) | (self._a[np.minimum(at, limit)] != 0)
            ts_delta = (ts >> 1) ^ -(ts & 1)
            bad |= np.abs(ts_delta) >= _SANE
            self.plain[batches[bad]] = False
            good = ~bad
            batches = batches[good]
            former[batches] = delta[good] >> 1
            cursor[batches] = end[good]
            parts.append((
                batches, base_offset[batches] + (delta[good] >> 1), base_ts[batches] + ts_delta[good],
                key_at[good], key_size[good] >> 1, value_at[good], np.where(is_null, -1, value_size >> 1)[good],
            ))  # fmt: skip
            step += 1
            done = count[batches] == step
            self.plain[batches[done & (cursor[batches] != self._end[batches])]] = False
            batches = batches[~done]
        columns = (
            [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0, np.int64)] * 7
        )
        batch, _, _, key_at, key_size, _, _ = columns
        version = np.where(key_size >= 2, self.be(key_at, 2), -1)
        is_offset, is_group = version == OFFSET_KEY_VERSION, version == GROUP_KEY_VERSION
        self.plain[batch[~(is_offset | is_group)]] = False
        needed = np.flatnonzero((is_offset & needs_offsets) | (is_group & needs_groups))
        needed = needed[np.argsort(batch[needed], kind="stable")]
        batch, offset, ts, key_at, key_size, value_at, value_size = (column[needed] for column in columns)
        return _Records(batch, offset, ts, Text(key_at, key_size), Text(value_at, value_size), is_group[needed])

    def _not_plain(self, records: _Records, bad: Flags, rows: Ints) -> None:
        self.plain[records.batch[rows[bad]]] = False

    def _keys(self, records: _Records) -> _Keys:
        """What the keys say."""
        at, limit = records.key.start, records.key.start + records.key.size
        group, end, bad = self.text(np.minimum(at + 2, limit), limit)
        bad |= limit - at < 4
        self._not_plain(records, bad, np.arange(len(records.batch)))
        offset_rows = np.flatnonzero(~records.is_group)
        limit = limit[offset_rows]
        topic, end, bad = self.text(end[offset_rows], limit)
        bad |= end + 4 > limit
        self._not_plain(records, bad, offset_rows)
        return _Keys(group, offset_rows, np.flatnonzero(records.is_group), topic, self.be(end, 4))

    def _head_of_values(
        self, records: _Records, rows: Ints, version: int, size_min: int
    ) -> tuple[Ints, Ints, Flags, Flags]:
        """Where values begin behind their version and where they end, which are tombstones, and which are odd."""
        value = records.value.take(rows)
        null = value.size < 0
        limit = value.start + np.maximum(value.size, 0)
        bad = ~null & (value.size < size_min)
        bad |= ~null & (self.be(value.start, 2) != version)
        return np.minimum(value.start + 2, limit), limit, null, bad

    def _offset_values(self, records: _Records, rows: Ints) -> _Offsets:
        at, limit, null, bad = self._head_of_values(records, rows, OFFSET_VALUE_VERSION, 2 + 8 + 4 + 2 + 8)
        metadata, end, odd = self.text(np.minimum(at + 12, limit), limit)
        bad |= ~null & (odd | (end + 8 > limit))
        self._not_plain(records, bad, rows)
        return _Offsets(
            rows, null, self.be(at, 8), self.be(at + 8, 4), Text(metadata.start, np.where(null, -1, metadata.size)),
            self.be(end, 8),
        )  # fmt: skip

    def _group_values(self, records: _Records, rows: Ints) -> _Groups:
        at, limit, null, bad = self._head_of_values(records, rows, GROUP_VALUE_VERSION, 2 + 2 + 4 + 2 + 2 + 8 + 4)
        protocol_type, end, odd = self.text(at, limit)
        bad |= ~null & odd
        generation = self.be(end, 4)
        protocol, end, odd = self.text(np.minimum(end + 4, limit), limit, nullable=True)
        bad |= ~null & odd
        leader, end, odd = self.text(end, limit, nullable=True)
        bad |= ~null & (odd | (end + 12 > limit))
        state_ts, count = self.be(end, 8), self.be(end + 8, 4)
        bad |= ~null & ((count < 0) | (count > MEMBERS_MAX) | (count * _MEMBER_SIZE_MIN > limit - end - 12))
        bad |= limit - at > TOLD_SIZE_MAX  # it may have more members or partitions than parse.py believes
        self._not_plain(records, bad, rows)
        count = np.where(null | bad, 0, count)

        def text(of: Text) -> Text:
            return Text(of.start, np.where(null, -1, of.size))

        return _Groups(
            rows, null, text(protocol_type), generation, text(protocol), text(leader), state_ts, count,
            np.minimum(end + 12, limit), limit,
        )  # fmt: skip

    def _members(self, records: _Records, groups: _Groups) -> _Members:
        """The members of all groups."""
        group, start, sizes = self._walk(groups)
        texts: list[Text] = []
        at = start
        bad = np.zeros(len(group), np.bool_)
        for size in sizes[:4]:
            texts.append(Text(at + 2, size))
            at = at + 2 + np.maximum(size, 0)
            bad |= size > _INT16_MAX
        timeouts = self.be(np.minimum(at, groups.limit[group]), 8)
        at = at + 8
        for size in sizes[4:]:
            texts.append(Text(at + 4, size))
            at = at + 4 + size
        # Sizes are unsigned here: one that is negative reaches beyond the end, or is beyond what is signed.
        bad |= at > groups.limit[group]
        row = groups.row[group]
        self._not_plain(records, bad, row)
        order = np.argsort(group, kind="stable")
        return _Members(row, group, timeouts >> 32, timeouts.astype(np.int32), texts, order)

    def _walk(self, groups: _Groups) -> tuple[Ints, Ints, Ints]:
        """Of which group each member is, where it begins, and the sizes of its six texts.

        The first members of all groups are passed over, then the second ones, and so on, and that is their order: a few
        calls for each step, as nothing is checked on the way. What is in front of a size is in the view that it is read
        from. The numbers are anything where they reach beyond the group's end.
        """
        count = groups.member_count
        group = np.zeros(int(count.sum()), np.int64)
        start = np.zeros(len(group), np.int64)
        sizes = np.zeros((6, len(group)), np.int64)
        # Those with the most members first: the ones that have a next member are in front, and need not be chosen.
        order = np.argsort(-count, kind="stable")
        at, limit = groups.members_at[order], groups.limit[order]
        have_more = len(count) - np.cumsum(np.bincount(count, minlength=1))
        member_id, instance_id = self._every(">u2"), self._every(">i2", 2)
        client_id, client_host = self._every(">u2", 4), self._every(">u2", 6)
        subscription, assignment = self._every(">u4", 16), self._every(">u4", 20)
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


class _Records(NamedTuple):
    """batch: of which batch each is. is_group: a group's, else that of a committed offset."""

    batch: Ints
    offset: Ints
    ts: Ints
    key: Text
    value: Text
    is_group: Flags


class _Keys(NamedTuple):
    """group: of every record; topic and partition: of those in `offset_rows`."""

    group: Text
    offset_rows: Ints
    group_rows: Ints
    topic: Text
    topic_partition: Ints


class _Offsets(NamedTuple):
    """row: of which record each is."""

    row: Ints
    null: Flags
    committed: Ints
    leader_epoch: Ints
    metadata: Text
    commit_ts: Ints


class _Groups(NamedTuple):
    """row: of which record each is. members_at: where the first member is, if `member_count` says that there is one."""

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


class _Members(NamedTuple):
    """row: of which record each is, group: of which of the groups.

    texts: member id, instance id, client id, client host, subscription, assignment. order: the members as they are in
    the log.
    """

    row: Ints
    group: Ints
    rebalance_ms: Ints
    session_ms: Ints
    texts: list[Text]
    order: Ints


class _Builder:
    """Makes the tables, each of the rows that are asked for."""

    def __init__(self, reader: _Reader, range_: Range, records: _Records, keys: _Keys, position: Ints) -> None:
        self._reader = reader
        self._partition = range_.partition
        self._segment = range_.segment
        self._records = records
        self._keys = keys
        self._position = position

    def _head(self, rows: Ints) -> dict[str, Any]:
        return {
            "partition": np.full(len(rows), self._partition),
            "offset": self._records.offset[rows],
            "ts": self._records.ts[rows],
            "group": self._reader.array(self._keys.group.take(rows), pa.string()),
        }

    def records(self, rows: Ints) -> pa.RecordBatch:
        """The table `records`."""
        is_group = np.zeros(len(self._records.batch), np.bool_)
        is_group[self._keys.group_rows] = True
        kinds = pa.array([OFFSET_KIND, GROUP_KIND])
        return _table("records", {
            **self._head(rows),
            "kind": kinds.take(pa.array(is_group[rows].astype(np.int8))),
            "key": self._reader.array(self._records.key.take(rows), pa.binary()),
            "value": self._reader.array(self._records.value.take(rows), pa.binary()),
            "producer_id": pa.nulls(len(rows), pa.int64()),
            "segment": np.full(len(rows), self._segment),
            "position": self._position[rows],
        })  # fmt: skip

    def offsets(self, offsets: _Offsets, rows: Ints) -> pa.RecordBatch:
        """The table `offsets`."""
        of = np.searchsorted(offsets.row, rows)
        null = offsets.null[of]
        return _table("offsets", {
            **self._head(rows),
            "topic": self._reader.array(self._keys.topic.take(of), pa.string()),
            "topic_partition": self._keys.topic_partition[of],
            "committed": pa.array(offsets.committed[of], mask=null),
            "leader_epoch": pa.array(offsets.leader_epoch[of], mask=null),
            "metadata": self._reader.array(offsets.metadata.take(of), pa.string()),
            "commit_ts": pa.array(offsets.commit_ts[of], mask=null),
            "expire_ts": pa.nulls(len(rows), pa.int64()),
            "tombstone": null,
            "value_version": pa.array(np.full(len(rows), OFFSET_VALUE_VERSION), mask=null),
        })  # fmt: skip

    def groups(self, groups: _Groups, rows: Ints) -> pa.RecordBatch:
        """The table `groups`."""
        of = np.searchsorted(groups.row, rows)
        null = groups.null[of]
        state_ts = groups.state_ts[of]
        return _table("groups", {
            **self._head(rows),
            "protocol_type": self._reader.array(groups.protocol_type.take(of), pa.string()),
            "generation": pa.array(groups.generation[of], mask=null),
            "protocol": self._reader.array(groups.protocol.take(of), pa.string()),
            "leader": self._reader.array(groups.leader.take(of), pa.string()),
            "state_ts": pa.array(state_ts, mask=null | (state_ts == -1)),
            "n_members": pa.array(groups.member_count[of], mask=null),
            "tombstone": null,
            "value_version": pa.array(np.full(len(rows), GROUP_VALUE_VERSION), mask=null),
        })  # fmt: skip

    def _of_members(self, of_groups: Text, members: _Members, chosen: Ints) -> pa.Array:
        """What is said of each group, as bytes, for each of the chosen members; of no other group is it looked at."""
        group = members.group[chosen]
        is_used = np.zeros(len(of_groups.size), np.bool_)
        is_used[group] = True
        array = self._reader.array(of_groups.take(np.flatnonzero(is_used)), pa.binary())
        return array.take(pa.array((np.cumsum(is_used) - 1)[group]))

    def _members_head(self, groups: _Groups, members: _Members, chosen: Ints) -> dict[str, Any]:
        rows = members.row[chosen]
        text = self._reader.array
        return {
            "partition": np.full(len(rows), self._partition),
            "offset": self._records.offset[rows],
            "group": self._of_members(self._keys.group.take(groups.row), members, chosen).cast(pa.string()),
            "generation": groups.generation[members.group[chosen]],
            "member_id": text(members.texts[0].take(chosen), pa.string()),
            "group_instance_id": text(members.texts[1].take(chosen), pa.string()),
        }

    def members(self, groups: _Groups, members: _Members, chosen: Ints) -> pa.RecordBatch:
        """The table `members`."""
        text = self._reader.array
        return _table("members", {
            **self._members_head(groups, members, chosen),
            "client_id": text(members.texts[2].take(chosen), pa.string()),
            "client_host": text(members.texts[3].take(chosen), pa.string()),
            "rebalance_ms": members.rebalance_ms[chosen],
            "session_ms": members.session_ms[chosen],
            "subscription": text(members.texts[4].take(chosen), pa.binary()),
            "assignment": text(members.texts[5].take(chosen), pa.binary()),
        })  # fmt: skip

    def assignments(self, groups: _Groups, members: _Members, chosen: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The table `assignments`, and which of the chosen each row is of. Equal bytes are decoded once."""
        text = self._reader.array
        told = text(members.texts[5].take(chosen), pa.binary()).dictionary_encode()
        topics: list[str] = []
        partitions: list[int] = []
        ends = [0]
        for data in told.dictionary.to_pylist():
            for topic, of_topic in read_assignment(data) or ():
                topics += [topic] * len(of_topic)
                partitions += of_topic
            ends.append(len(topics))
        start = np.array(ends, np.int64)
        which = told.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        is_consumer = pc.equal(self._of_members(groups.protocol_type, members, chosen), CONSUMER.encode())
        counts = np.diff(start)[which] if len(which) else np.zeros(0, np.int64)
        counts = counts * is_consumer.to_numpy(zero_copy_only=False)
        of_member = np.repeat(np.arange(len(chosen)), counts)
        first = np.repeat(start[which] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) if len(which) else which
        place = pa.array(first + np.arange(len(of_member)))
        head = self._members_head(groups, members, chosen)
        taken = pa.array(of_member)
        table = _table("assignments", {
            **{name: pa.array(column).take(taken) for name, column in head.items()},
            "topic": pa.array(topics, pa.string()).take(place),
            "topic_partition": pa.array(partitions, pa.int32()).take(place),
        })  # fmt: skip
        return table, of_member


def _table(name: str, columns: dict[str, Any]) -> pa.RecordBatch:
    """A table out of columns in numpy and Arrow."""
    schema = SCHEMAS[name]
    arrays = []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, np.ndarray):
            column = pa.array(column.astype(column.dtype.newbyteorder("=")))
        arrays.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
