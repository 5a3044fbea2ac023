"""The audit in one process: it reads each partition once and puts the results together.

It opens all files of a partition at once, so it reads the partition as it was at one moment. It reads byte ranges one
after the other. Memory holds one range, the last record of each group of one partition, and the results; with `before`
also the keys of a partition.

House rule: integrity, history and compaction decide; this module only feeds them.
"""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.audit.check.checks import Finding, finding_of
from coordinator.audit.check.compaction import LastRecord, PartitionKey, lost_keys, note_last
from coordinator.audit.check.history import History, Story
from coordinator.audit.check.integrity import Integrity
from coordinator.audit.check.limits import Limits
from coordinator.audit.check.transactions import Pending, Producers, id_findings
from coordinator.audit.read.columns import read_tables
from coordinator.audit.read.events import RecordedEvents, read_events
from coordinator.audit.read.ids import Ids, read_ids
from coordinator.audit.read.logs import Plan, look, plan_partition
from coordinator.audit.read.parse import NOT_RECORDS, TABLES, Row
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows
from coordinator.log.segments.outside import JournalsBeside, opened
from coordinator.story.records.values import RECORD_KINDS
from coordinator.text import names_text

TABLES_FOLDER = "tables"
CHECKED = ("batches", "records", "other")
"""The tables that the checks need."""
FINDINGS_FILE = "findings.parquet"
NO_COUNT = "not checked: whether groups are on the right partition; --partitions sets how many there are"
SPARKS_OWN = ("part-", "_", ".")
"""How the names begin in the folder of a table that Spark wrote."""
OTHER_KIND_AT = SCHEMAS["other"].get_field_index("kind")
_MAX_TS_AT, _CRC_OK_AT = (SCHEMAS["batches"].get_field_index(name) for name in ("max_ts", "crc_ok"))
_PARTITION_AT, _OFFSET_AT, _KIND_AT, _GROUP_AT, _PRODUCER_AT = (
    SCHEMAS["records"].get_field_index(name) for name in ("partition", "offset", "kind", "group", "producer_id")
)

FINDINGS_KEPT = 50_000
"""Findings of a check that a result holds: a damaged file may have millions."""

Progress = Callable[[int], None]
"""Called with the number of bytes that were read since the last call."""


@dataclass
class AuditResult:
    """The result of an audit.

    findings: of each check the first FINDINGS_KEPT, by partition and offset; left_out: how many more there were.
    stories: of each group and partition, by name. records_by_type: how many records of each kind. sizes: bytes by
    partition. ends_ms: by partition, the time of its last record that can be believed. notes: sentences for the user
    that are no findings.
    """

    source: str
    findings: list[Finding] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    stories: list[Story] = field(default_factory=list)
    records_by_type: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    ends_ms: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    notes: list[str] = field(default_factory=list)
    _held_max: int = field(default=2 * FINDINGS_KEPT, compare=False, repr=False)

    @property
    def counts(self) -> Counter[str]:
        """How often each check found something."""
        return Counter(each.check for each in self.findings) + self.left_out

    def find(self, found: Iterable[Finding]) -> None:
        """Take findings, in any order."""
        self.findings += found
        if len(self.findings) > self._held_max:
            self.sort_findings()

    def count_records(self, rows: Iterable[Row]) -> None:
        """Count rows of `records` that aren't in `other` as well, by their kind."""
        self.records_by_type.update(row[_KIND_AT] for row in rows if row[_KIND_AT] in RECORD_KINDS)

    def add_others(self, rows: Iterable[Row]) -> None:
        """Take rows of `other`: count the records, and find what can't be read."""
        for row in rows:
            found = finding_of(row)
            if found is not None:
                self.find([found])
            if row[OTHER_KIND_AT] not in NOT_RECORDS:
                self.records_by_type[row[OTHER_KIND_AT]] += 1

    def merge(self, part: AuditResult) -> None:
        """Take the result about other rows of the same log."""
        self.find(part.findings)
        self.left_out.update(part.left_out)
        self.stories += part.stories
        self.records_by_type.update(part.records_by_type)
        self.batches += part.batches
        self.ends_ms |= part.ends_ms

    def sort_findings(self) -> None:
        """Sort the findings, independent of the order in which they came, and drop those above the limit."""
        self.findings.sort(
            key=lambda each: (each.check, each.partition, -1 if each.offset is None else each.offset, each.detail)
        )
        kept: list[Finding] = []
        for check, found in groupby(self.findings, attrgetter("check")):
            of_check = list(found)
            kept += of_check[:FINDINGS_KEPT]
            if len(of_check) > FINDINGS_KEPT:
                self.left_out[check] += len(of_check) - FINDINGS_KEPT
        self.findings = kept
        self._held_max = len(kept) + 2 * FINDINGS_KEPT


