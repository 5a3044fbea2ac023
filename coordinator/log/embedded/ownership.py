"""The right to write to a partition, as this engine gives it out: a lock, an epoch, a log.

An owner's epoch is higher than the one that the partition's lock file notes, and so higher than that of each owner
before, whether that one appended anything or not. A crash of the machine may lose the note, and a log may come from
elsewhere. Then the first load finds the epochs of the batches, and raises the owner's above them before anything is
appended; in this case an epoch whose owner appended nothing may be given out twice.

House rule: the owner of a valid `Owned` holds the lock of its partition.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from coordinator.log.embedded.upkeep import Upkeep
from coordinator.log.engine import Damaged, Fenced
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock
from coordinator.log.segments.partition import EPOCH_MAX, PartitionLog


class Owned:
    """An ownership, and what its owner holds: the lock on the partition, the log, and its upkeep, if it has any.

    reported_epoch: the one that was reported last; a load may have raised the epoch since.
    """

    __slots__ = ("_is_valid", "lock", "log", "partition", "reported_epoch", "upkeep")

    def __init__(self, partition: int, lock: Lock, log: PartitionLog, upkeep: Upkeep | None) -> None:
        self.partition = partition
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
        """Take no more appends; the lock is still held."""
        self._is_valid = False
        self.log.close("it was given up")

    def let_go(self) -> None:
        """Give the lock back."""
        with suppress(OSError):  # whatever close says, the system has released the lock
            self.lock.release()


def lock_partition(disk: Disk, data_dir: Path, partition: int) -> tuple[Lock, int]:
    """Lock the partition, and note the next epoch; return both.

    Raises BlockingIOError if another process holds the lock, Damaged if there is no higher epoch, OSError.
    """
    path = data_dir / f".lock-{partition}"
    lock = Lock(disk, path)
    try:
        noted = lock.read_number()
        epoch = 0 if noted is None else noted + 1
        if epoch > EPOCH_MAX:
            raise Damaged(str(path), 0, f"epoch {EPOCH_MAX} was the last there is")
        lock.note_number(epoch)
    except BaseException:
        lock.release()
        raise
    return lock, epoch


def fenced(own: Owned) -> Fenced:
    """The error for a call with an ownership that is over."""
    return Fenced(f"the ownership of partition {own.partition} at epoch {own.epoch} is over")
