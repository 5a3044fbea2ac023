"""The tests kill members, and standbys read on, with unmodified clients. The others have no callback.

`make nightly` plays 20 rounds with each client of ROUNDS_OF, other runs three: one of them with a crash of the
coordinator, one in a rebalance.

House rule: conftest.py's. Apache Kafka has no standbys, so these run on Tenure alone.
"""

from __future__ import annotations

import random

import pytest

from tests.interop.brokers import TenureBroker, create_topic, grow_topic
from tests.interop.client import Ability
from tests.interop.clients import clients_named, clients_that
from tests.interop.fleet import Fleet
from tests.interop.takeover import (
    RECORDS,
    SETTINGS,
    TOPIC,
    Rounds,
    commit_first,
    kill_and_watch,
    leader_of,
    start_standby,
)
from tests.interop.worker import Record
from tests.support.length import rounds
from tests.support.seats import set_seats
from tests.support.tenure import Tenure

PARTITION_COUNT = 6
MEMBERS = 3
SESSION_MS = 6_000
ROUNDS_OF = ("aiokafka", "confluent-kafka", "franz-go", "kafka-clients-4")
ROUNDS = rounds(3, 3, 20)


@pytest.mark.early
@pytest.mark.interop
@pytest.mark.parametrize("leads", [False, pytest.param(True, marks=pytest.mark.long)], ids=["follower", "leader"])
@pytest.mark.parametrize("client", clients_that(Ability.COMMIT, often={"confluent-kafka"}), indirect=True)
def test_a_standby_takes_the_seat_of_a_killed_member(
    tenure_server: TenureBroker, client: str, group: str, *, leads: bool
) -> None:
    """It reads on from the committed offsets, in the same generation. The others count no callback."""
    create_topic(tenure_server.bootstrap, topic := f"topic-{group}", PARTITION_COUNT)
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        tenure = tenure_server.tenure
        set_seats(tenure.port, group, MEMBERS)
        members = [fleet.start(client, group, records=True, session_timeout_ms=SESSION_MS) for _ in range(MEMBERS)]
        generation = fleet.wait_until_shared(members)
        fleet.produce(members[0], [Record(str(n).encode(), b"value") for n in range(RECORDS)])
        standby = start_standby(fleet, tenure, client, group, SESSION_MS)
        leader = leader_of(tenure, group)
        lost = next(member for member in members if (member.membership.member_id == leader) is leads)
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


@pytest.mark.interop
@pytest.mark.parametrize("client", clients_named("confluent-kafka"), indirect=True)
def test_a_standby_that_leads_assigns_the_partitions_that_the_lost_leader_had_not_seen(
    tenure_server: TenureBroker, client: str, group: str
) -> None:
    """The topic grew before the standby started. It knows more than the others, which costs one rebalance."""
    create_topic(tenure_server.bootstrap, topic := f"topic-{group}", PARTITION_COUNT)
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        tenure = tenure_server.tenure
        set_seats(tenure.port, group, 2)
        members = [fleet.start(client, group, session_timeout_ms=SESSION_MS) for _ in range(2)]
        fleet.wait_until_shared(members)
        grow_topic(tenure_server.bootstrap, topic, PARTITION_COUNT + 2)
        standby = start_standby(fleet, tenure, client, group, SESSION_MS)
        leader = leader_of(tenure, group)
        lost, other = sorted(members, key=lambda member: member.membership.member_id != leader)
        mark = tenure.mark()
        fleet.close(lost)
        tenure.wait_for_event("seat_taken", group, since=mark)
        fleet.partition_count += 2
        fleet.wait_until_shared([other, standby])
        assert tenure_server.rebalances(group, mark) == 1
        assert fleet.double_ownerships() == []


@pytest.mark.interop
@pytest.mark.parametrize("client", clients_named(*ROUNDS_OF, often=(), long={"confluent-kafka"}), indirect=True)
def test_random_members_are_lost_at_random_moments(client: str) -> None:
    """A standby has the seat each time, also after a crash of the coordinator: no callback of another, no rebalance.

    In a rebalance the free seat goes to a standby too. That is one rebalance, or two if the leader was assigning.
    """
    with Tenure(SETTINGS) as tenure:
        create_topic(tenure.bootstrap, TOPIC, MEMBERS + 1)
        with Fleet(tenure.bootstrap, TOPIC, MEMBERS + 1) as fleet:
            session_ms = TenureBroker.restart_session_timeout_ms
            rounds = Rounds(fleet, TenureBroker(tenure), client, MEMBERS, session_ms, random.Random(ROUNDS))
            for number in range(ROUNDS):
                if number % 3 == 1:
                    one = rounds.lose_one_in_a_rebalance()
                    assert one.rebalances in (1, 2)
                else:
                    one = rounds.lose_one(crash=number % 3 == 2)
                    assert (one.callbacks, one.rebalances) == (0, 0)
                assert set(one.first.values()) == {1}
            assert fleet.double_ownerships() == []
