"""A broker's folder shows less than a folder of Tenure, and the missing facts are no findings."""

from __future__ import annotations

from pathlib import Path

from coordinator.audit.audit import AuditResult, Options, audit
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.logs import Plan
from coordinator.audit.read.origin import NO_COUNT, compared, is_tenures
from coordinator.group.partition import partition_for
from tests.audit.scenes import Scene, clean


def audited(folder: Path, limits: Limits | None = None) -> AuditResult:
    """Audit the folder without output files."""
    return audit(folder, None, Options(limits or Limits()), lambda _done: None)


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


def test_folder_with_locks_is_tenures(tmp_path: Path) -> None:
    """A folder with Tenure's lock files is Tenure's; the folder of one of its partitions is as well."""
    clean().write(tmp_path / "ours")
    clean().write(tmp_path / "theirs", 0)
    assert [is_tenures(tmp_path / "ours"), is_tenures(tmp_path / "ours" / "__consumer_offsets-0")] == [True, True]
    assert [is_tenures(tmp_path / "theirs"), is_tenures(tmp_path / "theirs" / "__consumer_offsets-0")] == [False, False]


def test_copy_of_the_first_folders_has_no_count(tmp_path: Path) -> None:
    """If nearly all groups contradict the number of folders, that number isn't the number of partitions.

    No group is a finding then. If an option gives the number, or the folder is Tenure's, each of them is one.
    """
    folder = broker(tmp_path, 50, 7)
    result = audited(folder)
    assert (result.findings, result.notes) == ([], [NO_COUNT])
    assert audited(folder, Limits(partition_count=50)).findings == []
    assert {each.check for each in audited(folder, Limits(partition_count=7)).findings} == {"wrong_partition"}
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
    before, after = Plan("a", sizes={0: 1, 1: 1, 2: 1}), Plan("b", sizes={1: 1, 2: 0, 3: 1})
    both, (note,) = compared(before, after)
    assert both == {1, 2}
    assert "partition 0, 3:" in note
    assert compared(after, after) == ({1, 2, 3}, [])
