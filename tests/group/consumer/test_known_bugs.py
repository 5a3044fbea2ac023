"""Bugs of Kafka's coordinator in groups of the consumer protocol: a test for each that needs a log or a clock.

House rule: ../test_known_bugs.py's. The other bugs are in tests/oracle/scripts/tickets.txt.
"""

from __future__ import annotations

from coordinator.group.consumer.records import CURRENT
from coordinator.story.records.values import read_key
from schemas.errors import ErrorCode
from tests.group.consumer.play import Play, subscribed


def shared() -> Play:
    """Two members that share a topic; the second has what the first gave up."""
    play = Play()
    play.join("a")
    play.join("b")
    play.beat("a", 2)
    play.beat("a", 2, owned={"t": [0, 1]})
    play.beat("b", 3)
    return play


def test_kafka_19862_records_that_compaction_took_meanwhile() -> None:
    """A partition may have two holders on the way through a log, since a compaction took the record between them."""
    play = shared()
    held, log = play.held(), list(play.log)
    keys = [read_key(record.key) for record in log]
    of_a = [number for number, key in enumerate(keys) if (key.version, key.name) == (CURRENT, "a")]
    assert len(of_a) > 1
    for number in of_a[1:]:
        play.log = log[:number] + log[number + 1 :] + [log[of_a[-1]]]  # the newest record of the key comes last
        play.restart()
        assert play.held() == held


def test_kafka_17306_tombstones_of_members_and_groups_that_are_not_there() -> None:
    """They are passed over, wherever compaction left them."""
    play = shared()
    held, log = play.held(), list(play.log)
    play.leave("b")
    play.leave("a")
    play.delete()
    tombstones = [record for record in play.log if record.value is None]
    assert len({read_key(record.key).kind for record in tombstones}) > 4
    play.log = tombstones + log
    play.restart()
    assert play.held() == held
    play.log = tombstones
    play.restart()
    assert play.coordinator.groups == {}


def test_kafka_20272_classic_members_rejoin_for_a_new_target_alone(play: Play) -> None:
    """An epoch whose target waits for its interval is no reason to rejoin; the target is."""
    (c,) = play.classic_group(("c", None, {"t": [0, 1, 2, 3]}))
    play.join("a", instance_id="A")
    assert play.classic_beat(c, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    play.classic_join(c, subscribed("t", owned={"t": [0, 1]}, generation=1))
    play.classic_sync(c, 2)
    play.beat("a", 2)
    play.configure(group_consumer_assignment_interval_ms=10_000)
    play.join("b")
    assert (play.group.generation, play.group.target_epoch) == (3, 2)
    assert play.classic_beat(c, 2) == ErrorCode.NONE
    play.wait(10_000)
    play.beat("a", 2)
    assert play.group.target_epoch == 3
    assert play.classic_beat(c, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_tied_votes_make_no_epochs(play: Play) -> None:
    """A heartbeat of the member whose vote loses changes nothing; in Kafka 4.4.0 each makes an epoch."""
    play.join("a", assignor="uniform")
    assert play.join("b", assignor="range").member_epoch == 3
    assert [play.beat("b", 3, owned={}).member_epoch for _ in range(3)] == [3, 3, 3]
    assert play.group.generation == play.group.target_epoch == 3
