"""`tenure log dump`: each record of a log once, in order, as text and as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.log.command import app
from coordinator.log.segments.outside import NoBatch, OpenSegment, read_segment
from coordinator.log.segments.segment import Frame
from protocol.records.batch import Record, encode_batch
from protocol.records.codecs import Codec
from tests.audit.scenes import compressed, group_on, with_attributes
from tests.cli.conftest import Ran, run_app
from tests.cli.log.conftest import (
    MEMORY_KIB_MAX,
    beyond_limits,
    consumer_group_of,
    group_of,
    marker,
    offset_of,
    run_measured,
    transactional,
    write_segment,
)
from tests.cli.log.test_locks import another_process
from tests.support.patience import WITHIN_S
from tests.support.tenure import tenure_command


def dump(path: Path, *arguments: str) -> Ran:
    """Run the command."""
    return run_app(app, "dump", str(path), *arguments)


def dump_json(path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the command; returns an object for each line."""
    return [json.loads(line) for line in dump(path, *arguments, "--output", "json").out.splitlines()]


def test_every_record_of_a_data_folder_is_there_once(data_dir: Path) -> None:
    """The dump has all partitions and segments, in the order of the log, and the position of each record."""
    lines = dump_json(data_dir)
    assert [line["log_partition"] for line in lines] == [partition for partition in range(4) for _ in range(7)]
    first = [line for line in lines if line["log_partition"] == 0]
    assert [line["offset"] for line in first] == list(range(7))
    assert [line["leader_epoch"] for line in first] == [1, 1, 1, 2, 3, 3, 3]
    assert first[0]["position"] == 0
    assert first[1]["position"] == first[2]["position"] > 0
    assert [line["tombstone"] for line in first] == [False] * 5 + [True, False]
    assert first[4]["file"].endswith("__consumer_offsets-0/00000000000000000004.log")


