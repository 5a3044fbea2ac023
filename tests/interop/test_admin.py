"""The clients' admin halves describe a group and change it.

aiokafka's admin client speaks DescribeGroups up to v2, which has no instance ids.

House rule: conftest.py's.
"""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Broker
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.support.length import most_are_long
from tests.support.patience import WITHIN_S

with warnings.catch_warnings():
    # It reads its message definitions in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient, MemberToRemove

SEATS = ("seat-0", "seat-1")


@dataclass(frozen=True, slots=True)
class Description:
    """A group as an admin client sees it; members: instance id and partitions by member id."""

    listed: bool
    state: str
    protocol_name: str
    members: dict[str, tuple[str | None, tuple[int, ...]]]


def described_by_confluent(bootstrap: str, group: str) -> Description:
    """AdminClient of confluent-kafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
    listing = admin.list_consumer_groups().result(WITHIN_S)
    assert listing.errors == []
    return Description(
        group in {listed.group_id for listed in listing.valid},
        found.state.name.capitalize(),
        found.partition_assignor,
        {
            member.member_id: (
                member.group_instance_id,
                tuple(sorted(owned.partition for owned in member.assignment.topic_partitions)),
            )
            for member in found.members
        },
    )


def described_by_kafka_python(bootstrap: str, group: str) -> Description:
    """kafka-python's KafkaAdminClient."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        found = admin.describe_groups([group])[group]
        listing = admin.list_groups()
    finally:
        admin.close()
    assert found["error"] is None
    return Description(
        group in {listed["group_id"] for listed in listing},
        found["group_state"],
        found["protocol_data"],
        {
            member["member_id"]: (
                member["group_instance_id"],
                tuple(sorted(member["member_assignment"]["assigned_partitions"][0]["partitions"])),
            )
            for member in found["members"]
        },
    )


def described_by_aiokafka(bootstrap: str, group: str) -> Description:
    """AIOKafkaAdminClient, which hands over the response as it came."""

    async def ask() -> tuple[list[Any], list[tuple[Any, ...]]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await admin.start()
            return await admin.describe_consumer_groups([group]), await admin.list_consumer_groups()
        finally:
            await admin.close()

    responses, listing = asyncio.run(ask())
    ((error_code, group_id, state, _protocol_type, protocol_name, members),) = responses[0].groups
    assert (error_code, group_id) == (0, group)
    described: dict[str, tuple[str | None, tuple[int, ...]]] = {}
    for member_id, _client_id, _client_host, _metadata, assignment in members:
        ((_topic, partitions),) = ConsumerProtocolMemberAssignment.decode(assignment).assignment
        described[member_id] = (None, tuple(sorted(partitions)))
    return Description(group in {name for name, _type in listing}, state, protocol_name, described)


DESCRIBED_BY = {
    "aiokafka": described_by_aiokafka,
    "confluent-kafka": described_by_confluent,
    "kafka-python": described_by_kafka_python,
}


def start_static(fleet: Fleet, client: str, group: str) -> list[ConsumerProcess]:
    """Two static members that share the topic."""
    consumers = [fleet.start(client, group, group_instance_id=seat) for seat in SEATS]
    fleet.wait_until_shared(consumers)
    return consumers


@pytest.mark.parametrize("client", most_are_long(sorted(DESCRIBED_BY), lambda client: client == "confluent-kafka"))
def test_admin_client_sees_the_group_as_its_members_do(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """List and describe show the state, the protocol name, and each member with the partitions that it says it owns."""
    consumers = start_static(fleet, client, group)
    description = DESCRIBED_BY[client](broker.bootstrap, group)
    assert description == Description(
        listed=True,
        state="Stable",
        protocol_name="range",
        members={
            consumer.membership.member_id: (
                None if client == "aiokafka" else consumer.settings.group_instance_id,
                consumer.membership.partitions,
            )
            for consumer in consumers
        },
    )


@pytest.mark.parametrize("client", ["confluent-kafka"])
def test_static_members_are_removed_and_the_group_is_deleted(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """Members leave by instance id through an admin client (KIP-345), and only then the group can be deleted.

    Of the three only kafka-python can remove members; a removed member learns it from its next heartbeat.
    """
    consumers = start_static(fleet, client, group)
    for consumer in consumers:
        consumer.kill()
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            confluent.delete_consumer_groups([group])[group].result(WITHIN_S)
        removed = admin.remove_group_members(
            group,
            [
                MemberToRemove(group_instance_id=SEATS[0], reason="scaled in"),
                MemberToRemove(group_instance_id="nobody"),
                MemberToRemove(group_instance_id=SEATS[1]),
            ],
        )
        assert {name: error.__name__ for name, error in removed.items()} == {
            SEATS[0]: "NoError",
            "nobody": "UnknownMemberIdError",
            SEATS[1]: "NoError",
        }
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
        assert confluent.delete_consumer_groups([group])[group].result(WITHIN_S) is None
        assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}
    finally:
        admin.close()
