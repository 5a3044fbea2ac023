"""Each check finds its fault, no other check reports it, and a clean log has no finding.

A fault is a log with one thing wrong. A check that needs more than a folder has a test of its own.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.audit.audit import Options
from coordinator.audit.check.checks import CHECKS, Finding
from coordinator.audit.read import logs
from coordinator.group.consumer.records import CURRENT, MEMBER, TARGET
from coordinator.log.segments.segment import partition_folder
from coordinator.story.diagnosis import LOOP_MIN
from coordinator.story.records.consumer import read_consumer_value
from protocol.messages import ConsumerGroupTargetAssignmentMemberValue, encode
from protocol.records.batch import Record, encode_batch
from tests.audit.audited import audited
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    START_MS,
    ConsumerScene,
    Scene,
    clean,
    consumer_member,
    group_key,
    group_on,
    group_value,
    member,
    newer_key,
    newer_value,
    offset_key,
    offset_value,
    static,
    static_members,
    subscription,
    two_consumers,
    versioned,
)
from tests.audit.section import PAGE, with_sections
from tests.support.batches import old_messages, with_crc

DAY_MS = 24 * HOUR_MS
OVERVIEW = PAGE.with_name("audit.md")


def findings_of(folder: Path, **options: Path) -> list[Finding]:
    """Return the audit's findings for the folder."""
    return audited(folder, options=Options(**options)).findings  # type: ignore[arg-type]


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


def _old_format() -> Scene:
    """The old messages are the last bytes of the log, where the audit takes bytes without a batch for a torn tail."""
    scene = clean()
    return scene.raw(old_messages(1, 3, scene.next_offset), 3)


def _offset_order() -> Scene:
    scene = clean()
    return scene.raw(encode_batch([Record(offset_key(GROUP), offset_value(50), scene.now_ms)], 3, 1))


def _offset_gap() -> Scene:
    scene = clean()
    scene.next_offset += 5
    return scene.commit(50)


def _epoch_order() -> Scene:
    scene = clean()
    scene.epoch = 0
    return scene.commit(50)


def _subscribed_unassigned() -> Scene:
    """As in KAFKA-12759: a static member returns with another subscription, and the group doesn't rebalance."""
    scene = Scene().group(static_members(a=1, b=1), 1)
    changed = static("a", 2, PARTS["a"], subscription=subscription(["orders", "refunds"]))
    return scene.group([changed, *static_members(b=1)], 1)


def _rebalance_storm() -> Scene:
    """A dynamic member joins and leaves six times within the hour."""
    scene = Scene().group([member("x-0", PARTS["a"])], 1)
    for number in range(6):
        scene.tick(60_000).group([member("x-0", PARTS["a"]), member(f"y-{number}", PARTS["b"])], 2 * number + 2)
        scene.tick(60_000).group([member("x-0", PARTS["a"])], 2 * number + 3)
    return scene


def _restarts_in_a_loop() -> Scene:
    scene = Scene().group(static_members(a=1, b=1), 1)
    for life in range(2, 2 + LOOP_MIN):
        scene.tick(2_000).group(static_members(a=life, b=1), 1)
    return scene


def _instance_never_returns() -> Scene:
    """A Deployment gives its pods new names at each rollout."""
    parts = list(PARTS.values())
    scene = Scene().group([static("pod-x1", 1, parts[0]), static("pod-x2", 1, parts[1])], 1)
    scene.tick(HOUR_MS).group([static("pod-y1", 1, parts[0]), static("pod-x2", 1, parts[1])], 3)
    return scene.tick(HOUR_MS).group([static("pod-y1", 1, parts[0]), static("pod-y2", 1, parts[1])], 5)


def _partition_held_twice() -> Scene:
    def also(value: Any) -> None:
        value.assigned_partitions[0].partitions = [1, 2, 3]
        value.assigned_partitions[0].assignment_epochs = [3, 3, 3]

    return two_consumers().append_changed("n", 8, also)


def _records_contradict() -> Scene:
    made = two_consumers()
    return made.scene.append((consumer_member(GROUP, "m")[0], None))


def _upgraded() -> Scene:
    """The group goes to the consumer protocol (KIP-848) and back; its offsets and its members stay."""
    scene = Scene().group(static_members(a=1, b=1), 7, since_ms=START_MS).commit(5)
    scene.append((group_key(GROUP), None), (newer_key(GROUP), newer_value()))
    scene.append(consumer_member(GROUP)).commit(6)
    value = group_value(static_members(a=1, b=1), 8, since_ms=START_MS)
    return scene.append((newer_key(GROUP), None), (group_key(GROUP), value)).commit(7)


