"""Keeps what an audit knows of a log that grows, from one look to the next and over restarts.

It feeds the checks of a whole log with new rows. After each look it asks them for findings as if the log ended there.
After all looks they are those of an audit of the whole log, without `__rebalance_events` and `__transaction_state`,
which nothing here reads. Each finding is there once.

A record of an open transaction waits, and so do later records of its group, as the checks need the order of the log. A
marker in a later look ends the wait. Until then the record counts as never committed. If WAITING_MAX records of a group
wait, this is final: a transaction may have no end.

`_StateFile` keeps all of it in one SQLite file, with one transaction and the number of the look for each look. A stream
that starts again may repeat a look; a number that the file has changes nothing.

House rule: nothing is checked here.
"""

from __future__ import annotations

import copy
import pickle
import sqlite3
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from coordinator.audit.audit import (
    FINDINGS_FILE,
    AuditResult,
    NothingRead,
    PartitionChecks,
    finish,
    notes_of,
)
from coordinator.audit.check.integrity import Integrity
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.batches import MARKER_KIND
from coordinator.audit.read.logs import is_committed, look, uncleaned_from
from coordinator.audit.read.parse import Row
from coordinator.audit.read.tables import SCHEMAS, to_rows
from coordinator.audit.show.summary import SUMMARY_FILE, write_summary
from coordinator.log.segments.outside import JournalsBeside, opened, size_of
from coordinator.story.counts import number_text
from protocol.records.batch import CONTROL

DIGESTED = ("batches", "other", "records")
"""The tables that `Followed.add` takes."""

WAITING_MAX = 100_000
"""Records of a group that wait for the end of a transaction; some hundred bytes each, more for large groups."""

Part = tuple[int, dict[str, pa.RecordBatch]]
"""A partition, and its new rows in these tables."""

_ENDS = {"commit": True, "abort": False}
"""The reason in a marker's row of `other` -> whether the records of its transaction count."""

_Markers = dict[int, list[tuple[int, bool]]]
"""Producer id -> (offset, committed) of the ends of its transactions, ascending."""

_SEGMENT_AT, _POSITION_AT, _ATTRS_AT, _BATCH_PRODUCER_AT = (
    SCHEMAS["batches"].get_field_index(name) for name in ("segment", "position", "attrs", "producer_id")
)
_RECORD_OFFSET_AT, _GROUP_AT, _PRODUCER_AT = (
    SCHEMAS["records"].get_field_index(name) for name in ("offset", "group", "producer_id")
)


class Followed:
    """A partition: its checks, and the records that wait.

    waiting: by group, the records from the first open one on; each with True if it counts, and False if its transaction
    is open.
    """

    def __init__(self, partition: int, limits: Limits, *, is_replica: bool) -> None:
        self.partition = partition
        self.checks = PartitionChecks(Integrity(partition, None, is_replica=is_replica), limits)
        self.waiting: dict[str, deque[tuple[Row, bool]]] = {}

    def add(self, tables: dict[str, pa.RecordBatch], result: AuditResult) -> None:
        """Take the next rows of the log."""
        batches, others, records = (to_rows(tables[table]) for table in DIGESTED)
        self.checks.add_batches(batches, result)
        result.add_others(others)
        result.count_records(records)
        markers = _markers(batches, others)
        if markers:
            for group in list(self.waiting):
                self._go_on(group, markers)
        for row in records:
            self._add(row, markers)
            if len(self.waiting.get(row[_GROUP_AT], ())) > WAITING_MAX:
                self._give_up(row[_GROUP_AT], result)

    def report(self, result: AuditResult) -> None:
        """Add the findings as if the log ended here: records of open transactions don't count."""
        checks = copy.copy(self.checks)
        checks.histories, checks.pending = dict(checks.histories), {}
        for group, rows in self.waiting.items():
            settled = []
            for row, counts in rows:
                if counts:
                    settled.append(row)
                else:
                    checks.add_record(row, counts=None)
            if settled:
                history = checks.histories.get(group)
                checks.histories[group] = checks.new_history(group) if history is None else copy.deepcopy(history)
            for row in settled:
                checks.add_record(row)
        checks.report(result)

    def _add(self, row: Row, markers: _Markers) -> None:
        group = row[_GROUP_AT]
        counts = _counts(row, markers)
        if counts is False:
            return
        if counts is None or group in self.waiting:
            self.waiting.setdefault(group, deque()).append((row, counts is True))
        else:
            self.checks.add_record(row)

    def _give_up(self, group: str, result: AuditResult) -> None:
        """Check all waiting records of a group; those of open transactions count as never committed."""
        for row, settled in self.waiting.pop(group):
            if settled:
                self.checks.add_record(row)
        note = (
            f"{group}: {number_text(WAITING_MAX, 'record')} came while a transaction was open: "
            "its own are taken for never committed"
        )
        if note not in result.notes:
            result.notes.append(note)

    def _go_on(self, group: str, markers: _Markers) -> None:
        """Check the waiting records of a group that stand before its first open one."""
        left: deque[tuple[Row, bool]] = deque()
        for row, settled in self.waiting.pop(group):
            counts = settled or _counts(row, markers)
            if counts is None or (counts and left):
                left.append((row, counts is True))
            elif counts:
                self.checks.add_record(row)
        if left:
            self.waiting[group] = left


def _counts(row: Row, markers: _Markers) -> bool | None:
    """Whether a row of `records` counts; None if its transaction is open."""
    producer_id = row[_PRODUCER_AT]
    return True if producer_id is None else is_committed(markers, producer_id, row[_RECORD_OFFSET_AT])


