"""After each look and each crash, the result for a growing log equals an audit of the whole log.

A look takes the new batches, as Spark would pass them, with the same functions but without Spark.
"""

from __future__ import annotations

import pickle
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.audit import following
from coordinator.audit.audit import AuditResult, NothingRead, Options
from coordinator.audit.check.limits import Limits
from coordinator.audit.following import Following, Part
from coordinator.audit.read.tables import to_rows
from coordinator.audit.spark.follow import _digest, _part
from coordinator.audit.spark.split import RAW
from coordinator.audit.spark.tail import Offset, TailReader
from tests.audit.audited import audited
from tests.audit.check.test_checks import FAULTS, LEGAL
from tests.audit.scenes import GROUP, Scene, clean, group_on, static_members

pytestmark = pytest.mark.spark

LIMITS = Limits()
TORN = "torn_tail"
"""An audit reports it at the end of a log; a look waits for the next bytes."""


class Stream:
    """Looks at a folder; a look whose result isn't kept comes again, as after a crash."""

    def __init__(self, folder: Path, state_file: Path) -> None:
        self._folder = folder
        self._state_file = state_file
        self._offset: Offset = {}
        self._number = 0
        self.following = Following(folder, state_file, LIMITS)

    def look(self, *, is_kept: bool = True) -> AuditResult:
        """Take the new batches; returns the result so far."""
        reader = TailReader(self._folder, RAW)
        reader._seen = dict(self._offset)
        end = reader.latestOffset()
        raw = (batch for split in reader.partitions(self._offset, end) for batch in reader.read(split))
        self.following.take(self._number, self._parts(raw))
        if is_kept:
            self._offset, self._number = end, self._number + 1
        return self.following.result()

    def restart(self) -> None:
        """Lose everything that wasn't kept."""
        self.following = Following(self._folder, self._state_file, LIMITS)

    def _parts(self, raw: Iterator[pa.RecordBatch]) -> Iterator[Part]:
        return (_part(row) for digest in _digest(raw) for row in to_rows(digest))


def whole(folder: Path) -> AuditResult:
    """Audit the whole log."""
    return audited(folder, options=Options(LIMITS))


@pytest.mark.parametrize("name", [name for name in (*FAULTS, *LEGAL) if name != TORN])
def test_growing_log_has_the_result_of_the_whole(tmp_path: Path, name: str) -> None:
    """For each fault, batch by batch and with a restart before each look, no finding is lost or comes twice."""
    expected = {fault: fault.partition(":")[0] for fault in FAULTS}
    scene = {**FAULTS, **LEGAL}[name]()
    folder = tmp_path / "log"
    stream: Stream | None = None
    batches, scene.batches = scene.batches, []
    for batch in batches:
        scene.batches.append(batch)
        scene.write(folder)
        stream = stream or Stream(folder, tmp_path / "state")
        stream.restart()
        stream.look()
    assert stream is not None
    stream.look()  # an unfinished batch at the end of the file is damage as soon as bytes stand behind it
    found = stream.following.result()
    assert found == whole(folder)
    assert [each.check for each in found.findings] == ([expected[name]] if name in expected else [])
    assert stream.look() == found


@pytest.mark.parametrize("seed", range(6))
def test_transactions_end_in_later_looks(tmp_path: Path, seed: int) -> None:
    """An open transaction doesn't count yet at a look; committed offsets come in the order of the log."""
    chance = random.Random(seed)
    scene = Scene().group(static_members(a=1), 1)
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    for number in range(40):
        producer_id = chance.randrange(3)
        match chance.randrange(5):
            case 0 | 1:
                scene.transacted(chance.randrange(100), producer_id)
            case 2 | 3:
                scene.end_transaction(producer_id, committed=chance.random() < 0.7)
            case _:
                scene.commit(chance.randrange(100), chance.choice([GROUP, group_on(0, "other")]))
        if chance.random() < 0.6:
            scene.write(tmp_path / "log")
            if chance.random() < 0.3:
                stream.restart()
            assert stream.look() == whole(tmp_path / "log"), number


def test_look_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    """A crash after the result was kept, and before the stream's checkpoint, repeats a look without effect."""
    scene = Scene().group(static_members(a=1), 1).commit(5).commit(4)
    folder = scene.write(tmp_path / "log")
    stream = Stream(folder, tmp_path / "state")
    assert stream.look(is_kept=False) == whole(folder)
    stream.restart()
    assert stream.look() == whole(folder)
    scene.commit(3).write(folder)
    assert [each.check for each in stream.look().findings] == ["commit_back"] * 2


