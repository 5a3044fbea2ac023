"""The logs behind the answers: Kafka's own tool reads ours, and finds the records that Kafka itself writes.

The scripts about groups are played on both servers, which are then stopped; kafka-dump-log shows both logs.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest
from tests.oracle.conftest import NODES, ONE_AFTER_THE_OTHER, SAME_NAME
from tests.oracle.dumped import DumpedRecord, dump, history, last_payloads
from tests.oracle.player import play_together
from tests.oracle.script import Case, cases
from tests.oracle.stage import Server, Stage, at_once
from tests.oracle.transcript import Transcript
from tests.support.apache import ApacheKafka
from tests.support.cases import each
from tests.support.raw import Connection
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

PLAYED = [
    case
    for case in cases()
    if case.node == "open" and not case.restarts and case.file in {"checks", "static", "dynamic", "offsets"}
]
SETTLED_AFTER_MS = 2_500
"""Longer than any timeout that still runs when the last script ends, but for those of members that stay."""


class Logs(NamedTuple):
    """Both logs, and how the groups of Tenure looked before it was stopped."""

    kafka: list[DumpedRecord]
    tenure: list[DumpedRecord]
    described: list[DescribeGroupsResponse.DescribedGroup]
    members: dict[str, str]


@pytest.fixture(scope="module")
def logs(kafka_is_here: None) -> Iterator[Logs]:
    """Both servers after all scripts, stopped, and their logs read by Kafka's tool."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka({**NODES["open"], **SAME_NAME, **ONE_AFTER_THE_OTHER}))
        tenure = stack.enter_context(Tenure({**NODES["open"], **SAME_NAME}))
        expected, found = at_once(lambda: _play_all(kafka), lambda: _play_all(tenure))
        members = {random: name for played in (*expected, *found) for random, name in played.member_names().items()}
        described = _describe_all(tenure.port)
        kafka.stop()
        tenure.stop()
        yield Logs(dump(kafka.log_dir), dump(tenure.data_dir), described, members)


def test_kafkas_tool_reads_the_groups_that_were_there(logs: Logs) -> None:
    """The newest record of each Stable group has its members with their assignments, its generation and its leader."""
    payloads = last_payloads(logs.tenure)
    stable = [group for group in logs.described if group.group_state == "Stable"]
    assert len(stable) >= 10
    for group in stable:
        payload = payloads[group.group_id]
        assert payload["version"] == "3"
        data = payload["data"]
        assert (data["protocolType"], data["protocol"]) == (group.protocol_type, group.protocol_data)
        assert data["leader"] in {member.member_id for member in group.members}
        assert {member["memberId"]: base64.b64decode(member["assignment"]) for member in data["members"]} == {
            member.member_id: member.member_assignment for member in group.members
        }


@each("case", PLAYED)
def test_log_has_the_records_that_kafka_writes(case: Case, logs: Logs) -> None:
    """Each group of a case has the same records in the same order in both logs: none missing, none besides.

    But for the tombstone of a group that has no record of its own: only Kafka 4 writes it.
    """
    groups = {record.group for record in (*logs.kafka, *logs.tenure) if f"{record.group}.".startswith(f"{case.name}.")}
    for group in groups:
        assert history(as_in_39(logs.tenure), group, logs.members) == history(logs.kafka, group, logs.members)


def as_in_39(records: list[DumpedRecord]) -> list[DumpedRecord]:
    """The records without tombstones of groups that had no record of their own."""
    known: set[str] = set()
    found = []
    for record in records:
        is_own = record.key["type"] == "2"
        if is_own and record.payload is not None:
            known.add(record.group)
        if not is_own or record.group in known:
            found.append(record)
    return found


def _play_all(server: Server) -> list[Transcript]:
    played = [played.stage.transcript for played in play_together(PLAYED, server)]
    settling = Stage(server, "settling")
    settling.pass_time(SETTLED_AFTER_MS)
    settling.close()
    return played


def _describe_all(port: int) -> list[DescribeGroupsResponse.DescribedGroup]:
    with Connection(port) as connection:
        listed = connection.ask(ListGroupsRequest(), 4).groups
        request = DescribeGroupsRequest(groups=[group.group_id for group in listed])
        described: list[DescribeGroupsResponse.DescribedGroup] = connection.ask(request, 5).groups
    return described
