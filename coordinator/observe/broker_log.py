"""Follows a log file of a broker, line by line, also when it is rotated.

    log = BrokerLog(Path("logs/server.log"))
    for line in log.lines():       # those that came since the last call
        ...

The first call returns the newest BACK_BYTES of the file. log4j renames a full file (server.log.2026-11-27-16) and
begins a new one under its name; then the rest of the old one comes first. If a file is cut to nothing and written anew
(as logrotate's copytruncate does), it is read from its start; what was written just before the cut may be lost. A file
that isn't there yet is waited for. After an error the same file is read on where it was, another one from its start.

House rule: a call reads READ_BYTES at most, so that a large file delays nobody.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from coordinator.log.files import open_regular

BACK_BYTES = 16 * 1024 * 1024
"""How much of a file the first call goes back: some 100,000 lines."""

READ_BYTES = 4 * 1024 * 1024
"""Most bytes that a call reads."""

LINE_MAX = 64 * 1024
"""A longer line is cut here; lines about groups are far shorter."""


class BrokerLog:
    """See the module. problem: why the file can't be read; "" if it can."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._begun = b""
        """The beginning of a line whose end isn't written yet."""
        self._is_first = True
        self._left: tuple[int, int, int] | None = None
        """The file that an error closed, by device and inode, and the position of its next whole line."""
        self.problem = ""

    @property
    def is_behind(self) -> bool:
        """Whether the file has more than was read."""
        return self._file is not None and self._file.tell() < os.fstat(self._file.fileno()).st_size

    def lines(self) -> list[str]:
        """The next whole lines."""
        try:
            data = self._read()
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
            self._leave()
            return []
        self.problem = ""
        *whole, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[:LINE_MAX]
        return [line[:LINE_MAX].decode(errors="replace").rstrip("\r") for line in whole]

    def close(self) -> None:
        """Close the file; the next call opens it again, from its start."""
        file, self._file = self._file, None
        self._begun = b""
        if file is not None:
            file.close()

    def _leave(self) -> None:
        """Close the file after an error, and remember where it was."""
        if self._file is not None:
            with suppress(OSError):
                there = os.fstat(self._file.fileno())
                self._left = there.st_dev, there.st_ino, self._file.tell() - len(self._begun)
        self.close()

    def _read(self) -> bytes:
        if self._file is None:
            self._open()
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size < self._file.tell():  # it was cut
            self._file.seek(0)
            self._begun = b""
        data = self._file.read(READ_BYTES)
        if not data and self._is_renamed():
            # The old file has its last lines by now: nobody writes to it after it got another name.
            rest = self._file.read(READ_BYTES)
            if rest:
                return rest
            begun = self._begun
            self.close()
            self._open()
            self._begun = b""
            return begun + b"\n" if begun else b""
        return data

    def _open(self) -> None:
        # Unbuffered: a buffer would keep bytes of a file that is cut meanwhile.
        self._file = os.fdopen(open_regular(self._path), "rb", buffering=0)
        assert self._file is not None
        there = os.fstat(self._file.fileno())
        left, self._left = self._left, None
        if left is not None and left[:2] == (there.st_dev, there.st_ino) and left[2] <= there.st_size:
            self._file.seek(left[2])
        elif self._is_first:
            size = there.st_size
            if size > BACK_BYTES:
                self._file.seek(size - BACK_BYTES)
                self._file.readline()
        self._is_first = False

    def _is_renamed(self) -> bool:
        """Whether another file has the name now."""
        assert self._file is not None
        try:
            there = self._path.stat()
        except FileNotFoundError:  # between the rename and the new file
            return False
        mine = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)
