"""Turns a byte range into the tables in Arrow, many records at a time; the rows are those of parse.py.

Only plain batches go this way: without codec, transaction or headers, with keys of the versions that Kafka writes since
0.11, and values of version 3 or tombstones. Nearly all batches are plain. fields.py reads their records with numpy, and
`_Builder` makes the tables. A text never becomes a Python string: Arrow copies a whole column out of the file's bytes.

parse.py reads every other batch. `read_tables` puts its rows in their place and hands over some rows at a time, as such
a batch may hold a hundred times as many rows as its size suggests.

A table that no caller wants costs no reading.

House rule: this module judges nothing. It has a bug if its rows differ from parse.py's, or come in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.audit.read.fields import SANE_MAX, Batches, Fields, Groups, Keys, Members, Offsets, Records
from coordinator.audit.read.logs import Piece, Range, batches_in, read_into
from coordinator.audit.read.parse import CODEC_NAMES, TABLES, Rows, add_piece, batch_parts, new_rows
from coordinator.audit.read.tables import SCHEMAS, to_arrow
from coordinator.audit.read.vectors import Data, Flags, Ints, Text
from coordinator.group.records import GROUP_VALUE_VERSION, OFFSET_VALUE_VERSION
from coordinator.story.records.values import GROUP_KIND, OFFSET_KIND, read_assignment
from protocol.checksum import crc32c
from protocol.consumer import CONSUMER
from protocol.records.batch import CODEC_MASK, CRC_START, HEADER_SIZE

RECORDS_MAX = 500
"""The most records of a batch that this module reads: reading all batches in lockstep pays while many have a next
record.
"""
STEP_SIZE = 32 * 1024 * 1024
"""About how many bytes of rows from parse.py are in memory at a time."""
VALUE_AT = SCHEMAS["records"].get_field_index("value")
ROW_SIZE = 300
"""About how many bytes a row takes in Python, without its value."""

_HEADER = np.dtype([
    ("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"), ("attrs", ">i2"),
    ("last_delta", ">i4"), ("base_ts", ">i8"), ("max_ts", ">i8"), ("producer_id", ">i8"), ("producer_epoch", ">i2"),
    ("sequence", ">i4"), ("count", ">i4"),
])  # fmt: skip
assert _HEADER.itemsize == HEADER_SIZE


Plain = dict[str, tuple[pa.RecordBatch, Ints]]
"""Table -> its rows from plain batches, and for each row the position of its batch in the file, ascending."""
Tables = dict[str, pa.RecordBatch]


def read_tables(range_: Range, wanted: Collection[str] = TABLES) -> Iterator[Tables]:
    """The `wanted` tables of a range: some rows at a time, in the order of the log; at least one part.

    Raises Replaced and other OSErrors.
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
    """Odd batches and gaps in order: the position in the file, and the rows."""
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
    """About how many bytes the rows take."""
    count = sum(map(len, rows.values()))
    return ROW_SIZE * count + sum(len(row[VALUE_AT] or b"") for row in rows["records"])


def _merged(
    wanted: Collection[str], plain: Plain, given: dict[str, int], parts: list[tuple[int, Rows]], last: int
) -> Tables:
    """One part: the rows from parse.py among the plain rows up to position `last`, in the order of the log.

    given: table -> how many plain rows earlier parts had.
    """
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
                of_others = [position for position, of_piece in parts for _ in of_piece[table]]
                order = np.argsort(np.concatenate([positions, np.array(of_others, np.int64)]), kind="stable")
                tables[table] = pa.concat_batches([columns, others]).take(pa.array(order))
                continue
        tables[table] = to_arrow(table, rows)
    return tables


