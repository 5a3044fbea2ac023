"""The output of `tenure log verify`, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.cli.log import report
from coordinator.cli.log.command import app
from coordinator.log.files import META_NAME
from coordinator.log.meta import note_partition_count
from protocol.records.batch import encode_batch
from tests.audit.scenes import group_on
from tests.cli.conftest import run_app
from tests.cli.log.conftest import group_of, write_segment


def test_clean_log_ends_with_0(data_dir: Path) -> None:
    """A clean log prints one line of totals."""
    ran = run_app(app, "verify", str(data_dir))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "4 of 4 partitions, 8 segments, 16 batches, 28 records, 4 groups: clean\n"
    json = run_app(app, "verify", str(data_dir), "--output", "json").json
    assert (json["findings"], json["findings_count"], json["partition_count"]) == ([], 0, 4)


def test_findings_end_with_1(data_dir: Path) -> None:
    """Each finding has a line with file, position, offset and rule; in JSON these are fields."""
    stray = group_on(3)
    path = write_segment(data_dir, 0, [encode_batch([group_of(stray)], 7, 3)], base_offset=7)
    ran = run_app(app, "verify", str(data_dir))
    assert ran.code == 1
    assert ran.err == "tenure: 1 finding\n"
    assert ran.out.endswith(": 1 finding\n")
    line = ran.out.splitlines()[0]
    assert line == f"{path} at byte 0, offset 7: partition: group '{stray}' belongs on partition 3 of 4"
    (finding,) = run_app(app, "verify", str(data_dir), "--output", "json").json["findings"]
    assert (finding["rule"], finding["file"], finding["position"], finding["offset"]) == ("partition", str(path), 0, 7)


def test_number_of_partitions_can_be_given(data_dir: Path) -> None:
    """With a wrong number of partitions, nearly every group is on the wrong one."""
    ran = run_app(app, "verify", str(data_dir), "--partitions", "50")
    assert ran.code == 1
    assert "of 50" in ran.out


def test_list_of_findings_has_an_end(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list stops at the limit, and the summary has the full number."""
    monkeypatch.setattr(report, "FINDINGS_MAX", 2)
    ran = run_app(app, "verify", str(data_dir), "--partitions", "50")
    first, second, more, *_ = ran.out.splitlines()
    assert ": partition: " in first
    assert ": partition: " in second
    assert more.endswith(" more")
    json = run_app(app, "verify", str(data_dir), "--partitions", "50", "--output", "json").json
    assert len(json["findings"]) == 2 < json["findings_count"]


def test_data_folder_without_groups_is_clean(tmp_path: Path) -> None:
    """A data folder that a server made but never wrote to is clean."""
    note_partition_count(tmp_path, 50)
    ran = run_app(app, "verify", str(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "0 of 50 partitions, 0 segments, 0 batches, 0 records, 0 groups: clean\n"
    assert run_app(app, "dump", str(tmp_path)) == (0, "", "")


def test_a_file_that_is_no_segment_ends_with_2(data_dir: Path) -> None:
    """A file that is no segment is an error, not damage; a segment may have another name."""
    segment = next((data_dir / "__consumer_offsets-0").glob("*.log"))
    assert run_app(app, "verify", str(segment.rename(segment.with_suffix(".saved")))).code == 0
    note_partition_count(data_dir, 4)
    path = data_dir / META_NAME
    assert run_app(app, "verify", str(path)) == (2, "", f"tenure: No segment of a log: {path}\n")
    damaged = data_dir / "__consumer_offsets-1" / f"{0:020}.log"
    damaged.write_bytes(b"\0" * 100)
    assert run_app(app, "verify", str(damaged)).code == 1


def test_path_without_a_log_ends_with_2(tmp_path: Path) -> None:
    """A path without a log has nothing to check."""
    ran = run_app(app, "verify", str(tmp_path))
    assert ran.code == 2
    assert "no __consumer_offsets-* in it" in ran.err


def test_long_check_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The check prints a line on standard error after each five seconds, and none in between."""
    now = 100.0
    progress = report.ProgressLines(6_000_000, lambda: now)
    for now in (101.0, 104.9, 105.0, 109.0, 110.5, 111.0):  # noqa: B007 - the clock reads it
        progress(1_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "tenure: checked 3 of 6 MB, 50 %",
        "tenure: checked 5 of 6 MB, 83 %",
    ]
