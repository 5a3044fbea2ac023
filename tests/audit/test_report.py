"""The report on a terminal says what was found and what happened, whatever stands in the log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from coordinator.audit import report
from coordinator.audit.audit import Options, audit
from coordinator.audit.report import print_report, size_text, time_text
from tests.audit.scenes import PARTS, Scene, clean, group_on, member, static_members


def printed(scene: Scene, folder: Path) -> str:
    """The report of a scene's log."""
    stream = io.StringIO()
    outcome = audit(scene.write(folder), None, Options(), lambda _done: None)
    print_report(outcome, Console(file=stream, width=200, highlight=False))
    return stream.getvalue()


def test_report_of_the_script(tmp_path: Path) -> None:
    """The time that the log covers, what was restarted and why the group rebalanced."""
    text = printed(clean(), tmp_path)
    assert "2023-11-14 22:13:20" in text
    assert "1 x joined, 1 x left or expired" in text
    assert "a 1, b 1" in text
    assert text.rstrip().endswith("1 groups: nothing found")


def test_findings_come_first(tmp_path: Path) -> None:
    """With their severity and meaning, then one by one."""
    lines = printed(Scene().group(static_members(a=1), 1).commit(5).commit(4), tmp_path).splitlines()
    assert lines[0].split() == ["severity", "check", "count", "meaning"]
    assert lines[1].split()[:3] == ["notice", "commit_back", "1"]
    assert '"before": 5' in lines[3]
    assert lines[-1].endswith("1 findings")


def test_long_lists_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was left out is said."""
    monkeypatch.setattr(report, "FINDINGS_MAX", 3)
    monkeypatch.setattr(report, "GROUPS_MAX", 2)
    scene = Scene()
    for number in range(6):
        group_id = group_on(0, f"n{number}")
        scene.commit(5, group_id).commit(4, group_id)
    text = printed(scene, tmp_path)
    assert "and 3 more: --out DIR" in text
    assert "and 4 more groups" in text


def test_notices_leave_room_for_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are of them: what weighs most is told first."""
    monkeypatch.setattr(report, "FINDINGS_MAX", 3)
    scene = Scene().group([member("x", PARTS["a"])], 1, leader="nobody")
    for offset in range(9, 1, -1):
        scene.commit(offset)
    lines = printed(scene, tmp_path).splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["leader_not_member", "commit_back", "commit_back"]


def test_log_can_not_move_the_cursor(tmp_path: Path) -> None:
    """What would is escaped; brackets are no markup."""
    group_id = group_on(0, "\x1b[2J[red]")
    text = printed(Scene().commit(5, group_id), tmp_path)
    assert "\x1b" not in text
    assert "\\x1b[2J[red]" in text


def test_growth_of_a_big_group_is_said(tmp_path: Path) -> None:
    """Each restart writes all of its members."""
    members = [member(f"m-{number}", {"orders": [number]}, instance_id=f"m-{number}") for number in range(120)]
    text = printed(Scene().group(members, 1), tmp_path)
    assert "each restart of a static member writes all 120 members" in text


def test_clients_and_other_records_are_noted(tmp_path: Path) -> None:
    """They are no findings."""
    scene = Scene().group([member("x", PARTS["a"], instance_id="x", client_id="aiokafka-0.12.0")], 1)
    scene.append((b"\x03\xe7", b"")).append((b"\0\3\0\1g", b""))
    text = printed(scene, tmp_path)
    assert "aiokafka-0.12.0: aiokafka's heartbeats" in text
    assert "1 records of unknown" in text
    assert "1 records of consumer_group_metadata" in text


def test_sizes_and_times_in_words() -> None:
    """Whatever they are."""
    assert [size_text(size) for size in (0, 999, 1000, 1_500_000, 2 * 10**9)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB",
    ]  # fmt: skip
    assert time_text(2**63 - 1) == str(2**63 - 1)
    assert time_text(0) == "1970-01-01 00:00:00"
