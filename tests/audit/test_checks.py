"""Each check finds its fault, and nothing else does; a clean log has no finding.

A fault is a log with one thing wrong. Where a check needs more than a folder, its fault says so.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.audit.audit import Options, audit
from coordinator.audit.checks import CHECKS, Finding
from coordinator.log.segment import partition_folder
from protocol.record_batch import Record, encode_batch
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    START_MS,
    Scene,
    clean,
    group_key,
    group_on,
    member,
    offset_key,
    offset_value,
    resealed,
    static,
    static_members,
    subscription,
)

DOCS = Path(__file__).resolve().parents[2] / "docs" / "audit.md"


def findings_of(folder: Path, **options: Path) -> list[Finding]:
    """What the audit finds."""
    return audit(folder, None, Options(**options), lambda _done: None).findings  # type: ignore[arg-type]


def _bad_checksum() -> Scene:
    scene = clean()
    batch = bytearray(scene.batches[1])
    batch[-1] ^= 1
    scene.batches[1] = bytes(batch)
    return scene


def _torn_tail() -> Scene:
    scene = clean()
    scene.batches[-1] = scene.batches[-1][:-7]
    return scene


def _undecodable() -> Scene:
    return clean().append((offset_key(GROUP), struct.pack(">hq", 3, 1)))


def _undecodable_metadata() -> Scene:
    odd = static("a", 1, PARTS["a"], subscription=b"\0\1\xff\xff")
    return Scene().group([odd], 1)


def _offset_order() -> Scene:
    scene = clean()
    return scene.raw(encode_batch([Record(offset_key(GROUP), offset_value(50), scene.now_ms)], 3, 1))


def _offset_gap() -> Scene:
    scene = clean()
    scene.next_offset += 5
    return scene.commit(50)


def _wrong_partition() -> Scene:
    return Scene().commit(5, group_on(1))


def _epoch_order() -> Scene:
    scene = clean()
    scene.epoch = 0
    return scene.commit(50)


def _duplicate_instance() -> Scene:
    return Scene().group([static("a", 1, PARTS["a"]), static("a", 2, PARTS["b"])], 1)


def _leader_not_member() -> Scene:
    return Scene().group(static_members(a=1, b=1), 1, leader="somebody")


def _generation_falls() -> Scene:
    return Scene().group(static_members(a=1), 5).group(static_members(a=1, b=1), 4)


def _membership_changed() -> Scene:
    return Scene().group(static_members(a=1), 5).group(static_members(a=1, b=1), 5)


def _partition_assigned_twice() -> Scene:
    return Scene().group([static("a", 1, {"orders": [0, 1]}), static("b", 1, {"orders": [1]})], 1)


def _subscribed_unassigned() -> Scene:
    """As KAFKA-12759: a static member comes back with another subscription, and nobody rebalances."""
    scene = Scene().group(static_members(a=1, b=1), 1)
    changed = static("a", 2, PARTS["a"], subscription=subscription(["orders", "refunds"]))
    return scene.group([changed, *static_members(b=1)], 1)


def _deleted_returns() -> Scene:
    scene = Scene().group(static_members(a=1, b=1), 7)
    return scene.delete().group(static_members(a=1, b=1), 7, since_ms=START_MS)


def _session_above_cap() -> Scene:
    return Scene().group([static("a", 1, PARTS["a"], session_timeout=1_800_001)], 1)


def _rebalance_storm() -> Scene:
    """A dynamic member goes and comes, six times within the hour."""
    scene = Scene().group([member("x-0", PARTS["a"])], 1)
    for number in range(6):
        scene.tick(60_000).group([member("x-0", PARTS["a"]), member(f"y-{number}", PARTS["b"])], 2 * number + 2)
        scene.tick(60_000).group([member("x-0", PARTS["a"])], 2 * number + 3)
    return scene


def _instance_contested() -> Scene:
    scene = Scene().group(static_members(a=1, b=1), 1)
    for life in (2, 3, 4):
        scene.tick(2_000).group(static_members(a=life, b=1), 1)
    return scene


def _instance_never_returns() -> Scene:
    """A Deployment's pods, named anew with each rollout."""
    parts = list(PARTS.values())
    scene = Scene().group([static("pod-x1", 1, parts[0]), static("pod-x2", 1, parts[1])], 1)
    scene.tick(HOUR_MS).group([static("pod-y1", 1, parts[0]), static("pod-x2", 1, parts[1])], 3)
    return scene.tick(HOUR_MS).group([static("pod-y1", 1, parts[0]), static("pod-y2", 1, parts[1])], 5)


def _session_shorter_than_gap() -> Scene:
    scene = Scene().group(static_members(a=1, b=1), 1)
    scene.tick(10_000).group(static_members(a=1), 2)
    return scene.tick(20_000).group(static_members(a=1, b=2), 3)


def _orphan_offsets() -> Scene:
    return Scene().group(static_members(a=1), 1).commit(5).group([], 2).delete()


def _commit_back() -> Scene:
    return Scene().group(static_members(a=1), 1).commit(5).commit(4)


