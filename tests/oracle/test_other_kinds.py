"""Share and streams groups of Apache Kafka 4.4, with Kafka Streams and share consumers: described, and never denied.

Tenure has no such groups, and Kafka's share consumer says so.

House rule: Kafka's own tools say what is right. Where a member alone is enough, it joins by a request that kio encodes,
because this project has no such requests.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.serial import entity_writer

from coordinator.cli.exit_codes import ExitCode
from coordinator.cli.log.decoded import MEMBER_STATES, STREAMS_STATES
from coordinator.story.records.consumer import READ_VERSIONS, SHARE_VERSIONS, STREAMS_VERSIONS
from coordinator.story.records.values import UNKNOWN_KIND, UNREADABLE_KIND
from tests.audit.spark.conftest import LEFT_OPEN
from tests.cli.conftest import Ran, at, make_app, run_app
from tests.interop.java.process import WAIT_S
from tests.interop.java.tools import Tools
from tests.interop.test_java_streams import INSTANCES, PARTITIONS, Application
from tests.observe.test_observer import observing
from tests.oracle.dumped import dump
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

pytestmark = pytest.mark.oracle

# kio has types of its own for numbers and names.
share: Any = import_module("kio.schema.share_group_heartbeat.v1.request")
streams: Any = import_module("kio.schema.streams_group_heartbeat.v0.request")
RequestHeader: Any = import_module("kio.schema.request_header.v2.header").RequestHeader

TOPIC = "orders"
KINDS = ("share", "streams")
STAYS = {f"group.{kind}.{name}session.timeout.ms": "3600000" for kind in KINDS for name in ("max.", "")} | {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.assignor.offload.enable": "false",
}


def joined(kind: str) -> Any:
    """A first heartbeat of the group `kind`."""
    if kind == "share":
        member: dict[str, Any] = {"group_id": kind, "member_id": str(uuid4()), "member_epoch": 0}
        return share.ShareGroupHeartbeatRequest(**member, subscribed_topic_names=(TOPIC,))
    part = streams.Subtopology(
        subtopology_id="0",
        source_topics=(TOPIC,),
        state_changelog_topics=(),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    return streams.StreamsGroupHeartbeatRequest(
        group_id=kind,
        member_id=str(uuid4()),
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout=timedelta(minutes=1),
        topology=streams.Topology(epoch=0, subtopologies=(part,)),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="p",
        client_tags=(),
        task_offsets=(),
        task_end_offsets=(),
    )


def is_member(connection: Connection, request: Any) -> bool:
    """Send a heartbeat; whether its sender is a member."""
    body = io.BytesIO()
    header = RequestHeader(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=1,
        client_id="member",
    )
    entity_writer(RequestHeader)(body, header)
    entity_writer(type(request))(body, request)
    connection.send_bytes(struct.pack(">i", body.tell()) + body.getvalue())
    # Correlation id, no tags, throttle time, error code.
    return bool(struct.unpack_from(">ixih", connection.receive_frame())[2] == 0)


@pytest.fixture(scope="module")
def kafka(kafka_is_here: None) -> Iterator[ApacheKafka]:
    """A node of Kafka 4.4.0 with a topic."""
    with ApacheKafka(STAYS, version=VERSION_44) as node:
        make_topics(node.bootstrap, {TOPIC: 1})
        yield node


def run(kafka: ApacheKafka, *words: str) -> Ran:
    """Run a command of ours."""
    return run_app(make_app(words[0]), *words, *at(kafka.bootstrap))


def test_each_command_works_or_names_the_kind(kafka: ApacheKafka, tmp_path: Path) -> None:
    """Groups are described, waited for and examined; what only consumers have ends with exit code 6, or 501."""
    with ExitStack() as stack:
        for kind in KINDS:
            connection = stack.enter_context(Connection(kafka.port))
            wait_until(partial(is_member, connection, joined(kind)), "a member", WITHIN_S)

        listed = {(row["GROUP"], row["TYPE"]) for row in run(kafka, "groups", "list").rows}
        assert listed == {(kind, kind) for kind in KINDS}
        for kind in KINDS:
            for words in (
                ("groups", "ready", kind),
                ("members", "remove", "--group", kind, "--instance-id", "a"),
                ("members", "remove", "--group", kind, "--all-absent"),
                ("members", "alive", "--group", kind, "--instance-id", "a"),
                *([("explain", kind)] if kind == "share" else []),
            ):
                ran = run(kafka, *words)
                assert (words, ran.code, ran.out) == (words, ExitCode.OTHER_KIND, "")
                assert f"group {kind} is a {kind} group (" in ran.err
            assert "1 group looked at: " in run(kafka, "doctor", kind).out
            [member] = run(kafka, "groups", "describe", kind, "--members").rows
            assert (member["GROUP"], member["CLIENT-ID"]) == (kind, "member")
            refused = run(kafka, "groups", "delete", kind)
            assert (refused.code, "still has members" in refused.err) == (ExitCode.REFUSED, True)
        assert run(kafka, "groups", "wait", "share", "--members", "1").code == ExitCode.DONE
        assert {row["GROUP"] for row in run(kafka, "groups", "describe", "--all", "--state").rows} == set(KINDS)
        assert "2 groups looked at" in run(kafka, "doctor", "--all").out
        assert run(kafka, "explain", "none").code == ExitCode.NOT_FOUND
        observer = stack.enter_context(observing(kafka.bootstrap, tmp_path))
        for kind in KINDS:
            for path, status in (
                (f"/groups/{kind}", 200),
                (f"/groups/{kind}/events", 200),
                (f"/lag?group={kind}", 200),
                (f"/alive?group={kind}&instance-id=a", 501),
            ):
                assert (path, observer.status(path)) == (path, status)


def test_a_streams_group_is_described_and_explained(kafka: ApacheKafka, tmp_path: Path) -> None:
    """Two programs count words: members, tasks and lag are as Kafka's tools and the programs say.

    One of them is closed: explain and an observer say which tasks moved from it to the other.
    """
    group = Application(kafka, tmp_path, release=VERSION_44, is_streams_group=True)
    with ExitStack() as stack:
        stack.callback(group.end)
        make_topics(kafka.bootstrap, dict.fromkeys((group.lines, group.results), PARTITIONS))
        for name in INSTANCES:
            group.start(name)
        group.write(3)

        def is_told() -> bool:
            [told] = run(kafka, "groups", "describe", group.name, "--output", "json").json
            tasks = [member["tasks"]["active"] for member in told["members"]]
            return sorted(len(each.get(part, ())) for each in tasks for part in "01") == [2] * 4 and all(
                line["lag"] == 0 for line in told["offsets"] if line["current_offset"] is not None
            )

        wait_until(is_told, "both have two tasks of each subtopology, and have read all", WAIT_S)
        [told] = run(kafka, "groups", "describe", group.name, "--output", "json").json
        assert (told["group_type"], told["state"]) == ("streams", "Stable")
        assert [part["source_topics"] for part in told["topology"]["subtopologies"]] == [
            [group.lines],
            [group.repartition],
        ]
        assert len({member["process_id"] for member in told["members"]}) == 2
        with Tools(VERSION_44) as tools:
            where = ("--bootstrap-server", kafka.bootstrap, "--describe", "--group", group.name)
            said = tools.run("streams-groups", *where)
        rows = [row for row in map(str.split, said.out.splitlines()) if row[:1] == [group.name]]
        theirs = {(row[1], int(row[2])): int(row[-1]) for row in rows}
        ours = {(line["topic"], line["partition"]): line["lag"] for line in told["offsets"]}
        assert {place: lag for place, lag in ours.items() if lag is not None}.items() <= theirs.items(), said.out

        observer = stack.enter_context(observing(kafka.bootstrap, tmp_path))
        group.close("two")

        def is_explained() -> bool:
            said = run(kafka, "explain", group.name, "--last", "1").out
            return "members 2 -> 1, 4 tasks moved (task 0-" in said and " leaves (" in said

        wait_until(is_explained, "the tasks have moved", WAIT_S)

        def is_on_page() -> bool:
            return "members 2 -> 1, 4 tasks moved" in json.dumps(observer.get(f"/groups/{group.name}/events"))

        wait_until(is_on_page, "the page has it", WAIT_S)


def has_all(ours: Any, theirs: Any, states: Mapping[int, str]) -> bool:
    """Whether our fields have all values of Kafka's, which leaves out tagged fields that have their defaults."""
    if isinstance(theirs, dict):
        said = {re.sub("[A-Z]", r"_\g<0>", name).lower(): value for name, value in theirs.items()}
        if "state" in said:
            said["state"] = states[said["state"]]
        return all(has_all(ours[name], value, states) for name, value in said.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(has_all(*pair, states) for pair in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


def our_dump(kafka: ApacheKafka) -> list[dict[str, Any]]:
    """The records of groups of newer protocols in Kafka's log, as our command shows them."""
    ran = run_app(make_app("log"), "log", "dump", str(kafka.log_dir), "--output", "json")
    return [line for line in map(json.loads, ran.out.splitlines()) if line["kind"] in READ_VERSIONS]


@pytest.fixture(scope="module")
def used(kafka: ApacheKafka) -> ApacheKafka:
    """The node, with all records of a streams group and of a share group in its log."""
    with ExitStack() as stack:
        for kind in KINDS:
            connection = stack.enter_context(Connection(kafka.port))
            wait_until(partial(is_member, connection, joined(kind)), "a member", WITHIN_S)
        kinds = SHARE_VERSIONS.keys() | STREAMS_VERSIONS.keys()
        wait_until(lambda: {line["kind"] for line in our_dump(kafka)} >= kinds, "each record", WAIT_S)
    return kafka


def test_our_dump_of_share_and_streams_groups_is_kafkas(used: ApacheKafka) -> None:
    """Each record of a share or streams group has the fields that kafka-dump-log shows."""
    theirs = [record for record in dump(used.log_dir, VERSION_44) if int(record.key["type"]) in READ_VERSIONS.values()]
    ours = our_dump(used)
    assert {line["kind"] for line in ours} >= SHARE_VERSIONS.keys() | STREAMS_VERSIONS.keys()
    for record, line in zip(theirs, ours, strict=True):
        states = STREAMS_STATES if line["kind"] in STREAMS_VERSIONS else MEMBER_STATES
        assert has_all(line["key"], record.key["data"], states)
        assert (line["value"] is None) == (record.payload is None)
        assert record.payload is None or has_all(line["value"], record.payload["data"], states), (line, record)


@pytest.mark.parametrize(
    "engine", [(), pytest.param(("--spark", "--master", "local[1]"), marks=[pytest.mark.spark, LEFT_OPEN])]
)
def test_the_audit_reads_share_and_streams_groups(used: ApacheKafka, engine: tuple[str, ...], tmp_path: Path) -> None:
    """Each record has its kind, and none is unknown or unreadable; the groups have their types."""
    ran = run_app(make_app("audit"), "audit", str(used.log_dir), "--out", str(tmp_path), *engine)
    assert ran.code in {ExitCode.DONE, ExitCode.FINDINGS}, ran.err
    told = json.loads((tmp_path / "summary.json").read_text())
    counted = {kind: count for kind, count in told["records_by_type"].items() if kind in READ_VERSIONS}
    assert counted == Counter(line["kind"] for line in our_dump(used))
    assert counted.keys() >= SHARE_VERSIONS.keys() | STREAMS_VERSIONS.keys()
    assert not told["records_by_type"].keys() & {UNKNOWN_KIND, UNREADABLE_KIND}
    assert {name: told["groups"][name]["type"] for name in KINDS} == {name: name for name in KINDS}


def test_a_share_group_is_described_with_its_lag(kafka: ApacheKafka) -> None:
    """Ten records are produced and four are acknowledged: start offset and lag are those of Kafka's own tool."""
    with Tools(VERSION_44) as tools:
        at_kafka = ("--bootstrap-server", kafka.bootstrap)

        def used(script: str, *words: str, text: str = "") -> str:
            done = tools.run(script, *at_kafka, *words, text=text)
            assert done.code == 0, done
            return done.out

        used("configs", "--alter", "--entity-type", "groups", "--entity-name", "sharing",
             "--add-config", "share.auto.offset.reset=earliest")  # fmt: skip
        used("console-producer", "--topic", TOPIC, text="".join(f"{number}\n" for number in range(10)))
        used("console-share-consumer", "--topic", TOPIC, "--group", "sharing", "--max-messages", "4")
        [row] = (
            row for row in map(str.split, used("share-groups", "--describe", "--group", "sharing").splitlines())
            if row[:2] == ["sharing", TOPIC]
        )  # fmt: skip
        [ours] = run(kafka, "groups", "describe", "sharing").rows
        assert [ours[name] for name in ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG")] == row[:5]


def test_a_share_consumer_ends_where_there_are_no_share_groups(kafka: ApacheKafka) -> None:
    """It names the API that is missing, so none of its acknowledgements is tried again for ever (KAFKA-18899)."""
    with Tenure({"tenure.topics": f"{TOPIC}:1"}) as tenure, Tools(VERSION_44) as tools:
        said = [
            tools.run(
                "console-share-consumer",
                *("--bootstrap-server", server.bootstrap, "--topic", TOPIC, "--group", "read", "--timeout-ms", "1000"),
            )
            for server in (kafka, tenure)
        ]
    assert ["The node does not support SHARE_GROUP_HEARTBEAT" in each.err for each in said] == [False, True]
