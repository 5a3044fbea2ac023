"""The checks on Spark: the same as in one process, fed group by group and partition by partition.

A log is planned once, and all tables are read by that plan. If a server replaces a segment meanwhile, the task reports
that it is gone. Published tables are written first, and the checks on batches read them from there.

Spark reads records once, as their bytes, brings those of a group together and sorts them. A process takes them one by
one: it holds one Arrow batch, and of one group as much as the audit in one process. A group lives in one partition. The
workers return little: findings, and a story of each group.

House rule: this module checks nothing itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from coordinator.audit.audit import (
    TABLES_FOLDER,
    AuditResult,
    Options,
    add_ids,
    end_of,
    integrity_of,
    make_room,
    notes_of,
    settle_partition_count,
    sort_result,
    write_findings,
)
from coordinator.audit.check.checks import Finding, finding_of
from coordinator.audit.check.compaction import LastRecord, lost_key
from coordinator.audit.check.history import History, Story
from coordinator.audit.check.limits import Limits
from coordinator.audit.check.transactions import Pending, Producers
from coordinator.audit.read.events import RecordedEvents, read_events
from coordinator.audit.read.ids import Ids, read_ids
from coordinator.audit.read.logs import Plan, plan
from coordinator.audit.read.origin import compared, is_tenures
from coordinator.audit.read.parse import NOT_RECORDS, Row
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows
from coordinator.audit.spark.source import FORMAT, GroupLogSource, ddl
from coordinator.audit.spark.split import write_plan
from coordinator.story.records.values import RECORD_KINDS

FOUND_DDL = "payload string"
"""The rows that workers return: JSON of several kinds."""

Tables = dict[str, DataFrame]
Mapper = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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
        is_replica = not is_tenures(path)
        ends_ms = _check_partitions(tables["batches"], limits, planned, ids, result, is_replica=is_replica)
        check_groups(tables["records"], limits, planned, ends_ms, read_events(path), result, ids)
        add_ids(result, ids)
        check_others(tables["other"], result)
        if options.before is not None:
            before = plan(options.before)
            both, notes = compared(before, planned)
            result.notes += notes
            before_file = write_plan(Path(scratch) / "before.json", before.ranges)
            records = load(session, options.before, "records", before_file).where(F.col("partition").isin(both))
            _check_compaction(_counting(records, before), _counting(tables["records"], planned), limits, result)
        if options.limits.partition_count is None and is_replica:
            settle_partition_count(result)
        finish(result, out)
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


def finish(result: AuditResult, out: Path | None) -> None:
    """Sort the result, and write the findings below `out`."""
    sort_result(result)
    if out is not None:
        write_findings(out, result.findings)


def check_groups(
    records: DataFrame,
    limits: Limits,
    planned: Plan,
    ends_ms: dict[int, int],
    events: RecordedEvents,
    result: AuditResult,
    ids: Ids,
) -> None:
    """Check each group and add its story; ends_ms: by partition, the time of its last record."""
    by_group = records.repartition("partition", "group").sortWithinPartitions(
        "partition", "group", "segment", "position", "offset"
    )
    for payload in _payloads(by_group.mapInArrow(_check_by_group(limits, planned, ends_ms, events, ids), FOUND_DDL)):
        result.records_by_type.update(payload["kinds"])
        result.find(Finding(*each) for each in payload["findings"])
        if payload["story"] is not None:
            result.stories.append(Story.from_json(payload["story"]))
    result.notes += events.notes({story.group for story in result.stories})


def _check_by_group(limits: Limits, planned: Plan, ends_ms: dict[int, int], events: RecordedEvents, ids: Ids) -> Mapper:
    counts = _markers_of(planned).counts

    def check_group(partition: int, group: str, rows: Iterable[Row]) -> pa.RecordBatch:
        history = History(partition, group, limits, events.of(group))
        pending = Pending(partition, group, limits, ids)
        kinds: Counter[str] = Counter()
        counts_any = False
        for row in rows:
            if row[3] in RECORD_KINDS:
                kinds[row[3]] += 1
            is_counted = counts(partition, row[7], row[1])
            if is_counted:
                history.add(row)
                counts_any = True
            elif is_counted is None:
                pending.add(row)
        end_ms = ends_ms.get(partition, -1)
        found = pending.findings(end_ms)
        if not counts_any:
            return _payload(kinds=kinds, findings=found, story=None)
        story, findings = history.finish(end_ms)
        return _payload(kinds=kinds, findings=findings + found, story=story.to_json())

    def check_each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (partition, group), rows in groupby(_rows(batches, "records"), itemgetter(0, 4)):
            yield check_group(partition, group, rows)

    return check_each


def _check_partitions(
    batches: DataFrame, limits: Limits, planned: Plan, ids: Ids, result: AuditResult, *, is_replica: bool
) -> dict[int, int]:
    """Check the batches; returns the time of each partition's last record."""
    known = replace(planned, logs=[], ranges=[], markers={})

    def check_partition(partition: int, rows: Iterable[Row]) -> pa.RecordBatch:
        integrity = integrity_of(known, partition, is_replica=is_replica)
        producers = Producers(partition, limits, ids)
        count, end_ms = 0, -1
        for row in rows:
            integrity.add(row)
            producers.add(row)
            count += 1
            end_ms = max(end_ms, end_of(row))
        findings = integrity.finish() + producers.finish()
        return _payload(partition=partition, batches=count, end_ms=end_ms, findings=findings)

    def check(arrow: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition, rows in groupby(_rows(arrow, "batches"), itemgetter(0)):
            yield check_partition(partition, rows)

    by_partition = batches.repartition("partition").sortWithinPartitions("partition", "segment", "position")
    ends_ms = {}
    for payload in _payloads(by_partition.mapInArrow(check, FOUND_DDL)):
        result.batches += payload["batches"]
        result.find(Finding(*each) for each in payload["findings"])
        ends_ms[payload["partition"]] = payload["end_ms"]
    return ends_ms


def check_others(others: DataFrame, result: AuditResult) -> None:
    """Count records that belong to no group, and report unreadable ones."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = to_rows(batch.select(SCHEMAS["other"].names))
            findings = [found for found in map(finding_of, rows) if found is not None]
            kinds = Counter(row[5] for row in rows if row[5] not in NOT_RECORDS)
            yield _payload(kinds=kinds, findings=findings)

    for payload in _payloads(others.mapInArrow(check, FOUND_DDL)):
        result.records_by_type.update(payload["kinds"])
        result.find(Finding(*each) for each in payload["findings"])


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
    counts = _markers_of(planned).counts

    def filtered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = to_rows(batch.select(SCHEMAS["records"].names))
            yield to_arrow("records", [row for row in rows if counts(row[0], row[7], row[1])])

    return records.mapInArrow(filtered, records.schema)


def _markers_of(planned: Plan) -> Plan:
    """The part of a plan that each worker needs."""
    return Plan(planned.path, markers=planned.markers)


def _rows(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[Row]:
    for batch in batches:
        yield from to_rows(batch.select(SCHEMAS[table].names))


def _payload(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": [json.dumps(values, ensure_ascii=False)]})


def _payloads(found: DataFrame) -> Iterator[dict[str, Any]]:
    for row in found.collect():
        yield json.loads(row[0])
