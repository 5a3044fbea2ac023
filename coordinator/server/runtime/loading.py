"""A load: the records of a partition become groups, some at a time.

The engine hands over pages of records on its own thread; there only the last record of each key is kept. The loop's
thread then decodes about LOADED_AT_ONCE groups, members and offsets at a time, and answers requests in between.

House rule: no exception leaves the engine's thread. A load does nothing if its partition awaits another one, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from coordinator.group.events import Load
from coordinator.group.records import NEWER_KINDS
from coordinator.group.replay import DECODED_AT_ONCE
from coordinator.log.engine import Engine, EngineError, Ownership
from coordinator.loop.clock import Arguments
from coordinator.loop.lines import Lines
from coordinator.server.runtime.kinds import LogKind
from protocol.errors import ProtocolError
from protocol.records.batch import Record

LOADED_AT_ONCE = 100
"""Groups, members and offsets that a load decodes at a time. That takes one or two ms, in which no request is answered.
"""


class Unreadable(EngineError):
    """The log is in order, but its records can't be decoded."""


class Loaded(Protocol):
    """The methods of a partition that its load calls."""

    index: int
    name: str

    def awaits(self, load: Loading) -> bool:
        """Whether the partition awaits this load."""

    def take(self, load: Load) -> None:
        """Hand groups to the coordinator."""

    def can_not_load(self, error: EngineError) -> None:
        """The partition can't be served."""


class LoadHost(Protocol):
    """The methods of the runtime that a load calls."""

    engine: Engine
    kind: LogKind
    lines: Lines

    def hop(self, function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Have the loop's thread call `function`. Any thread may call this."""


class Loading:
    """A load under way. write_failed, before: as in the event `Load`."""

    def __init__(
        self, partition: Loaded, host: LoadHost, *, write_failed: bool = False, before: Collection[str] = ()
    ) -> None:
        self._partition = partition
        self._host = host
        self._write_failed = write_failed
        self._before = before
        self._reader = host.kind.reader()
        self._error: ProtocolError | None = None
        self._groups: Iterator[Any] | None = None

    def start(self, own: Ownership) -> None:
        """Begin to read. own: the ownership of the partition."""
        self._host.engine.load(own, self._page, lambda error: self._host.hop(self._read, error))

    def _page(self, records: list[Record]) -> None:
        """Take the next records, on the engine's thread."""
        if self._error is None:
            try:
                self._reader.add(records)
            except ProtocolError as error:
                self._error = error

    def _read(self, error: EngineError | None) -> None:
        """The engine has read all records, or failed."""
        if self._partition.awaits(self):
            if error is not None:
                self._partition.can_not_load(error)
            else:
                self._take_groups()

    def _take_groups(self) -> None:
        """Hand the next groups over, then let the loop have its turn."""
        if not self._partition.awaits(self):
            return
        try:
            groups, is_last = self._next_groups()
        except ProtocolError as error:
            self._partition.can_not_load(Unreadable(f"it holds a record that can't be read: {error}"))
            return
        if groups:
            self._partition.take(Load(groups, is_last=False, write_failed=self._write_failed))
        if groups or not is_last:
            self._host.hop(self._take_groups)
        else:
            self._say_skipped()
            self._partition.take(Load({}, write_failed=self._write_failed, before=self._before))

    def _say_skipped(self) -> None:
        """Log which records were skipped: this coordinator doesn't know their kind, but a person may look for them."""
        skipped = self._reader.skipped
        kinds = {NEWER_KINDS.get(version, f"key version {version}"): skipped[version] for version in sorted(skipped)}
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            text = f"skipped {sum(kinds.values())} records of groups that this coordinator doesn't serve: {counts}"
            name, index = self._partition.name, self._partition.index
            self._host.lines.warn("records_skipped", f"{name}: {text}", partition=index, records=kinds)

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