def test_look_that_was_not_finished_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle of a look loses that look; the next one takes everything again."""
    folder = Scene().group(static_members(a=1), 1).commit(5).commit(4).write(tmp_path / "log")
    stream = Stream(folder, tmp_path / "state")
    stream.look()
    later = Scene(base_offset=3).commit(3).commit(2)
    later.write(folder)
    with monkeypatch.context() as broken:
        broken.setattr(following._StateFile, "save", refuse)
        with pytest.raises(OSError, match="full"):
            stream.look()
    stream.restart()
    assert [each.check for each in stream.following.result().findings] == ["commit_back"]
    assert stream.look() == whole(folder)


def refuse(*_arguments: object) -> None:
    """Fail as if the disk were full."""
    raise OSError("full")


def test_gap_that_was_seen_stays(tmp_path: Path) -> None:
    """A gap in the newest segment stays a finding after later looks, in which that segment is an older one."""
    scene = FAULTS["offset_gap"]()
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    stream.look()
    Scene(base_offset=scene.next_offset).commit(60).write(tmp_path / "log")
    assert [each.check for each in stream.look().findings] == ["offset_gap"]
    assert whole(tmp_path / "log").findings == []


def test_finding_at_the_end_can_be_taken_back(tmp_path: Path) -> None:
    """A finding at the end of the log disappears if the next records explain it, for example by a deletion."""
    scene = FAULTS["instance_never_returns"]()
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    assert [each.check for each in stream.look().findings] == ["instance_never_returns"]
    scene.delete().write(tmp_path / "log")
    assert stream.look() == whole(tmp_path / "log")
    assert stream.following.result().findings == []


def test_of_very_many_findings_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many findings of a partition the first are kept, and all are counted, at each look."""
    monkeypatch.setattr("coordinator.audit.audit.FINDINGS_KEPT", 2)
    monkeypatch.setattr(following, "AuditResult", partial(AuditResult, _held_max=3))
    scene = Scene().commit(10)
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    for commits_back in (9, 17):
        for offset in range(9, 0, -1):
            scene.commit(offset)
        scene.write(tmp_path / "log")
        found = stream.look()
        assert [each.offset for each in found.findings if each.check == "commit_back"] == [1, 2]
        assert found.counts["commit_back"] == commits_back


def test_findings_and_summary_are_replaced_as_a_whole(scene: Scene, tmp_path: Path) -> None:
    """Findings and summary are always those of the last look."""
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    for count in (0, 1):
        stream.look()
        stream.following.write(tmp_path, tmp_path / "scratch")
        assert pq.read_table(tmp_path / "findings.parquet").num_rows == count
        assert ('"commit_back": 1' in (tmp_path / "summary.json").read_text()) == bool(count)
        scene.commit(5).commit(4).write(tmp_path / "log")


def test_shelf_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream refuses a folder of other limits, of another version, with missing looks or with foreign bytes."""
    folder, state_file = clean().write(tmp_path / "log"), tmp_path / "state"
    Stream(folder, state_file).look()
    with pytest.raises(NothingRead, match="other limits"):
        Following(folder, state_file, Limits(session_ms_max=1))
    with pytest.raises(NothingRead, match="look 6"):
        Following(folder, state_file, LIMITS).take(7, [])
    with monkeypatch.context() as later:
        later.setattr(following, "version", lambda _name: "99")
        with pytest.raises(NothingRead, match="of version"):
            Following(folder, state_file, LIMITS)
    with closing(sqlite3.connect(state_file)) as file, file:
        file.execute("UPDATE kept SET data = ? WHERE name = 0", [pickle.dumps(clean)[:-4]])
    with pytest.raises(NothingRead, match="another --out"):
        Following(folder, state_file, LIMITS)
    state_file.write_bytes(b"no database")
    with pytest.raises(NothingRead, match="another --out"):
        Following(folder, state_file, LIMITS)


def test_transaction_without_an_end_holds_nothing_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a limit of further records of the group an open transaction counts as aborted, and a note says so."""
    monkeypatch.setattr(following, "WAITING_MAX", 3)
    scene = Scene().group(static_members(a=1), 1).transacted(5, 7)
    stream = Stream(scene.write(tmp_path / "log"), tmp_path / "state")
    for offset in range(4):
        scene.commit(offset, GROUP).write(tmp_path / "log")
        stream.look()
        assert len(stream.following._partitions[0].waiting.get(GROUP, ())) <= 3
    found = stream.following.result()
    assert [note for note in found.notes if "never committed" in note] == [
        f"{GROUP}: 3 records came while a transaction was open: its own are taken for never committed"
    ]
    stream.restart()
    assert stream.look() == found
    assert found.stories == whole(tmp_path / "log").stories


def test_partition_that_is_gone_is_said(tmp_path: Path) -> None:
    """A note names a partition whose folder was removed between the plan and the reading."""
    folder = Scene().group(static_members(a=1), 1).write(tmp_path / "log")
    known = Following(folder, tmp_path / "state", LIMITS)
    with pytest.raises(NothingRead, match="partition 9 is gone"):
        known.take(0, [(9, {})])
