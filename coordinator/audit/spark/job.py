"""The checks on Spark: the same as in one process, fed group by group and partition by partition.

A log is planned once, and all tables are read by that plan. If a server replaces a segment meanwhile, the task reports
that it is gone. Published tables are written first, and the checks on batches read them from there.

Spark reads records once, as their bytes, brings those of a group together and sorts them. A process takes them one by
one: it holds one Arrow batch, and of one group as much as the audit in one process. A group lives in one partition. The
workers return little: findings, and a story of each group.

House rule: this module checks nothing itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from coordinator.audit.audit import (
    TABLES_FOLDER,
    AuditResult,
    Options,
    PartitionChecks,
    add_ids,
    compared,
    does_count,
    finish,
    integrity_of,
    make_room,
    notes_of,
)
from coordinator.audit.check.compaction import LastRecord, lost_key
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.events import RecordedEvents, read_events
from coordinator.audit.read.ids import Ids, read_ids
from coordinator.audit.read.logs import Plan, plan
from coordinator.audit.read.parse import Row
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows
from coordinator.audit.spark.source import FORMAT, GroupLogSource, ddl
from coordinator.audit.spark.split import write_plan

Tables = dict[str, DataFrame]


def audit_folder(session: SparkSession, path: Path, out: Path | None, options: Options) -> AuditResult:
    """Audit the log at `path`; findings and tables are written below `out`. Raises NothingRead, or OSError."""
    session.dataSource.register(GroupLogSource)
    with TemporaryDirectory(prefix="tenure-audit-") as scratch:
        ids = read_ids(path)
        planned = plan(path, options.limits.partition_count)
        limits = options.limits._replace(partition_count=planned.partition_count)
        result = AuditResult(str(path), sizes=planned.sizes, notes=notes_of(planned))
        plan_file = write_plan(Path(scratch) / "plan.json", planned.ranges)
        tables = {table: load(session, path, table, plan_file) for table in (*PUBLISHED, "records")}
        if out is not None:
            tables |= publish_tables(session, tables, out)
        _check_partitions(tables["batches"], limits, planned, ids, result)
        check_groups(tables["records"], limits, planned, read_events(path), result, ids)
        add_ids(result, ids)
        check_others(tables["other"], result)
        if options.before is not None:
            before = plan(options.before)
            both, notes = compared(before, planned)
            result.notes += notes
            before_file = write_plan(Path(scratch) / "before.json", before.ranges)
            records = load(session, options.before, "records", before_file).where(F.col("partition").isin(both))
            _check_compaction(_counting(records, before), _counting(tables["records"], planned), limits, result)
        finish(result, out, doubts_count=options.limits.partition_count is None and planned.is_replica)
    return result


def load(session: SparkSession, path: Path, table: str, plan_file: Path | None = None) -> DataFrame:
    """A table of a log, read by a plan of it if there is one."""
    reader = session.read.format(FORMAT).option("table", table)
    if plan_file is not None:
        reader = reader.option("plan", str(plan_file))
    return reader.load(str(path.absolute()))


def publish_tables(session: SparkSession, tables: Tables, out: Path) -> Tables:
    """Write the published tables below `out`; returns the tables as they are read from there."""
    written = {}
    for table in PUBLISHED:
        if table in tables:
            path = (out / TABLES_FOLDER / f"{table}.parquet").absolute()
            make_room(path)
            target = str(path)
            tables[table].write.mode("overwrite").parquet(target)
            written[table] = session.read.schema(ddl(table)).parquet(target)
    return written


def check_groups(
    records: DataFrame,
    limits: Limits,
    planned: Plan,
    events: RecordedEvents,
    result: AuditResult,
    ids: Ids,
) -> None:
    """Check each group and add its story, with the ends of the partitions that `result` knows."""
    known, ends_ms = _known(planned), result.ends_ms

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[AuditResult]:
        for (partition, _), rows in groupby(_rows(batches, "records"), itemgetter(0, 4)):
            found = AuditResult("")
            checks = PartitionChecks(integrity_of(known, partition), limits, events=events, ids=ids)
            checks.end_ms = ends_ms.get(partition, -1)
            for row in rows:
                found.count_records([row])
                checks.add_record(row, counts=does_count(known, row))
            checks.report(found)
            yield found

    by_group = records.repartition("partition", "group").sortWithinPartitions(
        "partition", "group", "segment", "position", "offset"
    )
    _merge(result, by_group, check)
    result.notes += events.notes({story.group for story in result.stories})


def _check_partitions(batches: DataFrame, limits: Limits, planned: Plan, ids: Ids, result: AuditResult) -> None:
    known = _known(planned)

    def check(arrow: Iterable[pa.RecordBatch]) -> Iterator[AuditResult]:
        for partition, rows in groupby(_rows(arrow, "batches"), itemgetter(0)):
            found = AuditResult("")
            checks = PartitionChecks(integrity_of(known, partition), limits, ids=ids)
            checks.add_batches(rows, found)
            checks.report(found)
            yield found

    by_partition = batches.repartition("partition").sortWithinPartitions("partition", "segment", "position")
    _merge(result, by_partition, check)


def check_others(others: DataFrame, result: AuditResult) -> None:
    """Count records that belong to no group, and report unreadable ones."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[AuditResult]:
        found = AuditResult("")
        found.add_others(_rows(batches, "other"))
        yield found

    _merge(result, others, check)


def _check_compaction(before: DataFrame, after: DataFrame, limits: Limits, result: AuditResult) -> None:
    ends = [each.agg(F.max("ts")).first() for each in (before, after)]
    end_ms, reaches_ms = (0 if end is None or end[0] is None else end[0] for end in ends)
    if reaches_ms - end_ms > limits.delete_retention_ms:
        return
    was, now = (_last_of_keys(each) for each in (before, after))
    lost = (
        was.join(now.select("partition", "key", F.col("last.offset").alias("now")), ["partition", "key"], "left")
        .where("not last.tombstone and (now is null or now < last.offset)")
        .select("partition", "key", "last.offset", "last.ts")
    )
    result.find(
        lost_key((row[0], bytes(row[1])), LastRecord(row[2], row[3], is_tombstone=False)) for row in lost.collect()
    )


def _last_of_keys(records: DataFrame) -> DataFrame:
    last = F.max_by(F.struct("offset", "ts", F.isnull("value").alias("tombstone")), "offset")
    return records.groupBy("partition", "key").agg(last.alias("last"))


def _counting(records: DataFrame, planned: Plan) -> DataFrame:
    """The records without those of transactions that weren't committed."""
    known = _known(planned)

    def filtered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield to_arrow("records", [row for row in _rows([batch], "records") if does_count(known, row)])

    return records.mapInArrow(filtered, records.schema)


def _known(planned: Plan) -> Plan:
    """The part of a plan that each worker needs."""
    return replace(planned, logs=[], ranges=[])


def _rows(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[Row]:
    for batch in batches:
        yield from to_rows(batch.select(SCHEMAS[table].names))


def _merge(
    result: AuditResult, table: DataFrame, check: Callable[[Iterable[pa.RecordBatch]], Iterator[AuditResult]]
) -> None:
    """Have the workers check a table, and merge what they find into `result`."""

    def checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for found in check(batches):
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(found)]})

    for row in table.mapInArrow(checked, "result binary").collect():
        result.merge(pickle.loads(row[0]))  # noqa: S301  our own workers made it
