"""`tenure log verify`: a sound log is clean, and verify finds each planted fault in its place."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.log.command import app
from coordinator.cli.log.verify import AT_BOUND_MAX, BrokenRule, Rule, Summary, guess_partition_count, verify
from coordinator.config import INT32_MAX, INT64_MAX
from coordinator.group.consumer.records import epoch_record
from coordinator.group.invariants import RecordRule, record_violations
from coordinator.group.partition import partition_for
from coordinator.group.records import group_key, group_value, offset_key
from coordinator.log.segments.outside import find_logs
from coordinator.log.segments.partition import EPOCH_MAX
from coordinator.story.records.consumer import CONSUMER_VERSIONS, name_field, read_consumer_value
from coordinator.story.records.values import read_group
from coordinator.transaction.records import key_of
from coordinator.transaction.state import Status
from protocol.errors import ProtocolError
from protocol.messages import OffsetCommitValue, encode
from protocol.records.batch import HEADER_SIZE, Record, encode_batch
from protocol.records.walk import decode_batches
from tests.audit.check.test_checks import FAULTS
from tests.audit.scenes import group_on, with_attributes
from tests.cli.conftest import run_app
from tests.cli.log.conftest import (
    MEMORY_KIB_MAX,
    PARTITION_COUNT,
    WALL_MS,
    beyond_limits,
    consumer_group_of,
    group_of,
    make_group,
    marker,
    offset_of,
    run_measured,
    tombstone_of,
    transactional,
    write_id,
    write_segment,
)
from tests.cli.log.test_locks import another_process
from tests.support.batches import old_messages


def check(path: Path, partition_count: int | None = PARTITION_COUNT) -> tuple[list[BrokenRule], Summary]:
    """Findings and summary."""
    summary = Summary()
    return list(verify(find_logs(path), partition_count, summary)), summary


def rules(path: Path, partition_count: int | None = PARTITION_COUNT) -> list[tuple[Rule, str, int]]:
    """The findings: rule, file name and position."""
    return [(each.rule, each.file.name, each.position) for each in check(path, partition_count)[0]]


ON_0 = [group_on(0, name) for name in ("a", "b", "c")]
FIRST = "00000000000000000000.log"


def batch_of(group_id: str, base_offset: int, epoch: int = 1) -> bytes:
    """A batch with one record of a group."""
    return encode_batch([group_of(group_id)], base_offset, epoch)


def write(tmp_path: Path, *batches: bytes) -> Path:
    """A log of partition 0 with one segment; returns its data folder."""
    write_segment(tmp_path, 0, batches)
    return tmp_path


def test_sound_log_is_clean(data_dir: Path) -> None:
    """A sound log has no findings, and the summary counts everything."""
    findings, summary = check(data_dir)
    assert findings == []
    assert (summary.partitions, summary.segments, summary.batches, summary.records) == (4, 8, 16, 28)
    assert summary.groups == 4
    assert summary.epoch_max == {data_dir / f"__consumer_offsets-{partition}": 3 for partition in range(4)}


def flip(content: bytearray, position: int) -> None:
    """Change a bit."""
    content[position] ^= 1


@pytest.mark.parametrize("position", [17, 40, 100])
def test_flipped_bit_is_found_where_it_is(data_dir: Path, position: int) -> None:
    """A changed bit under the CRC, or of the CRC, is a finding at its batch, and only there."""
    path = data_dir / "__consumer_offsets-1" / FIRST
    content = bytearray(path.read_bytes())
    flip(content, position)
    path.write_bytes(content)
    assert rules(data_dir) == [(Rule.BATCH, FIRST, 0)]


@pytest.mark.parametrize("cut", [1, 30, 62])
def test_torn_tail_is_found(data_dir: Path, cut: int) -> None:
    """A newest segment that ends inside a batch is torn there."""
    path = max((data_dir / "__consumer_offsets-3").iterdir())
    path.write_bytes(path.read_bytes()[:-cut])
    assert rules(data_dir) == [(Rule.TORN_TAIL, path.name, 0)]


def test_torn_end_of_an_older_segment_is_damage(data_dir: Path) -> None:
    """Only the newest segment can be torn: each older one was durable before the next began."""
    path = data_dir / "__consumer_offsets-3" / FIRST
    path.write_bytes(path.read_bytes()[:-1])
    assert [(rule, name) for rule, name, _ in rules(data_dir)] == [(Rule.BATCH, FIRST)]


def test_whole_batch_with_a_wrong_length_is_not_torn(tmp_path: Path) -> None:
    """A batch with the right CRC was written whole, so it is never torn, not even at the end."""
    last = bytearray(batch_of(ON_0[1], 1))
    last[11] ^= 1
    first = batch_of(ON_0[0], 0)
    assert rules(write(tmp_path, first, bytes(last))) == [(Rule.BATCH, FIRST, len(first))]


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_write_under_way_is_a_note(data_dir: Path, call: str) -> None:
    """A half written end is a note, not a finding, while a server works with the folder."""
    path = max((data_dir / "__consumer_offsets-3").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with another_process(data_dir, call):
        findings, summary = check(data_dir)
    assert findings == []
    (note,) = summary.notes
    assert str(path) in note
    assert "a server is running" in note


def test_server_that_ends_meanwhile_was_writing(data_dir: Path) -> None:
    """A server that ran when verify began may have been writing, even if it ends before verify reads."""
    folder = data_dir / "__consumer_offsets-3"
    path = max(folder.iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    summary = Summary()
    with ExitStack() as stack:
        stack.enter_context(another_process(data_dir, "flock"))
        findings = verify(find_logs(folder), PARTITION_COUNT, summary, progress=lambda _size: stack.close())
        assert list(findings) == []
    assert len(summary.notes) == 1
    assert rules(folder) == [(Rule.TORN_TAIL, path.name, 0)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_older_format_are_named(tmp_path: Path, magic: int) -> None:
    """Messages of an older format are never a torn tail, not even at the end; no running server writes them."""
    first = batch_of(ON_0[0], 0)
    write(tmp_path, first, old_messages(magic, 2, 1))
    (found,), _ = check(tmp_path)
    assert (found.rule, found.position, found.reason) == (
        Rule.BATCH, len(first), f"message format {magic}, only 2 is read ({len(old_messages(magic, 2))} bytes)",
    )  # fmt: skip
    write(tmp_path, first, old_messages(magic, 2, 1), batch_of(ON_0[1], 3))
    assert rules(tmp_path) == [(Rule.BATCH, FIRST, len(first))]


def test_records_that_their_header_belies_are_found(tmp_path: Path) -> None:
    """A batch with the right CRC whose records can't be read is a finding."""
    broken = with_attributes(batch_of(ON_0[0], 0), 4, body=b"no zstd")
    assert rules(write(tmp_path, broken, batch_of(ON_0[1], 1))) == [(Rule.BATCH, FIRST, 0)]


