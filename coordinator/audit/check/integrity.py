"""Checks the batches of one partition: are offsets and epochs in order, and are any missing?

Compaction leaves gaps, and such a gap looks like a lost batch. So a gap is a finding only where no compaction can have
been: in the newest segment, which neither Kafka nor Tenure compacts, and behind the offset in a broker's cleaner
checkpoint. Behind that offset each segment must begin where the one before it ends.

A batch whose own offset is too high looks like a gap at first. If the batch behind it continues as if that offset were
right, the finding is one batch with a wrong offset, and no gap.

A broker may have copied the partition from a leader that had compacted it; then gaps are everywhere. Such a replica has
other traces of compaction too: batches with fewer records than offsets, and segments that begin behind their name. If a
replica has one of these traces, its gaps are no findings.

House rule: a damaged batch is one finding, and its consequences are none. `tenure log verify` uses this module too, so
it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from coordinator.audit.check.checks import Finding, finding
from coordinator.audit.read.parse import Row
from coordinator.log.segments.segment import SEGMENT_OFFSETS_MAX


class Fault(NamedTuple):
    """A fault of the batch at `position` of a segment, or of the segment itself (then `offset` is None).

    reason: for people. detail: for programs.
    """

    check: str
    segment: int
    position: int
    offset: int | None
    reason: str
    detail: dict[str, Any]


class _Leap(NamedTuple):
    """A batch has a higher `offset` than `expected`: either offsets are missing, or its offset is wrong.

    follows: the offset of the next batch, if the offset of this one is wrong. gap: the fault if offsets are missing;
    None where a compaction may have removed them.
    """

    segment: int
    position: int
    offset: int
    expected: int
    follows: int
    gap: Fault | None


class Integrity:
    """Takes the rows of `batches` of one partition, in the order of the log.

    uncleaned_from: nothing was compacted from this offset on; None if that isn't known. It rises as the log grows.
    newest: the offset in the name of the newest segment, which may be empty; None if that isn't known.
    damaged_ends: the segments that end in bytes that are no batch.
    is_replica: a broker may have copied the partition from another one. faults: the faults that are certain so far.
    """

    def __init__(
        self,
        partition: int,
        uncleaned_from: int | None,
        newest: int | None = None,
        damaged_ends: Collection[int] = (),
        *,
        is_replica: bool,
    ) -> None:
        self.faults: list[Fault] = []
        self.uncleaned_from = uncleaned_from
        self._newest = newest
        self._damaged_ends = damaged_ends
        self.partition = partition
        self._is_replica = is_replica
        self._was_cleaned = False
        self._segment: int | None = None
        self._next_offset = 0
        self._position = 0
        self._epoch = -1
        self._is_sure = True
        self._starts_early = False
        self._leap: _Leap | None = None

    def add(self, row: Row) -> None:
        """Take the next batch."""
        (
            _partition, segment, position, length, base_offset, last_offset, _attrs, _codec, _producer_id, epoch,
            _max_ts, _crc, crc_ok, _producer_epoch, record_count,
        ) = row  # fmt: skip
        if segment != self._segment:
            self._begin(segment)
        if crc_ok and (record_count <= last_offset - base_offset or (position == 0 and base_offset > segment)):
            self._was_cleaned = True
        if position != self._position:
            self._is_sure = False  # the bytes in between are no batch, and its records are missing
        self._position = position + length
        if not crc_ok:
            self._is_sure = False
            return
        self._check_offset(segment, position, base_offset, last_offset)
        self._starts_early = False
        if epoch < self._epoch:
            reason = f"epoch {epoch}, the batch before it has {self._epoch}"
            self._find("epoch_order", segment, position, base_offset, reason, epoch=epoch, before=self._epoch)
        self._epoch = epoch
        self._is_sure = True

    def finish(self) -> list[Finding]:
        """The findings if the log ends here. More batches may be added afterwards."""
        faults = [*self.faults]
        if self._leap is not None and self._leap.gap is not None:
            faults.append(self._leap.gap)
        if self._segment is not None and self._newest is not None and self._newest > self._segment:
            lost = self._lost_before(self._newest)
            faults += [] if lost is None else [lost]
        if self._is_replica and self._was_cleaned:
            faults = [each for each in faults if each.check != "offset_gap"]
        return [
            finding(
                each.check, self.partition, each.offset,
                segment=each.segment, position=each.position, **each.detail,
            )
            for each in faults
        ]  # fmt: skip

    def _begin(self, segment: int) -> None:
        """Check that a segment begins behind the one before it, without a gap where nothing was compacted."""
        before = self._segment
        expected = self._next_offset
        if before is not None and before < segment < expected:
            reason = f"starts at offset {segment}, the segment before it ends at {expected}"
            self._find("offset_order", segment, 0, None, reason, expected=expected)
            self._starts_early = True
        elif before is not None:
            lost = self._lost_before(segment)
            if lost is not None:
                self._settle()
                self.faults.append(lost)
        self._segment = segment
        self._next_offset = max(self._next_offset, segment)
        self._position = 0
        self._is_sure = True

    def _lost_before(self, segment: int) -> Fault | None:
        """The fault if a segment is missing in front of this one."""
        if not self._is_sure or self.uncleaned_from is None or self._segment in self._damaged_ends:
            return None
        expected = max(self._next_offset, self.uncleaned_from)
        return self._gap(segment, 0, None, expected) if segment > expected else None

    def _check_offset(self, segment: int, position: int, base_offset: int, last_offset: int) -> None:
        leap = self._leap
        if leap is not None and self._is_sure and base_offset == leap.follows:
            self._leap = None
            reason = f"offset {leap.offset}, but the batch behind it goes on at {base_offset}"
            self._find("offset_order", leap.segment, leap.position, leap.offset, reason, expected=leap.expected)
        else:
            self._settle()
            expected = self._next_offset
            if base_offset < expected:
                reason = f"offset {base_offset}, expected {expected} or later"
                if not self._starts_early:  # then the segment has a finding
                    self._find("offset_order", segment, position, base_offset, reason, expected=expected)
            elif last_offset >= segment + SEGMENT_OFFSETS_MAX:
                reason = f"offset {base_offset}, too far from the segment's {segment}"
                self._find("offset_order", segment, position, base_offset, reason, expected=expected)
                return
            elif base_offset > expected and self._is_sure:
                is_gap = self.uncleaned_from is not None and segment >= self.uncleaned_from
                gap = self._gap(segment, position, base_offset, expected) if is_gap else None
                follows = expected + last_offset + 1 - base_offset
                self._leap = _Leap(segment, position, base_offset, expected, follows, gap)
        # Continue from this batch: one step back is one finding.
        self._next_offset = last_offset + 1

    def _settle(self) -> None:
        """The last leap is a gap: the batch behind it didn't show that the offset is wrong."""
        leap, self._leap = self._leap, None
        if leap is not None and leap.gap is not None:
            self.faults.append(leap.gap)

    def _gap(self, segment: int, position: int, offset: int | None, expected: int) -> Fault:
        reason = f"offsets are missing from {expected} on"
        return Fault(
            "offset_gap", segment, position, offset, reason, {"expected": expected, "replica": self._is_replica}
        )

    def _find(self, check: str, segment: int, position: int, offset: int | None, reason: str, **detail: int) -> None:
        self.faults.append(Fault(check, segment, position, offset, reason, detail))