def _cooperative() -> Scene:
    """cooperative-sticky moves t1 from x to y; during one generation no member owns t1."""
    topics, x, y = ["t0", "t1"], {"t0": [0], "t1": [0]}, {"t1": [0]}
    scene = Scene().group([member("x", x, topics=topics)], 1)
    scene.group([member("x", {"t0": [0]}, topics=topics, owned=x), member("y", topics=topics)], 2)
    return scene.group([member("x", {"t0": [0]}, topics=topics, owned={"t0": [0]}), member("y", y, topics=topics)], 3)


def _kept_for_a_year() -> Scene:
    """A commit of version 1 has a retention of its own."""
    scene = Scene().append((offset_key(GROUP, "refunds"), offset_value(5, START_MS, 1, START_MS + 365 * DAY_MS)))
    return scene.group(static_members(a=1), 1).tick(30 * DAY_MS).group(static_members(a=2), 1)


def _contested_by_clocks() -> Scene:
    """Ten minutes lie between the restarts; the clock of the partition's new owner is an hour behind."""
    scene = Scene().group(static_members(a=1, b=1), 1).group(static_members(a=2, b=1), 1)
    scene.tick(HOUR_MS // 6).group(static_members(a=3, b=1), 1)
    return scene.tick(HOUR_MS // 6 - HOUR_MS).group(static_members(a=4, b=1), 1)


def _rolls_under_a_clock_behind() -> Scene:
    """Two rolls of six rebalances lie a day apart; after each one a new owner's clock is half a day behind."""
    scene = Scene().group([member("m-0", PARTS["a"])], 1)
    generation = 1
    for _ in range(2):
        for _ in range(6):
            generation += 1
            scene.group([member(f"m-{generation}", PARTS["a"])], generation)
        scene.tick(DAY_MS).commit(generation)
        scene.tick(-DAY_MS - 3 * HOUR_MS)
    return scene


def _deleted_and_new_at_once() -> Scene:
    """A group is deleted and comes anew within one millisecond, and then under an owner whose clock is behind."""
    scene = Scene().group(static_members(a=1), 3, since_ms=START_MS).delete()
    scene.group(static_members(a=2), 1, since_ms=START_MS).delete()
    return scene.group(static_members(a=3), 2, since_ms=START_MS - HOUR_MS)


def _without_times() -> Scene:
    """Records with the timestamp -1 have no time."""
    scene = Scene().group(static_members(a=1), 1)
    scene.now_ms = -1
    value = group_value(static_members(a=2), 1)
    return scene.raw(encode_batch([Record(group_key(GROUP), value, -1)], scene.next_offset, 1))


def pair() -> Scene:
    """Two dynamic members in generation 5."""
    return Scene().group([member("x", PARTS["a"]), member("y", PARTS["b"])], 5)


def _member_took_a_part() -> Scene:
    scene = Scene().group([member("x", PARTS["a"])], 5)
    return scene.group([member("x", {"orders": [0]}), member("y", {"orders": [1]})], 5)


def _session_shorter_than_gap() -> Scene:
    scene = Scene().group(static_members(a=1, b=1), 1)
    scene.tick(10_000).group(static_members(a=1), 2)
    return scene.tick(20_000).group(static_members(a=1, b=2), 3)


def _target_changed() -> Scene:
    """A dynamic member of the consumer protocol has another target without a new epoch of the target."""

    def less(value: Any) -> None:
        value.topic_partitions[0].partitions = [0]

    return two_consumers().append_changed("m", TARGET, less)


def _assignment_grew() -> Scene:
    """A dynamic member of the consumer protocol, which had all of its target, has one partition more."""

    def more(value: Any) -> None:
        value.assigned_partitions[0].partitions = [0, 1, 7]
        value.assigned_partitions[0].assignment_epochs = [3, 3, 3]

    return two_consumers().append_changed("m", CURRENT, more)


def _consumer_gone() -> Scene:
    """A dynamic member of the consumer protocol is removed without a new epoch, and its partitions go to the other."""
    made = two_consumers()
    keys = {record.key for record in made.play.log if record.key[1] in (MEMBER, TARGET, CURRENT) and b"m" in record.key}
    target = [record for record in made.play.log if record.key[1] == TARGET and record.key not in keys][-1]
    value = read_consumer_value(target.value or b"", TARGET)[1]
    assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
    value.topic_partitions[0].partitions = [0, 1, 2, 3]
    return made.scene.append(*((key, None) for key in sorted(keys)), (target.key, versioned(0, encode(value, 0))))


FAULTS: dict[str, Callable[[], Scene]] = {
    "bad_checksum": _bad_checksum,
    "torn_tail": _torn_tail,
    "old_format": _old_format,
    "undecodable": lambda: clean().append((offset_key(GROUP), struct.pack(">hq", 3, 1))),
    "undecodable_metadata": lambda: Scene().group([static("a", 1, PARTS["a"], subscription=b"\0\1\xff\xff")], 1),
    "offset_order": _offset_order,
    "offset_gap": _offset_gap,
    "wrong_partition": lambda: Scene().commit(5, group_on(1)),
    "epoch_order": _epoch_order,
    "duplicate_instance": lambda: Scene().group([static("a", 1, PARTS["a"]), static("a", 2, PARTS["b"])], 1),
    "leader_not_member": lambda: Scene().group(static_members(a=1, b=1), 1, leader="somebody"),
    "generation_falls": lambda: Scene().group(static_members(a=1), 5).group(static_members(a=1, b=1), 4),
    "membership_changed": lambda: Scene().group(static_members(a=1), 5).group(static_members(a=1, b=1), 5),
    "membership_changed: a member is gone": lambda: pair().group([member("x", PARTS["a"])], 5),
    "membership_changed: it is taken over": lambda: pair().group([member("x", {"orders": [0, 1, 2]})], 5),
    "membership_changed: a static one is taken over": lambda: (
        Scene().group(static_members(a=1, b=1), 5).group([static("a", 1, {"orders": [0, 1, 2]})], 5)
    ),
    "membership_changed: one takes a part": _member_took_a_part,
    "membership_changed: a consumer is gone": _consumer_gone,
    # One of them also comes back under a new member id.
    "assignment_changed": lambda: (
        Scene().group(static_members(a=1, b=1), 5).group([static("a", 2, PARTS["b"]), static("b", 1, PARTS["a"])], 5)
    ),
    "assignment_changed: dynamic members swap": lambda: pair().group(
        [member("x", PARTS["b"]), member("y", PARTS["a"])], 5
    ),
    "assignment_changed: beside a return": lambda: (
        Scene()
        .group([member("x", PARTS["b"]), static("a", 1, PARTS["a"])], 5)
        .group([member("x", PARTS["c"]), static("a", 2, PARTS["a"])], 5)
    ),
    "assignment_changed: of a target": _target_changed,
    "assignment_changed: it grew": _assignment_grew,
    "partition_assigned_twice": lambda: Scene().group(
        [static("a", 1, {"orders": [0, 1]}), static("b", 1, {"orders": [1]})], 1
    ),
    "subscribed_unassigned": _subscribed_unassigned,
    "deleted_returns": lambda: (
        Scene().group(static_members(a=1, b=1), 7).delete().group(static_members(a=1, b=1), 7, since_ms=START_MS)
    ),
    "session_above_cap": lambda: Scene().group([static("a", 1, PARTS["a"], session_timeout=1_800_001)], 1),
    "rebalance_storm": _rebalance_storm,
    "restarts_in_a_loop": _restarts_in_a_loop,
    "instance_never_returns": _instance_never_returns,
    "session_shorter_than_gap": _session_shorter_than_gap,
    "orphan_offsets": lambda: Scene().group(static_members(a=1), 1).commit(5).group([], 2).delete(),
    "commit_back": lambda: Scene().group(static_members(a=1), 1).commit(5).commit(4),
    "partition_held_twice": _partition_held_twice,
    "records_contradict": _records_contradict,
    "target_not_reached": lambda: ConsumerScene().join("m").join("n").scene.tick(HOUR_MS).commit(5),
    # A producer that was fenced commits an offset behind the newer one's marker.
    "producer_epoch_falls": lambda: (
        Scene()
        .transacted(5, 7)
        .end_transaction(7, 1, committed=True)
        .transacted(6, 7)
        .end_transaction(7, 1, committed=True)
    ),
    # A transaction is open for longer than any may be.
    "pending_without_end": lambda: Scene().transacted(5, 7).tick(HOUR_MS).commit(6),
}
"""Check, with a colon and which fault if it has several -> a log with that fault."""


LEGAL: dict[str, Callable[[], Scene]] = {
    "clean": clean,
    "upgraded": _upgraded,
    # The group goes to the consumer protocol and stays there.
    "upgraded_for_good": lambda: (
        Scene()
        .group(static_members(a=1, b=1), 7)
        .commit(5)
        .append((group_key(GROUP), None), (newer_key(GROUP), newer_value()))
        .commit(6, partition=1)
    ),
    "cooperative": _cooperative,
    "kept_for_a_year": _kept_for_a_year,
    # A coordinator looks for expired offsets only every ten minutes.
    "just_expired": lambda: (
        Scene()
        .commit(5, topic="refunds")
        .group(static_members(a=1), 1)
        .tick(7 * DAY_MS + 500_000)
        .group(static_members(a=2), 1)
    ),
    "contested_by_clocks": _contested_by_clocks,
    "rolls_under_a_clock_behind": _rolls_under_a_clock_behind,
    "deleted_and_new_at_once": _deleted_and_new_at_once,
    # After the group's deletion a client commits without joining: its offsets are no remnant.
    "simple_group_after_a_deletion": lambda: Scene().group(static_members(a=1), 1).group([], 2).delete().commit(5),
    # A dynamic member's id may be any text, also another member's instance id.
    "member_named_as_an_instance": lambda: (
        Scene()
        .group([member("a", PARTS["b"]), static("a", 1, PARTS["a"])], 1)
        .group([member("a", PARTS["b"]), static("a", 2, PARTS["a"])], 1)
    ),
    "without_times": _without_times,
}
"""Check or case -> a log that looks odd and is correct."""


@pytest.mark.parametrize("name", LEGAL)
def test_legal_log_has_no_finding(tmp_path: Path, name: str) -> None:
    """The audit finds nothing in a log that a coordinator may write."""
    assert findings_of(LEGAL[name]().write(tmp_path)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found_by_its_check_alone(tmp_path: Path, fault: str) -> None:
    """A log with one fault, and all that follows from it, has one finding, of its check and with its severity."""
    check = fault.partition(":")[0]
    found = findings_of(FAULTS[fault]().write(tmp_path))
    assert [finding.check for finding in found] == [check]
    assert found[0].severity == CHECKS[check].severity
    assert json.loads(found[0].detail)


def test_membership_that_changed_says_what_changed_with_it(tmp_path: Path) -> None:
    """The finding names the members that came and went, and those whose assignment changed with them."""
    (found,) = findings_of(_member_took_a_part().write(tmp_path / "classic"))
    assert json.loads(found.detail) == {"joined": ["y"], "gone": [], "reassigned": ["x"]}
    (found,) = findings_of(_consumer_gone().write(tmp_path / "consumer"))
    assert json.loads(found.detail) == {"joined": [], "gone": ["m"], "reassigned": ["n"]}


def test_compaction_that_loses_a_key_is_found(tmp_path: Path) -> None:
    """The audit reports a live commit that compaction lost; a replaced commit and a deleted one may go."""
    before = Scene().commit(5, partition=1).commit(5, partition=2).commit(6, partition=1)
    before.append((offset_key(GROUP, "orders", 2), None)).commit(7, partition=3)
    after = Scene()
    after.batches = before.batches[:1]
    found = findings_of(after.write(tmp_path / "after"), before=before.write(tmp_path / "before"))
    assert [(each.check, each.offset) for each in found] == [("compaction_lost_key", 2), ("compaction_lost_key", 4)]
    assert findings_of(before.write(tmp_path / "same"), before=tmp_path / "before") == []


def test_partition_that_was_not_copied_lost_nothing(tmp_path: Path) -> None:
    """The audit compares only the partitions that both logs have."""
    group_id = group_on(1)
    Scene(1).commit(5, group_id).write(tmp_path / "before")
    Scene().commit(5).write(tmp_path / "before")
    Scene().commit(5).write(tmp_path / "after")
    assert findings_of(tmp_path / "after", before=tmp_path / "before") == []


def test_compaction_that_was_long_ago_is_no_finding(tmp_path: Path) -> None:
    """If the later log reaches a day further, a deletion may have come and gone, and the audit reports no loss."""
    before = Scene().commit(5)
    after = Scene(base_offset=9).tick(25 * HOUR_MS).commit(6, partition=1)
    assert findings_of(after.write(tmp_path / "after"), before=before.write(tmp_path / "before")) == []


def test_each_check_has_a_fault() -> None:
    """Each check has a log with its fault; some compare it with another log."""
    others = {"compaction_lost_key", "instance_contested", "marker_without_transaction"}
    assert {fault.partition(":")[0] for fault in FAULTS} | others == CHECKS.keys()


def test_each_check_has_its_section() -> None:
    """audit-checks.md has each check's advice as `make format` writes it; audit.md has the severities."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_sections(page)
    sections = re.findall(r"^### `(\w+)` \((\w+)\)$", page, re.MULTILINE)
    severities = {name: check.severity.value for name, check in CHECKS.items()}
    assert dict(sections) == severities
    rows = re.findall(
        r"^\| (error|warning|notice) \|.*\| ([^|]+) \|$", OVERVIEW.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: severity for severity, names in rows for name in re.findall(r"`(\w+)`", names)} == severities


def test_gap_in_a_cleaned_segment_is_no_finding(tmp_path: Path) -> None:
    """A gap is a finding only in the newest segment: a cleaner may have compacted each older one."""
    scene = _offset_gap()
    scene.write(tmp_path)
    Scene(base_offset=scene.next_offset).write(tmp_path)
    assert findings_of(tmp_path) == []


def test_checkpoint_of_a_cleaner_says_where_gaps_are_findings(tmp_path: Path) -> None:
    """Behind the offset in the cleaner's checkpoint a gap is a finding, in older segments too."""
    scene = _offset_gap()
    scene.write(tmp_path)
    Scene(base_offset=scene.next_offset).write(tmp_path)
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\n__consumer_offsets 0 0\n")
    assert [each.check for each in findings_of(tmp_path)] == ["offset_gap"]
    checkpoint.write_text("0\n1\n__consumer_offsets 0 7\n")
    assert findings_of(tmp_path) == []


def test_segment_that_is_missing_is_found(scene: Scene, tmp_path: Path) -> None:
    """A missing segment is a finding where the broker's checkpoint says that its cleaner hasn't been there."""
    scene.write(tmp_path)
    newest = Scene(base_offset=scene.next_offset + 5).commit(50)
    newest.write(tmp_path)
    assert findings_of(tmp_path) == []
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\n__consumer_offsets 0 0\n")
    (found,) = findings_of(tmp_path)
    assert (found.check, found.offset) == ("offset_gap", None)
    assert json.loads(found.detail) == {
        "expected": scene.next_offset, "position": 0, "replica": False, "segment": newest.base_offset,
    }  # fmt: skip
    checkpoint.write_text(f"0\n1\n__consumer_offsets 0 {newest.base_offset}\n")
    assert findings_of(tmp_path) == []


def test_assignment_that_changed_says_whose(tmp_path: Path) -> None:
    """The finding names the members by their seats and the record before; a new generation may change all."""
    scene = Scene().group([static("a", 1, {"orders": [0]}), static("b", 1, {"orders": [1]}), member("c")], 5)
    scene.group([static("a", 2, {"orders": [0]}), static("b", 1, {"orders": [1, 2]}), member("c")], 5)
    scene.group([static("a", 2, {"orders": [0, 1]}), static("b", 1, {"orders": [2]}), member("c")], 6)
    (found,) = findings_of(scene.write(tmp_path))
    assert (found.check, found.offset, found.generation) == ("assignment_changed", 1, 5)
    assert json.loads(found.detail) == {"members": ["b"], "count": 1, "before_offset": 0}


def test_partition_twice_in_one_assignment_is_found(tmp_path: Path) -> None:
    """The finding names the member once, whether one topic entry or two of them repeat the partition."""
    twice = static("a", 1, {"orders": [0, 1, 0]})
    (found,) = findings_of(Scene().group([twice, static("b", 1, {"orders": [2]})], 1).write(tmp_path))
    assert found.check == "partition_assigned_twice"
    assert json.loads(found.detail) == {"topic": "orders", "topic_partition": 0, "members": ["a-1"]}


def test_fall_after_a_deletion_is_no_finding(tmp_path: Path) -> None:
    """A new group with the same name may start its generations anew."""
    scene = Scene().group(static_members(a=1, b=1), 5).delete().group(static_members(a=2, b=2), 1)
    assert findings_of(scene.write(tmp_path)) == []


def test_aborted_commit_is_none(tmp_path: Path) -> None:
    """A commit of a transaction counts only after its producer's marker commits it."""
    scene = Scene().group(static_members(a=1), 1).commit(5)
    scene.transacted(9, producer_id=7).end_transaction(7, committed=False)
    scene.transacted(3, producer_id=8)
    scene.transacted(6, producer_id=7).end_transaction(7, committed=True)
    result = audited(scene.write(tmp_path))
    assert result.findings == []
    assert result.stories[0].committed == {"orders-0": 6}


def test_room_at_the_end_is_no_finding(tmp_path: Path) -> None:
    """Zeros at the end of the newest segment are room from log.preallocate; in an older segment they are damage."""
    scene = clean().raw(bytes(3_000_000), 0)
    assert findings_of(scene.write(tmp_path)) == []
    Scene(base_offset=scene.next_offset).write(tmp_path)
    assert [each.check for each in findings_of(tmp_path)] == ["torn_tail"]


def test_batch_that_is_being_written_is_no_finding(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is no torn tail if the file grows while the audit reads it."""
    whole = scene.batches[-1]
    scene.batches[-1] = whole[:-7]
    path = scene.segment_path(scene.write(tmp_path))
    cut = logs.cut

    def cut_meanwhile(*arguments: Any) -> Iterator[tuple[int, int, tuple[logs.Piece, ...]]]:
        yield from cut(*arguments)
        with path.open("ab") as file:
            file.write(whole[-7:])

    monkeypatch.setattr(logs, "cut", cut_meanwhile)
    result = audited(tmp_path)
    assert (result.findings, result.batches) == ([], len(scene.batches) - 1)


def test_partition_without_files_is_read(tmp_path: Path) -> None:
    """The audit finds nothing in a partition's empty folder."""
    partition_folder(tmp_path, 0).mkdir()
    assert findings_of(tmp_path) == []


def test_resealed_batch_is_what_it_says() -> None:
    """The CRC that the scenes compute is the encoder's."""
    batch = encode_batch([Record(group_key(GROUP), None, START_MS)], 0, 0)
    assert with_crc(batch) == batch


def three_segments(folder: Path, partition: int = 0, *, empty: bool) -> Path:
    """Write a broker's partition of three segments of two batches each, from the offsets 0, 2 and 4 on; its folder.

    The checkpoint says that nothing was cleaned. With `empty` a newest segment without batches begins at offset 6.
    """
    for base_offset in range(0, 6, 2):
        Scene(partition, base_offset).commit(base_offset).commit(base_offset + 1).write(folder, 0)
    if empty:
        Scene(partition, 6).write(folder, 0)
    with (folder / "cleaner-offset-checkpoint").open("a") as checkpoint:
        checkpoint.write(f"__consumer_offsets {partition} 0\n")
    return partition_folder(folder, partition)


def _cut_last_batch(path: Path) -> None:
    """Cut off the last of two equally large batches."""
    os.truncate(path, path.stat().st_size // 2)


def _tear_last_batch(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)


def _flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _lengthen_last_batch(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 + 11] ^= 64
    path.write_bytes(content)


PLANTED: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "nothing": (Path.exists, []),  # type: ignore[dict-item]
    "missing": (Path.unlink, ["offset_gap"]),
    "last batch missing": (_cut_last_batch, ["offset_gap"]),
    "last batch torn": (_tear_last_batch, ["torn_tail"]),
    "last byte changed": (_flip_last_byte, ["bad_checksum"]),
    "length of the last batch changed": (_lengthen_last_batch, ["undecodable"]),
}
"""Damage -> how a segment gets it, and the checks that find it."""


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("base_offset", [2, 4])
@pytest.mark.parametrize("damage", PLANTED)
def test_damage_of_a_segment_is_found_once(tmp_path: Path, damage: str, base_offset: int, empty: bool) -> None:
    """Where nothing was cleaned, each damage of a segment is one finding, whether batches follow, or nothing does."""
    segment = three_segments(tmp_path, empty=empty) / f"{base_offset:020}.log"
    plant, expected = PLANTED[damage]
    plant(segment)
    is_newest = base_offset == 4 and not empty
    if is_newest and damage in {"missing", "last batch missing"}:
        expected = []  # the log ends earlier, and nothing says that it was longer
    assert [each.check for each in findings_of(tmp_path)] == expected


def test_segment_that_is_missing_before_an_empty_one_is_named(tmp_path: Path) -> None:
    """The finding names the offset from which on records are missing, and the segment behind them."""
    (three_segments(tmp_path, empty=True) / f"{4:020}.log").unlink()
    (found,) = findings_of(tmp_path)
    assert (found.check, found.offset) == ("offset_gap", None)
    assert json.loads(found.detail) == {"expected": 4, "position": 0, "replica": True, "segment": 6}