def test_offsets_that_fall_are_found(tmp_path: Path) -> None:
    """An offset that falls within a segment is a finding at its batch; a gap is legal."""
    batches = [batch_of(ON_0[0], 5), batch_of(ON_0[1], 9), batch_of(ON_0[2], 9)]
    assert rules(write(tmp_path, *batches)) == [(Rule.OFFSET_ORDER, FIRST, len(batches[0]) + len(batches[1]))]


def test_the_batch_whose_offset_is_wrong_is_named(tmp_path: Path) -> None:
    """The finding names the batch with the wrong offset, not the right ones behind it."""
    good = [batch_of(ON_0[0], 0), batch_of(ON_0[1], 1), batch_of(ON_0[2], 2), batch_of(ON_0[0], 3)]
    wrong = batch_of(ON_0[1], 257)
    folder = write(tmp_path, good[0], wrong, good[2], good[3])
    assert rules(folder) == [(Rule.OFFSET_ORDER, FIRST, len(good[0]))]
    write(tmp_path, good[0], wrong)
    assert rules(folder) == []
    write_segment(tmp_path, 0, [good[2], good[3], good[3]], base_offset=2)
    assert rules(folder) == [
        (Rule.OFFSET_ORDER, f"{2:020}.log", 0),
        (Rule.OFFSET_ORDER, FIRST, len(good[0])),
        (Rule.OFFSET_ORDER, f"{2:020}.log", len(good[2]) + len(good[3])),
    ]


