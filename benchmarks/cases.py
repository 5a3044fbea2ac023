"""The cases of the benchmark and their limits: each work with its parameters, and the rows made of its figures.

The floors are the project's own: ratios to the echo in the same run where there is one, absolute times and sizes
otherwise, on a quiet machine like the one in benchmarks/results/requests.md.

House rule: this module is data; `works` measures and `report` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ECHO, TENURE, KAFKA = "echo", "tenure", "kafka"
ALL = (ECHO, TENURE, KAFKA)


class To(NamedTuple):
    """The divisor of a figure: another figure of the same repetition. An empty field means the figure's own value."""

    server: str = ""
    figure: str = ""


class Row(NamedTuple):
    """A line of the table.

    title: with the case's parameters as fields of str.format. figure: its name in a work's result. floor: the most that
    Tenure may need, in `unit`; None without a limit; a server's name if that server's value is the limit. to: the row
    shows the ratio to this figure. scale: the divisor that converts the figure to its unit.
    """

    title: str
    figure: str
    unit: str
    floor: float | str | None = None
    to: To | None = None
    scale: float = 1.0


class Case(NamedTuple):
    """A work with its parameters.

    quick: other parameters, for a short run. servers: the servers that can do it. settings: Tenure's settings. without:
    settings of a second Tenure, which the work compares with the one that has `settings`; None if the work needs only
    one. fresh: it needs a new Apache Kafka too. repeat_max: the most repetitions, for a work that takes minutes.
    beside: the case before this one, whose repetitions alternate with these because the two are compared. hangs: the
    disk of Tenure's events hangs. is_slow: each sync of its disk takes 2 ms longer. listener: clients come through this
    one of `entry.LISTENERS`, and the servers are secured; empty without security. newer: members speak the consumer
    protocol, so Apache Kafka is the release that Tenure is compared with there.
    """

    name: str
    work: str
    parameters: Mapping[str, Any]
    quick: Mapping[str, Any]
    rows: tuple[Row, ...]
    servers: tuple[str, ...] = ALL
    settings: Mapping[str, str] = {}
    without: Mapping[str, str] | None = None
    fresh: bool = False
    repeat_max: int = 100
    beside: str = ""
    hangs: bool = False
    is_slow: bool = False
    listener: str = ""
    newer: bool = False


CPU = "cpu_us_per_request"
P99 = "latency_p99_ms"
KAFKAS = (TENURE, KAFKA)
SHORT = {"seconds": 0.5}