class NothingRead(Exception):
    """There is no log, or nothing of it can be read; the text is for people."""


@contextmanager
def table_writer(folder: Path | None) -> Iterator[Callable[[dict[str, pa.RecordBatch]], None]]:
    """A function that writes the next rows of the published tables to files in `folder`; nothing if that is None."""
    writers: dict[str, pq.ParquetWriter] = {}

    def write(tables: dict[str, pa.RecordBatch]) -> None:
        for table, writer in writers.items():
            if tables[table].num_rows:
                writer.write_batch(tables[table])

    with ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for table in PUBLISHED:
                path = folder / f"{table}.parquet"
                make_room(path)
                writers[table] = stack.enter_context(pq.ParquetWriter(path, SCHEMAS[table], compression="zstd"))
        yield write


def make_room(path: Path) -> None:
    """Remove what an earlier audit left at `path` in another form, a folder of Spark's. Raises FileExistsError.

    The folder of a stream stays: it has what was there before, and its checkpoint knows of it.
    """
    if path.is_dir():
        if not all(each.name.startswith(SPARKS_OWN) for each in path.iterdir()):
            raise FileExistsError(
                errno.EEXIST, "a folder that no audit of a whole log wrote: name another --out", str(path)
            )
        shutil.rmtree(path)


class Options(NamedTuple):
    """Options of an audit. Without a partition count in `limits`, the audit takes it from the folders."""

    limits: Limits = Limits()
    before: Path | None = None


def audit(path: Path, out: Path | None, options: Options, progress: Progress) -> AuditResult:
    """Audit the log at `path`; the tables and findings are written below `out`. Raises NothingRead, or OSError."""
    planned = look(path, options.limits.partition_count)
    limits = options.limits._replace(partition_count=planned.partition_count)
    result = AuditResult(str(path), sizes=planned.sizes)
    events, ids = read_events(path), read_ids(path)
    last: dict[PartitionKey, LastRecord] = {}
    wanted = CHECKED if out is None else TABLES
    journals = JournalsBeside()
    with table_writer(None if out is None else out / TABLES_FOLDER) as write:
        for log in planned.logs:
            with opened(log, journals) as segments:
                ranges = plan_partition(planned, log, segments)
                assert log.partition is not None
                checks = PartitionChecks(integrity_of(planned, log.partition), limits, events=events, ids=ids)
                for range_ in ranges:
                    for tables in read_tables(range_, wanted):
                        write(tables)
                        checks.add_batches(to_rows(tables["batches"]), result)
                        result.add_others(to_rows(tables["other"]))
                        rows = to_rows(tables["records"])
                        result.count_records(rows)
                        for row in rows:
                            checks.add_record(row, counts=does_count(planned, row))
                        if options.before is not None:
                            note_last(last, (row for row in rows if does_count(planned, row)))
                    progress(range_.end - range_.start)
                checks.report(result)
    result.notes += notes_of(planned)
    result.notes += events.notes({story.group for story in result.stories})
    add_ids(result, ids)
    if options.before is not None:
        before = look(options.before)
        both, notes = compared(before, planned)
        result.notes += notes
        result.find(lost_keys(_last_records(before, both, progress), last, limits.delete_retention_ms))
    finish(result, out, doubts_count=options.limits.partition_count is None and planned.is_replica)
    return result


def notes_of(planned: Plan) -> list[str]:
    """The notes about a plan."""
    notes = []
    if planned.partition_count is None:
        notes.append(NO_COUNT)
    if not planned.size:
        notes.append("the log is empty")
    return notes


def compared(before: Plan, after: Plan) -> tuple[set[int], list[str]]:
    """The partitions that both logs have, and notes about the others."""
    both = before.sizes.keys() & after.sizes.keys()
    alone = sorted(before.sizes.keys() ^ after.sizes.keys())
    if not alone:
        return both, []
    named = names_text(list(map(str, alone)))
    return both, [f"only one of the two logs has partition {named}: lost keys can't be found there"]