def test_offsets_that_a_segment_cannot_hold_are_found(tmp_path: Path) -> None:
    """An offset too far from the segment's first doesn't fit Kafka's indexes."""
    assert rules(write(tmp_path, batch_of(ON_0[0], 2**31))) == [(Rule.OFFSET_ORDER, FIRST, 0)]


def test_lost_oldest_segments_are_noted(data_dir: Path) -> None:
    """A log always begins with offset 0, so a later beginning is a note; a single file may begin anywhere."""
    first, second = sorted((data_dir / "__consumer_offsets-0").glob("*.log"))
    assert check(data_dir)[1].notes == []
    first.unlink()
    findings, summary = check(data_dir)
    assert (findings, summary.notes) == ([], [f"{second} is the first segment: those before it are gone"])
    assert check(second)[1].notes == []


def test_segment_that_begins_too_early_is_found(data_dir: Path) -> None:
    """A segment must not begin with an offset that the previous segment already has."""
    folder = data_dir / "__consumer_offsets-0"
    write_segment(data_dir, 0, [batch_of(ON_0[0], 7, 3)], base_offset=6)
    assert rules(folder) == [(Rule.OFFSET_ORDER, f"{6:020}.log", 0)]


def test_epochs_that_fall_are_found(tmp_path: Path) -> None:
    """An epoch that falls from one segment to the next is a finding too."""
    write_segment(tmp_path, 0, [batch_of(ON_0[0], 0, 5)])
    write_segment(tmp_path, 0, [batch_of(ON_0[1], 1, 4), batch_of(ON_0[2], 2, 5)], base_offset=1)
    assert rules(tmp_path) == [(Rule.EPOCH_ORDER, f"{1:020}.log", 0)]


@pytest.mark.parametrize(
    "record",
    [
        Record(b"\0", b"", WALL_MS),
        Record(group_key(ON_0[0])[:-1], None, WALL_MS),
        Record(group_key(ON_0[0]), b"\0\x63", WALL_MS),
        Record(offset_key(ON_0[0], "t", 0), b"\0\3\0", WALL_MS),
    ],
)
def test_record_that_cannot_be_read_is_found(tmp_path: Path, record: Record) -> None:
    """The finding of an unreadable record has its offset."""
    findings, _ = check(write(tmp_path, encode_batch([group_of(ON_0[1]), record], 0, 1)))
    assert [(each.rule, each.offset) for each in findings] == [(Rule.RECORD, 1)]


def test_marker_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    """A control batch whose record is no marker is a finding."""
    odd = with_attributes(encode_batch([Record(b"\0\0\0\7", b"\0\0\0\0\0\0", 0)], 0, 1), 0x30, 5)
    assert rules(write(tmp_path, odd)) == [(Rule.RECORD, FIRST, 0)]


