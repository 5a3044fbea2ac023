"""No bytes make the audit raise: every kind of damage, also to real servers' logs, gives rows and findings.

Each test here runs the whole audit: both ways to read, every check and every output. test_columns has the random logs
without damage.

House rule: each mutation comes from a seed, so that a failure names it.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from coordinator.audit.audit import FINDINGS_KEPT, AuditResult
from coordinator.audit.read.columns import read_tables
from coordinator.audit.read.logs import NO_BATCH_KIND, ROOM_KIND, TORN_TAIL_KIND, plan
from coordinator.audit.read.parse import NOT_RECORDS
from coordinator.audit.read.tables import SCHEMAS, to_rows
from coordinator.audit.show.page import page
from coordinator.audit.show.report import print_report
from coordinator.audit.show.summary import write_summary
from coordinator.story.records.values import MEMBERS_MAX
from protocol.messages import GroupMetadataValue, encode
from protocol.records.batch import HEADER_SIZE, Record, encode_batch
from protocol.records.codecs import Codec
from protocol.records.varint import encode_varint
from tests.audit.audited import audited
from tests.audit.conftest import Script
from tests.audit.random_logs import logs
from tests.audit.read.test_columns import whole
from tests.audit.reference import all_to_arrow, parse
from tests.audit.scenes import (
    GROUP,
    START_MS,
    Scene,
    clean,
    group_key,
    group_value,
    offset_key,
    offset_value,
    static_members,
    with_attributes,
)
from tests.cli.conftest import make_app
from tests.support.batches import with_crc
from tests.support.length import rounds
from tests.support.peak import peak_of

SEEDS, LOGS, STRIDE = rounds(25, 80, 2_000), rounds(12, 40, 1_000), rounds(139, 41, 1)
"""The number of seeds and logs, and the stride through cases that would take minutes otherwise.

The stride is prime, so that it meets every kind of case in turn.
"""
MEMORY_KIB_MAX = 1_000_000
SPARSE_SIZE = 1_100_000_000
"""Bytes of a sparse file, which takes no space on the disk: more than MEMORY_KIB_MAX."""
INT8S = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff")
INT16S = (b"\x00\x00", b"\x7f\xff", b"\x80\x00", b"\xff\xff")
INT32S = (b"\x00" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 4, b"\x00\xff\xff\xff")
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")

NAMES = {table: SCHEMAS[table].names for table in ("batches", "other")}
LENGTH = NAMES["batches"].index("length")
POSITION, KIND, SIZE, REASON = (NAMES["other"].index(name) for name in ("position", "kind", "size", "reason"))
FINDING_KINDS = NOT_RECORDS | {"unreadable"}
NO_BATCHES = {NO_BATCH_KIND, TORN_TAIL_KIND, ROOM_KIND}


def assert_sound(folder: Path) -> AuditResult:
    """Both ways to read agree, the rows account for each byte, and every output can be written."""
    for of in plan(folder).ranges:
        rows = parse(of)
        wanted, found = all_to_arrow(rows), whole(read_tables(of))
        for table, batch in found.items():
            batch.validate(full=True)
            assert to_rows(batch) == to_rows(wanted[table]), table
        lost = sum(row[SIZE] for row in rows["other"] if row[KIND] in NO_BATCHES)
        assert sum(row[LENGTH] for row in rows["batches"]) + lost == of.end - of.start
        for row in rows["other"]:
            if row[KIND] in FINDING_KINDS:
                assert row[REASON]
                assert of.start <= row[POSITION] < of.end
    out = folder.with_name(f"{folder.name}-out")
    result = audited(folder, out)
    print_report(result, Console(file=io.StringIO(), width=100))
    write_summary(out, result)
    page(result).encode()
    return result


def segments(folder: Path) -> list[Path]:
    """Return the files of a log that aren't empty."""
    return sorted(path for path in folder.rglob("*.log") if path.stat().st_size and "__consumer_offsets-" in str(path))


# -- random bytes


