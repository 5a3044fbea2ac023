"""Bytes become rows: every version and every codec; invalid bytes become rows in `other`."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.audit.read.logs import plan
from coordinator.audit.read.parse import Row, Rows, new_rows, parse_record
from coordinator.audit.read.tables import COLUMNS
from coordinator.story.records.consumer import CONSUMER_VERSIONS
from coordinator.story.records.values import NEWER_GROUPS
from protocol.records.batch import HEADER_SIZE, Record, encode_batch
from protocol.records.codecs import Codec
from tests.audit.reference import all_to_arrow, parse
from tests.audit.scenes import (
    GROUP,
    START_MS,
    Scene,
    compressed,
    consumer_member,
    group_key,
    group_value,
    newer_key,
    newer_value,
    offset_key,
    offset_value,
    share_value,
    static,
    static_members,
    subscription,
    versioned,
    with_attributes,
)
from tests.support.batches import with_crc


def rows_of(folder: Path) -> Rows:
    """Return all rows of a log."""
    rows = new_rows()
    for of in plan(folder).ranges:
        for table, added in parse(of).items():
            rows[table] += added
    return rows


def named(table: str, row: Row) -> dict[str, object]:
    """Return a row as column -> value."""
    return dict(zip((column.split(":")[0] for column in COLUMNS[table].split()), row, strict=True))


def others(folder: Path) -> list[tuple[object, object]]:
    """Return kind and reason of the rows in `other`."""
    return [(row[5], row[9]) for row in rows_of(folder)["other"]]


@pytest.mark.parametrize("version", range(5))
def test_group_of_every_version(version: int) -> None:
    """A group's field that its version lacks is None."""
    members = [static("a", 1, {"orders": [0, 1], "refunds": [2]})]
    rows = parse_record(3, 7, Record(group_key(GROUP), group_value(members, 4, version=version), START_MS))
    group, member = named("groups", rows["groups"][0]), named("members", rows["members"][0])
    assert group == {
        "partition": 3, "offset": 7, "ts": START_MS, "group": GROUP, "protocol_type": "consumer", "generation": 4,
        "protocol": "range", "leader": "a-1", "state_ts": START_MS if version >= 2 else None, "n_members": 1,
        "tombstone": False, "value_version": version,
    }  # fmt: skip
    assert member["group_instance_id"] == ("a" if version >= 3 else None)
    assert member["rebalance_ms"] == (60_000 if version >= 1 else None)
    assert (member["session_ms"], member["subscription"]) == (10_000, subscription(["orders"]))
    assert [row[-2:] for row in rows["assignments"]] == [("orders", 0), ("orders", 1), ("refunds", 2)]
    assert rows["other"] == []


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("key_version", [0, 1])
def test_offset_of_every_version(version: int, key_version: int) -> None:
    """A committed offset's field that its version lacks is empty."""
    key, value = offset_key(GROUP, "orders", 3, key_version), offset_value(5, version=version)
    row = named("offsets", parse_record(0, 7, Record(key, value, START_MS))["offsets"][0])
    assert row == {
        "partition": 0, "offset": 7, "ts": START_MS, "group": GROUP, "topic": "orders", "topic_partition": 3,
        "committed": 5, "leader_epoch": -1, "metadata": "", "commit_ts": START_MS, "expire_ts": None,
        "tombstone": False, "value_version": version,
    }  # fmt: skip


def test_tombstones_have_no_fields() -> None:
    """A tombstone's row has the deleted key and its time, and no other fields."""
    offset = named("offsets", parse_record(0, 7, Record(offset_key(GROUP), None, START_MS))["offsets"][0])
    group = named("groups", parse_record(0, 7, Record(group_key(GROUP), None, START_MS))["groups"][0])
    assert offset["tombstone"]
    assert group["tombstone"]
    assert {offset["committed"], offset["value_version"], group["generation"], group["n_members"]} == {None}


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_codec_changes_nothing_but_its_name(scene: Scene, tmp_path: Path, codec: Codec) -> None:
    """A compressed log has the rows of the uncompressed one, but for the codec's name."""
    plain = rows_of(scene.write(tmp_path / "plain"))
    scene.batches = [compressed(batch, codec) for batch in scene.batches]
    packed = rows_of(scene.write(tmp_path / "packed"))
    assert {row[7] for row in packed["batches"]} == {codec.name.lower()}
    for rows in (plain, packed):
        del rows["batches"]
        rows["records"] = [row[:-1] for row in rows["records"]]  # without the position of their batch
    assert packed == plain