RULE_OF_FAULT = {
    "bad_checksum": Rule.BATCH,
    "torn_tail": Rule.TORN_TAIL,
    "old_format": Rule.BATCH,
    "undecodable": Rule.RECORD,
    "offset_order": Rule.OFFSET_ORDER,
    "epoch_order": Rule.EPOCH_ORDER,
    "wrong_partition": Rule.PARTITION,
    "duplicate_instance": Rule.GROUP,
    "leader_not_member": Rule.GROUP,
    "partition_held_twice": Rule.GROUP,
    "records_contradict": Rule.GROUP,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_audit_have_their_rule(tmp_path: Path, fault: str) -> None:
    """Verify has a rule for each fault that a log shows by itself; the audit finds those that need history."""
    rule = RULE_OF_FAULT.get(fault)
    assert [each.rule for each in check(FAULTS[fault]().write(tmp_path))[0]] == ([] if rule is None else [rule])


def test_record_at_a_bound_is_named(tmp_path: Path) -> None:
    """A group or a commit with the last number that there is gets a note, by file and position; it is no finding."""
    group, commit, consumer = ON_0
    value = read_group(group_of(group).value or b"")[1]
    value.generation = INT32_MAX
    written = [
        Record(group_key(group), b"\0\3" + encode(value, 3), WALL_MS),
        Record(offset_key(commit, "t", 0), b"\0\3" + encode(OffsetCommitValue(offset=INT64_MAX), 3), WALL_MS),
        epoch_record(consumer, INT32_MAX, 0, WALL_MS),
    ]
    batches = [encode_batch([record], offset, EPOCH_MAX) for offset, record in enumerate(written)]
    findings, summary = check(write(tmp_path, *batches))
    first, second = len(batches[0]), len(batches[0]) + len(batches[1])
    path = find_logs(tmp_path)[0].folder / FIRST
    assert findings == []
    assert [note.partition(": ")[0] for note in summary.notes] == [
        f"{path} at byte {first}",
        f"{path} at byte 0",
        f"{path} at byte {second}",
        str(path.parent),
    ]
    assert [word in note for word, note in zip((commit, group, consumer, "epoch"), summary.notes, strict=True)] == [
        True
    ] * 4


def test_many_records_at_a_bound_are_counted(tmp_path: Path) -> None:
    """Notes name AT_BOUND_MAX records at a bound, and count the others."""
    value = b"\0\3" + encode(OffsetCommitValue(offset=INT64_MAX), 3)
    commits = [Record(offset_key(ON_0[0], "t", number), value, WALL_MS) for number in range(AT_BOUND_MAX + 3)]
    findings, summary = check(write(tmp_path, encode_batch(commits, 0, 1)))
    assert (findings, len(summary.notes)) == ([], AT_BOUND_MAX + 1)
    assert summary.notes[-1] == "3 more records are at a bound"


def test_offset_without_room_is_named(tmp_path: Path) -> None:
    """A log whose offsets end soon gets a note."""
    write_segment(tmp_path, 0, [encode_batch([group_of(ON_0[0])], INT64_MAX - 5, 1)], INT64_MAX - 5)
    findings, summary = check(tmp_path)
    assert findings == []
    assert "hardly any offset is left" in summary.notes[-1]


def test_group_on_another_partition_is_found(tmp_path: Path) -> None:
    """Kafka's rule decides the partition of each group; without a number of partitions verify doesn't check it."""
    stray = group_on(3)
    newer = Record(struct.pack(">h", 10) + group_key(stray)[2:] + b"\0\1m", b"\0\0", 0)
    path = write(tmp_path, encode_batch([group_of(stray), offset_of(stray), tombstone_of(stray), newer], 0, 1))
    assert rules(path) == [(Rule.PARTITION, FIRST, 0)] * 4
    assert rules(path, None) == []


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        pytest.param(b"worker-0-id", b"worker-9-id", 1, id="the leader is no member"),
        pytest.param(b"worker-1-id", b"worker-0-id", -1, id="one member id of two"),
        pytest.param(b"\0\x08worker-1", b"\0\x08worker-0", -1, id="one instance id of two"),
        pytest.param(b"\0\x08consumer", b"\0\0", 1, id="members without a protocol type"),
    ],
)
def test_group_that_breaks_the_rules_is_found(tmp_path: Path, old: bytes, new: bytes, count: int) -> None:
    """The last state of a group must be one that a coordinator can write; earlier states don't count."""
    sound = group_of(ON_0[0])
    assert sound.value is not None
    broken = sound._replace(value=sound.value.replace(old, new, count))
    assert broken != sound
    first = encode_batch([sound], 0, 1)
    assert rules(write(tmp_path, first, encode_batch([broken], 1, 1))) == [(Rule.GROUP, FIRST, len(first))]
    assert rules(write(tmp_path, encode_batch([broken], 0, 1), encode_batch([sound], 1, 1))) == []
    assert rules(write(tmp_path, encode_batch([broken, tombstone_of(ON_0[0])], 0, 1))) == []