def _heartbeat(connections: int) -> Case:
    title = "heartbeat, {connections:,} connections"
    return Case(
        f"heartbeat-{connections}",
        "heartbeat",
        {"connections": connections},
        {"connections": connections // 10, **SHORT},
        (
            Row(title + ": CPU, ratio to the echo", CPU, "", floor=1.25, to=To(server=ECHO)),
            Row(title + ": CPU", CPU, "us"),
        ),
    )


def _consumer_heartbeat(connections: int) -> Case:
    title = "consumer protocol: steady heartbeat, {connections:,} connections"
    return Case(
        f"consumer-heartbeat-{connections}",
        "consumer_heartbeat",
        {"connections": connections},
        {"connections": connections // 10, **SHORT},
        (
            Row(title + ": CPU, ratio to the echo", CPU, "", floor=1.25, to=To(server=ECHO)),
            Row(title + ": CPU", CPU, "us"),
        ),
        newer=True,
    )


def _commit_spread(groups: int, *, is_slow: bool = False) -> Case:
    """Commits of groups as they hash over 50 partitions."""
    title = "OffsetCommit, 64 connections in {groups} groups" + ", 2 ms a sync" * is_slow
    return Case(
        f"commit-{groups}" + "-slow" * is_slow,
        "commit",
        {"partitions": 1, "groups": groups},
        SHORT,
        (Row(title + ": CPU", CPU, "us"), Row(title + ": commits", "requests_per_s", "/s")),
        (TENURE,) if is_slow else KAFKAS,
        is_slow=is_slow,
    )


def _groups(step: int) -> tuple[Row, ...]:
    title = f"{{steps[{step}]:,}} groups of one"
    return (
        Row(title + ": CPU per group", f"cpu_us_per_group_{step}", "us", floor=150),
        Row(title + ": memory per group", f"resident_bytes_per_group_{step}", "kB", floor=6, scale=1000),
    )


def _groups_slow(step: int) -> Row:
    return Row(f"{{steps[{step}]:,}} groups of one, 2 ms a sync: CPU per group", f"cpu_us_per_group_{step}", "us")


def _flat(step: int) -> tuple[Row, ...]:
    title = f"heartbeat of {{steps[{step}]:,}} groups in turn: CPU"
    figure = f"heartbeat_us_{step}"
    return (
        Row(title, figure, "us"),
        Row(title + ", ratio to {steps[0]:,} groups", figure, "", floor=1.10, to=To(figure="heartbeat_us_0")),
    )


def _latency(name: str, title: str, parameters: dict[str, Any], quick: dict[str, Any], **more: Any) -> Case:
    row = Row(f"heartbeat latency while {title}: 99th percentile", P99, "ms", floor=5)
    quiet = Row("heartbeat latency before that: 99th percentile", "quiet_p99_us", "ms", scale=1000)
    return Case(
        f"latency-{name}", "latency", parameters, {"parameters": quick, "before_s": 0.2}, (row, quiet), KAFKAS, **more
    )


def _consumer_latency() -> Case:
    """The largest group, beside other members."""
    title = "{parameters[size]:,} members of the consumer protocol get {parameters[partitions]:,} partitions"
    case = _latency(
        "consumer-storm",
        title,
        {"beside": "consumer_storm", "parameters": {"size": 10_000, "topics": 10, "partitions": 50_000}},
        {"size": 50, "topics": 2, "partitions": 100},
    )
    rows = (
        Row(f"heartbeat latency while {title}: longest", "latency_max_ms", "ms", floor=50),
        Row("heartbeat latency before that: longest", "quiet_max_us", "ms", scale=1000),
    )
    return case._replace(rows=rows, servers=(TENURE,), repeat_max=3)


def _crowd(listener: str, way: str) -> tuple[Case, Case]:
    """Clients that all connect at once, and a group's heartbeats meanwhile."""
    title = "{size:,} clients connect at once over " + way
    alone = Case(
        f"crowd-{listener.lower()}",
        "crowd",
        {"size": 1_000},
        {"size": 50},
        (
            Row(title + ": until all have an answer", "crowd_s", "s"),
            Row(title + ": CPU of each", "cpu_us_per_client", "us"),
        ),
        KAFKAS,
        listener=listener,
    )
    beside = _latency(
        f"crowd-{listener.lower()}",
        "{parameters[size]:,} clients connect at once over " + way,
        {"beside": "crowd", "parameters": {"size": 1_000}},
        {"size": 50},
        listener=listener,
    )
    longest = "heartbeat latency while {parameters[size]:,} clients connect at once over " + way + ": longest"
    rows = (
        Row(longest, "latency_max_ms", "ms"),
        Row("heartbeat latency before that: longest", "quiet_max_us", "ms", scale=1000),
    )
    return alone, beside._replace(rows=rows)


def _records(size: int) -> Case:
    title = "records of {size:,} bytes"
    return Case(
        f"records-{size}",
        "records",
        {"size": size},
        {"megabytes": 4},
        (
            Row(title + ", produced", "produce_mb_per_s", "MB/s"),
            Row(title + ", produced: CPU", "produce_cpu_s_per_gb", "s per GB"),
            Row(title + ", fetched", "fetch_mb_per_s", "MB/s"),
            Row(title + ", fetched: CPU", "fetch_cpu_s_per_gb", "s per GB"),
            Row(title + ": memory at its peak", "peak_mib", "MiB"),
        ),
        KAFKAS,
        fresh=True,
        repeat_max=3,
    )


CASES = (
    _heartbeat(64),
    _heartbeat(1_000),
    Case(
        "metrics",
        "setting",
        {"connections": 64, "seconds": 0.5},
        {"connections": 6, "seconds": 0.1, "turns": 2},
        (
            Row(
                "heartbeat, {connections} connections, metrics scraped each {seconds:g} s: CPU, ratio to without",
                "ratio",
                "",
                floor=1.05,
            ),
        ),
        (TENURE,),
        settings={"tenure.http": "127.0.0.1:0"},
        without={},
    ),
    # At a rate, so that the load is the same. Without pauses, each of two workers that wait for the generator gets
    # fewer requests at a time, and that alone costs them more.
    Case(
        "workers",
        "setting",
        {"connections": 64, "groups": 16, "pause_s": 0.004, "turns": 50},
        {"connections": 16, "groups": 16, "pause_s": 0.004, "seconds": 0.1, "turns": 2},
        (
            Row(
                "heartbeat, {connections} connections, {groups} groups, each {pause_s:g} s, one worker: CPU",
                "cpu_us_per_request_without",
                "us",
            ),
            Row("the same with two workers: CPU, ratio to one", "ratio", "", floor=1.10),
            Row("the busier of the two workers: CPU, ratio to the other", "busiest_to_least", ""),
        ),
        (TENURE,),
        settings={"tenure.workers": "2"},
        without={"tenure.workers": "1"},
    ),
    Case(
        "commit-one-partition",
        "commit",
        {"partitions": 1},
        SHORT,
        (Row("OffsetCommit, {partitions} partition, 64 connections: CPU", CPU, "us", floor=18),),
    ),
    _commit_spread(10),
    _commit_spread(50),
    _commit_spread(50, is_slow=True),
    Case(
        "bounce",
        "bounce",
        {"size": 500, "restarts": 500},
        {"size": 20, "restarts": 40},
        (
            Row("restart of a static member in a group of {size:,}: CPU", "cpu_us_per_restart", "us", floor=120),
            Row(
                "restart of a static member in a group of {size:,}: log", "log_bytes_per_restart", "bytes", floor=KAFKA
            ),
            Row("as many bytes written and synced by themselves: CPU", "bare_sync_us", "us"),
        ),
        KAFKAS,
    ),
    Case(
        "bounce-16",
        "bounce",
        {"size": 500, "restarts": 800, "at_once": 16},
        {"size": 20, "restarts": 40, "at_once": 4},
        (Row("restart, {at_once} of {size:,} members at a time: CPU", "cpu_us_per_restart", "us"),),
        KAFKAS,
    ),
    Case(
        "storm",
        "storm",
        {"size": 1_000},
        {"size": 50},
        (Row("{size:,} dynamic members at once until all synced", "storm_s", "s", floor=0.12),),
        KAFKAS,
    ),
    Case(
        "storm-5000",
        "storm",
        {"size": 5_000},
        {"size": 100},
        (Row("{size:,} dynamic members at once until all synced", "storm_s", "s"),),
        KAFKAS,
    ),
    Case(
        "groups",
        "groups",
        {"steps": [10, 10_000, 100_000]},
        {"steps": [10, 100, 200], "seconds": 0.3},
        (
            *_groups(1),
            *_groups(2),
            Row("heartbeat of {steps[0]:,} groups in turn: CPU", "heartbeat_us_0", "us"),
            *_flat(1),
            *_flat(2),
        ),
        KAFKAS,
        repeat_max=3,
    ),
    Case(
        "groups-slow",
        "groups",
        {"steps": [10, 10_000, 100_000]},
        {"steps": [10, 100, 200], "seconds": 0.3},
        (
            *map(_groups_slow, (1, 2)),
            *(
                Row(f"{{steps[{step}]:,}} groups of one, 2 ms a sync: until all are formed", f"forming_s_{step}", "s")
                for step in (1, 2)
            ),
        ),
        (TENURE,),
        repeat_max=3,
        is_slow=True,
    ),
    Case(
        "connections",
        "connections",
        {"count": 10_000, "pause_s": 3},
        {"count": 100, "pause_s": 0.2},
        (
            Row("{count:,} connections, a heartbeat each {pause_s:g} s: of a core", "percent_of_a_core", "%", floor=8),
            Row(
                "{count:,} connections, a heartbeat each {pause_s:g} s: ratio to the echo",
                "percent_of_a_core",
                "",
                to=To(server=ECHO),
            ),
            Row(
                "{count:,} connections: heartbeats not answered in time",
                "percent_missed",
                "%",
                floor=0,
            ),
            Row(
                "{count:,} connections: memory of each, with its group of one",
                "resident_bytes_per_connection",
                "kB",
                floor=12,
                scale=1000,
            ),
        ),
    ),
    _records(1_000),
    _records(100),
    Case(
        "transaction",
        "transaction",
        {"connections": 64, "seconds": 5.0},
        SHORT,
        (
            Row(
                "transaction of a record and a commit, {connections} producers: CPU, ratio to Apache Kafka",
                CPU,
                "",
                floor=0.5,
                to=To(server=KAFKA),
            ),
            Row("transaction of a record and a commit, {connections} producers: CPU", CPU, "us"),
            Row("transaction of a record and a commit, {connections} producers", "requests_per_s", "/s"),
        ),
        KAFKAS,
        newer=True,
    ),
    Case(
        "ids",
        "ids",
        {"count": 10_000},
        {"count": 100},
        (
            Row("{count:,} idle transactional ids: memory of each", "resident_bytes_per_id", "kB", scale=1000),
            Row("{count:,} idle transactional ids: CPU of each InitProducerId", "cpu_us_per_id", "us"),
        ),
        KAFKAS,
        fresh=True,
        repeat_max=3,
        newer=True,
    ),
    Case(
        "start",
        "idle",
        {},
        SHORT,
        (
            Row("cold start to first JoinGroup answer", "start_s", "s", floor=0.3),
            Row("idle: resident memory", "resident_mib", "MiB", floor=50),
        ),
        KAFKAS,
        fresh=True,
    ),
    _consumer_heartbeat(64),
    _consumer_heartbeat(1_000),
    Case(
        "consumer-storm",
        "consumer_storm",
        {"size": 1_000, "partitions": 1_000},
        {"size": 50, "partitions": 50},
        (
            Row("consumer protocol: {size:,} members at once until all have their partitions", "storm_s", "s"),
            Row("consumer protocol: {size:,} members at once: CPU of each", "cpu_us_per_member", "us"),
            Row(
                "consumer protocol: memory of each of {size:,} members",
                "resident_bytes_per_member",
                "kB",
                scale=1000,
            ),
        ),
        KAFKAS,
        newer=True,
    ),
    Case(
        "consumer-bounce",
        "consumer_bounce",
        {"size": 500, "restarts": 500},
        {"size": 20, "restarts": 40},
        (
            Row(
                "consumer protocol: a static member of {size:,} goes away and comes back: CPU",
                "cpu_us_per_restart",
                "us",
            ),
            Row(
                "consumer protocol: a static member of {size:,} goes away and comes back: log",
                "log_bytes_per_restart",
                "bytes",
                floor=KAFKA,
            ),
        ),
        KAFKAS,
        newer=True,
    ),
    _consumer_latency(),
    _latency(
        "joins", "{parameters[size]:,} members join", {"beside": "storm", "parameters": {"size": 1_000}}, {"size": 50}
    ),
    _latency(
        "writes",
        "a group of {parameters[size]} is written (600: 100 kB)",
        {"beside": "bounce", "parameters": {"size": 600, "restarts": 600}},
        {"size": 20, "restarts": 40},
    ),
    _latency(
        "compaction",
        "compaction runs",
        {"beside": "commit", "parameters": {"connections": 1, "partitions": 100, "seconds": 5}, "compacts": True},
        {"connections": 1, "partitions": 100, "seconds": 1},
        settings={"offsets.topic.segment.bytes": "1048576", "log.cleaner.backoff.ms": "100"},
    )._replace(servers=(TENURE,)),
    _latency(
        "restarts",
        "members of a group of {parameters[size]} restart",
        {"beside": "bounce", "parameters": {"size": 100, "restarts": 1_500}},
        {"size": 20, "restarts": 40},
        settings={"tenure.events.enable": "false"},
    )._replace(servers=(TENURE,)),
    _latency(
        "sinks",
        "the same happens and all sinks of events and metrics hang",
        {"beside": "sinks", "parameters": {"readers": 20, "size": 100, "restarts": 1_500}},
        {"readers": 2, "size": 20, "restarts": 40},
        settings={"tenure.http": "127.0.0.1:0", "tenure.statsd": "127.0.0.1:9", "tenure.statsd.interval.ms": "1000"},
        hangs=True,
        beside="latency-restarts",
    )._replace(servers=(TENURE,)),
    Case(
        "heartbeat-tls",
        "heartbeat",
        {"connections": 64},
        {"connections": 6, **SHORT},
        (
            Row(
                "heartbeat over TLS, {connections} connections: CPU, ratio to the echo",
                CPU,
                "",
                floor=1.25,
                to=To(server=ECHO),
            ),
            Row(
                "heartbeat over TLS, {connections} connections: CPU, ratio to Apache Kafka",
                CPU,
                "",
                to=To(server=KAFKA),
            ),
            Row("heartbeat over TLS, {connections} connections: CPU", CPU, "us"),
        ),
        listener="SSL",
    ),
    Case(
        "handshakes-tls",
        "handshakes",
        {"total": 2_000, "at_once": 8},
        {"total": 40, "at_once": 4},
        (Row("new connection, TLS 1.3, ApiVersions, close: CPU", "cpu_us_per_handshake", "us"),),
        listener="SSL",
    ),
    *_crowd("SSL", "TLS"),
    *_crowd("SCRAM", "TLS, log in by SCRAM-SHA-512"),
    *_crowd("PLAIN", "TLS, log in by PLAIN"),
)
