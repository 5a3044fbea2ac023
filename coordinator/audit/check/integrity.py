"""The checks on the batches of one partition: are offsets and epochs in order, and are any missing?

Compaction leaves gaps, and nothing in the bytes tells such a gap from a lost batch. So a gap counts only where no
compaction can have been: in the newest segment, which neither Kafka nor Tenure ever compacts, and behind the offset up
to which a broker has cleaned, by its own checkpoint. Behind that offset each segment begins where the one before it
ends.

A batch whose own offset is too high looks like a gap at first. If the batch behind it goes on as if the offset were
right, it is one batch with a wrong offset, and no gap.

A broker's replica may have been filled from a leader that had compacted, and then it has gaps everywhere. Such a leader
leaves other traces, too: batches that hold fewer records than offsets, and segments that begin behind their name. Where
a replica has any of them, its gaps are no findings.

House rule: a damaged batch is one finding, and its consequences are none. `tenure log verify` uses this module too, so
it imports nothing heavy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coordinator.audit.check.checks import Finding, finding
from coordinator.audit.read.parse import Row
from coordinator.log.segments.segment import SEGMENT_OFFSETS_MAX


class Fault(NamedTuple):
    """The batch at `position` of a segment is wrong, or the segment itself: then `offset` is None.

    reason: in words. detail: in numbers.
    """

    check: str
    segment: int
    position: int
    offset: int | None
    reason: str
    detail: dict[str, Any]


class _Leap(NamedTuple):
    """A batch at `position` of a segment has a higher `offset` than `expected`: offsets are missing, or it is wrong.

    follows: the offset of the batch behind it, if its own is wrong. gap: the fault, if offsets are missing; None where
    a compaction may have removed them.
    """

    segment: int
    position: int
    offset: int
    expected: int
    follows: int
    gap: Fault | None


class Integrity:
    """Told of the rows of `batches` of one partition, in the order of the log.

    uncleaned_from: the offset from which on nothing was compacted, None if that isn't known; as a log grows, it does.
    is_replica: the partition may have been filled from another broker. faults: what is sure so far.
    """

    def __init__(self, partition: int, uncleaned_from: int | None, *, is_replica: bool) -> None:
        self.faults: list[Fault] = []
        self.uncleaned_from = uncleaned_from
        self._partition = partition
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
            self._is_sure = False  # bytes in between are no batch: whatever they held is missing
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
        """What is known if no more batches come; should more come, they may be added."""
        faults = [*self.faults]
        if self._leap is not None and self._leap.gap is not None:
            faults.append(self._leap.gap)
        if self._is_replica and self._was_cleaned:
            faults = [each for each in faults if each.check != "offset_gap"]
        return [
            finding(
                each.check, self._partition, each.offset,
                segment=each.segment, position=each.position, **each.detail,
            )
            for each in faults
        ]  # fmt: skip

    def _begin(self, segment: int) -> None:
        """A segment begins behind the one before it; without a gap where nothing was compacted."""
        before, self._segment = self._segment, segment
        expected = self._next_offset
        if before is not None and before < segment < expected:
            reason = f"starts at offset {segment}, the segment before it ends at {expected}"
            self._find("offset_order", segment, 0, None, reason, expected=expected)
            self._starts_early = True
        elif before is not None and self._is_sure and self.uncleaned_from is not None:
            expected = max(expected, self.uncleaned_from)
            if segment > expected:
                self._settle()
                self.faults.append(self._gap(segment, 0, None, expected))
        self._next_offset = max(self._next_offset, segment)
        self._position = 0
        self._is_sure = True

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
                if not self._starts_early:  # that was told
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
        # Go on from here: one step back is one finding.
        self._next_offset = last_offset + 1

    def _settle(self) -> None:
        """The batch in front of which offsets are missing has the right one."""
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