def test_sound_group_of_the_consumer_protocol_is_clean(tmp_path: Path) -> None:
    """The records that a coordinator wrote are clean, whatever batches they are in, and they are one group."""
    records = consumer_group_of(ON_0[0])
    findings, summary = check(write(tmp_path, *(encode_batch([each], at, 1) for at, each in enumerate(records))))
    assert (findings, summary.groups, summary.skipped) == ([], 1, {})


def changed_value(records: list[Record], version: int, change: Callable[[Any], None]) -> Record:
    """The last record of a key version with another value."""
    record = next(each for each in reversed(records) if each.key[1] == version and each.value is not None)
    assert record.value is not None
    value = read_consumer_value(record.value, version)[1]
    change(value)
    return record._replace(value=b"\0\0" + encode(value, 0))


@pytest.mark.parametrize(
    ("version", "field", "value", "words"),
    [
        (3, "epoch", 2, "is above the group's 2"),
        (8, "member_epoch", 9, "is at epoch 9, the target at"),
        (7, "topic_partitions", None, "of topic"),
    ],
)
def test_group_of_the_consumer_protocol_is_checked(
    tmp_path: Path, version: int, field: str, value: Any, words: str
) -> None:
    """Records that contradict each other are a finding at one of them, unless later records or tombstones mend it."""
    records = consumer_group_of(ON_0[0])
    if value is None:
        value = read_consumer_value(next(each.value for each in records if each.key[1] == 7 and each.value), 7)[1]
        value = value.topic_partitions
    broken = changed_value(records, version, lambda found: setattr(found, field, value))
    first = encode_batch(records, 0, 1)
    folder = write(tmp_path, first, encode_batch([broken], len(records), 1))
    findings = check(folder)[0]
    assert {each.rule for each in findings} == {Rule.GROUP}
    assert any(words in each.reason for each in findings)
    gone = [each._replace(value=None) for each in {each.key: each for each in records}.values()]
    folder = write(tmp_path, first, encode_batch([broken, *gone], len(records), 1))
    assert check(folder)[0] == []


def test_group_of_two_kinds_is_found(tmp_path: Path) -> None:
    """Kafka doesn't load a group that has records of both protocols; a tombstone of the classic one mends it."""
    records = [group_of(ON_0[0]), *consumer_group_of(ON_0[0])]
    (finding,) = check(write(tmp_path, encode_batch(records, 0, 1)))[0]
    assert "records of both protocols" in finding.reason
    records.insert(1, tombstone_of(ON_0[0]))
    assert check(write(tmp_path, encode_batch(records, 0, 1)))[0] == []


@pytest.mark.parametrize("version", CONSUMER_VERSIONS.values())
def test_record_of_the_consumer_protocol_that_cannot_be_read_is_found(tmp_path: Path, version: int) -> None:
    """A key or a value that is cut is a finding, as no coordinator loads it."""
    start = struct.pack(">h", version)
    key = start + group_key(ON_0[0])[2:] + (b"\0\1m" if name_field(version) else b"")
    for record in (Record(key, b"\0", 0), Record(start + b"\0\7g", b"\0\0", 0)):
        assert [rule for rule, _, _ in rules(write(tmp_path, encode_batch([record], 0, 1)))] == [Rule.RECORD]


def test_interrupted_compaction_is_no_finding(data_dir: Path) -> None:
    """The next start finishes our compaction, so the folder is sound; verify skips the segments to be replaced."""
    folder = data_dir / "__consumer_offsets-2"
    (folder / FIRST).rename(folder / f"{0:020}-{4:020}.swap")
    (folder / FIRST).write_bytes(b"replaced, and so nobody's any more")
    findings, summary = check(data_dir)
    assert (findings, summary.notes) == ([], [])
    assert (summary.segments, summary.records) == (8, 28)


def test_interrupted_compaction_of_a_broker_is_a_note(data_dir: Path) -> None:
    """The broker's start finishes its compaction, so it is a note; while the broker runs there is none."""
    path = data_dir / "__consumer_offsets-2" / f"{FIRST}.swap"
    path.touch()
    findings, summary = check(data_dir)
    assert findings == []
    assert summary.notes == [f"{path}: a compaction of the broker was interrupted; its next start finishes it"]
    with another_process(data_dir, "lockf"):
        assert check(data_dir)[1].notes == []


