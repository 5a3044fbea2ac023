"""The checks on the batches of one partition: whether offsets and epochs are in order, and whether any are missing.

Compaction leaves gaps, and nothing in the bytes tells such a gap from a lost batch. So a gap counts only where no
compaction can have been: in the newest segment, which neither Kafka nor Tenure ever compacts, and in a broker's
segments behind the offset up to which, by its own checkpoint, it has cleaned.

A broker's replica may have been filled from a leader that had compacted, and then it has gaps everywhere. Such a leader
leaves other traces, too: batches that hold fewer records than offsets, and segments that begin behind their name. Where
a replica has any of them, its gaps are no findings.

House rule: a damaged batch is one finding, and what follows from it is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.audit.check.checks import Finding, finding
from coordinator.audit.read.parse import Row


class Integrity:
    """Told of the rows of `batches` of one partition, in the order of the log.

    uncleaned_from: base offset of the first segment that was never compacted, None if that isn't known; as a log grows,
    it does. is_replica: the partition may have been filled from another broker.
    """

    def __init__(self, partition: int, uncleaned_from: int | None, *, is_replica: bool) -> None:
        self._found: list[Finding] = []
        self._partition = partition
        self._is_replica = is_replica
        self._was_cleaned = False
        self.uncleaned_from = uncleaned_from
        self._segment: int | None = None
        self._next_offset = 0
        self._position = 0
        self._epoch = -1
        self._trusted = True

    def add(self, row: Row) -> None:
        """Take the next batch."""
        (
            _partition, segment, position, length, base_offset, last_offset, _attrs, _codec, _producer_id, epoch,
            _max_ts, _crc, crc_ok, _producer_epoch, record_count,
        ) = row  # fmt: skip
        if crc_ok and (record_count <= last_offset - base_offset or (position == 0 and base_offset > segment)):
            self._was_cleaned = True
        if segment != self._segment:
            self._segment = segment
            self._position = 0
            self._next_offset = max(self._next_offset, segment)
            self._trusted = True
        if position != self._position:
            self._trusted = False  # bytes in between are no batch: whatever they held is missing
        self._position = position + length
        if not crc_ok:
            self._trusted = False
            return
        if base_offset < self._next_offset:
            self._find("offset_order", base_offset, segment, position, expected=self._next_offset)
        elif base_offset > self._next_offset and self._trusted and self._never_cleaned(segment):
            self._find(
                "offset_gap", base_offset, segment, position, expected=self._next_offset, replica=self._is_replica
            )
        # From here on, whatever was before: one step back is one finding.
        self._next_offset = last_offset + 1
        if epoch < self._epoch:
            self._find("epoch_order", base_offset, segment, position, epoch=epoch, before=self._epoch)
        self._epoch = epoch
        self._trusted = True

    def finish(self) -> list[Finding]:
        """What was found."""
        if self._is_replica and self._was_cleaned:
            return [each for each in self._found if each.check != "offset_gap"]
        return self._found

    def _never_cleaned(self, segment: int) -> bool:
        return self.uncleaned_from is not None and segment >= self.uncleaned_from

    def _find(self, check: str, offset: int, segment: int, position: int, **detail: int) -> None:
        self._found.append(finding(check, self._partition, offset, segment=segment, position=position, **detail))


def check_batches(
    partition: int, uncleaned_from: int | None, rows: Iterable[Row], *, is_replica: bool
) -> list[Finding]:
    """All findings about a partition's batches."""
    integrity = Integrity(partition, uncleaned_from, is_replica=is_replica)
    for row in rows:
        integrity.add(row)
    return integrity.finish()