@pytest.mark.parametrize(
    ("key", "value", "kind", "group"),
    [
        (versioned(999, b"x"), b"y", "unknown", None),
        (versioned(3, b"\0"), b"", "unreadable", None),
        (versioned(9, b"\0"), b"", "share_group_partition_metadata", None),
        (versioned(11, b"\0"), b"", "unreadable", None),
        (newer_key("g1", 11), b"", "unreadable", "g1"),
        (newer_key("g1", 17), share_value(), "streams_group_metadata", "g1"),
        (newer_key("g1", 17), newer_value(), "unreadable", "g1"),
        (newer_key("g1", 11), share_value(), "share_group_metadata", "g1"),
        (newer_key("g1"), b"", "unreadable", "g1"),
        (newer_key("g1"), newer_value(), "consumer_group_metadata", "g1"),
        (*consumer_member("g1"), "consumer_group_member_metadata", "g1"),
        (b"\0", b"", "unreadable", None),
        (versioned(2, b"\0\7g"), b"", "unreadable", None),
        (group_key(GROUP), b"", "unreadable", GROUP),
        (group_key(GROUP), versioned(9, b""), "unreadable", GROUP),
        (group_key(GROUP), versioned(3, b"\0\7g"), "unreadable", GROUP),
        (offset_key(GROUP), versioned(3, b"\0"), "unreadable", GROUP),
    ],
)
def test_other_records_are_rows_with_their_kind(key: bytes, value: bytes, kind: str, group: str | None) -> None:
    """Records of newer protocols are rows with the record type's name; unreadable ones are rows with the reason."""
    rows = parse_record(1, 7, Record(key, value, START_MS))
    row = named("other", rows.pop("other")[0])
    assert (row["kind"], row["group"], row["size"]) == (kind, group, len(key) + len(value))
    assert (row["reason"] is not None) == (kind == "unreadable")
    # The checks follow groups of the consumer protocol; of others, a record says whether the group is deleted.
    is_known = (kind in NEWER_GROUPS or kind in CONSUMER_VERSIONS) and group is not None
    assert [each[3:7] for each in rows.pop("records")] == [(kind, group, key, value)] * is_known
    assert not any(rows.values())


def test_batch_that_lies_under_a_right_crc_is_a_row(tmp_path: Path) -> None:
    """A batch with a correct CRC and a wrong count, length or codec is a row in `other`."""
    good = encode_batch([Record(offset_key(GROUP), offset_value(1), START_MS)] * 2, 0, 0)
    count, length = bytearray(good), bytearray(good)
    struct.pack_into(">i", count, 57, 2**31 - 1)
    length[HEADER_SIZE] = 0x7E
    scene = Scene()
    scene.batches = [with_crc(count), with_crc(length), with_attributes(good, 7), with_attributes(good, Codec.ZSTD)]
    found = others(scene.write(tmp_path))
    assert [kind for kind, _ in found] == ["unreadable_batch"] * 4
    assert len({reason for _, reason in found}) == 4


def test_batch_that_unpacks_to_a_gibibyte_costs_no_memory(tmp_path: Path) -> None:
    """A batch that unpacks to a gibibyte is a row in `other`, and the process stays below a gigabyte."""
    bomb = bytes(cramjam.zstd.compress(b"\0" * 2**24)) * 64
    batch = encode_batch([Record(offset_key(GROUP), offset_value(1), START_MS)], 0, 0)
    scene = Scene()
    scene.batches = [with_attributes(batch, Codec.ZSTD, body=bomb)]
    program = (
        "import resource, sys; from pathlib import Path; from coordinator.audit.audit import Options, audit\n"
        "found = audit(Path(sys.argv[1]), None, Options(), lambda done: None).findings\n"
        "print(*(each.check for each in found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(scene.write(tmp_path))], capture_output=True, text=True, check=True
    )
    check, peak_kib = done.stdout.split()
    assert check == "undecodable"
    assert int(peak_kib) < 1_000_000


def test_times_beyond_all_bounds_are_rows(tmp_path: Path) -> None:
    """A record whose time doesn't fit into 64 bits is a row."""
    batch = bytearray(encode_batch([Record(offset_key(GROUP), offset_value(1), ms) for ms in (0, 2**40)], 0, 0))
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    struct.pack_into(">q", batch, 0, 2**63 - 1)
    scene = Scene()
    scene.batches = [with_crc(batch)]
    tables = all_to_arrow(rows_of(scene.write(tmp_path)))
    assert tables["records"].column("ts").to_pylist() == [2**63 - 1] * 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=400))
def test_random_file_is_rows(tmp_path: Path, noise: bytes) -> None:
    """Random bytes raise nothing, and the rows account for every byte."""
    scene = Scene()
    scene.batches = [noise]
    rows = rows_of(scene.write(tmp_path))
    assert sum(row[8] for row in rows["other"]) == len(noise)


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_random_record_is_a_row(key: bytes, value: bytes | None) -> None:
    """Each record with random key and value is one row."""
    rows = parse_record(0, 0, Record(key, value, START_MS))
    assert len(rows["records"]) + len(rows["other"]) == 1
    all_to_arrow(rows)


@given(data=st.data())
def test_damaged_record_is_a_row(data: st.DataObject) -> None:
    """A damaged record is one row: decoded, or in `other`."""
    value = bytearray(group_value(static_members(a=1, b=1), 4, version=data.draw(st.integers(0, 4))))
    for _ in range(data.draw(st.integers(1, 5))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    rows = parse_record(0, 0, Record(group_key(GROUP), bytes(value), START_MS))
    assert len(rows["groups"]) + len(rows["other"]) == 1
    all_to_arrow(rows)
