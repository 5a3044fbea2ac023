"""The whole audit in one process: its input, its files and its result."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coordinator.audit.audit import NO_COUNT, AuditResult, Options, audit, compared
from coordinator.audit.check.checks import finding
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.logs import Plan
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS
from coordinator.group.partition import partition_for
from tests.audit.audited import audited
from tests.audit.scenes import (
    GROUP,
    PARTS,
    Scene,
    clean,
    group_on,
    member,
    newer_key,
    newer_value,
    offset_key,
    static_members,
    versioned,
)


def two_partitions(folder: Path) -> Path:
    """Write a clean group to one partition and a fault to another."""
    clean().write(folder)
    other = group_on(2)
    return Scene(2).group([member("x", PARTS["a"]), member("y", PARTS["a"])], 1, other).commit(5, other).write(folder)


def test_groups_and_findings_of_all_partitions(tmp_path: Path) -> None:
    """The result has the groups and findings of all partitions, sorted, and the bytes of each partition."""
    folder = two_partitions(tmp_path)
    result = audited(folder)
    assert [(story.group, story.partition) for story in result.stories] == sorted([(GROUP, 0), (group_on(2), 2)])
    assert [(each.check, each.partition) for each in result.findings] == [("partition_assigned_twice", 2)] * 2
    assert result.records_by_type == {"group_metadata": 8, "offset_commit": 5}
    assert result.batches == 12
    assert sum(result.sizes.values()) == sum(path.stat().st_size for path in folder.rglob("*.log"))


def test_tables_are_written(tmp_path: Path) -> None:
    """Each table file has its columns and all rows of the log."""
    audited(two_partitions(tmp_path / "log"), tmp_path / "out")
    tables = {table: pq.read_table(tmp_path / "out" / "tables" / f"{table}.parquet") for table in PUBLISHED}
    assert {table: read.schema for table, read in tables.items()} == {table: SCHEMAS[table] for table in PUBLISHED}
    assert {table: read.num_rows for table, read in tables.items()} == {
        "batches": 12, "offsets": 5, "groups": 8, "members": 13, "assignments": 20, "other": 0,
    }  # fmt: skip
    findings = pq.read_table(tmp_path / "out" / "findings.parquet")
    assert findings.schema == SCHEMAS["findings"]
    assert set(findings.column("check").to_pylist()) == {"partition_assigned_twice"}


def test_nothing_is_written_without_a_folder(tmp_path: Path) -> None:
    """Without an output folder the audit writes nothing, and doesn't change the log's folder."""
    folder = two_partitions(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    audited(folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_other_records_are_counted_by_type(tmp_path: Path) -> None:
    """Records of other types count by type: an unknown type is no finding, and invalid bytes don't count."""
    scene = Scene().append((versioned(999, b""), b"")).append((newer_key(GROUP), newer_value()))
    scene.append((offset_key(GROUP), b"")).raw(b"no batch")
    result = audited(scene.write(tmp_path))
    assert result.records_by_type == {"unknown": 1, "consumer_group_metadata": 1, "unreadable": 1}
    assert [finding.check for finding in result.findings] == ["torn_tail", "undecodable"]


def test_limits_are_handed_on(tmp_path: Path) -> None:
    """The options' limits reach the checks: with a wrong number of partitions every group is on the wrong one."""
    folder = Scene(2).commit(5, group_on(2)).write(tmp_path)
    found = audited(folder, options=Options(Limits(partition_count=1))).findings
    assert [finding.check for finding in found] == ["wrong_partition"]


def test_progress_is_counted_in_bytes(tmp_path: Path) -> None:
    """The progress adds up to the bytes of both logs."""
    progress: list[int] = []
    folder = two_partitions(tmp_path)
    audit(folder, None, Options(before=folder), progress.append)
    assert sum(progress) == 2 * sum(path.stat().st_size for path in folder.rglob("*.log"))


def test_compaction_in_between_changes_nothing(tmp_path: Path) -> None:
    """The audit reads a partition as it was at the start, although a server compacts its files meanwhile."""
    scene = Scene().group(static_members(a=1), 1).commit(5)
    folder = scene.write(tmp_path)
    later = Scene(base_offset=scene.next_offset).commit(4)
    later.write(folder)
    wanted = audited(folder)
    assert [finding.check for finding in wanted.findings] == ["commit_back"]

    def compact(_done: int) -> None:
        for each in (scene, later):
            path = each.segment_path(folder)
            path.unlink(missing_ok=True)
            path.write_bytes(b"something else")

    assert audit(folder, None, Options(), compact) == wanted


