"""The fields of many records at once equal the codec's own reading of each record."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.audit.read import fields
from coordinator.audit.read.fields import Batches, Fields, Groups, Records
from coordinator.audit.read.vectors import Data, Text
from coordinator.story.records.values import read_group, read_key, read_offset
from protocol.records.batch import Header, Record, encode_batch, peek_header
from protocol.records.walk import decode_batches
from tests.audit.scenes import GROUP, Scene, clean, group_key, group_value, member, offset_key, offset_value


def batches_of(scene: Scene) -> tuple[Data, Batches]:
    """Return the batches of a scene; all are plain so far."""
    content = b"".join(scene.batches)
    data = Data(len(content))
    data.view[: len(content)] = content
    headers: list[tuple[int, Header]] = []
    at = 0
    while at < len(content):
        headers.append((at, peek_header(content, at)))
        at += headers[-1][1].size
    starts = np.array([start for start, _ in headers], np.int64)
    return data, Batches(
        start=starts,
        end=np.array([start + header.size for start, header in headers], np.int64),
        base_offset=np.array([header.base_offset for _, header in headers], np.int64),
        last_delta=np.array([header.last_offset_delta for _, header in headers], np.int64),
        base_ts=np.array([header.base_timestamp_ms for _, header in headers], np.int64),
        record_count=np.array([header.record_count for _, header in headers], np.int64),
        plain=np.ones(len(headers), np.bool_),
    )


def texts(data: Data, text: Text) -> list[bytes | None]:
    """Return the texts as bytes."""
    content = bytes(data.view)
    pairs = zip(text.start.tolist(), text.size.tolist(), strict=True)
    return [None if size < 0 else content[start : start + size] for start, size in pairs]


def wanted_of(scene: Scene) -> list[tuple[int, Record]]:
    """Return offset and record of each record, as the codec reads them."""
    return [
        (offset, record)
        for batch in decode_batches(b"".join(scene.batches))
        for offset, record in zip(batch.offsets, batch.records, strict=True)
    ]


def all_records(scene: Scene) -> tuple[Data, Batches, Fields, Records]:
    """Return the records of all plain batches."""
    data, batches = batches_of(scene)
    reader = Fields(data, batches)
    return data, batches, reader, reader.records(needs_offsets=True, needs_groups=True)


def test_records_and_keys_are_the_codecs(scene: Scene) -> None:
    """Offsets, times, keys and values equal the codec's, from batches of one record and of several."""
    data, batches, reader, records = all_records(scene)
    wanted = wanted_of(scene)
    assert batches.plain.all()
    assert records.offset.tolist() == [offset for offset, _ in wanted]
    assert records.ts.tolist() == [record.timestamp_ms for _, record in wanted]
    assert texts(data, records.key) == [record.key for _, record in wanted]
    assert texts(data, records.value) == [record.value for _, record in wanted]
    keys = reader.keys(records)
    read = [read_key(record.key) for _, record in wanted]
    assert texts(data, keys.group) == [(key.group_id or "").encode() for key in read]
    assert [read[row].topic for row in keys.offset_rows] == [each.decode() for each in texts(data, keys.topic) if each]
    assert keys.topic_partition.tolist() == [read[row].topic_partition for row in keys.offset_rows]
    assert sorted([*keys.offset_rows, *keys.group_rows]) == list(range(len(wanted)))


def test_values_are_the_codecs(scene: Scene) -> None:
    """The fields of committed offsets and of groups equal the codec's, with tombstones among them."""
    data, _, reader, records = all_records(scene)
    keys = reader.keys(records)
    values = [record.value for _, record in wanted_of(scene)]
    offsets = reader.offsets(records, keys.offset_rows)
    for index, row in enumerate(offsets.row):
        value = values[row]
        assert offsets.null[index] == (value is None)
        if value is not None:
            read = read_offset(value)[1]
            assert (offsets.committed[index], offsets.commit_ts[index]) == (read.offset, read.commit_timestamp)
    groups = reader.groups(records, keys.group_rows)
    leaders = texts(data, groups.leader)
    for index, row in enumerate(groups.row):
        value = values[row]
        assert groups.null[index] == (value is None)
        if value is not None:
            group = read_group(value)[1]
            assert groups.generation[index] == group.generation
            assert groups.member_count[index] == len(group.members)
            assert leaders[index] == (None if group.leader is None else group.leader.encode())


