"""Reads the topic of a cluster through Spark's Kafka source.

It lists the partitions and assigns them. A reader that subscribes would join a group, and so write records into the
topic that it reads. The source reads nothing, without an error, if it can't see an internal topic; so the audit treats
"no records" as an error. It leaves out groups of Spark readers that did subscribe.

A cluster doesn't show batches: no checksums, epochs or producers, and gaps mean nothing. Records of a transaction come
only if it was committed (read_committed).

House rule: looking changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from coordinator.audit.audit import AuditResult, NothingRead, Options, finish
from coordinator.audit.read.events import RecordedEvents, gather
from coordinator.audit.read.ids import Ids
from coordinator.audit.read.logs import Plan
from coordinator.audit.read.parse import new_rows, parse_record
from coordinator.audit.read.tables import to_arrow
from coordinator.audit.spark.job import Tables, check_groups, check_others, publish_tables
from coordinator.audit.spark.source import ddl
from coordinator.client.client import Cluster, metadata_request
from coordinator.client.errors import ClientError, Refused
from coordinator.client.events import EventReader, NoEvents
from coordinator.log.segments.segment import OFFSETS_TOPIC
from protocol.errors import ProtocolError
from protocol.records.batch import Record

if TYPE_CHECKING:
    from protocol.messages import MetadataResponse

SPARK_GROUPS = r"^spark-kafka-(relation|source)-"
ANSWER_WITHIN_S = 15.0
TASKS_PER_CORE = 2
LIVE_TABLES = ("offsets", "groups", "members", "assignments", "other")


def audit_cluster(session: SparkSession, where: Cluster, out: Path | None, options: Options) -> AuditResult:
    """Audit the groups of a cluster; findings and tables are written below `out`. Raises NothingRead, or OSError."""
    partitions = list_partitions(where)
    result = AuditResult(where.bootstrap, sizes=dict.fromkeys(partitions, 0))
    result.notes.append("read through a cluster: no checksums, no batches, and sizes are those of keys and values")
    source = read_topic(session, where, partitions).persist()
    try:
        if not source.take(1):
            raise NothingRead(
                f"{where.bootstrap}: nothing could be read of the {len(partitions)} partitions of {OFFSETS_TOPIC}"
            )
        tables: Tables = {table: to_table(source, table) for table in LIVE_TABLES}
        limits = options.limits._replace(partition_count=len(partitions))
        result.ends_ms |= {row[0]: row[1] for row in source.groupBy("partition").agg(F.max("ts")).collect()}
        events = read_cluster_events(where)
        check_groups(to_table(source, "records"), limits, Plan(), events, result, Ids())
        for story in result.stories:
            result.sizes[story.partition] += story.bytes
        if out is not None:
            tables |= publish_tables(session, tables, out)
        check_others(tables["other"], result)
        finish(result, out)
    finally:
        source.unpersist()
    return result


def list_partitions(where: Cluster) -> list[int]:
    """The partitions of the cluster's topic. Raises NothingRead if it has none, or can't be asked."""
    try:
        with where.client(ANSWER_WITHIN_S) as client:
            response: MetadataResponse = client.request(metadata_request([OFFSETS_TOPIC]), at_least=4)
    except ClientError as error:
        raise NothingRead(str(error)) from error
    partitions = [each.partition_index for topic in response.topics for each in topic.partitions]
    if not partitions:
        raise NothingRead(f"{where.bootstrap}: there is no topic {OFFSETS_TOPIC}: the cluster never had a group")
    return sorted(partitions)


def read_cluster_events(where: Cluster) -> RecordedEvents:
    """The events that the servers recorded; none if they have no such topic. Raises NothingRead.

    A cluster may refuse this topic, even one that doesn't exist, to a user who may read its groups.
    """
    try:
        with where.client(ANSWER_WITHIN_S) as client:
            reader = EventReader(client)
            return gather(reader.read(), reader.passed_over)
    except NoEvents:
        return RecordedEvents()
    except (Refused, ProtocolError) as error:
        return RecordedEvents(refused=str(error))
    except ClientError as error:
        raise NothingRead(str(error)) from error


def read_topic(session: SparkSession, where: Cluster, partitions: list[int]) -> DataFrame:
    """All records of the topic now: partition, offset, ts in ms, key, value.

    Most of its 50 partitions are small: a task for each of them in each stage would take minutes.
    """
    return (
        session.read.format("kafka")
        .options(**spark_options(where))
        .option("assign", json.dumps({OFFSETS_TOPIC: partitions}))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .coalesce(TASKS_PER_CORE * session.sparkContext.defaultParallelism)
        .select("partition", "offset", F.unix_millis("timestamp").alias("ts"), "key", "value")
    )


def spark_options(where: Cluster) -> dict[str, str]:
    """Where and how Spark's Kafka source connects: Kafka's names with a prefix. The JVM runs in a folder of its own."""
    texts = {} if where.security is None else where.security.of_kafka
    return {f"kafka.{key}": text for key, text in {**texts, "bootstrap.servers": where.bootstrap}.items()}


def to_table(source: DataFrame, table: str) -> DataFrame:
    """The rows of a table of these records."""

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = new_rows()[table]
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            for partition, offset, ts, key, value in zip(*columns, strict=True):
                rows += parse_record(partition, offset, Record(key or b"", value, ts))[table]
            yield to_arrow(table, rows)

    made = source.mapInArrow(parse, ddl(table))
    return made.where(~F.coalesce(F.col("group"), F.lit("")).rlike(SPARK_GROUPS))
