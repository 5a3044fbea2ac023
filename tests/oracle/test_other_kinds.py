"""Share and streams groups of Apache Kafka 4.4: each command names the kind, and none says that there is no such group.

Tenure has no such groups, and Kafka's share consumer says so.

House rule: a member joins by a request that kio encodes, because this project has no such requests.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
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
from coordinator.cli.main import make_app
from tests.cli.conftest import Ran, at, run_app
from tests.interop.java.tools import Tools
from tests.observe.test_observer import observing
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
STAYS = {f"group.{kind}.{name}session.timeout.ms": "3600000" for kind in KINDS for name in ("max.", "")}


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


def test_each_command_names_the_kind(kafka: ApacheKafka, tmp_path: Path) -> None:
    """The commands about one group end with exit code 6 and HTTP answers 501; lists of all groups leave it out."""
    with ExitStack() as stack:
        for kind in KINDS:
            connection = stack.enter_context(Connection(kafka.port))
            wait_until(partial(is_member, connection, joined(kind)), "a member", WITHIN_S)

        def run(*words: str) -> Ran:
            return run_app(make_app(words[0]), *words, *at(kafka.bootstrap))

        assert {row["GROUP"]: row["TYPE"] for row in run("groups", "list").rows} == {kind: kind for kind in KINDS}
        for kind in KINDS:
            for words in (
                ("groups", "describe", kind),
                ("groups", "describe", kind, "--state"),
                ("groups", "ready", kind),
                ("groups", "wait", kind, "--members", "1"),
                ("members", "remove", "--group", kind, "--instance-id", "a"),
                ("members", "remove", "--group", kind, "--all-absent"),
                ("explain", kind),
                ("doctor", kind),
            ):
                ran = run(*words)
                assert (words, ran.code, ran.out) == (words, ExitCode.OTHER_KIND, "")
                assert f"group {kind} is a {kind} group (" in ran.err
            refused = run("groups", "delete", kind)
            assert (refused.code, "still has members" in refused.err) == (ExitCode.REFUSED, True)
        assert run("groups", "describe", "--all", "--members").code == ExitCode.DONE
        assert run("doctor", "--all").code == ExitCode.DONE
        assert run("explain", "none").code == ExitCode.NOT_FOUND
        observer = stack.enter_context(observing(kafka.bootstrap, tmp_path))
        for kind in KINDS:
            for path in (f"/groups/{kind}", f"/groups/{kind}/events", f"/lag?group={kind}"):
                assert (path, observer.status(path)) == (path, 501)


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
