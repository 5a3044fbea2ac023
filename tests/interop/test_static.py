"""Static members (KIP-345): they restart and keep their seats, and a twin is fenced.

aiokafka 0.14 knows half of it: it joins with its instance id, but its Heartbeat (v1) carries none and it has no
FENCED_INSTANCE_ID. So it rolls like the others, and its twins take the seat from each other without end.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import clients_named, clients_that
from tests.interop.fleet import ConsumerProcess, Fleet, patient, rebalanced_once

SEATS = ("seat-0", "seat-1", "seat-2")
SETTLED_S = 1.5
ROLL_SESSION_TIMEOUT_MS = 45_000
"""Longer than a JVM takes to start on a busy machine."""
TAKEOVERS = 3


@pytest.mark.parametrize("client", clients_that(Ability.STATIC), indirect=True)
def test_rolling_restart_moves_nothing(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Each static member, the leader among them, is restarted within its session timeout, closed or by SIGKILL.

    No rebalance, the same generation, and the same partitions for each instance id under a new member id.
    """

    def start(seat: str) -> ConsumerProcess:
        return fleet.start(client, group, group_instance_id=seat, **patient(ROLL_SESSION_TIMEOUT_MS))

    consumers = {seat: start(seat) for seat in SEATS}
    generation = fleet.wait_until_shared(list(consumers.values()))
    before = {seat: consumer.membership for seat, consumer in consumers.items()}
    mark = broker.mark()

    for number, seat in enumerate(SEATS):
        if number % 2:
            consumers[seat].kill()
        else:
            fleet.stay_away(consumers[seat])
        consumers[seat] = start(seat)
        assert fleet.wait_until_shared(list(consumers.values())) == generation
    fleet.wait_while_polling(list(consumers.values()), SETTLED_S)

    after = {seat: consumer.membership for seat, consumer in consumers.items()}
    assert broker.rebalances(group, mark) == 0
    assert broker.replacements(group, mark) == len(SEATS)
    for seat in SEATS:
        assert after[seat].generation == generation
        assert after[seat].partitions == before[seat].partitions
        assert after[seat].member_id != before[seat].member_id


