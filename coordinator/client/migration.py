"""The facts from which coordinator.story.migration tells whether a group may change its protocol.

Describe on the group and its topics shows most of them. More rights show more: DescribeConfigs on the cluster the
broker's settings, on the group its own; Read on the log of groups its history and, on Apache Kafka, session timeouts.

House rule: a refusal leaves out what was refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.client.client import Client as Asking
from coordinator.client.client import Node
from coordinator.client.connection import Address
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import describe_request, of_each
from coordinator.client.lag import known_lines
from coordinator.client.newest import read_timelines
from coordinator.client.offsets_log import OffsetsReader, reader_of
from coordinator.client.topics import BROKER, GROUP, described_settings
from coordinator.story.described import Group
from coordinator.story.entries import Entry
from coordinator.story.migration import BROKER_SETTINGS, OWN_SESSION, Client, Cluster, Facts
from protocol.consumer import CONSUMER, decode_versioned
from protocol.errors import ProtocolError
from protocol.messages import ApiVersionsRequest, ConsumerGroupHeartbeatRequest, ConsumerProtocolAssignment

if TYPE_CHECKING:
    from protocol.messages import ApiVersionsResponse, DescribeGroupsResponse


def facts_of(client: Asking, group: Group) -> Facts:
    """Ask for all facts about a group. Raises as the client does, but not for a refusal; see the house rule."""
    entries, sessions = _history(client, group.group_id)
    members = [
        replace(member, session_timeout_ms=sessions[member.member_id]) if member.member_id in sessions else member
        for member in group.members
    ]
    lines = known_lines(client, [group])[group.group_id]
    return Facts(
        _cluster(client, group),
        replace(group, members=members),
        group.protocol_type,
        group.protocol_name,
        {} if group.consumer is not None else _clients(client, group.group_id),
        str(lines) if isinstance(lines, Refused) else lines,
        entries,
    )


def _history(client: Asking, group_id: str) -> tuple[list[Entry] | str, dict[str, int]]:
    """The timeline, or why there is none; session timeouts by member id, where the log of groups has them."""
    try:
        reader = reader_of(client, group_id)
        entries = read_timelines(reader, [group_id])[group_id].entries
    except Refused as refused:
        return str(refused), {}
    observed = reader.observed_of(group_id) if isinstance(reader, OffsetsReader) else None
    return entries, {} if observed is None else observed.session_timeouts_of(group_id)


def _clients(client: Asking, group_id: str) -> dict[str, Client]:
    """The words of a classic group's members about themselves, by member id."""

    def words(group: DescribeGroupsResponse.DescribedGroup, _: object) -> dict[str, Client]:
        return {
            each.member_id: Client(each.client_software, _has_data(group.protocol_type, each.member_assignment))
            for each in group.members
        }

    answer = client.ask_coordinators([group_id], describe_request, of_each(words))[group_id]
    return {} if isinstance(answer, Refused) else answer


def _has_data(protocol_type: str, assignment: bytes) -> bool:
    """Whether an assignment has more than topic partitions, or can't be read: then a coordinator can't keep it."""
    if protocol_type != CONSUMER or not assignment:
        return False
    try:
        return bool(decode_versioned(ConsumerProtocolAssignment, assignment)[1].user_data)
    except ProtocolError:
        return True


def _cluster(client: Asking, group: Group) -> Cluster:
    heartbeats, levels, versions = [], [], []
    for node in client.nodes():
        ask = ApiVersionsRequest(client_software_name="tenure", client_software_version="0")
        try:
            answer: ApiVersionsResponse = client.request(ask, node, at_least=3)
        except (Refused, Unreachable):  # Kafka before 2.4, or a node that is away
            continue
        apis = {each.api_key: each.max_version for each in answer.api_keys}
        heartbeats.append(apis.get(ConsumerGroupHeartbeatRequest.API_KEY, -1))
        levels += [each.max_version for each in answer.supported_features if each.name == "metadata.version"]
        versions += [each.max_version_level for each in answer.finalized_features if each.name == "group.version"]
    node = Node(group.coordinator.node_id, Address(group.coordinator.host, group.coordinator.port))
    return Cluster(
        min(heartbeats, default=-1),
        min(levels, default=None),
        min(versions, default=0),
        _settings(client, BROKER, str(node.node_id), BROKER_SETTINGS, node),
        _settings(client, GROUP, group.group_id, (OWN_SESSION,), node),
    )


def _settings(client: Asking, kind: int, name: str, names: tuple[str, ...], node: Node) -> dict[str, str] | None:
    """Settings of a broker or a group, as its node tells them; None if it doesn't."""
    try:
        (result,) = described_settings(client, kind, [name], names, node)
    except Refused:
        return None
    return None if result.error_code else {each.name: each.value or "" for each in result.configs}
