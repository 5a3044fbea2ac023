"""Recorded histories of real servers, inferred once more: a rule that says something wrong shows here.

`python -m tests.observe.accuracy --play ...` records them. The oracle test plays a few on a new broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.observe.accuracy import PAGE, RECORDED, counts_of, path_of, recorded, table
from tests.observe.play import play
from tests.observe.score import infer, score, told_by_events, told_by_lines
from tests.observe.stage import History
from tests.support.cases import each

RANDOM = RECORDED / "random"
"""Histories of seed 28. Some rules were made with them, so they don't count as held out."""
LIVE = RECORDED / "live"
"""A history of Kafka 4.3.1 in which DescribeGroups shows more than the log."""

KNOWN_WRONG = {
    ("kafka-4.3", "random-28-classic-short-3"): 1,  # the leader joined again without a trace
    ("kafka-4.3", "random-28-consumer-short-0"): 1,  # a starved program committed and sent no heartbeat
}
"""Histories in which something wrong is inferred, each with the number of times; docs/contribute/measurements.md has
the reason.
"""

SHORT = ("joins_and_leaves", "expiries", "subscriptions", "static_restarts", "twins", "storm")
"""Scripts that are played anew, one of each kind of cause."""


@each("path", sorted(path for folder in (RECORDED, RANDOM, LIVE) for path in folder.glob("*.json.gz")))
@pytest.mark.parametrize("live", [False, True], ids=["log", "live"])
def test_nothing_wrong_is_inferred(path: Any, live: bool) -> None:
    """The observer says the same as the server, or that it doesn't know."""
    history = History.load(path)
    scored = score(history, live=live)
    wrong = [verdict for verdict in scored.verdicts if verdict.word == "wrong"]
    assert len(wrong) <= KNOWN_WRONG.get((history.server, history.script), 0), wrong


@pytest.mark.parametrize("server", ["kafka-3.9", "kafka-4.4", "tenure"])
def test_most_is_known(server: str) -> None:
    """Of ten rebalances the observer knows nine, where members commit."""
    counts = counts_of(
        score(history, live=False)
        for history in recorded()
        if history.server == server and not history.script.startswith("silent")
    )
    assert counts.total() > 100
    assert counts["unknown"] <= 0.1 * counts.total(), counts


def test_the_page_has_the_table_of_the_recorded_histories() -> None:
    """`python -m tests.observe.accuracy --write` writes it."""
    assert table(recorded()) in PAGE.read_text()


def history(script: str, server: str = "kafka-3.9") -> History:
    """A recorded history."""
    return History.load(path_of(History(script, server, "")))


def test_a_wrong_cause_is_seen() -> None:
    """The score would show it: another kind, another member, or nothing of a rebalance that was told."""
    played = history("joins_and_leaves")
    right = score(played, live=False).counts
    assert right == {"right": right.total()}
    other_kind = [line.replace("on LeaveGroup", "on heartbeat expiration") for line in played.lines]
    other_kind = [line.replace("Removing", "removing") for line in other_kind if "has left" not in line]
    played.lines = other_kind
    assert score(played, live=False).counts["wrong"] == 3
    played = history("joins_and_leaves")
    played.lines = [line.replace("Adding new member m", "Adding new member x") for line in played.lines]
    assert score(played, live=False).counts["wrong"] > 0
    played = history("joins_and_leaves")
    played.records = played.records[:1] + played.records[-1:]
    assert score(played, live=False).counts["right"] < right["right"]