def test_what_others_wrote_is_counted(tmp_path: Path) -> None:
    """Newer and unknown records are counted and are no findings; a transaction without an end is open."""
    records = [Record(b"\x12\x34x", b"y", 0), Record(b"\0\x0b" + group_key(ON_0[0])[2:], b"\0\0", 0)]
    batches = [
        encode_batch(records, 0, 0),
        transactional([offset_of(ON_0[0])], 2, 70),
        transactional([offset_of(ON_0[0])], 3, 71),
        marker(4, 70, commit=False),
    ]
    findings, summary = check(write(tmp_path, *batches))
    assert findings == []
    assert summary.skipped == {"key version 4660": 1, "share_group_metadata": 1}
    assert summary.open_transactions == 1


def test_file_that_cannot_be_read_is_told(data_dir: Path) -> None:
    """A file that the system refuses makes exit code 2, after verify has read all others."""
    path = data_dir / "__consumer_offsets-1" / FIRST
    path.unlink()
    path.mkdir()
    ran = run_app(app, "verify", str(data_dir))
    assert ran.code == 2
    assert f"a folder, where a file belongs: {path}" in ran.err
    assert "1 file could not be read" in ran.err


def test_number_of_partitions_is_found_out(data_dir: Path) -> None:
    """The folders of a broker, or the locks of our folder, give the number; a single partition doesn't."""
    assert guess_partition_count(data_dir, find_logs(data_dir)) == 4
    (data_dir / ".lock-49").touch()
    assert guess_partition_count(data_dir, find_logs(data_dir)) == 50
    folder = data_dir / "__consumer_offsets-1"
    assert guess_partition_count(folder, find_logs(folder)) is None


def test_what_is_beyond_the_limits_is_found_and_costs_no_memory(tmp_path: Path) -> None:
    """A few bytes with millions of records or members are one finding each, which names the limit."""
    folder = beyond_limits(tmp_path / "log")
    found = [(each.rule, each.reason) for each in check(folder)[0]]
    assert found == [
        (Rule.BATCH, "3000000 records, 250000 allowed"),
        (Rule.RECORD, "value: 2000000 members, 250000 allowed"),
    ]
    ran = run_measured(tmp_path, "log", "verify", str(folder))
    assert (ran.code, ran.kib < MEMORY_KIB_MAX) == (1, True), ran.kib


HEAVY = ("numpy", "pandas", "pyarrow", "pyspark")


