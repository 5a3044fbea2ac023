"""Spark finds the same as one process on the same input."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from coordinator.audit.audit import Options
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_rows
from coordinator.audit.show.summary import summary
from coordinator.audit.spark.job import audit_folder
from coordinator.transaction.state import Status
from protocol.records.codecs import Codec
from tests.audit.audited import audited
from tests.audit.check.test_checks import FAULTS, LEGAL, PLANTED, three_segments
from tests.audit.check.test_transactions import known, write_ids
from tests.audit.conftest import Script
from tests.audit.random_logs import sample
from tests.audit.read.test_events import at, dropped, ended, fenced, returned, write
from tests.audit.scenes import GROUP, HOUR_MS, PARTS, Scene, clean, compressed, group_on, member, offset_key, versioned
from tests.audit.spark.conftest import LEFT_OPEN
from tests.audit.test_servers import lose_id, lose_marker, prepare_left_open

pytestmark = [pytest.mark.spark, LEFT_OPEN]


def faulty(folder: Path) -> Path:
    """Write every fault on a partition of its own, correct logs that look odd, random logs, and a server's events."""
    scenes = [make() for make in (*FAULTS.values(), *LEGAL.values())]
    for batches in sample(20):
        scene = Scene()
        scene.batches = batches
        scenes.append(scene)
    count = len(scenes) + 3
    for number, scene in enumerate(scenes):
        scene.partition = number
        scene.write(folder, count)
    expired = [ended(number, at(3 * number), "member_expired") for number in range(1, 9)]
    returns = [returned(2, at(1)), returned(3, at(2), after_load=True), returned(4, at(3))]
    write(folder, 0, *expired, *returns, fenced("a", at(2)), dropped(3, at(4), at(5)), b"no event")
    odd = clean()
    odd.partition = len(scenes)
    odd.batches[2] = compressed(odd.batches[2], Codec.LZ4)
    odd.transacted(3, producer_id=7).end_transaction(7, committed=False).transacted(90, producer_id=8)
    odd.append((versioned(999, b""), b"")).append((offset_key(GROUP), b"")).write(folder, count)
    epochs = (known(Status.COMPLETE_ABORT, update_ms=odd.now_ms, epoch=each) for each in (2, 1))
    write_ids(folder, *epochs, end_ms=odd.now_ms)
    ends = Scene(len(scenes) + 1).end_transaction(9, committed=True)
    ends.transacted(4, producer_id=7).tick(HOUR_MS).commit(5).write(folder, count)
    return folder


def test_spark_is_equal_to_one_process(session: SparkSession, tmp_path: Path) -> None:
    """Findings, stories, counts and tables of a log with every fault are equal."""
    folder = faulty(tmp_path / "log")
    options = Options(Limits(rebalances_per_hour_max=5))
    alone = audited(folder, tmp_path / "alone", options)
    audited(folder, tmp_path / "spark", options)  # Spark's tables replace those of one process
    found = audit_folder(session, folder, tmp_path / "spark", options)
    assert found == alone
    assert summary(found) == summary(alone)
    checks = {finding.check for finding in found.findings}
    assert len(checks) >= len({fault.partition(":")[0] for fault in FAULTS})
    assert checks > {"marker_without_transaction", "pending_without_end", "producer_epoch_falls"}
    assert sum(story.rebalances_forgotten for story in found.stories) > 0
    assert any("3 events could not be kept" in note for note in found.notes)
    for table in PUBLISHED:
        name = f"tables/{table}.parquet"
        wanted = pq.read_table(tmp_path / "alone" / name)
        got = pq.read_table(tmp_path / "spark" / name)
        assert got.schema.names == SCHEMAS[table].names
        assert sorted(map(repr, to_rows(got))) == sorted(map(repr, to_rows(wanted))), table


def test_logs_of_servers_give_the_same(session: SparkSession, script: Script, tmp_path: Path) -> None:
    """So do transactions that real clients made: complete, aborted, open, prepared, and with a part that is lost."""
    lose_marker(script, tmp_path / "marker")
    lose_id(script, tmp_path / "id")
    prepare_left_open(script, tmp_path / "prepared")
    prepare_left_open(script, tmp_path / "late", HOUR_MS)
    found: dict[Path, list[str]] = {script.folder: [], tmp_path / "prepared": []} | {
        tmp_path / "marker": ["pending_without_end"],
        tmp_path / "late": ["pending_without_end"],
        tmp_path / "id": ["marker_without_transaction"],
    }
    for folder, checks in found.items():
        alone = audited(folder)
        assert audit_folder(session, folder, None, Options()) == alone
        assert [finding.check for finding in alone.findings] == checks


def test_damage_of_segments_is_found_by_both(session: SparkSession, tmp_path: Path) -> None:
    """Each damage of a segment of a broker's log, with and without an empty newest segment, gives the same."""
    folder = tmp_path / "log"
    cases = product(PLANTED.values(), (2, 4), (False, True))
    for partition, ((plant, _), base_offset, empty) in enumerate(cases):
        plant(three_segments(folder, partition, empty=empty) / f"{base_offset:020}.log")
    options = Options(Limits(partition_count=4))
    alone = audited(folder, options=options)
    assert audit_folder(session, folder, None, options) == alone
    assert {found.check for found in alone.findings} > {"offset_gap", "torn_tail", "bad_checksum", "undecodable"}


def test_compaction_is_checked(session: SparkSession, tmp_path: Path) -> None:
    """The comparison of two logs gives the same on Spark, for deleted, replaced and lost keys."""
    before = Scene().commit(5, partition=1).commit(5, partition=2).commit(6, partition=1)
    before.append((offset_key(GROUP, "orders", 2), None)).commit(7, partition=3)
    after = Scene()
    after.batches = before.batches[:1]
    options = Options(before=before.write(tmp_path / "before"))
    after.write(tmp_path / "after")
    alone = audited(tmp_path / "after", options=options)
    found = audit_folder(session, tmp_path / "after", None, options)
    assert found == alone
    assert [finding.check for finding in found.findings] == ["compaction_lost_key"] * 2


def test_group_has_one_story(session: SparkSession, tmp_path: Path) -> None:
    """A group has one story, although its records are in many tasks with other records between them."""
    other = group_on(0, "other")
    scene = Scene()
    for generation in range(1, 30):
        scene.group([member(f"m-{generation}", PARTS["a"])], generation).commit(generation).commit(5, other)
    scene.write(tmp_path)
    later = Scene(base_offset=scene.next_offset)
    later.commit(40).write(tmp_path)
    assert audit_folder(session, tmp_path, None, Options()) == audited(tmp_path)


def test_tables_of_a_stream_stay(session: SparkSession, tmp_path: Path) -> None:
    """An audit refuses a stream's output folder, because the stream's checkpoint relies on those tables."""
    stays = tmp_path / "out" / "tables" / "batches.parquet" / "batch=0"
    stays.mkdir(parents=True)
    with pytest.raises(FileExistsError, match="another --out"):
        audit_folder(session, clean().write(tmp_path / "log"), tmp_path / "out", Options())
    assert stays.exists()
