"""`python -m tests.support.hanging serve ...`: `tenure serve` on a disk that never comes back where events are kept.

That is: from the first event on, fdatasync of a file below a folder `__rebalance_events-N` takes as long as the process
lives; everything else of the data folder works.

House rule: nothing but that differs from `tenure`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from coordinator.cli.main import main
from coordinator.log.segments.disk import Disk
from coordinator.log.topics import logs

EVENTS = "__rebalance_events-"


class HangingDisk(Disk):
    """See the module. hangs_in: how the names of the folders begin in which it never comes back."""

    def __init__(self, hangs_in: str = EVENTS) -> None:
        self._hangs_in = hangs_in
        self._hanging: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> int:
        """See Disk."""
        descriptor = super().open(path, create=create)
        hangs = path.parent.name.startswith(self._hangs_in)
        (self._hanging.add if hangs else self._hanging.discard)(descriptor)
        return descriptor

    def fdatasync(self, descriptor: int) -> None:
        """See Disk."""
        if descriptor in self._hanging:
            threading.Event().wait()
        super().fdatasync(descriptor)


if __name__ == "__main__":
    logs.Disk = HangingDisk  # type: ignore[attr-defined]
    main()
