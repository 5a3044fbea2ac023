"""A temporary folder of this process.

House rule: a process that was forked from the one that made a folder never removes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize


class Scratch:
    """See the module. path: of the folder. It goes with `remove`, or when its process ends."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="tenure-"))
        self.remove = finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, process_id: int) -> None:
    if os.getpid() == process_id:
        rmtree(path, ignore_errors=True)