class _Reader:
    """The batches of a range, and the tables of those that are plain."""

    def __init__(self, range_: Range) -> None:
        size = range_.end - range_.start
        self._range = range_
        self._data = Data(size)
        read_into(range_, self._data.view[:size])
        starts, ends = batches_in(self._data.view, range_)
        start: Ints = np.array(starts, np.int64)
        self._head = self._data.every(_HEADER)[start]
        self._batches = Batches(
            start, np.array(ends, np.int64), self._field("base_offset"), self._field("last_delta"),
            self._field("base_ts"), self._field("count"), np.ones(len(starts), np.bool_),
        )  # fmt: skip

    @property
    def data(self) -> memoryview:
        """The bytes of the range, and zeros behind them."""
        return self._data.view

    def odd(self) -> list[int]:
        """Positions in the file of the batches that are not plain, in order; known once the tables are made."""
        odd: list[int] = (self._batches.start[~self._batches.plain] + self._range.start).tolist()
        return odd

    def tables(self, wanted: Collection[str]) -> Plain:
        """The rows of all plain batches."""
        try:
            return self._tables(frozenset(wanted))
        except pa.ArrowInvalid:  # a text that is no UTF-8
            self._batches.plain[:] = False
            return {}

    def _tables(self, wanted: frozenset[str]) -> Plain:
        batches = self._batches
        plain = batches.plain
        plain &= batches.base_offset < SANE_MAX
        made: Plain = {}
        if not wanted.isdisjoint({"batches", "other"}):
            self._check_crcs(np.flatnonzero(plain))
        if wanted != {"batches"}:
            plain &= (self._head["attrs"] == 0) & (batches.record_count > 0) & (batches.record_count <= RECORDS_MAX)
            plain &= (np.abs(batches.base_ts) < SANE_MAX) & (batches.last_delta >= 0)
            made = self._tables_of_records(wanted)
        if "batches" in wanted:
            rows = np.flatnonzero(plain)
            made["batches"] = self._batches_table(rows), batches.start[rows] + self._range.start
        return made

    def _tables_of_records(self, wanted: frozenset[str]) -> Plain:
        """All wanted tables but `batches`."""
        # An odd offset changes nothing about the tables of groups, and an odd group nothing about those of offsets.
        needs_offsets = not wanted <= {"batches", "groups", "members", "assignments"}
        needs_groups = not wanted <= {"batches", "offsets"}
        fields = Fields(self._data, self._batches)
        records = fields.records(needs_offsets=needs_offsets, needs_groups=needs_groups)
        if wanted.isdisjoint({"batches", "other"}):
            # A batch without a needed record gives no rows, whether its CRC is right or wrong.
            self._check_crcs(np.unique(records.batch))
        keys = fields.keys(records)
        offsets = fields.offsets(records, keys.offset_rows)
        groups = fields.groups(records, keys.group_rows)
        members = fields.members(records, groups)
        stay = self._batches.plain[records.batch]
        chosen = members.order[stay[members.row[members.order]]]
        if needs_groups:
            self._check_texts(wanted, stay, keys, offsets, groups, members, chosen)
        position = self._batches.start[records.batch] + self._range.start
        builder = _Builder(self._data, self._range, records, keys, position)
        made: Plain = {}
        if "records" in wanted:
            rows = np.flatnonzero(stay)
            made["records"] = builder.records(rows), position[rows]
        if "offsets" in wanted:
            rows = offsets.row[stay[offsets.row]]
            made["offsets"] = builder.offsets(offsets, rows), position[rows]
        if "groups" in wanted:
            rows = groups.row[stay[groups.row]]
            made["groups"] = builder.groups(groups, rows), position[rows]
        of_members = position[members.row[chosen]]
        if "members" in wanted:
            made["members"] = builder.members(groups, members, chosen), of_members
        if "assignments" in wanted:
            table, of_member = builder.assignments(groups, members, chosen)
            made["assignments"] = table, of_members[of_member]
        if "other" in wanted:
            made["other"] = to_arrow("other", []), position[:0]
        return made

    def _check_crcs(self, batches: Ints) -> None:
        """Clear the flag of each of these batches whose CRC is wrong."""
        starts, ends = self._batches.start[batches] + CRC_START, self._batches.end[batches]
        data = self._data.view
        crcs = [crc32c(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        self._batches.plain[batches[self._head["crc"][batches] != np.array(crcs, np.uint32)]] = False

    def _check_texts(
        self, wanted: frozenset[str], stay: Flags, keys: Keys, offsets: Offsets, groups: Groups, members: Members,
        chosen: Ints,
    ) -> None:  # fmt: skip
        """Check the texts that no wanted table holds: a text that is no UTF-8 makes its record unreadable.

        Raises pa.ArrowInvalid for such a text, as making a table does.
        """
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
            self._data.array(text, pa.string())

    def _field(self, name: str) -> Ints:
        field: Ints = self._head[name].astype(np.int64)
        return field

    def _batches_table(self, rows: Ints) -> pa.RecordBatch:
        head, batches = self._head[rows], self._batches
        start, base_offset = batches.start[rows], batches.base_offset[rows]
        columns = {
            "partition": np.full(len(rows), self._range.partition),
            "segment": np.full(len(rows), self._range.segment),
            "position": start + self._range.start,
            "length": batches.end[rows] - start,
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


class _Builder:
    """Makes the tables of plain batches; each method takes the rows that belong into its table."""

    def __init__(self, data: Data, range_: Range, records: Records, keys: Keys, position: Ints) -> None:
        self._data = data
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
            "group": self._data.array(self._keys.group.take(rows), pa.string()),
        }

    def records(self, rows: Ints) -> pa.RecordBatch:
        """The table `records`."""
        is_group = np.zeros(len(self._records.batch), np.bool_)
        is_group[self._keys.group_rows] = True
        kinds = pa.array([OFFSET_KIND, GROUP_KIND])
        return _table("records", {
            **self._head(rows),
            "kind": kinds.take(pa.array(is_group[rows].astype(np.int8))),
            "key": self._data.array(self._records.key.take(rows), pa.binary()),
            "value": self._data.array(self._records.value.take(rows), pa.binary()),
            "producer_id": pa.nulls(len(rows), pa.int64()),
            "segment": np.full(len(rows), self._segment),
            "position": self._position[rows],
        })  # fmt: skip

    def offsets(self, offsets: Offsets, rows: Ints) -> pa.RecordBatch:
        """The table `offsets`."""
        of = np.searchsorted(offsets.row, rows)
        null = offsets.null[of]
        return _table("offsets", {
            **self._head(rows),
            "topic": self._data.array(self._keys.topic.take(of), pa.string()),
            "topic_partition": self._keys.topic_partition[of],
            "committed": pa.array(offsets.committed[of], mask=null),
            "leader_epoch": pa.array(offsets.leader_epoch[of], mask=null),
            "metadata": self._data.array(offsets.metadata.take(of), pa.string()),
            "commit_ts": pa.array(offsets.commit_ts[of], mask=null),
            "expire_ts": pa.nulls(len(rows), pa.int64()),
            "tombstone": null,
            "value_version": pa.array(np.full(len(rows), OFFSET_VALUE_VERSION), mask=null),
        })  # fmt: skip

    def groups(self, groups: Groups, rows: Ints) -> pa.RecordBatch:
        """The table `groups`."""
        of = np.searchsorted(groups.row, rows)
        null = groups.null[of]
        state_ts = groups.state_ts[of]
        return _table("groups", {
            **self._head(rows),
            "protocol_type": self._data.array(groups.protocol_type.take(of), pa.string()),
            "generation": pa.array(groups.generation[of], mask=null),
            "protocol": self._data.array(groups.protocol.take(of), pa.string()),
            "leader": self._data.array(groups.leader.take(of), pa.string()),
            "state_ts": pa.array(state_ts, mask=null | (state_ts == -1)),
            "n_members": pa.array(groups.member_count[of], mask=null),
            "tombstone": null,
            "value_version": pa.array(np.full(len(rows), GROUP_VALUE_VERSION), mask=null),
        })  # fmt: skip

    def _of_members(self, of_groups: Text, members: Members, chosen: Ints) -> pa.Array:
        """A text of the groups, as bytes, for each chosen member. A text of any other group isn't read."""
        group = members.group[chosen]
        is_used = np.zeros(len(of_groups.size), np.bool_)
        is_used[group] = True
        array = self._data.array(of_groups.take(np.flatnonzero(is_used)), pa.binary())
        return array.take(pa.array((np.cumsum(is_used) - 1)[group]))

    def _members_head(self, groups: Groups, members: Members, chosen: Ints) -> dict[str, Any]:
        rows = members.row[chosen]
        text = self._data.array
        return {
            "partition": np.full(len(rows), self._partition),
            "offset": self._records.offset[rows],
            "group": self._of_members(self._keys.group.take(groups.row), members, chosen).cast(pa.string()),
            "generation": groups.generation[members.group[chosen]],
            "member_id": text(members.texts[0].take(chosen), pa.string()),
            "group_instance_id": text(members.texts[1].take(chosen), pa.string()),
        }

    def members(self, groups: Groups, members: Members, chosen: Ints) -> pa.RecordBatch:
        """The table `members`."""
        text = self._data.array
        return _table("members", {
            **self._members_head(groups, members, chosen),
            "client_id": text(members.texts[2].take(chosen), pa.string()),
            "client_host": text(members.texts[3].take(chosen), pa.string()),
            "rebalance_ms": members.rebalance_ms[chosen],
            "session_ms": members.session_ms[chosen],
            "subscription": text(members.texts[4].take(chosen), pa.binary()),
            "assignment": text(members.texts[5].take(chosen), pa.binary()),
        })  # fmt: skip

    def assignments(self, groups: Groups, members: Members, chosen: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The table `assignments`, and for each row the index of its chosen member. Equal bytes are decoded once."""
        text = self._data.array
        encoded = text(members.texts[5].take(chosen), pa.binary()).dictionary_encode()
        topics: list[str] = []
        partitions: list[int] = []
        ends = [0]
        for data in encoded.dictionary.to_pylist():
            for topic, of_topic in read_assignment(data) or ():
                topics += [topic] * len(of_topic)
                partitions += of_topic
            ends.append(len(topics))
        start = np.array(ends, np.int64)
        which = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        is_consumer = pc.equal(self._of_members(groups.protocol_type, members, chosen), CONSUMER.encode())
        counts = np.diff(start)[which] if len(which) else np.zeros(0, np.int64)
        counts = counts * is_consumer.to_numpy(zero_copy_only=False)
        of_member = np.repeat(np.arange(len(chosen)), counts)
        first = np.repeat(start[which] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) if len(which) else which
        entry = pa.array(first + np.arange(len(of_member)))
        head = self._members_head(groups, members, chosen)
        taken = pa.array(of_member)
        table = _table("assignments", {
            **{name: pa.array(column).take(taken) for name, column in head.items()},
            "topic": pa.array(topics, pa.string()).take(entry),
            "topic_partition": pa.array(partitions, pa.int32()).take(entry),
        })  # fmt: skip
        return table, of_member


def _table(name: str, columns: dict[str, Any]) -> pa.RecordBatch:
    """A table made of columns in numpy and Arrow."""
    schema = SCHEMAS[name]
    arrays = []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, np.ndarray):
            column = pa.array(column.astype(column.dtype.newbyteorder("=")))
        arrays.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
