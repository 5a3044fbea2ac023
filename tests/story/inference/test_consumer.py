"""The log of a group of the consumer protocol tells what its coordinator told: the same events with the same causes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.group.consumer.records import CURRENT, EPOCH, MEMBER, TARGET_EPOCH
from coordinator.group.course import CAUSES_MAX
from coordinator.story.entries import Timeline
from coordinator.story.events import GroupEvent, fields_of
from coordinator.story.inference.consumer import Consumer
from coordinator.story.inference.knowledge import Told
from coordinator.story.inference.observed import Batch, Observed
from coordinator.story.making import event_of
from coordinator.story.schema import TimedNote, event_name
from coordinator.story.words import timed_lines
from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tests.group.consumer.play import GROUP, Play, topic_id
from tests.support.told import told

SHOWN = frozenset(
    {
        "rebalance_started",
        "rebalance_cause",
        "rebalance_ended",
        "target_assigned",
        "member_revoking",
        "member_away",
        "member_replaced",
        "group_deleted",
        "group_converted",
    }
)
"""The types of events that a log tells."""

EXACT = (
    "type", "at_ms", "group", "generation", "group_type", "outcome", "generation_before", "state", "began_ms",
    "preparing_ms", "completing_ms", "waited_for", "late", "before", "after", "moved", "members_before",
    "members_after",
    "member_id", "old_member_id", "group_instance_id", "partitions", "until_ms", "changes", "gained_partitions",
    "lost_partitions", "away_ms", "kind",
)  # fmt: skip
"""Fields that are the same, told or inferred."""

SESSION_MS = 45_000


class Watched(Play):
    """A coordinator whose log is observed. told, inferred: the events so far."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.told: list[dict[str, Any]] = []
        self.inferred: list[dict[str, Any]] = []
        self.observed = Observed({topic_id(name): name for name in ("t", "u")}, {GROUP: SESSION_MS})
        self._offset = 0
        super().__init__(topics, **settings)

    def handle(self, event: Any) -> Any:
        """Handle an event, and hand its records, which are one batch, to the observer."""
        at_ms, records, notes = self.now().wall_ms, len(self.log), len(self.notes)
        answer = super().handle(event)
        for note in self.notes[notes:]:
            name = event_name(type(note).__name__)
            self.told += [fields_of(event_of(TimedNote(at_ms, note)))] if name in SHOWN else []
        base = self._offset
        for record in self.log[records:]:
            self.inferred += map(
                fields_of, self.observed.add(self._offset, at_ms, record.key, record.value, Batch(base))
            )
            self._offset += 1
        self.inferred += map(fields_of, self.observed.end_batch())
        return answer