def test_what_can_not_be_read_is_no_clean_bill(tmp_path: Path) -> None:
    """The audit fails if the system refuses to read a segment."""
    static = Scene().group(static_members(a=1), 1)
    path = static.segment_path(static.write(tmp_path))
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="No such file"):
        audited(tmp_path)


def test_folder_of_a_partition_is_not_held_to_its_number(tmp_path: Path) -> None:
    """The audit of one partition's folder doesn't check where groups belong, and a note says that."""
    folder = Scene(1).commit(5, group_on(3)).write(tmp_path)
    result = audited(folder / "__consumer_offsets-1")
    assert result.findings == []
    assert any("--partitions" in note for note in result.notes)


def test_tables_of_spark_make_room(tmp_path: Path) -> None:
    """An audit replaces the tables of an earlier audit on Spark; tables of a stream and unknown files stay."""
    folder, out = two_partitions(tmp_path / "log"), tmp_path / "out"
    table = out / "tables" / "groups.parquet"
    table.mkdir(parents=True)
    (table / "part-0.parquet").touch()
    (table / "_SUCCESS").touch()
    audited(folder, out)
    assert pq.read_table(table).num_rows > 0
    table.unlink()
    (table / "batch=0").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="another --out"):
        audited(folder, out)
    assert (table / "batch=0").exists()


def test_of_very_many_findings_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first findings are kept, the same ones in any order of arrival, and all are counted."""
    monkeypatch.setattr("coordinator.audit.audit.FINDINGS_KEPT", 3)
    found = [finding(check, 0, offset) for offset in range(20) for check in ("offset_gap", "epoch_order")]
    outcomes = []
    for order in (found, found[::-1]):
        result = AuditResult("log", _held_max=5)
        for each in order:
            result.find([each])
            assert len(result.findings) <= 6 + 2 * 3
        result.sort_findings()
        outcomes.append(result)
    assert outcomes[0] == outcomes[1]
    assert [(each.check, each.offset) for each in outcomes[0].findings] == [
        (check, offset) for check in ("epoch_order", "offset_gap") for offset in range(3)
    ]
    assert outcomes[0].counts == {"offset_gap": 20, "epoch_order": 20}


def broker(folder: Path, count: int, copied: int, *misplaced: str) -> Path:
    """Write the first folders of a broker: a group on each partition, and groups on wrong ones."""
    for number in range(10_000):
        group_id = f"group-{number}"
        partition = partition_for(group_id, count)
        path = folder / f"__consumer_offsets-{partition}"
        if partition < copied and not path.exists():
            Scene(partition).commit(5, group_id).write(folder, 0)
    scene = Scene(0, base_offset=1)
    for group_id in misplaced:
        scene.commit(5, group_id).write(folder, 0)
    return folder


def test_copy_of_the_first_folders_has_no_count(tmp_path: Path) -> None:
    """If nearly all groups contradict the number of folders, that number isn't the number of partitions.

    No group is a finding then. If an option gives the number, or the folder is Tenure's, each of them is one.
    """
    folder = broker(tmp_path, 50, 7)
    result = audited(folder)
    assert (result.findings, result.notes) == ([], [NO_COUNT])
    assert audited(folder, options=Options(Limits(partition_count=50))).findings == []
    assert {each.check for each in audited(folder, options=Options(Limits(partition_count=7))).findings} == {
        "wrong_partition"
    }
    for number in range(7):
        (folder / f".lock-{number}").touch()
    assert {each.check for each in audited(folder).findings} == {"wrong_partition"}


def test_group_that_is_wrong_among_others_is_found(tmp_path: Path) -> None:
    """A broker's folder with all partitions shows their number, and a group on the wrong one is a finding."""
    wrong = next(f"g-{number}" for number in range(99) if partition_for(f"g-{number}", 10) != 0)
    result = audited(broker(tmp_path, 10, 10, wrong))
    assert [(each.check, each.group) for each in result.findings] == [("wrong_partition", wrong)]
    assert result.notes == []


def test_partitions_that_both_logs_have_are_compared() -> None:
    """The audit compares only partitions in both logs, because others may be on another broker."""
    before, after = Plan(sizes={0: 1, 1: 1, 2: 1}), Plan(sizes={1: 1, 2: 0, 3: 1})
    both, (note,) = compared(before, after)
    assert both == {1, 2}
    assert "partition 0, 3:" in note
    assert compared(after, after) == ({1, 2, 3}, [])
