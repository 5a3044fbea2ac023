"""The checks on Spark: those of one process, fed group by group and partition by partition.

Records are read once, as their bytes, and brought together by group; a group lives in one partition, so what one
process holds of it is what one process would hold alone. What comes back is small: findings, and a story of each group.

House rule: nothing is checked here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from coordinator.audit.audit import (
    TABLES_FOLDER,
    Options,
    Outcome,
    end_of,
    notes_of,
    settle_partition_count,
    sort_outcome,
    write_findings,
)
from coordinator.audit.checks import Finding, finding_of
from coordinator.audit.compaction import LastRecord, lost_key
from coordinator.audit.history import Story, tell
from coordinator.audit.integrity import check_batches
from coordinator.audit.limits import Limits
from coordinator.audit.logs import Plan, plan
from coordinator.audit.origin import compared, is_tenures
from coordinator.audit.parse import NOT_RECORDS, RECORD_KINDS, Row
from coordinator.audit.spark.source import FORMAT, GroupLogSource
from coordinator.audit.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows

FOUND_DDL = "payload string"
"""What workers send back: JSON, of one kind or another."""

Tables = dict[str, DataFrame]


def audit_folder(session: SparkSession, path: Path, out: Path | None, options: Options) -> Outcome:
    """Audit the log at `path`; findings and tables are written below `out`. Raises NothingRead, or OSError."""
    session.dataSource.register(GroupLogSource)
    planned = plan(path, options.limits.partition_count)
    limits = options.limits._replace(partition_count=planned.partition_count)
    outcome = Outcome(str(path), sizes=planned.sizes, notes=notes_of(planned))
    tables = {table: load(session, path, table) for table in (*PUBLISHED, "records")}
    is_replica = not is_tenures(path)
    ends_ms = _check_partitions(tables["batches"], planned, outcome, is_replica=is_replica)
    check_groups(tables["records"], limits, planned, ends_ms, outcome)
    check_others(tables["other"], outcome)
    if options.before is not None:
        before = plan(options.before)
        both, notes = compared(before, planned)
        outcome.notes += notes
        records = load(session, options.before, "records").where(F.col("partition").isin(both))
        _check_compaction(_counting(records, before), _counting(tables["records"], planned), limits, outcome)
    if options.limits.partition_count is None and is_replica:
        settle_partition_count(outcome)
    finish(outcome, tables, out)
    return outcome


def load(session: SparkSession, path: Path, table: str) -> DataFrame:
    """A table of a log."""
    return session.read.format(FORMAT).option("table", table).load(str(path.absolute()))


def finish(outcome: Outcome, tables: Tables, out: Path | None) -> None:
    """Put the outcome into order, and write tables and findings below `out`."""
    sort_outcome(outcome)
    if out is not None:
        for table in PUBLISHED:
            if table in tables:
                target = (out / TABLES_FOLDER / f"{table}.parquet").absolute()
                tables[table].write.mode("overwrite").parquet(str(target))
        write_findings(out, outcome.findings)


def check_groups(records: DataFrame, limits: Limits, planned: Plan, ends_ms: dict[int, int], outcome: Outcome) -> None:
    """Tell the story of each group; ends_ms: by partition, the time of its last record."""
    found = records.groupBy("partition", "group").applyInArrow(_teller(limits, planned, ends_ms), FOUND_DDL)
    for payload in _payloads(found):
        outcome.records_by_type.update(payload["kinds"])
        outcome.findings += [Finding(*each) for each in payload["findings"]]
        if payload["story"] is not None:
            outcome.stories.append(Story.from_json(payload["story"]))


def _teller(limits: Limits, planned: Plan, ends_ms: dict[int, int]) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def tell_group(key: tuple[Any, ...], records: pa.Table) -> pa.Table:
        partition, group = (each.as_py() for each in key)
        rows = _rows(records, "records", "segment", "position", "offset")
        kinds = Counter(row[3] for row in rows if row[3] in RECORD_KINDS)
        rows = [row for row in rows if row[7] is None or planned.counts(partition, row[7], row[1])]
        story, findings = tell(partition, group, limits, rows, ends_ms.get(partition, -1)) if rows else (None, [])
        return _payload(kinds=kinds, findings=findings, story=None if story is None else story.to_json())

    return tell_group


def _check_partitions(batches: DataFrame, planned: Plan, outcome: Outcome, *, is_replica: bool) -> dict[int, int]:
    """Check the batches; returns the time of each partition's last record."""

    def check(key: tuple[Any, ...], of_partition: pa.Table) -> pa.Table:
        partition = key[0].as_py()
        rows = _rows(of_partition, "batches", "segment", "position")
        return _payload(
            partition=partition,
            batches=len(rows),
            end_ms=max(map(end_of, rows), default=-1),
            findings=check_batches(partition, planned.uncleaned_from.get(partition), rows, is_replica=is_replica),
        )

    ends_ms = {}
    for payload in _payloads(batches.groupBy("partition").applyInArrow(check, FOUND_DDL)):
        outcome.batches += payload["batches"]
        outcome.findings += [Finding(*each) for each in payload["findings"]]
        ends_ms[payload["partition"]] = payload["end_ms"]
    return ends_ms


def check_others(others: DataFrame, outcome: Outcome) -> None:
    """Count what is no record of a group, and find what should be one."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = to_rows(batch.select(SCHEMAS["other"].names))
            findings = [found for found in map(finding_of, rows) if found is not None]
            kinds = Counter(row[5] for row in rows if row[5] not in NOT_RECORDS)
            yield from _payload(kinds=kinds, findings=findings).to_batches()

    for payload in _payloads(others.mapInArrow(check, FOUND_DDL)):
        outcome.records_by_type.update(payload["kinds"])
        outcome.findings += [Finding(*each) for each in payload["findings"]]


def _check_compaction(before: DataFrame, after: DataFrame, limits: Limits, outcome: Outcome) -> None:
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
    for row in lost.collect():
        outcome.findings.append(lost_key((row[0], bytes(row[1])), LastRecord(row[2], row[3], is_tombstone=False)))


def _last_of_keys(records: DataFrame) -> DataFrame:
    last = F.max_by(F.struct("offset", "ts", F.isnull("value").alias("tombstone")), "offset")
    return records.groupBy("partition", "key").agg(last.alias("last"))


def _counting(records: DataFrame, planned: Plan) -> DataFrame:
    """Without the records of transactions that weren't committed."""

    def filtered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = to_rows(batch.select(SCHEMAS["records"].names))
            yield to_arrow("records", [row for row in rows if row[7] is None or planned.counts(row[0], row[7], row[1])])

    return records.mapInArrow(filtered, records.schema)


def _rows(table: pa.Table, name: str, *order: str) -> list[Row]:
    sorted_table = table.sort_by([(column, "ascending") for column in order])
    return to_rows(sorted_table.select(SCHEMAS[name].names))


def _payload(**values: Any) -> pa.Table:
    return pa.table({"payload": [json.dumps(values, ensure_ascii=False)]})


def _payloads(found: DataFrame) -> Iterator[dict[str, Any]]:
    for row in found.collect():
        yield json.loads(row[0])