def short(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that must be the same, and its causes by kind and member."""
    causes = event.get("causes") or ([event["cause"]] if "cause" in event else [])
    return {name: event.get(name) for name in EXACT} | {
        "causes": [(each["kind"], each["member_ids"], each["group_instance_id"], each["client_id"]) for each in causes]
    }


def agree(play: Watched) -> list[str]:
    """Assert that the inferred events are those that were told; their types."""
    told = [json.dumps(short(event), sort_keys=True) for event in play.told]
    inferred = [json.dumps(short(event), sort_keys=True) for event in play.inferred]
    assert sorted(inferred) == sorted(told)
    assert all(event["inferred"] for event in play.inferred)
    return [event["type"] for event in play.inferred]


def pair(poll_ms: int = 10_000) -> Watched:
    """Two members share a topic; the second one is static. poll_ms: the first one's max.poll.interval.ms."""
    play = Watched()
    play.join("m", timeout_ms=poll_ms)
    play.beat("m", 2, {})
    play.wait(1_000)
    play.join("n", instance_id="seat")
    play.wait(500)
    play.beat("m", 2, {"t": [0, 1, 2, 3]})
    play.wait(700)
    play.beat("m", 2, {"t": [0, 1]})
    play.beat("n", 3, {})
    return play


def test_members_join_and_hand_partitions_over() -> None:
    """Begin, target, the member that gives up partitions, and the end, with who was waited for and how long."""
    assert agree(pair()).count("rebalance_ended") == 2


def test_a_member_leaves() -> None:
    """It gave a sign of life lately."""
    play = pair()
    play.wait(2_000)
    play.leave("m")
    play.beat("n", 3, {"t": [2, 3]})
    play.beat("n", 4, {"t": [0, 1, 2, 3]})
    assert "rebalance_ended" in agree(play)
    assert play.inferred[-1]["causes"][0]["kind"] == "member_left"


def test_the_last_member_leaves_and_the_group_is_deleted() -> None:
    """Nobody is left."""
    play = Watched()
    play.join("m")
    play.wait(100)
    play.leave("m")
    assert play.delete() == 0
    assert agree(play)[-2:] == ["rebalance_ended", "group_deleted"]


def falls_silent(poll_ms: int) -> Watched:
    """A member commits all the time, and then is silent for its session. poll_ms: its max.poll.interval.ms."""
    play = pair(poll_ms)
    for _ in range(4):
        play.wait(4_000)
        assert play.commit("m", 3) == 0
        play.beat("m", 3)
        play.beat("n", 3)
    for _ in range(12):
        play.wait(4_500)
        play.beat("n", 3)
        play.beat("n", 4)
    return play


def test_a_steady_member_expires() -> None:
    """It committed all the time, and was silent for a session; without commits nobody knows."""
    play = falls_silent(300_000)
    agree(play)
    assert begun(play)["kind"] == "member_expired"


def test_a_member_whose_program_may_hang_left_or_expired() -> None:
    """Its max.poll.interval.ms is over when its session may be: some clients leave only at the next poll."""
    cause = begun(falls_silent(10_000))
    assert (cause["kind"], cause["possible"]) == ("unknown", ["member_left", "member_expired"])


def silent() -> Watched:
    """A pair whose members committed nothing for long."""
    play = pair()
    play.wait(10_000)
    play.beat("m", 3, {"t": [0, 1]})
    play.beat("n", 3, {"t": [2, 3]})
    for _ in range(5):
        play.wait(9_000)
        play.beat("m", 3)
        play.beat("n", 3)
    return play


def begun(play: Watched) -> dict[str, Any]:
    """The cause of the rebalance that began last."""
    return next(event["cause"] for event in reversed(play.inferred) if event["type"] == "rebalance_started")


def test_a_silent_member_left_or_expired() -> None:
    """A member that commits nothing gives no sign."""
    play = silent()
    play.leave("m")
    cause = begun(play)
    assert (cause["kind"], cause["possible"]) == ("unknown", ["member_left", "member_expired"])


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (Told(-1, GROUP, 3, ("member_expired",), ("m",)), "member_expired"),
        (Told(-1, GROUP, 3, ("member_left",), ("m",), reason="bye"), "member_left"),
        (Told(-1, GROUP, 3, ("member_left",), ("n",)), "unknown"),
        (Told(-1, GROUP, 2, ("member_left",), ("m",)), "unknown"),
        (Told(-1, GROUP, 3, ("topics_changed",)), "unknown"),
        (Told(1, GROUP, 3, ("member_left",), ("m",)), "unknown"),
    ],
)
def test_a_told_cause_decides_between_those_that_fit(told: Told, kind: str) -> None:
    """A broker's line about the same member and epoch names one of the kinds that the log leaves open."""
    play = silent()
    play.observed.told(told)
    play.leave("m")
    cause = begun(play)
    assert (cause["kind"], cause["member_ids"], cause.get("told", False)) == (kind, ["m"], kind != "unknown")
    assert cause["client_id"]


def test_a_member_that_does_not_give_up_its_partitions_is_removed() -> None:
    """Its rebalance timeout passed."""
    play = Watched()
    play.join("m")
    play.beat("m", 2, {})
    play.join("n")
    play.beat("m", 2, {"t": [0, 1, 2, 3]})
    for _ in range(6):
        play.wait(2_000)
        play.beat("n", 3)
        play.beat("m", 2)
    play.beat("n", 4)
    agree(play)
    assert "revocation_timed_out" in {event.get("cause", {}).get("kind") for event in play.inferred}


def test_a_static_member_goes_away_and_comes_back() -> None:
    """No rebalance; another subscription makes one."""
    play = pair()
    play.beat("n", -2, instance_id="seat")
    play.wait(3_000)
    play.join("o", instance_id="seat")
    agree(play)
    play.beat("o", -2, instance_id="seat")
    play.wait(100)
    play.join("p", ["t", "u"], instance_id="seat")
    agree(play)
    assert play.inferred[-1]["type"] in {"rebalance_started", "member_replaced", "rebalance_ended", "target_assigned"}


