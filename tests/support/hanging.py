"""`python -m tests.support.hanging serve ...`: `tenure serve` with a disk that hangs in the topic of events.

From the first event on, fdatasync of a file below a folder `__rebalance_events-N` never returns. The rest of the data
folder works.

House rule: everything else is the same as `tenure`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from coordinator.cli.main import main
from coordinator.log.segments.disk import Disk
from coordinator.log.topics import logs

EVENTS = "__rebalance_events-"


class HangingDisk(Disk):
    """The disk of the module's docstring. hangs_in: the beginning of the names of folders in which fdatasync hangs."""

    def __init__(self, hangs_in: str = EVENTS) -> None:
        self._hangs_in = hangs_in
        self._hanging: set[int] = set()

    def open(self, path: Path, *, create: bool = False, anew: bool = False) -> int:
        """See Disk."""
        descriptor = super().open(path, create=create, anew=anew)
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
