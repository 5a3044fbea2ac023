"""Ids of idempotent producers: each is given out once in a data folder, by whichever worker.

A lock file of the folder notes the end of the block of ids that was taken last. A worker takes a block, and gives its
ids out one by one; a restart skips the rest of a block.

House rule: a block is given out only after its note is durable.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.config import INT64_MAX
from coordinator.log.engine import Unavailable
from coordinator.log.segments.disk import Disk, reason
from coordinator.log.segments.lock import Lock

IDS_PER_BLOCK = 1000
"""As in Kafka."""

PRODUCER_IDS_NAME = ".producer-ids"


class ProducerIds:
    """The ids of the folder `data_dir`."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._next_id = self._ids_end = 0

    def take(self, now_ms: int) -> int:
        """Return an id that was never given out in this folder. Raises EngineError.

        The note may be lost, or may come from an older copy of the folder. So a block starts at the current time in
        ms, unless the note is higher: no server takes a block each second for as long as the clock runs.
        """
        if self._next_id == self._ids_end:
            try:
                lock = Lock(self._disk, self._data_dir / PRODUCER_IDS_NAME)
            except BlockingIOError as error:
                raise Unavailable("another worker takes producer ids at this moment") from error
            except OSError as error:
                raise Unavailable(reason(error)) from error
            try:
                noted = lock.read_number() or 0
                # No server counts up to such a number: it is no note, and no id behind it would fit its field.
                first = max(noted if noted <= INT64_MAX - IDS_PER_BLOCK else 0, now_ms)
                lock.note_number(first + IDS_PER_BLOCK)
                lock.sync()
                self._disk.sync_folder(self._data_dir)
            except OSError as error:
                raise Unavailable(reason(error)) from error
            finally:
                lock.release()
            self._next_id, self._ids_end = first, first + IDS_PER_BLOCK
        self._next_id += 1
        return self._next_id - 1