def groups_in(scene: Scene) -> tuple[Data, Batches, Fields, Records, Groups]:
    """Return the groups of a scene."""
    data, batches, reader, records = all_records(scene)
    return data, batches, reader, records, reader.groups(records, reader.keys(records).group_rows)


def test_members_are_the_codecs() -> None:
    """Members of groups of any size equal the codec's; `order` puts them into the order of the log."""
    scene = Scene()
    for count in (2, 0, 5, 1):
        scene.group([member(f"m-{count}-{number}", {"orders": [number]}) for number in range(count)], 1)
    data, batches, reader, records, groups = groups_in(scene)
    members = reader.members(records, groups)
    wanted = [each for _, record in wanted_of(scene) for each in read_group(record.value or b"")[1].members]
    assert batches.plain.all()
    columns = [texts(data, text.take(members.order)) for text in members.texts]
    assert columns[0] == [each.member_id.encode() for each in wanted]
    assert columns[1] == [None] * len(wanted)
    assert columns[4] == [each.subscription for each in wanted]
    assert columns[5] == [each.assignment for each in wanted]
    assert members.session_ms[members.order].tolist() == [each.session_timeout for each in wanted]
    assert members.rebalance_ms[members.order].tolist() == [each.rebalance_timeout for each in wanted]


def test_only_needed_records_come() -> None:
    """Only the wanted records are read: of groups, of offsets, or none; their batches stay plain."""
    data, batches = batches_of(clean())
    reader = Fields(data, batches)
    both = reader.records(needs_offsets=True, needs_groups=True)
    groups = reader.records(needs_offsets=False, needs_groups=True)
    offsets = reader.records(needs_offsets=True, needs_groups=False)
    assert groups.is_group.all()
    assert not offsets.is_group.any()
    assert len(groups.batch) + len(offsets.batch) == len(both.batch)
    assert batches.plain.all()


@pytest.mark.parametrize(
    "odd",
    [
        (b"\x00\x03g", b"x"),
        (offset_key(GROUP)[:-1], offset_value(1)),
        (offset_key(GROUP), offset_value(1, version=1)),
        (offset_key(GROUP), b"\x00\x03"),
        (group_key(GROUP) [:3], None),
        (group_key(GROUP), group_value([member("a")], 1, version=2)),
        (group_key(GROUP), group_value([member("a"), member("b")], 1)[:-1]),
    ],
)  # fmt: skip
def test_odd_record_takes_the_flag_from_its_batch(odd: tuple[bytes, bytes | None]) -> None:
    """A record of another kind, a short key, or an old or short value makes only its own batch odd."""
    scene = Scene().commit(1).append(odd).commit(2)
    _, batches, reader, records = all_records(scene)
    keys = reader.keys(records)
    reader.offsets(records, keys.offset_rows)
    reader.members(records, reader.groups(records, keys.group_rows))
    assert batches.plain.tolist() == [True, False, True]


def test_batch_that_announces_other_records_is_odd() -> None:
    """A batch with too few records for its header, or with bytes behind its last record, is odd."""
    record = Record(offset_key(GROUP), offset_value(1), 0)
    scene = Scene().raw(encode_batch([record, record], 0, 1), 2)
    data, batches = batches_of(scene)
    for count in (1, 3):
        changed = batches._replace(record_count=np.array([count]), plain=np.ones(1, np.bool_))
        Fields(data, changed).records(needs_offsets=True, needs_groups=True)
        assert changed.plain.tolist() == [False]


def test_group_of_many_members_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with a group of many members is odd: parse.py reads it, so that the other members don't wait."""
    monkeypatch.setattr(fields, "MEMBERS_MAX", 2)
    scene = Scene().group([member(f"m-{number}") for number in range(3)], 1).group([member("a"), member("b")], 2)
    _, batches, _, _, groups = groups_in(scene)
    assert batches.plain.tolist() == [False, True]
    assert groups.member_count.tolist() == [0, 2]
