"""Commits and fetches of members of the consumer protocol."""

from __future__ import annotations

from coordinator.group.any_group import CommittedOffset
from coordinator.group.events import EraseOffsets
from tests.group.consumer.play import GROUP, Play


def test_a_deleted_topic_takes_no_group_with_it() -> None:
    """A group without members and offsets keeps its epochs, whether it had offsets in the topic; expiry ends it."""
    for commits in (True, False):
        play = Play()
        play.join("a")
        if commits:
            play.commit("a", 2)
        play.leave("a")
        for topics, stays in (({"t"}, True), (None, False)):
            for event in play.coordinator.offsets_in(topics):
                if event is not None:
                    play.handle(event)
            assert (GROUP in play.coordinator.groups) is stays


def test_the_rest_of_a_deleted_group_takes_no_later_group_with_it() -> None:
    """A group that began after the deletion, and has neither members nor offsets, keeps its epochs."""
    play = Play()
    play.join("a")
    play.leave("a")
    play.handle(EraseOffsets("rest", GROUP, [("t", 0, CommittedOffset(4, -1, "", 0, None))]))
    assert GROUP in play.coordinator.groups
