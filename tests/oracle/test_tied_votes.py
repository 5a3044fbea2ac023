"""Where votes for two assignors tie, each heartbeat of the loser makes an epoch in Kafka 4.4.0, and none in Tenure."""

from __future__ import annotations

import pytest

from tests.oracle.conftest import CONSUMER_NODES, SAME_NAME
from tests.oracle.consumer import Seat, seat
from tests.oracle.stage import Stage
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.tenure import Tenure

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("kafka_is_here")]

SETTINGS = {**CONSUMER_NODES["consumer"], **SAME_NAME}
VOTES = {"c": "uniform", "b": "range"}
HEARTBEATS = 3


def epochs(server: ApacheKafka | Tenure) -> list[int]:
    """The epochs of a member whose vote loses: after its join, and after each of its next heartbeats."""
    stage = Stage(server, "tied")
    try:
        topic = stage.known_topic("tied", 6)
        winner, loser = (seat(stage, name, topics=[topic], assignor=vote) for name, vote in VOTES.items())
        winner.join()
        loser.join()
        return [loser.epoch, *(beaten(loser) for _ in range(HEARTBEATS))]
    finally:
        stage.close()


def beaten(member: Seat) -> int:
    """A member's epoch after one more heartbeat that says nothing new."""
    member.confirm()
    return member.epoch


def test_tied_votes_make_no_epochs() -> None:
    """The member stays at the epoch of its join; Kafka's takes another step each time."""
    with ApacheKafka(SETTINGS, version=VERSION_44) as kafka:
        assert epochs(kafka) == [3, 4, 5, 6]
    with Tenure(SETTINGS) as tenure:
        assert epochs(tenure) == [3, 3, 3, 3]