@settings(max_examples=LOGS, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=logs(), data=st.data())
def test_random_log_with_random_damage(tmp_path: Path, batches: list[bytes], data: st.DataObject) -> None:
    """The audit is sound with bytes changed, removed and inserted anywhere in a random log."""
    log = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(log)))
        log[at : at + data.draw(st.integers(0, 80))] = data.draw(st.binary(max_size=80))
    scene = Scene()
    scene.batches = [bytes(log)]
    assert_sound(scene.write(tmp_path / "log"))


@pytest.mark.rounds
def test_every_prefix_and_suffix_of_a_log(tmp_path: Path) -> None:
    """Wherever a file is cut, the audit reads the whole batches, and the rest is one row."""
    log = b"".join(clean().batches)
    cuts = range(0, len(log), STRIDE)
    for partition, at in enumerate(cuts):
        scene = Scene(2 * partition)
        scene.batches = [log[:at]]
        scene.write(tmp_path / "log", 0)
        scene = Scene(2 * partition + 1)
        scene.batches = [log[at:]]
        scene.write(tmp_path / "log", 0)
    result = assert_sound(tmp_path / "log")
    ends = [sum(map(len, clean().batches[:count])) for count in range(len(clean().batches) + 1)]
    rests = [log[max(end for end in ends if end <= at) : at] for at in cuts]
    torn = {finding.partition for finding in result.findings if finding.check == "torn_tail"}
    # A batch begins with zeros, and zeros alone are room that a broker made.
    assert [each for each in sorted(torn) if each % 2 == 0] == [
        2 * partition for partition, rest in enumerate(rests) if any(rest)
    ]


# -- false fields with a correct CRC


def lies(batch: bytes) -> Iterator[bytes]:
    """Yield the batch with an extreme value at each position, in each width, and with a correct CRC."""
    for value in (*INT8S, *INT16S, *INT32S):
        for at in range(21, len(batch) - len(value) + 1):
            yield with_crc(batch[:at] + value + batch[at + len(value) :])
    for at in range(HEADER_SIZE, len(batch)):
        for value in VARINTS:
            changed = bytearray(batch[:at] + value + batch[at + 1 :])
            struct.pack_into(">i", changed, 8, len(changed) - 12)
            yield with_crc(changed)


@pytest.mark.rounds
@pytest.mark.parametrize(
    "record",
    [(group_key(GROUP), group_value(static_members(a=1, b=1), 4)), (offset_key(GROUP), offset_value(7))],
    ids=["group", "offset"],
)
def test_lengths_and_counts_that_lie(tmp_path: Path, record: tuple[bytes, bytes]) -> None:
    """The audit is sound with any value in the header, in records, in keys, in values and in members' data."""
    batch = encode_batch([Record(*record, START_MS)] * 2, 0, 0)
    scene = Scene()
    scene.batches = list(lies(batch))[:: min(STRIDE, 3)]
    result = assert_sound(scene.write(tmp_path / "log"))
    found = {finding.check for finding in result.findings}
    assert "undecodable" in found
    # The CRC of a resealed batch is correct, and its bytes are complete.
    assert not {"bad_checksum", "torn_tail"} & found
    assert result.batches == len(scene.batches)


# -- memory


def bombs() -> Iterator[tuple[Codec, bytes]]:
    """Yield bodies that unpack to a gibibyte, in each codec's parts of 16 MiB; and one that claims 4 GiB."""
    part = bytes(2**24)
    yield Codec.ZSTD, bytes(cramjam.zstd.compress(part)) * 64
    yield Codec.GZIP, bytes(cramjam.gzip.compress(part)) * 64
    yield Codec.LZ4, bytes(cramjam.lz4.compress(part)) * 64
    block = bytes(cramjam.snappy.compress_raw(part))
    yield Codec.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 64
    yield Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(40)


@pytest.mark.long
def test_what_unpacks_to_a_gibibyte_costs_no_memory(scene: Scene, tmp_path: Path) -> None:
    """The command finds each such batch, reports the group beside them, and stays below a gigabyte."""
    for codec, body in bombs():
        bomb = encode_batch([Record(offset_key(GROUP), offset_value(1), START_MS)], scene.next_offset, 1)
        scene.raw(with_attributes(bomb, codec, body=body))
    code, peak_kib, printed = run_audit(scene.write(tmp_path / "log"), tmp_path / "out")
    assert code == 1
    assert "5 findings" in printed
    assert GROUP in printed
    assert peak_kib < MEMORY_KIB_MAX


