"""The right to write to a partition, as this engine gives it out: a lock, an epoch, a log.

The lock file of a partition notes the last epoch. A new owner's epoch is higher, and therefore higher than the epoch of
each earlier owner, even of one that appended nothing. A crash of the machine may lose the note, and an operator may
copy a log from elsewhere. In these cases the first load reads the epochs of the batches, and raises the owner's epoch
above them before the first append. An epoch whose owner appended nothing may then be given out twice. So may EPOCH_MAX:
behind it all owners have the same one. The lock keeps them apart, and the epochs in the log never fall.

House rule: the owner of a valid `Owned` holds the lock of its partition.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from coordinator.log.embedded.report import Availability
from coordinator.log.embedded.upkeep import Upkeep
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.segments.partition import EPOCH_MAX, PartitionLog


class Owned:
    """An ownership, and what it consists of: the partition's lock, its log, and its upkeep (None: no compaction).

    number: of the partition in journals (`journal_number`). availability: gets to know that its disk fails, or works.
    reported_epoch: the epoch in the last report; a load may have raised the epoch since.
    """

    lapses = 0
    """See Ownership. The lock holds until the process ends."""

    __slots__ = ("_is_valid", "availability", "lock", "log", "number", "partition", "reported_epoch", "upkeep")

    def __init__(
        self,
        partition: int,
        number: int,
        lock: Lock,
        log: PartitionLog,
        upkeep: Upkeep | None,
        availability: Availability,
    ) -> None:
        self.partition = partition
        self.number = number
        self.availability = availability
        self.reported_epoch = log.epoch
        self.lock = lock
        self.log = log
        self.upkeep = upkeep
        self._is_valid = True

    @property
    def epoch(self) -> int:
        """See Ownership."""
        return self.log.epoch

    def valid(self) -> bool:
        """See Ownership."""
        return self._is_valid

    def end(self) -> None:
        """Take no more appends; keep the lock."""
        self._is_valid = False
        self.log.close("it was given up")

    def release_lock(self) -> None:
        """Release the lock."""
        with suppress(OSError):  # even if close fails, the system has released the lock
            self.lock.release()


def lock_partition(disk: Disk, path: Path) -> tuple[Lock, int]:
    """Lock a partition by its lock file, and note the next epoch; return both.

    Raises BlockingIOError if another process holds the lock, OSError.
    """
    lock = Lock(disk, path)
    try:
        noted = lock.read_number()
        # A number that is no epoch is no note: see above.
        epoch = 0 if noted is None or noted > EPOCH_MAX else min(noted + 1, EPOCH_MAX)
        lock.note_number(epoch)
    except BaseException:
        lock.release()
        raise
    return lock, epoch
