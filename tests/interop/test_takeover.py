"""The test kills a member, and a standby reads on, with unmodified clients. The others have no callback.

House rule: conftest.py's. Apache Kafka has no standbys, so these run on Tenure alone.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import TenureBroker, create_topic
from tests.interop.client import Ability
from tests.interop.clients import clients_that
from tests.interop.fleet import Fleet
from tests.interop.takeover import RECORDS, commit_first, kill_and_watch, start_standby
from tests.interop.worker import Record
from tests.support.seats import set_seats

PARTITION_COUNT = 6
MEMBERS = 3
SESSION_MS = 6_000


@pytest.mark.interop
@pytest.mark.parametrize("client", clients_that(Ability.COMMIT), indirect=True)
def test_a_standby_takes_the_seat_of_a_killed_member(tenure_server: TenureBroker, client: str, group: str) -> None:
    """It reads on from the committed offsets, in the same generation. The others count no callback."""
    create_topic(tenure_server.bootstrap, topic := f"topic-{group}", PARTITION_COUNT)
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        tenure = tenure_server.tenure
        set_seats(tenure.port, group, MEMBERS)
        members = [fleet.start(client, group, records=True, session_timeout_ms=SESSION_MS) for _ in range(MEMBERS)]
        generation = fleet.wait_until_shared(members)
        fleet.produce(members[0], [Record(str(n).encode(), b"value") for n in range(RECORDS)])
        standby = start_standby(fleet, tenure, client, group, SESSION_MS)
        lost = members[1]
        fleet.wait(
            "each partition is read",
            lambda: (
                {each[0] for event in lost.named("records") for each in event["records"]}
                >= set(lost.membership.partitions)
            ),
        )
        commit_first(fleet, lost)
        takeover = kill_and_watch(fleet, tenure_server, members, lost, standby)
        assert (takeover.callbacks, takeover.rebalances) == (0, 0)
        assert set(takeover.first.values()) == {1}
        assert standby.membership.generation == generation
        assert fleet.double_ownerships() == []
