"""Causes of epochs: which member, and which topics changed how."""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.causes import TOPICS_MAX, Cause, CauseKind, Change, TopicChange
from tests.group.consumer.play import CLIENT, Play


def causes(play: Play) -> list[Cause]:
    """The causes of the epochs since the notes were cleared, in order."""
    return [note.cause for note in play.notes if isinstance(note, notes.RebalanceStarted | notes.RebalanceCause)]


def alone(**topics: int) -> Play:
    """a subscribes to all of these topics; no notes yet."""
    play = Play(topics)
    play.join("a", list(topics))
    play.notes.clear()
    return play


def test_a_member_that_joins_leaves_or_expires_is_the_cause() -> None:
    """The cause names it with its client; one cause for each epoch."""
    play = alone(t=4)
    play.join("b", instance_id="i-b")
    play.leave("b", instance_id="i-b")
    play.wait(45_000)
    assert [cause.kind for cause in causes(play)] == [
        CauseKind.MEMBER_JOINED,
        CauseKind.MEMBER_LEFT,
        CauseKind.MEMBER_EXPIRED,
    ]
    joined = causes(play)[0]
    assert (joined.member_ids, joined.group_instance_id) == (("b",), "i-b")
    assert (joined.client_id, joined.client_host, joined.api_version) == (CLIENT.id, CLIENT.host, None)


def test_a_member_that_an_operator_removes_has_the_operators_reason() -> None:
    """LeaveGroup of an administrator is member_removed, with its reason."""
    play = alone(t=4)
    play.join("b", instance_id="i-b")
    play.notes.clear()
    play.remove(instance_id="i-b", reason="scale-down")
    (cause,) = causes(play)
    assert (cause.kind, cause.reason, cause.api_version) == (CauseKind.MEMBER_REMOVED, "scale-down", 5)


def test_another_subscription_names_its_topics() -> None:
    """Topics that the member gained and lost."""
    play = alone(t=1)
    play.set_topics(u=1)
    play.beat("a", play.group.members["a"].epoch, {"t": [0]}, topics=["u", "missing"], timeout_ms=10_000)
    (cause,) = causes(play)
    assert (cause.kind, cause.member_ids) == (CauseKind.SUBSCRIPTION_CHANGED, ("a",))
    assert cause.topics == (
        TopicChange("missing", Change.ADDED),
        TopicChange("u", Change.ADDED),
        TopicChange("t", Change.REMOVED),
    )


def test_topics_that_change_are_named() -> None:
    """Created, with more partitions, deleted: the next heartbeat of anybody tells which."""
    for change, topics in ((Change.GROWN, {"t": 3}), (Change.DELETED, {"t": 0})):
        play = alone(t=2)
        play.set_topics(**topics)
        play.beat("a", play.group.members["a"].epoch)
        (cause,) = causes(play)
        assert (cause.kind, cause.member_ids) == (CauseKind.TOPICS_CHANGED, ())
        assert cause.topics == (TopicChange("t", change),)
    play = alone(t=2)
    play.beat("a", play.group.members["a"].epoch, topics=["t", "later"])
    play.notes.clear()
    play.set_topics(later=1, other=1)
    play.beat("a", play.group.members["a"].epoch)
    (cause,) = causes(play)
    assert cause.topics == (TopicChange("later", Change.CREATED),)


def test_a_topic_with_other_settings_is_no_cause_later() -> None:
    """A change that needs no epoch is forgotten, so the next cause doesn't name it."""
    play = alone(t=2)
    play.set_topics(t=2)
    play.beat("a", play.group.members["a"].epoch)
    play.join("b")
    (cause,) = causes(play)
    assert (cause.kind, cause.topics) == (CauseKind.MEMBER_JOINED, ())


def test_a_topic_that_came_and_went_is_no_cause_later() -> None:
    """A topic that is as before when a member asks needs no epoch, so the next cause doesn't name it."""
    play = alone(t=2)
    play.beat("a", play.group.members["a"].epoch, topics=["t", "later"])
    play.notes.clear()
    play.set_topics(later=1)
    play.set_topics(later=0)
    play.beat("a", play.group.members["a"].epoch)
    assert causes(play) == []
    play.join("b")
    (cause,) = causes(play)
    assert (cause.kind, cause.topics) == (CauseKind.MEMBER_JOINED, ())


def test_a_newcomer_that_comes_with_changed_topics_names_both() -> None:
    """One epoch has one cause: the member, with the topics that changed besides."""
    play = alone(t=2)
    play.set_topics(t=3)
    play.join("b")
    (cause,) = causes(play)
    assert (cause.kind, cause.topics) == (CauseKind.MEMBER_JOINED, (TopicChange("t", Change.GROWN),))


def test_topics_that_changed_while_nobody_looked_have_no_names() -> None:
    """After a restart only the hash shows that topics changed."""
    play = alone(t=2)
    play.set_topics(t=3)
    play.restart()
    play.beat("a", play.group.members["a"].epoch)
    (cause,) = causes(play)
    assert (cause.kind, cause.topics) == (CauseKind.TOPICS_CHANGED, ())


def test_a_regular_expression_names_what_it_matches_anew() -> None:
    """The resolution is the cause, with the topics that came and went."""
    play = Play({"t1": 1, "t2": 1})
    play.join("a", regex="t.*")
    play.notes.clear()
    play.resolve(**{"t.*": ["t1", "t2"]})
    (cause,) = causes(play)
    assert (cause.kind, cause.member_ids) == (CauseKind.REGEX_RESOLVED, ())
    assert cause.topics == (TopicChange("t1", Change.ADDED), TopicChange("t2", Change.ADDED))


def test_a_cause_names_some_topics_and_counts_the_others() -> None:
    """A cause stays small, however many topics a subscription has."""
    names = [f"t{number}" for number in range(TOPICS_MAX + 3)]
    play = alone(t=1)
    play.beat("a", play.group.members["a"].epoch, topics=["t", *names])
    (cause,) = causes(play)
    assert (len(cause.topics), cause.further_topics) == (TOPICS_MAX, 3)