def test_tenure_tells_each_epoch_of_a_rebalance_its_cause() -> None:
    """Another reader may count several rebalances where Tenure has one; and a return during one is told, too."""
    joined, left = (
        {"kind": kind, "member_ids": [name], "group_instance_id": None}
        for kind, name in (("member_joined", "a"), ("member_left", "b"))
    )
    ended = {"type": "rebalance_ended", "generation_before": 4, "causes": [joined, left]}
    told = told_by_events([ended | {"group_type": "consumer", "generation": 6}])
    assert [(each.before, each.is_first, *each.kinds) for each in told] == [
        (4, True, "member_joined"), (5, True, "member_left"),
    ]  # fmt: skip
    told = told_by_events([ended | {"group_type": "classic", "generation": 5}])
    assert [(each.before, each.is_first) for each in told] == [(4, True), (4, False)]
    back = {
        "type": "member_replaced", "generation": 4, "member_id": "s-2", "old_member_id": "s-1",
        "group_instance_id": "s",
    }  # fmt: skip
    assert told_by_events([back | {"state": "Stable"}]) == []
    (told_back,) = told_by_events([back | {"state": "PreparingRebalance"}])
    assert (told_back.before, sorted(told_back.members), told_back.is_first) == (4, ["s", "s-1", "s-2"], False)


def test_told_causes_of_a_broker_have_members() -> None:
    """The truth is more than a kind."""
    told = told_by_lines(history("joins_and_leaves").lines)
    assert [each.before for each in told if each.is_first] == [0, 1, 2, 3, 4, 5, 6]
    assert all(each.members for each in told)


@pytest.mark.parametrize(
    ("server", "script", "expected"),
    [
        ("kafka-3.9", "slow_polls", {"member_left"}),
        ("kafka-3.9", "frozen", {"member_expired"}),
        ("kafka-3.9", "subscriptions", {"metadata_changed", "member_left"}),
        ("kafka-3.9", "added_partitions", {"leader_rejoined"}),
        ("kafka-3.9", "cooperative", {"leader_rejoined", "member_left", "member_expired"}),
        ("kafka-3.9", "removals", {"member_removed"}),
        ("kafka-4.4", "rolling_kill.consumer", {"member_expired"}),
        ("kafka-4.4", "subscriptions.consumer", {"subscription_changed", "member_left"}),
        ("kafka-4.4", "added_partitions.consumer", {"topics_changed"}),
        ("kafka-4.4", "expiries.consumer", {"member_expired"}),
        ("kafka-3.9", "pattern", {"metadata_changed"}),
        ("kafka-4.4", "pattern.consumer", {"regex_resolved"}),
        ("kafka-4.4", "held_partitions.consumer", {"revocation_timed_out"}),
        ("tenure", "held_partitions.consumer", {"revocation_timed_out"}),
        ("tenure", "slow_polls", {"member_left"}),
        ("tenure", "removals.consumer", {"member_removed"}),
    ],
)
def test_a_script_shows_what_it_is_made_for(server: str, script: str, expected: set[str]) -> None:
    """Nothing wrong is easy to reach by knowing nothing: these kinds are named, beside the joins."""
    verdicts = score(history(script, server), live=False).verdicts
    assert {"right"} <= {verdict.word for verdict in verdicts}
    named = {
        cause["kind"]
        for event in infer(history(script, server), live=False)
        if event["type"] == "rebalance_ended"
        for cause in event["causes"]
    }
    assert expected | {"member_joined"} <= named


def test_live_state_may_tell_what_the_log_does_not() -> None:
    """A member left, and the join phase went on for its whole session: only a look shows when it was gone."""
    (played,) = recorded(LIVE)
    assert score(played, live=False).counts == {"right": 6, "unknown": 1}
    assert score(played, live=True).counts == {"right": 7}


@pytest.mark.oracle
def test_short_histories_on_a_new_broker() -> None:
    """The same with the Kafka and the clients that are installed now."""
    played: list[History] = []
    said: list[str] = []
    play("kafka-3.9", SHORT, played.append, said.append)
    assert len(played) == len(SHORT), said
    verdicts = [
        (each.script, verdict)
        for each in played
        for verdict in score(each, live=True).verdicts
        if verdict.word != "right"
    ]
    assert not [verdict for verdict in verdicts if verdict[1].word == "wrong"], verdicts
    counts = counts_of(score(each, live=True) for each in played)
    assert counts["unknown"] <= 0.2 * counts.total(), verdicts