@pytest.mark.parametrize("client", clients_that(Ability.STATIC, often=(), long={"confluent-kafka"}), indirect=True)
def test_a_static_member_that_stays_away_expires(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A static member that is closed has not left: its seat is kept for a session timeout; then one rebalance."""
    away, first, second = (fleet.start(client, group, group_instance_id=seat) for seat in SEATS)
    fleet.wait_until_shared([away, first, second])
    before = first.membership
    mark = broker.mark()

    fleet.stay_away(away)
    fleet.wait_while_polling([first, second], SETTLED_S)
    assert broker.rebalances(group, mark) == 0
    assert first.membership == before

    fleet.wait_until_shared([first, second])
    assert rebalanced_once(client, broker.rebalances(group, mark))


@pytest.mark.parametrize("client", clients_that(Ability.FENCE, often={"confluent-kafka"}), indirect=True)
def test_fenced_twin(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A second process with an instance id takes the seat, the first gets FENCED_INSTANCE_ID, and others don't notice.

    Some clients end at once, as after any fatal error; others log it, stop their heartbeats, and fail the next commit.
    """
    first, other = (fleet.start(client, group, group_instance_id=seat) for seat in SEATS[:2])
    generation = fleet.wait_until_shared([first, other])
    seat = first.membership
    mark = broker.mark()

    twin = fleet.start(client, group, group_instance_id=SEATS[0])
    fleet.wait("the twin has the seat", lambda: twin.membership.partitions == seat.partitions)
    fleet.wait(
        "it hears the fence",
        lambda: (
            bool(first.named("fatal")) or any("fenced" in notice["text"].lower() for notice in first.named("notice"))
        ),
    )
    if first.named("fatal"):
        fenced = first.named("fatal")[0]
    else:
        fenced = fleet.commit(first, {seat.partitions[0]: (1, "")})
        assert fenced["event"] == "commit_failed"

    assert fenced["error"] == "FENCED_INSTANCE_ID"
    fleet.wait_while_polling([twin, other], SETTLED_S)
    assert fleet.shared([twin, other])
    assert twin.membership.generation == generation
    assert twin.membership.member_id != seat.member_id
    assert broker.rebalances(group, mark) == 0
    assert broker.replacements(group, mark) == 1


@pytest.mark.parametrize("client", clients_named("platformatic-kafka"), indirect=True)
def test_a_static_member_leaves_when_it_closes(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """@platformatic/kafka sends LeaveGroup for a static member too: its seat is gone, and the group rebalances."""
    first, second = (fleet.start(client, group, group_instance_id=seat) for seat in SEATS[:2])
    generation = fleet.wait_until_shared([first, second])
    mark = broker.mark()

    fleet.close(first)
    assert fleet.wait_until_shared([second]) > generation
    assert broker.rebalances(group, mark) == 1


@pytest.mark.parametrize("client", clients_named("platformatic-kafka"), indirect=True)
def test_a_fenced_member_takes_the_seat_back(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """@platformatic/kafka hears the fence with its heartbeats and goes on; its commit makes it the twin of its twin.

    OffsetCommit carries no instance id there: it is answered UNKNOWN_MEMBER_ID, so the client joins as the seat's owner
    and commits. The group doesn't rebalance.
    """
    first, other = (fleet.start(client, group, group_instance_id=seat) for seat in SEATS[:2])
    generation = fleet.wait_until_shared([first, other])
    seat = first.membership
    mark = broker.mark()

    twin = fleet.start(client, group, group_instance_id=SEATS[0])
    fleet.wait("the twin has the seat", lambda: twin.membership.partitions == seat.partitions)
    fleet.wait(
        "the first is fenced", lambda: any("FENCED_INSTANCE_ID" in each["text"] for each in first.named("notice"))
    )
    assert fleet.commit(first, {seat.partitions[0]: (1, "")})["event"] == "committed"
    fleet.wait("the twin is fenced", lambda: any("FENCED_INSTANCE_ID" in each["text"] for each in twin.named("notice")))
    assert first.membership.generation == generation
    assert broker.rebalances(group, mark) == 0
    assert broker.replacements(group, mark) == 2


@pytest.mark.parametrize("client", clients_named("kafkajs"), indirect=True)
def test_a_restart_without_instance_ids_rebalances(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """kafkajs has no instance ids: each restart of a member costs two rebalances."""
    first, second = (fleet.start(client, group) for _ in range(2))
    fleet.wait_until_shared([first, second])
    mark = broker.mark()

    fleet.close(first)
    fleet.wait_until_shared([second])
    again = fleet.start(client, group)
    fleet.wait_until_shared([again, second])
    assert broker.rebalances(group, mark) == 2
    assert broker.replacements(group, mark) == 0


@pytest.mark.parametrize("client", clients_named("aiokafka", often=(), long={"aiokafka"}), indirect=True)
def test_aiokafka_twins_are_never_fenced(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Its Heartbeat carries no instance id, so a replaced process hears UNKNOWN_MEMBER_ID and joins again.

    The two take the seat from each other without end, and without a rebalance. If one takes it between the other's
    JoinGroup and SyncGroup, the other gets FENCED_INSTANCE_ID, which it doesn't know, and ends: it is started again.
    """
    first, other = (fleet.start(client, group, group_instance_id=seat) for seat in SEATS[:2])
    fleet.wait_until_shared([first, other])
    seat = first.membership
    mark = broker.mark()

    twins = [[first], [fleet.start(client, group, group_instance_id=SEATS[0])]]

    def takeovers() -> int:
        return min(
            len({event["member_id"] for each in runs for event in each.named("membership") if event["generation"] > 0})
            for runs in twins
        )

    def fenced() -> list[ConsumerProcess]:
        return [runs[-1] for runs in twins if runs[-1].named("fatal")]

    while takeovers() < TAKEOVERS:
        fleet.wait("each has the seat again and again", lambda: takeovers() >= TAKEOVERS or bool(fenced()))
        for runs in twins:
            if runs[-1] in fenced():
                assert any("error from SyncGroup" in notice["text"] for notice in runs[-1].named("notice"))
                runs.append(fleet.start(client, group, group_instance_id=SEATS[0]))
    assert other.membership.generation == seat.generation
    assert broker.rebalances(group, mark) == 0
    assert broker.replacements(group, mark) >= 2 * TAKEOVERS - 1
