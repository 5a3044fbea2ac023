"""`python -m benchmarks.slow serve ...`: `tenure serve` on a disk whose every sync takes SLOW_SYNC_MS longer.

As a volume in a cloud: several syncs at a time take as long as one.

House rule: everything else is the same as `tenure`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from coordinator.cli.main import main
from coordinator.log import store
from coordinator.log.embedded import engine
from coordinator.log.segments.disk import Disk
from coordinator.log.topics import logs

SLOW_SYNC_MS = 2.0


class SlowDisk(Disk):
    """The disk of the module's docstring."""

    def __init__(self) -> None:
        self._more_s = float(os.environ.get("SLOW_SYNC_MS", SLOW_SYNC_MS)) / 1000

    def fdatasync(self, descriptor: int) -> None:
        """See Disk."""
        super().fdatasync(descriptor)
        time.sleep(self._more_s)

    def sync_folder(self, folder: Path) -> None:
        """See Disk."""
        super().sync_folder(folder)
        time.sleep(self._more_s)


if __name__ == "__main__":
    for module in (engine, logs, store):
        module.Disk = SlowDisk  # type: ignore[attr-defined]
    main()
