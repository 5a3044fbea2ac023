"""The end of a log after a crash: which damage is a torn tail, and how it is cut off.

A crash may interrupt a write, and leave a part of it at the end of the newest segment. That part may be removed: the
writer never reported success. Bytes that were durable must never be removed: their records were acknowledged. So a
tail is cut off only if all of this is true:

- it is in the newest segment, behind all bytes that this process knows to be durable;
- its batch fails its CRC: a batch with the right CRC was written whole, and changed later;
- no batch with a right CRC and an offset that could follow stands behind it: writes go from front to back;
- the rest of the file, taken as that batch whatever its length and magic say, fails the CRC as well.

All other damage raises Damaged, and no byte changes. A last batch that was written whole and changed later looks like
a torn one. So the bytes that are cut off are kept beside the log, in the file LAST_CUT, for a person to look at.

House rule: whether bytes are cut off is decided in here and in damage.py, for logs of groups and of topics alike.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.log.engine import Damaged
from coordinator.log.segments.damage import why_not_torn
from coordinator.log.segments.disk import Disk, closing, open_anew, write_all
from coordinator.log.segments.segment import Segment
from protocol.records.batch import CorruptBatch, Header

LAST_CUT = "last.cut"
"""The file, in a partition's folder, with the tail that was cut off there last. No program reads it, nor does Kafka."""

KEPT_MAX = 4 * 1024 * 1024
"""Bytes of a tail that are kept at most: a batch is hardly larger (message.max.bytes), but garbage may be."""


class Durable(NamedTuple):
    """The durable part of a log, as far as it is known: the first `size` bytes of `segment`, and all before it."""

    segment: Segment
    size: int


Cut = Callable[[Path, int, int], None]
"""Called with (file, position, size) when a torn tail was cut off."""


class Tails:
    """Cuts torn tails off the log in `folder`. durable: None if nothing is known to be durable."""

    def __init__(self, disk: Disk, folder: Path, durable: Durable | None, cut: Cut) -> None:
        self._disk = disk
        self._folder = folder
        self._durable = durable
        self._cut = cut

    def cut_off(
        self,
        segment: Segment,
        descriptor: int,
        size: int,
        error: CorruptBatch,
        could_follow: Callable[[Header], bool],
        *,
        is_newest: bool,
    ) -> None:
        """Cut the open file of `segment`, of `size` bytes, where `error` says. Raises Damaged if it isn't torn there.

        could_follow: whether the header of a batch makes sense behind the last whole batch. Raises OSError as well.
        """
        position = error.position
        why = self._why_not(segment, descriptor, position, size, could_follow, is_newest=is_newest)
        if why is not None:
            raise Damaged(str(segment.path), position, f"{error.reason}; {why}") from error
        self._keep(descriptor, position, size)
        self._disk.truncate(descriptor, position)
        self._cut(segment.path, position, size - position)

    def _why_not(
        self,
        segment: Segment,
        descriptor: int,
        position: int,
        size: int,
        could_follow: Callable[[Header], bool],
        *,
        is_newest: bool,
    ) -> str | None:
        """Why damage can't come from an interrupted write; None if it can."""
        if not is_newest:
            return "newer segments exist"
        if self._durable is not None and (segment.base_offset, position) < (
            self._durable.segment.base_offset,
            self._durable.size,
        ):
            return "it was durable"
        return why_not_torn(self._disk, descriptor, position, size, could_follow)

    def _keep(self, descriptor: int, position: int, size: int) -> None:
        """Replace the file LAST_CUT by the bytes that are cut off; an error of the disk doesn't stop the load."""
        with suppress(OSError):
            tail = self._disk.read(descriptor, min(KEPT_MAX, size - position), position)
            with closing(self._disk, open_anew(self._disk, self._folder / LAST_CUT)) as kept:
                write_all(self._disk, kept, [tail], 0)
