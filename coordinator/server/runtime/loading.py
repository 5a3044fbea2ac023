"""A load: the records of a partition become groups, some at a time.

The engine hands over pages of records on its own thread; there only the last record of each key is kept. The loop's
thread then decodes about LOADED_AT_ONCE groups, members and offsets at a time, and answers requests in between.

House rule: no exception leaves the engine's thread. A load knows neither engine nor partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from coordinator.group.events import Load
from coordinator.group.records import NEWER_KINDS
from coordinator.group.replay import DECODED_AT_ONCE
from coordinator.log.engine import EngineError
from coordinator.server.runtime.kinds import Reader
from protocol.errors import ProtocolError
from protocol.records.batch import Record

LOADED_AT_ONCE = 100
"""Groups, members and offsets that a load decodes at a time. That takes one or two ms, in which no request is answered.
"""


class Unreadable(EngineError):
    """The log is in order, but its records can't be decoded."""


class Loading:
    """A load under way. write_failed, before: as in the event `Load`."""

    def __init__(self, reader: Reader, *, write_failed: bool, before: Collection[str]) -> None:
        self._reader = reader
        self._write_failed = write_failed
        self._before = before
        self._error: ProtocolError | None = None
        self._groups: Iterator[Any] | None = None

    @property
    def skipped(self) -> dict[str, int]:
        """How many records it left out, by their kind: their groups are of protocols that nobody serves here."""
        skipped = self._reader.skipped
        return {NEWER_KINDS.get(version, f"key version {version}"): skipped[version] for version in sorted(skipped)}

    def page(self, records: list[Record]) -> None:
        """Take the next records, on the engine's thread."""
        if self._error is None:
            try:
                self._reader.add(records)
            except ProtocolError as error:
                self._error = error

    def next(self) -> Load | None:
        """The next groups, once all records are there; None if the next call goes on. Raises Unreadable."""
        try:
            groups, is_last = self._next_groups()
        except ProtocolError as error:
            raise Unreadable(f"it holds a record that can't be read: {error}") from error
        if groups:
            return Load(groups, is_last=False, write_failed=self._write_failed)
        return Load({}, write_failed=self._write_failed, before=self._before) if is_last else None

    def _next_groups(self) -> tuple[dict[str, Any], bool]:
        """The next groups by id, about LOADED_AT_ONCE parts, and whether there are no more. Raises ProtocolError."""
        if self._error is not None:
            raise self._error
        if self._groups is None:
            self._groups = self._reader.groups_in_steps()
        groups: dict[str, Any] = {}
        parts = 0
        for group in self._groups:
            if group is None:
                parts += DECODED_AT_ONCE
            else:
                groups[group.group_id] = group
                parts += self._reader.size_of(group)
            if parts >= LOADED_AT_ONCE:
                return groups, False
        return groups, True