def _settle_partition_count(result: AuditResult) -> None:
    """Don't believe a partition count that was taken from a broker's folders if most groups contradict it.

    A copy of the first seven folders of fifty looks like a log of seven.
    """
    wrong = {(each.group, each.partition) for each in result.findings if each.check == "wrong_partition"}
    if 2 * (len(wrong) + result.left_out["wrong_partition"]) > len(result.stories):
        del result.left_out["wrong_partition"]
        result.findings = [each for each in result.findings if each.check != "wrong_partition"]
        result.notes.append(NO_COUNT)


def finish(result: AuditResult, out: Path | None, *, doubts_count: bool = False) -> None:
    """Sort findings and stories, independent of the order in which they came; write findings.parquet below `out`.

    doubts_count: whether the partition count comes from a broker's folders alone.
    """
    if doubts_count:
        _settle_partition_count(result)
    result.sort_findings()
    result.stories.sort(key=lambda each: (each.group, each.partition))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        make_room(out / FINDINGS_FILE)
        pq.write_table(pa.Table.from_batches([to_arrow("findings", result.findings)]), out / FINDINGS_FILE)


def integrity_of(planned: Plan, partition: int) -> Integrity:
    """The check of a partition's batches, with what a plan knows of its segments."""
    uncleaned_from, newest = (found.get(partition) for found in (planned.uncleaned_from, planned.newest))
    damaged_ends = planned.damaged_ends.get(partition, ())
    return Integrity(partition, uncleaned_from, newest, damaged_ends, is_replica=planned.is_replica)


def does_count(planned: Plan, row: Row) -> bool | None:
    """Whether a row of `records` counts: one of a transaction only if that was committed; None if it has no end."""
    return planned.counts(row[_PARTITION_AT], row[_PRODUCER_AT], row[_OFFSET_AT])


def add_ids(result: AuditResult, ids: Ids) -> None:
    """Add what the log of transactional ids says alone."""
    result.find(id_findings(ids))
    result.notes += ids.notes()


class PartitionChecks:
    """Feeds the rows of one partition to the checks, in the order of its log.

    events: recorded by the server. ids: the transactional ids. end_ms: the time of the last record that can be
    believed, -1 without one.
    """

    def __init__(
        self, integrity: Integrity, limits: Limits, *, events: RecordedEvents | None = None, ids: Ids | None = None
    ) -> None:
        self.integrity = integrity
        self.histories: dict[str, History] = {}
        self.pending: dict[str, Pending] = {}
        self.end_ms = -1
        self._partition = integrity.partition
        self._limits = limits
        self._events = events or RecordedEvents()
        self._ids = ids or Ids()
        self._producers = Producers(self._partition, limits, self._ids)

    def add_batches(self, rows: Iterable[Row], result: AuditResult) -> None:
        """Take rows of `batches`."""
        for row in rows:
            self.integrity.add(row)
            self._producers.add(row)
            self.end_ms = max(self.end_ms, row[_MAX_TS_AT] if row[_CRC_OK_AT] else -1)
            result.batches += 1

    def add_record(self, row: Row, *, counts: bool | None = True) -> None:
        """Take a row of `records`. counts: see `does_count`."""
        group = row[_GROUP_AT]
        if counts:
            history = self.histories.get(group)
            if history is None:
                history = self.histories[group] = self.new_history(group)
            history.add(row)
        elif counts is None:
            if group not in self.pending:
                self.pending[group] = Pending(self._partition, group, self._limits, self._ids)
            self.pending[group].add(row)

    def new_history(self, group: str) -> History:
        """The history of a group without records."""
        return History(self._partition, group, self._limits, self._events.of(group))

    def report(self, result: AuditResult) -> None:
        """Add findings and stories as if the log ended here."""
        result.ends_ms[self._partition] = self.end_ms
        result.find(self.integrity.finish())
        result.find(self._producers.finish())
        for pending in self.pending.values():
            result.find(pending.findings(self.end_ms))
        for history in self.histories.values():
            story, findings = history.finish(self.end_ms)
            result.stories.append(story)
            result.find(findings)


def _last_records(planned: Plan, partitions: Collection[int], progress: Progress) -> dict[PartitionKey, LastRecord]:
    """The last record of each key of some partitions of a log."""
    last: dict[PartitionKey, LastRecord] = {}
    journals = JournalsBeside()
    for log in planned.logs:
        with opened(log, journals) as segments:
            for range_ in plan_partition(planned, log, segments):
                for tables in read_tables(range_, ["records"]) if log.partition in partitions else ():
                    rows = to_rows(tables["records"])
                    note_last(last, (row for row in rows if does_count(planned, row)))
                progress(range_.end - range_.start)
    return last
