"""The report on a terminal shows findings and histories, whatever bytes the log has."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from coordinator.audit.audit import AuditResult
from coordinator.audit.check.checks import finding
from coordinator.audit.show import report
from coordinator.audit.show.report import detail_words, print_report
from tests.audit.audited import audited
from tests.audit.check.test_checks import FAULTS
from tests.audit.scenes import (
    GROUP,
    PARTS,
    Scene,
    clean,
    group_on,
    member,
    newer_key,
    share_value,
    static_members,
)


def printed(scene: Scene, folder: Path, width: int = 200) -> str:
    """Return the report of a scene's log."""
    return text_of(audited(scene.write(folder)), width)


def text_of(result: AuditResult, width: int) -> str:
    """Return the report of a result."""
    stream = io.StringIO()
    print_report(result, Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 200])
def test_report_of_the_script(tmp_path: Path, width: int) -> None:
    """The report has the time that the log covers, the restarts, and the causes of the rebalances."""
    text = printed(clean(), tmp_path, width)
    assert "2023-11-14 22:13:20" in text
    assert "causes, inferred: 1 x joined, 1 x removed" in text
    assert "at least 2 returns (restarts, takeovers or rejoins: the log doesn't say which)" in " ".join(text.split())
    assert " ".join(text.split()).endswith("1 group: nothing found")


def test_findings_come_first(tmp_path: Path) -> None:
    """Findings come first, each under its check with the severity and the meaning."""
    lines = printed(Scene().group(static_members(a=1), 1).commit(5).commit(4), tmp_path).splitlines()
    assert lines[:3] == [
        "notice commit_back, 1 finding: a committed offset went back",
        f"  {GROUP}  partition 0, offset 2",
        "    before 5; commit_ms 2023-11-14 22:13:22; committed 4; topic orders; topic_partition 0",
    ]
    assert lines[-1].endswith("1 finding")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """Audit a log with every fault."""
    folder = tmp_path_factory.mktemp("log")
    for number, make in enumerate(FAULTS.values()):
        scene = make()
        scene.partition = number
        scene.write(folder, len(FAULTS))
    result = audited(folder)
    result.notes.append("something that is worth a note, of more words than fit into one line of sixty")
    return result


@pytest.mark.parametrize("width", [60, 80, 139, 140, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(
    everything: AuditResult, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than the terminal is wide, and no word that fits into a line is broken."""
    result = everything
    monkeypatch.setattr(report, "FINDINGS_MAX", len(result.findings))
    assert len(result.findings) > 20
    text = text_of(result, width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    details = [" ".join(part) for each in result.findings for part in detail_words(each.detail)]
    missing = {word for detail in details for word in detail.split() if word not in words and f"{word};" not in words}
    assert missing == set()


def test_long_lists_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long list is cut, and the report says how many entries it leaves out."""
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
    """Errors come before notices, so that many notices don't push an error out of the report."""
    monkeypatch.setattr(report, "FINDINGS_MAX", 3)
    scene = Scene().group([member("x", PARTS["a"])], 1, leader="nobody")
    for offset in range(9, 1, -1):
        scene.commit(offset)
    lines = printed(scene, tmp_path).splitlines()
    assert [line.split()[1] for line in lines if line.startswith(("error", "notice"))] == [
        "leader_not_member,", "commit_back,",
    ]  # fmt: skip
    assert sum(line.startswith("    before ") for line in lines) == 2


def test_log_can_not_move_the_cursor(tmp_path: Path) -> None:
    """The report escapes control characters of a log, and shows brackets as text."""
    group_id = group_on(0, "\x1b[2J[red]")
    text = printed(Scene().commit(5, group_id), tmp_path)
    assert "\x1b" not in text
    assert "\\x1b[2J[red]" in text


def test_growth_of_a_big_group_is_said(tmp_path: Path) -> None:
    """The report shows how many bytes each restart of a large group writes."""
    members = [member(f"m-{number}", {"orders": [number]}, instance_id=f"m-{number}") for number in range(120)]
    text = printed(Scene().group(members, 1), tmp_path)
    assert "each restart of a static member writes all 120 members" in text


def test_clients_and_other_records_are_noted(tmp_path: Path) -> None:
    """The report mentions old clients and other records, but not as findings."""
    scene = Scene().group([member("x", PARTS["a"], instance_id="x", client_id="aiokafka-0.12.0")], 1)
    scene.append((b"\x03\xe7", b"")).append((newer_key("g", 11), share_value()))
    text = printed(scene, tmp_path)
    assert "aiokafka-0.12.0: aiokafka's heartbeats" in text
    assert "1 record of unknown" in text
    assert "1 record of share_group_metadata" in text


def test_members_that_are_not_read_are_not_counted(tmp_path: Path) -> None:
    """The report shows no number of members for a share group."""
    scene = Scene().append((newer_key(GROUP, 11), share_value()))
    assert "    share protocol, at least 0 rebalances, " in printed(scene, tmp_path, 80)
    assert printed(scene, tmp_path).splitlines()[1].split()[-7:] == ["least", "0", "at", "least", "0", "26", "B"]


def test_detail_is_names_and_values() -> None:
    """Lists and counts become words and times become dates; durations stay numbers, and other text stays as it is."""
    detail = finding(
        "commit_back", 0, 1, gap_ms=5, ts_ms=1_700_000_000_000, x=["a", 1], y={"b": 2}, z=None, r=True
    ).detail
    assert detail_words(detail) == [
        ("gap_ms", "5"), ("r", "yes"), ("ts_ms", "2023-11-14 22:13:20"), ("x", "a, 1"), ("y", "2 x b"), ("z", "none"),
    ]  # fmt: skip
    assert [detail_words(text) for text in ("no JSON", "[1]")] == [[("", "no JSON")], [("", "[1]")]]