def _markers(batches: Iterable[Row], others: Iterable[Row]) -> _Markers:
    """The ends of transactions among these rows: `other` has the outcome, `batches` the producer."""
    producers = {
        (row[_SEGMENT_AT], row[_POSITION_AT]): row[_BATCH_PRODUCER_AT] for row in batches if row[_ATTRS_AT] & CONTROL
    }
    markers: _Markers = {}
    for _partition, segment, position, offset, _ts, kind, _version, _group, _size, reason in others:
        if kind == MARKER_KIND and reason in _ENDS:
            markers.setdefault(producers[segment, position], []).append((offset, _ENDS[reason]))
    return markers


class _Known:
    """The state in the file that belongs to no partition.

    number: of the last look. limits: as the user gave them. partition_count: as the log shows it. rows: the results
    that need no history.
    """

    def __init__(self, limits: Limits, partition_count: int | None) -> None:
        self.version = version("tenure")
        self.number = -1
        self.limits = limits
        self.partition_count = partition_count
        self.rows = AuditResult("")


class Following:
    """An audit of the log at `path` up to the last look; `file` keeps it.

    Raises NothingRead if the file is of another version or has other limits; OSError.
    """

    def __init__(self, path: Path, file: Path, limits: Limits) -> None:
        self._path = path
        self._file = _StateFile(file)
        self._partitions: dict[int, Followed] = {}
        self._results: dict[int, AuditResult] = {}
        loaded = self._file.load()
        if loaded is None:
            self._known = _Known(limits, look(path, limits.partition_count).partition_count)
            return
        self._known, self._partitions = loaded
        if self._known.limits != limits:
            raise NothingRead(f"{file}: it was begun with other limits: give the same ones, or another --out")

    def take(self, number: int, parts: Iterable[Part]) -> None:
        """Take the new rows of a look; the rows of a partition are in the order of its log.

        number: of the look; a known number changes nothing. Raises NothingRead if a look is missing, OSError.
        """
        known = self._known
        if number <= known.number:
            return
        if number != known.number + 1:
            raise NothingRead(f"{self._path}: what was found up to look {number - 1} isn't there: name another --out")
        limits = known.limits._replace(partition_count=known.partition_count)
        found = look(self._path)
        logs = {log.partition: log for log in found.logs}
        journals = JournalsBeside()
        touched: set[int] = set()
        for partition, tables in parts:
            if partition not in logs:
                raise NothingRead(f"{self._path}: the folder of partition {partition} is gone")
            followed = self._partitions.get(partition)
            if followed is None:
                followed = self._partitions[partition] = Followed(partition, limits, is_replica=found.is_replica)
            if partition not in touched:
                touched.add(partition)
                with opened(logs[partition], journals) as segments:
                    if segments:
                        followed.checks.integrity.uncleaned_from = uncleaned_from(logs[partition], segments)
            followed.add(tables, known.rows)
        known.number = number
        self._file.save(known, [self._partitions[partition] for partition in touched])
        for partition in touched:
            self._results.pop(partition, None)

    def result(self, out: Path | None = None) -> AuditResult:
        """The result as if the log ended here; the findings are written below `out`. Raises OSError."""
        known = self._known
        planned = look(self._path, known.partition_count)
        for log in planned.logs:
            assert log.partition is not None
            planned.sizes[log.partition] = size_of([log])
        result = copy.deepcopy(known.rows)
        result.source, result.sizes = str(self._path), planned.sizes
        result.notes += notes_of(planned)
        for partition, followed in self._partitions.items():
            of_partition = self._results.get(partition)
            if of_partition is None:
                of_partition = self._results[partition] = AuditResult("")
                followed.report(of_partition)
            result.merge(of_partition)
        finish(result, out, doubts_count=known.limits.partition_count is None and planned.is_replica)
        return result

    def write(self, out: Path, scratch: Path) -> None:
        """Replace findings and summary, each file in one step. Raises OSError."""
        result = self.result(scratch)
        write_summary(scratch, result)
        for name in (FINDINGS_FILE, SUMMARY_FILE):
            (scratch / name).replace(out / name)


class _StateFile:
    """The file that keeps everything."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> tuple[_Known, dict[int, Followed]] | None:
        """The last saved state; None if there is none. Raises NothingRead."""
        if not self._path.exists():
            return None
        try:
            with closing(sqlite3.connect(self._path)) as file:
                rows = dict(file.execute("SELECT name, data FROM kept"))
            # A user who can write this file can also change our code.
            known: _Known = pickle.loads(rows.pop(_KNOWN))  # noqa: S301
            if known.version == version("tenure"):
                return known, {name: pickle.loads(data) for name, data in rows.items()}  # noqa: S301
        except (sqlite3.Error, pickle.UnpicklingError, AttributeError, ImportError, KeyError) as error:
            raise NothingRead(f"{self._path}: {error}: name another --out") from error
        raise NothingRead(f"{self._path}: it is of version {known.version}: name another --out")

    def save(self, known: _Known, partitions: Iterable[Followed]) -> None:
        """Save what is known beside the partitions, and the changed partitions, all or nothing."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        changed = [(_KNOWN, pickle.dumps(known)), *((each.partition, pickle.dumps(each)) for each in partitions)]
        with closing(sqlite3.connect(self._path)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS kept (name INTEGER PRIMARY KEY, data BLOB)")
            file.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", changed)


_KNOWN = -1
"""The key of what is known beside the partitions."""
