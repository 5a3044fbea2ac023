"""Real clients whose joins a group holds for expected members: none gets lost, however long the wait is.

House rule: the members that wait are of one client, so that a failure names it.
"""

from __future__ import annotations

import pytest

from protocol.messages import IncrementalAlterConfigsRequest
from tests.interop.clients import clients_named
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.support.raw import Connection
from tests.support.tenure import Tenure

GROUP_RESOURCE = 32
SEATS = ("seat-0", "seat-1", "seat-2")
HELD = ("aiokafka", "confluent-kafka", "franz-go", "kafka-clients-3", "kafka-clients-4", "kafka-python")
REBALANCE_TIMEOUT_MS = 6_000
"""The shortest that librdkafka takes with the shortest session timeout."""


def expect(port: int, group: str, **own: str) -> None:
    """Set a group's settings, as kafka-configs does."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name.replace("_", "."), value=value)
        for name, value in own.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=configs
    )
    with Connection(port) as connection:
        answer = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert not answer.responses[0].error_code, answer  # type: ignore[attr-defined]


@pytest.mark.parametrize("client", clients_named(*HELD), indirect=True)
def test_a_held_client_outlives_its_rebalance_timeout(client: str) -> None:
    """The group asks it to join again. It does, and takes part in the one rebalance when the last member is there."""
    with Tenure({"tenure.topics": "orders:6"}) as server, Fleet(server.bootstrap, "orders", 6) as fleet:
        expect(server.port, "held", expected_instance_ids="seat-0..2", expected_instance_ids_timeout_ms="600000")
        mark = server.mark()

        def start(seat: str) -> ConsumerProcess:
            return fleet.start(client, "held", group_instance_id=seat, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS)

        members = [start(seat) for seat in SEATS[:2]]
        server.wait_for_event("rebalance_held", "held", since=mark)
        clock = fleet.start("confluent-kafka", "clock")  # it polls, which not every client does while its join is held
        fleet.wait_while_polling([clock], 2.5 * REBALANCE_TIMEOUT_MS / 1_000)
        assert server.count("rebalance_started", "held", since=mark) == 0
        members.append(start(SEATS[2]))
        fleet.close(clock)
        assert fleet.wait_until_shared(members) == 1
        assert server.count("rebalance_started", "held", since=mark) == 1
        assert server.count("hold_ended", "held", since=mark) == 1