@pytest.mark.long
def test_counts_that_lie_cost_no_memory(tmp_path: Path) -> None:
    """A count of two thousand million records, members or partitions costs no memory: the bytes aren't there."""
    value = bytearray(group_value(static_members(a=1), 4))
    at = value.index(b"\0\0\0\1\0\3a-1")  # one member
    value[at : at + 4] = b"\x7f\xff\xff\xff"
    members = bytearray(group_value(static_members(a=1), 4))
    at = members.rindex(b"\0\0\0\2\0\0\0\0\0\0\0\1")  # two partitions
    members[at : at + 4] = b"\x7f\xff\xff\xff"
    scene = Scene().append((group_key(GROUP), bytes(value))).append((group_key(GROUP), bytes(members)))
    count = bytearray(scene.batches[0])
    struct.pack_into(">i", count, 23, 2**31 - 1)
    struct.pack_into(">i", count, 57, 2**31 - 1)
    scene.raw(with_crc(count))
    code, peak_kib, _printed = run_audit(scene.write(tmp_path / "log"), tmp_path / "out")
    assert code == 1
    assert peak_kib < MEMORY_KIB_MAX


@pytest.mark.long
def test_very_many_minimal_records_cost_no_memory(scene: Scene, tmp_path: Path) -> None:
    """The audit refuses a batch of millions of tiny records, and reads those of a broker's size in parts."""
    for count in (10_000_000, *[100_000] * 6):
        # Length, attributes, both deltas, an empty key, no value, no headers. The largest batch repeats its offsets.
        record = b"\x0e\0\0\0\0\1\0"
        body = record * count if count > 1_000_000 else b"".join(map(minimal, range(count)))
        batch = encode_batch([Record(b"", None, START_MS)], scene.next_offset, 1)
        batch = with_attributes(batch, Codec.ZSTD, body=bytes(cramjam.zstd.compress(body)))
        changed = bytearray(batch)
        struct.pack_into(">i", changed, 23, count - 1)
        struct.pack_into(">i", changed, 57, count)
        scene.raw(with_crc(changed), count)
    code, peak_kib, printed = run_audit(scene.write(tmp_path / "log"), tmp_path / "out")
    assert code == 1
    assert "600,001 findings" in printed
    assert peak_kib < MEMORY_KIB_MAX
    assert pq.read_metadata(tmp_path / "out" / "findings.parquet").num_rows == FINDINGS_KEPT


@pytest.mark.long
def test_very_many_minimal_members_cost_no_memory(tmp_path: Path) -> None:
    """A group of five million members without a name is undecodable, and its row gives the reason."""
    count = 5_000_000
    head = group_value([], 1)
    value = head[:-4] + struct.pack(">i", count) + encode(GroupMetadataValue.MemberMetadata(), 3) * count
    scene = clean()
    plain = encode_batch([Record(group_key(GROUP), value, START_MS)], scene.next_offset, 1)
    body = bytes(cramjam.zstd.compress(plain[HEADER_SIZE:]))
    scene.raw(with_attributes(plain[:HEADER_SIZE], Codec.ZSTD, body=body))
    code, peak_kib, printed = run_audit(scene.write(tmp_path / "log"), tmp_path / "out")
    assert (code, "1 finding" in printed) == (1, True)
    assert f"value: {count} members, {MEMBERS_MAX} allowed" in " ".join(printed.split())
    assert peak_kib < MEMORY_KIB_MAX


def minimal(delta: int) -> bytes:
    """Return the smallest possible record with that offset in its batch."""
    data = b"\0\0" + encode_varint(delta) + b"\0\1\0"
    return encode_varint(len(data)) + data