def test_a_static_member_that_stays_away_expires() -> None:
    """Its seat is free once its session ends."""
    play = pair()
    play.beat("n", -2, instance_id="seat")
    for _ in range(6):
        play.wait(9_000)
        play.beat("m", 3)
        play.beat("m", 4)
    agree(play)
    assert "member_expired" in {event.get("cause", {}).get("kind") for event in play.inferred}


def test_a_member_subscribes_to_other_topics() -> None:
    """The topics are named."""
    play = Watched({"t": 2, "u": 2})
    play.join("m")
    play.beat("m", 2, {})
    play.beat("m", 2, {"t": [0, 1]}, topics=["t", "u"])
    play.beat("m", 3, {"t": [0, 1]})
    agree(play)
    assert play.inferred[-1]["causes"][0]["topics"] == [{"topic": "u", "change": "added"}]


def test_topics_grow() -> None:
    """No member changed, but the hash of the topics did."""
    play = Watched()
    play.join("m")
    play.beat("m", 2, {})
    play.set_topics(t=6)
    play.beat("m", 2, {"t": [0, 1, 2, 3]})
    play.beat("m", 3, {"t": [0, 1, 2, 3]})
    agree(play)
    assert play.inferred[-1]["causes"][0]["kind"] == "topics_changed"


def test_a_target_has_the_assignor_that_every_member_wants() -> None:
    """Without a wish, or with several, the log doesn't tell whose rule made the target."""
    play = Watched()
    play.join("m", assignor="range")
    play.join("n", assignor="uniform")
    assert [event["assignor"] for event in play.inferred if event["type"] == "target_assigned"] == ["range", None]


def test_a_regular_expression_is_resolved() -> None:
    """Its member is there before; the epoch grows when the expression has topics."""
    play = Watched()
    play.join("m")
    play.beat("m", 2, {})
    play.join("r", regex="t.*")
    play.resolve(**{"t.*": ["t"]})
    agree(play)
    assert play.inferred[-1].get("cause", {}).get("kind") in {"regex_resolved", None}


def test_a_member_leaves_while_an_expression_is_not_resolved_yet() -> None:
    """The epoch names the leave alone: a member whose expression has no topics yet raises none."""
    play = Watched()
    play.join("m")
    play.beat("m", 2, {})
    play.join("r", regex="t.*")
    play.leave("m")
    agree(play)
    assert [event["cause"]["kind"] for event in play.inferred if "cause" in event] == ["member_joined", "member_left"]


def test_topics_that_grow_after_an_expression_was_resolved() -> None:
    """The next epoch has a cause of its own: the expression was that of the last one."""
    play = Watched()
    play.join("r", regex="t.*")
    play.resolve(**{"t.*": ["t"]})
    play.beat("r", 1)
    play.set_topics(t=6)
    play.beat("r", 2, {"t": [0, 1, 2, 3]})
    assert [event["cause"]["kind"] for event in play.inferred if event["type"] == "rebalance_started"] == [
        "regex_resolved",
        "topics_changed",
    ]


def test_two_epochs_of_one_batch_have_their_own_causes() -> None:
    """An expression that was resolved before the first is no cause of the second."""
    play = Watched()
    play.join("r", regex="t.*")
    play.resolve(**{"t.*": ["t"]})
    play.set_topics(t=6)
    play.beat("r", 1)
    observed = Observed({topic_id("t"): "t"}, {GROUP: SESSION_MS})
    events = [
        event
        for offset, each in enumerate(play.log)
        for event in observed.add(offset, 5, each.key, each.value, Batch(0))
    ]
    assert [event["cause"]["kind"] for event in map(fields_of, events) if "cause" in event] == [
        "regex_resolved",
        "topics_changed",
    ]


def test_a_member_that_was_silent_held_the_others_up() -> None:
    """It took longer to hear of the target than to give up its partitions."""
    play = Watched()
    play.join("m")
    play.beat("m", 2, {})
    play.join("n")
    play.wait(3_000)
    play.beat("m", 2, {"t": [0, 1, 2, 3]})
    play.wait(100)
    play.beat("m", 2, {"t": [0, 1]})
    play.beat("n", 3, {})
    agree(play)
    waited = play.inferred[-1]["waited_for"]
    assert (waited["member_id"], waited["phase"], waited["ms"]) == ("m", "acknowledging", 3_000)


