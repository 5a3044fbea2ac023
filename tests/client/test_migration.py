"""The facts about a group that may change its protocol, as a server tells them."""

from __future__ import annotations

from coordinator.client.client import Client
from coordinator.client.groups import described_group
from coordinator.client.migration import facts_of
from coordinator.story import migration
from coordinator.story.migration import BROKER_SETTINGS, Facts
from protocol.messages import ApiVersionsRequest, ConsumerProtocolAssignment, encode
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import join_request, sync_request
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until


def test_a_server_tells_all_of_it() -> None:
    """Its APIs, its settings, those of the group, and of each member the library and the session timeout."""
    with Tenure({"group.consumer.max.size": "7", "group.initial.rebalance.delay.ms": "0"}) as server:
        member = Member(server.port, "g", "one", 9, instance="seat", session_ms=50_000)
        member.connection.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1.2"), 3)
        settle(member)
        with Client(server.bootstrap, WITHIN_S) as client:

            def told() -> Facts | None:
                found = facts_of(client, described_group(client, "g"))
                return found if found.entries else None

            facts = wait_until(told, "the event, which comes a moment after the answer", WITHIN_S)
        hang_up()
    cluster = facts.cluster
    assert (cluster.heartbeat, cluster.level) == (1, None)
    assert cluster.settings is not None
    assert set(cluster.settings) == set(BROKER_SETTINGS)
    assert (cluster.setting(migration.SIZE_MAX), cluster.own) == ("7", {migration.OWN_SESSION: "45000"})
    assert facts.clients == {member.member_id: migration.Client("a 1.2", has_data=False)}
    assert [each.session_timeout_ms for each in facts.group.members] == [50_000]
    assert (facts.protocol_type, facts.protocol_name) == ("consumer", "range")
    assert not isinstance(facts.entries, str)
    assert [entry.type for entry in facts.entries] == ["rebalance"]
    assert facts.lines != "", "nothing is refused"


def test_data_in_an_assignment_is_seen() -> None:
    """Bytes that are no assignment of a consumer count as data too: a coordinator could not keep them."""
    assert {data: has_data(data) for data in ("none", "some", "bytes")} == {"none": False, "some": True, "bytes": True}


def has_data(kind: str) -> bool:
    """Whether a member with such an assignment has data of its assignor."""
    bodies = {"none": None, "some": b"data"}
    given = b"\x00"
    if kind in bodies:
        given = b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=[], user_data=bodies[kind]), 0)
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as server:
        connection = Connection(server.port)
        joined = connection.ask(join_request("g", instance="seat"), 5)
        member_id, generation = joined.member_id, joined.generation_id
        connection.ask(sync_request("g", generation, member_id, "seat", {member_id: given}), 3)
        with Client(server.bootstrap, WITHIN_S) as client:
            facts = facts_of(client, described_group(client, "g"))
        connection.close()
    return facts.clients[member_id].has_data
