"""Several workers: unmodified clients find the right one from any of them, and outlive the death of one.

House rule: conftest.py's.
"""

from __future__ import annotations

import os
import signal
import uuid

import pytest

from coordinator.group.partition import partition_for
from tests.interop.brokers import create_topic
from tests.interop.clients import PYTHON
from tests.interop.conftest import PARTITION_COUNT, SETTINGS
from tests.interop.fleet import Fleet
from tests.support.length import rounds
from tests.support.tenure import Tenure

SESSION_TIMEOUT_MS = 6_000
OFFSETS_PARTITIONS = 50
WORKERS = 2
CLIENTS = rounds(2, 3, 3)
PAST_A_SESSION_S = 1.1 * SESSION_TIMEOUT_MS / 1_000
AFTERWARDS_S = rounds(1.5, PAST_A_SESSION_S, PAST_A_SESSION_S)


def group_on(node_id: int) -> str:
    """A new group that the node coordinates."""
    while True:
        group = f"group-{uuid.uuid4().hex[:8]}"
        if partition_for(group, OFFSETS_PARTITIONS) % WORKERS == node_id:
            return group


@pytest.mark.early
@pytest.mark.interop
@pytest.mark.rounds
def test_static_members_outlive_a_worker() -> None:
    """A group on each node; each node is killed with SIGKILL, one after the other.

    Each client starts at the node that its group is not on. There was no rebalance anywhere, and member ids, partitions
    and generations are what they were; commits go on with the old generation. In `make test-long` that holds past a
    session timeout, and for groups of all three clients.
    """
    with Tenure(SETTINGS, arguments=["--workers", str(WORKERS)]) as tenure:
        first, second = (f"127.0.0.1:{port}" for port in tenure.ports)
        create_topic(second, "topic", PARTITION_COUNT)
        with Fleet(first, "topic", PARTITION_COUNT) as at_first, Fleet(second, "topic", PARTITION_COUNT) as at_second:
            groups = {group_on(1): at_first, group_on(0): at_second}
            members = {
                group: [
                    fleet.start(
                        client.name, group, group_instance_id=client.name, session_timeout_ms=SESSION_TIMEOUT_MS
                    )
                    for client in PYTHON[:CLIENTS]
                ]
                for group, fleet in groups.items()
            }
            for group, fleet in groups.items():
                fleet.wait_until_shared(members[group])
            before = {group: [member.membership for member in each] for group, each in members.items()}
            mark = tenure.mark()

            for killed, (group, fleet) in zip((1, 0), groups.items(), strict=True):
                os.kill(tenure.worker_pid(killed), signal.SIGKILL)
                tenure.wait_for_event("worker_back", since=mark, count=2 - killed)
                for member in members[group]:
                    (partition, *_) = member.membership.partitions
                    assert fleet.commit(member, {partition: (9, "after")})["event"] == "committed"
            for group, fleet in groups.items():
                fleet.wait_while_polling(members[group], AFTERWARDS_S)

            assert [tenure.count("rebalance_started", group, since=mark) for group in groups] == [0, 0]
            assert {group: [member.membership for member in each] for group, each in members.items()} == before