def test_nothing_heavy_is_imported(data_dir: Path) -> None:
    """The command works without the packages of the extra `audit`."""
    program = (
        "import sys\n"
        "from coordinator.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    print(ended.code or 0)\n"
        f"print(sorted(set({HEAVY!r}) & sys.modules.keys()), 'coordinator.audit.check.integrity' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, "log", "verify", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] True"


def test_nothing_is_written(data_dir: Path) -> None:
    """Verify leaves the folder unchanged, lock files too, whatever it finds."""
    path = max((data_dir / "__consumer_offsets-3").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")}
    assert run_app(app, "verify", str(data_dir)).code == 1
    assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")} == before


SOUND = b"".join(
    [
        encode_batch([group_of(ON_0[0]), offset_of(ON_0[0])], 0, 1),
        transactional([offset_of(ON_0[1])], 2, 7, epoch=1),
        marker(3, 7, commit=True, epoch=1),
        encode_batch([group_of(ON_0[1], 4)], 4, 2),
    ]
)
STARTS = [batch.position for batch in decode_batches(SOUND)]


def flipped(path: Path, content: bytes, bit: int) -> list[tuple[Rule, str, int]]:
    """The findings in a segment after this bit was changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return rules(write(path, bytes(changed)))


def missed_in_header(path: Path, content: bytes, start: int) -> set[int]:
    """The bits of the header at `start` that can change without a finding."""
    return {bit for bit in range(HEADER_SIZE * 8) if not flipped(path, content, start * 8 + bit)}


BETWEEN = b"".join(batch_of(ON_0[number], 4 + number, 3) for number in range(3))
"""Three batches of one epoch without a gap."""


def test_every_flipped_bit_of_a_header_between_others_is_found(tmp_path: Path) -> None:
    """Verify finds each bit, at that batch or the next: the order allows no other offset, epoch, length or magic."""
    assert missed_in_header(tmp_path, BETWEEN, len(BETWEEN) // 3) == set()


def test_flipped_bits_that_make_sense_are_known(tmp_path: Path) -> None:
    """In the last batch, verify misses only a higher offset within the segment's reach, and a higher epoch.

    In the first batch it misses a lower epoch, and a lower offset down to the one in the segment's name.
    """
    epoch_bits = range(96, 128)
    last_offset = {bit for bit in range(33, 64) if not 6 >> 63 - bit & 1}
    last_epoch = {bit for bit in epoch_bits if bit > epoch_bits[0] and not 3 >> 127 - bit & 1}
    assert missed_in_header(tmp_path, BETWEEN, 2 * len(BETWEEN) // 3) == last_offset | last_epoch
    assert missed_in_header(tmp_path, BETWEEN, 0) == {61, 126, 127}


@given(st.integers(0, len(SOUND) * 8 - 1))
def test_any_flipped_bit_of_records_is_found(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    """A CRC covers all bits of the records."""
    within = bit // 8 - max(start for start in STARTS if start <= bit // 8)
    assert within < HEADER_SIZE or flipped(tmp_path_factory.mktemp("flipped"), SOUND, bit)


@given(st.binary(max_size=400), st.integers(0, len(SOUND)))
def test_random_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int) -> None:
    """Any bytes in a segment give findings and no exception."""
    path = tmp_path_factory.mktemp("random")
    found = rules(write(path, SOUND[:at], data, SOUND[at:]))
    assert found or data in (b"", SOUND)


def broken_rules(value: bytes) -> list[str]:
    """The rules of a record that a group's value breaks, by name; none if it can't be read."""
    try:
        return [each.rule.name for each in record_violations(read_group(value)[1])]
    except ProtocolError:
        return []


@given(st.binary(max_size=200), st.lists(st.integers(0, 4_000), max_size=5))
def test_random_values_never_raise(data: bytes, bits: list[int]) -> None:
    """Any value of a group keeps the rules or breaks some; nothing raises."""
    assert set(broken_rules(data)) <= set(RecordRule.__members__)
    value = bytearray(group_value(make_group("g"), WALL_MS))
    for bit in bits:
        value[bit // 8 % len(value)] ^= 1 << bit % 8
    assert set(broken_rules(bytes(value))) <= set(RecordRule.__members__)


def test_transactional_ids_are_checked(data_dir: Path, tmp_path: Path) -> None:
    """Beside the groups, or alone; an id in the wrong partition is a finding, and so is a value of an unknown form."""
    path = write_id(data_dir, "payer", Status.ONGOING)
    ran = run_app(app, "verify", str(data_dir))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("4 groups, 1 transactional id: clean\n")
    alone = run_app(app, "verify", str(path))
    assert (alone.code, alone.out.splitlines()[-1].endswith(" 1 transactional id: clean")) == (0, True)
    right = partition_for("payer", PARTITION_COUNT)
    wrong = write_id(tmp_path / "wrong", "payer", Status.ONGOING, partition=(right + 1) % PARTITION_COUNT)
    found = list(verify(find_logs(wrong.parent), None, Summary(), id_partition_count=PARTITION_COUNT))
    assert [(each.rule, each.file) for each in found] == [(Rule.PARTITION, wrong)]
    path.write_bytes(encode_batch([Record(key_of("payer"), b"\0\x09", WALL_MS)], 0, 1))
    found = list(verify(find_logs(path.parent), None, Summary()))
    assert [(each.rule, each.reason) for each in found] == [
        (Rule.RECORD, "transactional id 'payer': unknown value version 9")
    ]