FAULTS: dict[str, Callable[[], Scene]] = {
    scene.__name__.removeprefix("_"): scene
    for scene in (
        _bad_checksum, _torn_tail, _undecodable, _undecodable_metadata, _offset_order, _offset_gap,
        _wrong_partition, _epoch_order, _duplicate_instance, _leader_not_member, _generation_falls,
        _membership_changed, _partition_assigned_twice, _subscribed_unassigned, _deleted_returns,
        _session_above_cap, _rebalance_storm, _instance_contested, _instance_never_returns,
        _session_shorter_than_gap, _orphan_offsets, _commit_back,
    )
}  # fmt: skip
"""Check -> a log with that fault."""


def test_clean_log_has_no_finding(tmp_path: Path) -> None:
    """Restarts, growth, an end and a new beginning are what they should be."""
    assert findings_of(clean().write(tmp_path)) == []


@pytest.mark.parametrize("check", FAULTS)
def test_fault_is_found_by_its_check_alone(tmp_path: Path, check: str) -> None:
    """One thing is wrong, one finding says so, and by its severity."""
    found = findings_of(FAULTS[check]().write(tmp_path))
    assert [finding.check for finding in found] == [check]
    assert found[0].severity == CHECKS[check].severity
    assert json.loads(found[0].detail)


def test_compaction_that_loses_a_key_is_found(tmp_path: Path) -> None:
    """A commit that was live before is gone; one that was superseded, and one that was deleted, may be."""
    before = Scene().commit(5, partition=1).commit(5, partition=2).commit(6, partition=1)
    before.append((offset_key(GROUP, "orders", 2), None)).commit(7, partition=3)
    after = Scene()
    after.batches = before.batches[:1]
    found = findings_of(after.write(tmp_path / "after"), before=before.write(tmp_path / "before"))
    assert [(each.check, each.offset) for each in found] == [("compaction_lost_key", 2), ("compaction_lost_key", 4)]
    assert findings_of(before.write(tmp_path / "same"), before=tmp_path / "before") == []


def test_compaction_that_was_long_ago_is_no_finding(tmp_path: Path) -> None:
    """Where the later log reaches a day further, a deletion may have come and gone in between."""
    before = Scene().commit(5)
    after = Scene(base_offset=9).tick(25 * HOUR_MS).commit(6, partition=1)
    assert findings_of(after.write(tmp_path / "after"), before=before.write(tmp_path / "before")) == []


def test_each_check_has_a_fault() -> None:
    """No check goes untested."""
    assert FAULTS.keys() | {"compaction_lost_key"} == CHECKS.keys()


def test_each_check_has_its_section() -> None:
    """docs/audit.md says of each what it means and what to do, and of its severity what this table says."""
    sections = re.findall(r"^### `(\w+)` \((\w+)\)$", DOCS.read_text(), re.MULTILINE)
    assert dict(sections) == {name: check.severity.value for name, check in CHECKS.items()}


def test_gap_in_a_cleaned_segment_is_no_finding(tmp_path: Path) -> None:
    """Only the newest segment of a log was surely never compacted."""
    scene = _offset_gap()
    scene.write(tmp_path)
    Scene(base_offset=scene.next_offset).write(tmp_path)
    assert findings_of(tmp_path) == []


def test_checkpoint_of_a_cleaner_says_where_gaps_are_findings(tmp_path: Path) -> None:
    """Behind what a broker says it has cleaned, offsets are without gaps, in older segments too."""
    scene = _offset_gap()
    scene.write(tmp_path)
    Scene(base_offset=scene.next_offset).write(tmp_path)
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\n__consumer_offsets 0 0\n")
    assert [each.check for each in findings_of(tmp_path)] == ["offset_gap"]
    checkpoint.write_text("0\n1\n__consumer_offsets 0 7\n")
    assert findings_of(tmp_path) == []


def test_fall_after_a_deletion_is_no_finding(tmp_path: Path) -> None:
    """Generations begin anew with a new group of the same name."""
    scene = Scene().group(static_members(a=1, b=1), 5).delete().group(static_members(a=2, b=2), 1)
    assert findings_of(scene.write(tmp_path)) == []


def test_aborted_commit_is_none(tmp_path: Path) -> None:
    """A commit in a transaction counts only if its producer's marker says so; one without an end doesn't yet."""
    scene = Scene().group(static_members(a=1), 1).commit(5)
    scene.transacted(9, producer_id=7).end_transaction(7, committed=False)
    scene.transacted(3, producer_id=8)
    scene.transacted(6, producer_id=7).end_transaction(7, committed=True)
    outcome = audit(scene.write(tmp_path), None, Options(), lambda _done: None)
    assert outcome.findings == []
    assert outcome.stories[0].committed == {"orders-0": 6}


def test_partition_without_files_is_read(tmp_path: Path) -> None:
    """An empty folder of a partition has nothing wrong in it."""
    partition_folder(tmp_path, 0).mkdir()
    assert findings_of(tmp_path) == []


def test_resealed_batch_is_what_it_says() -> None:
    """The scenes' own CRC is the encoder's."""
    batch = encode_batch([Record(group_key(GROUP), None, START_MS)], 0, 0)
    assert resealed(batch) == batch