@pytest.mark.long
def test_bytes_without_a_batch_cost_no_memory(tmp_path: Path) -> None:
    """A file of zeros, and a header that claims a whole file, cost no memory."""
    scene = Scene()
    path = scene.segment_path(scene.write(tmp_path / "log"))
    os.truncate(path, SPARSE_SIZE)
    lying = encode_batch([Record(offset_key(GROUP), offset_value(1), START_MS)], 0, 1)
    other = Scene(1).raw(lying[:8] + struct.pack(">i", SPARSE_SIZE - 12) + lying[12:])
    path = other.segment_path(other.write(tmp_path / "log"))
    os.truncate(path, SPARSE_SIZE)
    code, peak_kib, printed = run_audit(tmp_path / "log", tmp_path / "out")
    # The zeros may be room that a broker preallocated.
    assert (code, "1 finding" in printed) == (1, True)
    assert peak_kib < MEMORY_KIB_MAX


def run_audit(folder: Path, out: Path) -> tuple[int, int, str]:
    """Run the command; returns exit code, peak memory in KiB and standard output."""
    out.mkdir()
    command = (sys.executable, "-m", "coordinator.cli.main", "audit", str(folder), "--out", str(out))
    code, peak_kib = peak_of(out / "printed", out / "errors", *command)
    assert "Traceback" not in (out / "errors").read_text()
    return code, peak_kib, (out / "printed").read_text()


# -- real logs, mutated


def mutated(log: bytes, chance: random.Random) -> bytes:
    """Return the log with some damage."""
    data = bytearray(log)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(data) + 1), chance.choice([1, 4, 12, 61, 500])
        kind = chance.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + size] = chance.randbytes(size)
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size]
        elif kind == 4:
            data[at : at + size] = bytes(size)
        elif kind == 5:
            del data[at:]
        else:
            change_below_crc(data, chance)
    return bytes(data)


def change_below_crc(data: bytearray, chance: random.Random) -> None:
    """Change bytes of one batch and correct its CRC."""
    starts = []
    at = 0
    while at + HEADER_SIZE <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        if length < HEADER_SIZE - 12 or at + 12 + length > len(data):
            break
        starts.append((at, at + 12 + length))
        at += 12 + length
    if starts:
        start, end = chance.choice(starts)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(start + 21, end)] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        data[start:end] = with_crc(data[start:end])


@pytest.mark.rounds
def test_mutated_log_of_a_server(tmp_path: Path, script: Script) -> None:
    """Damage in a real server's files becomes findings, and raises nothing."""
    sound = {path.relative_to(script.folder): path.read_bytes() for path in segments(script.folder)}
    assert sound
    for seed in range(SEEDS):
        chance = random.Random(seed)
        name, log = chance.choice(sorted(sound.items()))
        folder = tmp_path / f"seed-{seed}"
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(mutated(log, chance))
        assert_sound(folder)
        shutil.rmtree(folder)
        shutil.rmtree(folder.with_name(f"{folder.name}-out"))


# -- folders


def test_folders_that_are_no_log(tmp_path: Path) -> None:
    """A folder that is no log ends the command with an exit code and one line, never with a traceback."""
    for number, make in enumerate(FOLDERS):
        folder = tmp_path / f"folder-{number}"
        folder.mkdir()
        make(folder)
        result = CliRunner().invoke(make_app("audit"), ["audit", str(folder)])
        assert isinstance(result.exception, SystemExit | None), number
        is_empty = result.exit_code == 0 and "the log is empty" in result.stdout
        assert is_empty or (result.exit_code == 2 and result.stderr.count("\n") == 1), (number, result.stderr)


def _empty(folder: Path) -> None:
    assert folder.is_dir()


def _other_files(folder: Path) -> None:
    (folder / "__consumer_offsets-x").mkdir()
    (folder / "__consumer_offsets-1").write_bytes(b"a file")
    (folder / "orders-0").mkdir()


def _no_segments(folder: Path) -> None:
    (folder / "__consumer_offsets-0").mkdir()


def _empty_segment(folder: Path) -> None:
    _no_segments(folder)
    (folder / "__consumer_offsets-0" / f"{0:020}.log").touch()


def _folder_as_segment(folder: Path) -> None:
    (folder / "__consumer_offsets-0" / f"{0:020}.log").mkdir(parents=True)


def _link_to_itself(folder: Path) -> None:
    _no_segments(folder)
    (folder / "__consumer_offsets-0" / f"{0:020}.log").symlink_to(f"{0:020}.log")


FOLDERS = (_empty, _other_files, _no_segments, _empty_segment, _folder_as_segment, _link_to_itself)