def test_group_is_decoded_to_its_members_partitions(data_dir: Path) -> None:
    """A group's record shows the subscriptions and assignments of its members."""
    value = dump_json(data_dir)[0]["value"]
    assert (value["protocol_type"], value["generation"], value["leader"]) == ("consumer", 1, "worker-0-id")
    assert [member["group_instance_id"] for member in value["members"]] == ["worker-0", "worker-1"]
    assert value["members"][1]["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [1]}]
    assert value["members"][0]["subscription"]["topics"] == ["orders"]


def test_one_group_can_be_asked_for(data_dir: Path) -> None:
    """With --group the dump has only the records of that group, committed offsets included."""
    group_id = group_on(2)
    lines = dump_json(data_dir, "--group", group_id)
    assert [(line["kind"], line["log_partition"]) for line in lines] == [
        ("group_metadata", 2),
        ("offset_commit", 2),
        ("offset_commit", 2),
        ("group_metadata", 2),
    ]
    assert {line["group_id"] for line in lines} == {group_id}


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_read(tmp_path: Path, codec: Codec) -> None:
    """A batch in each codec that Kafka writes is shown with its codec's name."""
    path = write_segment(tmp_path, 0, [compressed(encode_batch([offset_of("g"), offset_of("h")], 0, 1), codec)])
    assert [(line["codec"], line["group_id"]) for line in dump_json(path)] == [
        (codec.name.lower(), "g"),
        (codec.name.lower(), "h"),
    ]


def test_transactions_are_shown_with_their_markers(tmp_path: Path) -> None:
    """A transactional commit names its producer, and the control batch behind it says how it ended."""
    batches = [transactional([offset_of("g")], 0, 77), marker(1, 77, commit=True), marker(2, 78, commit=False)]
    lines = dump_json(write_segment(tmp_path, 0, batches))
    assert [(line["kind"], line["producer_id"], line["is_control"]) for line in lines] == [
        ("offset_commit", 77, False),
        ("transaction_marker", 77, True),
        ("transaction_marker", 78, True),
    ]
    assert [line["key"].get("marker") for line in lines] == [None, "commit", "abort"]
    table = dump(tmp_path).out
    assert "77t" in table
    assert "coordinator_epoch=7" in table


def test_table_has_a_line_per_record_and_member(data_dir: Path) -> None:
    """The table names each segment, then each record, and below a group its members."""
    lines = dump(data_dir / "__consumer_offsets-0").out.splitlines()
    assert sum(line.startswith("# ") for line in lines) == 2
    assert sum(line.startswith("POSITION") for line in lines) == 2
    assert sum("group_metadata" in line for line in lines) == 4
    members = [line for line in lines if line.startswith("    member_id=")]
    assert len(members) == 2 * 3
    assert 'assigned_partitions":[{"topic":"orders","partitions":[0]}]' in members[0]
    assert sum("tombstone" in line for line in lines) == 1


def test_what_nobody_knows_is_counted(tmp_path: Path) -> None:
    """The dump shows records of unknown types, and counts them on standard error; newer types have a name."""
    records = [Record(b"\x12\x34x", b"y", 0), Record(b"\x12\x34z", None, 0), Record(b"\0\x0b\0\1g", b"\0\0", 0)]
    path = write_segment(tmp_path, 0, [encode_batch(records, 0, 1)])
    ran = dump(path)
    assert ran.code == 0
    assert "2 records of unknown key version 4660" in ran.err
    assert [line["kind"] for line in dump_json(path)] == ["unknown", "unknown", "share_group_metadata"]


def test_group_of_the_consumer_protocol_is_shown(tmp_path: Path) -> None:
    """The table has a line for each record, with group and member as its key, and epochs and partitions as values."""
    path = write_segment(tmp_path, 0, [encode_batch(consumer_group_of("g"), 0, 1)])
    ran = dump(path)
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert any("consumer_group_metadata g v0 epoch=2 " in line for line in lines)
    assert any("consumer_group_member_metadata g n v0 instance_id=seat " in line for line in lines)
    assert any("consumer_group_current_member_assignment g n v0 member_epoch=-2 " in line for line in lines)
    assert any('consumer_group_regular_expression g t.* v0 topics=["t"] ' in line for line in lines)
    assert {line["group_id"] for line in dump_json(path, "--group", "g")} == {"g"}


def test_a_group_that_is_not_there_is_said(data_dir: Path) -> None:
    """Standard error says that the group isn't there: its id may be a typing error. Nothing else is printed."""
    for form in ("table", "json"):
        ran = dump(data_dir, "--group", "nosuch", "--output", form)
        assert ran == (3, "", "tenure: no such group, and no record of one: nosuch\n")
    assert dump(data_dir, "--group", group_on(1)).err == ""


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_who_reads_may_stop(data_dir: Path, command: str) -> None:
    """If the reader stops early, as `| head` does, the command ends as by SIGPIPE: no message, not exit code 1."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*tenure_command(), "log", command, str(data_dir)],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=WITHIN_S,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_damage_has_its_own_line(data_dir: Path) -> None:
    """The dump names a damaged batch in its place and shows the records behind it; the exit code reports it."""
    path = data_dir / "__consumer_offsets-1" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    ran = dump(path)
    assert ran.code == 1
    assert "damage in 1 place" in ran.err
    lines = dump_json(path)
    assert [line["kind"] for line in lines] == ["damage", "offset_commit", "offset_commit", "group_metadata"]
    assert lines[0]["position"] == 0
    assert "CRC" in lines[0]["reason"]


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_write_under_way_is_no_damage(data_dir: Path, monkeypatch: pytest.MonkeyPatch, ends_meanwhile: bool) -> None:
    """The dump leaves out a half written end, with a warning, if a server works with the folder or just ended."""
    path = max((data_dir / "__consumer_offsets-3").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with ExitStack() as stack:
        stack.enter_context(another_process(data_dir, "flock"))

        def read(segment: OpenSegment, progress: Callable[[int], None]) -> Iterator[Frame | NoBatch]:
            if ends_meanwhile:
                stack.close()
            return read_segment(segment, progress)

        monkeypatch.setattr("coordinator.cli.log.dump.read_segment", read)
        ran = dump(path.parent)
    assert ran.code == 0
    assert "damage" not in ran.out
    assert f"{path} ends in " in ran.err
    assert "a server is running" in ran.err
    assert dump(path.parent).code == 1


def test_records_that_the_header_belies_are_damage(tmp_path: Path) -> None:
    """A batch with the right CRC whose records don't parse is damage too, and hides nothing else."""
    batch = encode_batch([offset_of("g")], 0, 1)
    path = write_segment(tmp_path, 0, [with_attributes(batch, Codec.ZSTD, body=b"no zstd"), batch])
    damage, sound = dump_json(path)
    assert (damage["kind"], sound["kind"]) == ("damage", "offset_commit")
    assert "zstd" in damage["reason"]


def test_what_is_beyond_the_limits_is_told_and_costs_no_memory(tmp_path: Path) -> None:
    """A batch of millions of records is one line; a group of millions of members shows its first bytes."""
    folder = beyond_limits(tmp_path / "log")
    for form in ("table", "json"):
        ran = run_measured(tmp_path, "log", "dump", str(folder), "--output", form)
        assert (ran.code, ran.kib < MEMORY_KIB_MAX) == (1, True), ran.kib
        damage, group = (line for line in ran.out.splitlines() if not line.startswith(("#", "POSITION")))
        assert "damage" in damage
        assert "3000000 records, 250000 allowed" in damage
        assert "2000000 members, 250000 allowed; the first 1000000 of 48000038 bytes" in group
        assert len(group) < 2_100_000


def test_path_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    """The error names the file in one line."""
    ran = dump(tmp_path / "absent")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"tenure: No such file or directory: {tmp_path / 'absent'}\n"


def test_text_from_a_log_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """The table escapes control characters in a group id."""
    path = write_segment(tmp_path, 0, [encode_batch([group_of("a\x1b[2J\nb")], 0, 1)])
    assert "a\\x1b[2J\\nb" in dump(path).out


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.integers(-(2**63), 2**63 - 1))
def test_random_records_are_shown(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], timestamp_ms: int
) -> None:
    """Both forms show each record, whatever its bytes and its time are."""
    records = [Record(part[: len(part) // 2], part[len(part) // 2 :], timestamp_ms) for part in parts]
    path = write_segment(tmp_path_factory.mktemp("random"), 0, [encode_batch(records, 0, 1)])
    assert dump(path).code == 0
    assert len(dump_json(path)) == len(records)