def test_a_log_that_begins_in_the_middle() -> None:
    """The observer doesn't guess what compaction removed."""
    play = pair()
    observed = Observed({topic_id("t"): "t"})
    events: list[GroupEvent] = []
    for offset, record in enumerate(play.log, 100):
        events += observed.add(offset, 5, record.key, record.value)
    events += observed.end_batch()
    assert events[0].type == "group_loaded"


def test_a_group_waits_for_a_member_from_before_the_log_begins() -> None:
    """Its record isn't there, its steps are; no event tells them, for nobody knows its names."""
    group = Consumer(GROUP, {})
    held = [ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id("t"), partitions=[0, 1])]
    group.add(0, EPOCH, None, ConsumerGroupMetadataValue(epoch=2), is_whole=False)
    group.add(0, TARGET_EPOCH, None, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2), is_whole=True)
    settled = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, assigned_partitions=held)
    assert not group.add(0, CURRENT, "unseen", settled, is_whole=True)
    group.end_batch(0)
    group.add(100, MEMBER, "m", ConsumerGroupMemberMetadataValue(), is_whole=True)
    group.add(100, EPOCH, None, ConsumerGroupMetadataValue(epoch=3), is_whole=True)
    group.add(100, TARGET_EPOCH, None, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3), is_whole=True)
    group.add(100, CURRENT, "m", ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3), is_whole=True)
    assert not group.end_batch(100)
    settled = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, assigned_partitions=held)
    assert not group.add(800, CURRENT, "unseen", settled, is_whole=True)
    (ended,) = map(fields_of, group.end_batch(800))
    assert ended["waited_for"] == {"member_id": "unseen", "phase": "acknowledging", "ms": 700}


def test_words() -> None:
    """The timeline says the same as of a told group, and that it is inferred."""
    play = pair()
    entries = Timeline(GROUP).add_all(told(each["type"], **each) for each in play.inferred).entries
    line = "rebalance, epoch 1 -> 2: new member m (test at 127.0.0.1) [inferred from the log]"
    assert timed_lines(entries[0])[0].endswith(line)


def test_a_group_goes_to_the_consumer_protocol_and_back() -> None:
    """The tombstones of a conversion delete no group; each conversion is an event, and the next epoch has its cause."""
    play = Watched()
    play.classic_group(("c", None, {"t": [0, 1]}), ("d", None, {"t": [2, 3]}))
    play.told.clear()
    play.inferred.clear()
    play.wait(1_000)
    play.join("a")
    assert agree(play)[:3] == ["group_converted", "rebalance_started", "target_assigned"]
    assert (begun(play)["kind"], begun(play)["member_ids"]) == ("member_joined", ["a"])
    play.told.clear()
    play.inferred.clear()
    play.wait(1_000)
    play.leave("a")
    told = [(event["type"], event["kind"], event["members"]) for event in play.told if "kind" in event]
    inferred = [(event["type"], event["kind"], event["members"]) for event in play.inferred if "kind" in event]
    assert inferred == told == [("group_converted", "classic", 2)]
    assert "group_deleted" not in {event["type"] for event in play.inferred}


def test_causes_of_a_long_rebalance_are_bounded() -> None:
    """However many members come at once, and however many epochs follow."""
    group = Consumer("g", {})
    for epoch in (1, 2, 3):
        for number in range(CAUSES_MAX * 10 + 50 - epoch):
            group.add(epoch, MEMBER, f"m-{epoch}-{number}", ConsumerGroupMemberMetadataValue(), is_whole=True)
        group.add(epoch, EPOCH, None, ConsumerGroupMetadataValue(epoch=epoch), is_whole=True)
    assert len(group._open) == CAUSES_MAX * 10 + 49


def test_the_members_before_are_listed_once_a_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each of its epochs: thousands of members may come one after the other."""
    listed: list[Any] = []
    before = Consumer._before

    def noted(self: Consumer) -> Any:
        listed.append(self)
        return before(self)

    monkeypatch.setattr(Consumer, "_before", noted)
    group = Consumer(GROUP, {})
    for number in range(100):
        said = ConsumerGroupMemberMetadataValue(client_id="c", subscribed_topic_names=["t"])
        group.add(number, MEMBER, f"m{number}", said, is_whole=True)
        group.add(number, EPOCH, None, ConsumerGroupMetadataValue(epoch=number + 1), is_whole=True)
        group.end_batch(number)
    assert len(listed) == 1
