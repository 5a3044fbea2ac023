"""Commits and fetches of members of the consumer protocol."""

from __future__ import annotations

from coordinator.group.any_group import CommittedOffset
from coordinator.group.events import EraseOffsets
from schemas.errors import ErrorCode
from tests.group.consumer.play import GROUP, Play


def test_commits_of_strangers_are_refused(play: Play) -> None:
    """Who is no member is unknown; below version 9 a member must not commit; no group is as in Kafka 3.9.

    A group without members takes commits from outside, which have a negative epoch.
    """
    assert play.commit("a", 2) == ErrorCode.ILLEGAL_GENERATION
    play.join("a")
    assert play.commit("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.commit("a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert play.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    play.leave("a")
    assert play.commit("", -1) == ErrorCode.NONE
    assert play.commit("", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_commits_what_was_held_then() -> None:
    """A partition that the member never had makes the epoch stale. One with too much metadata isn't looked at."""
    play = Play()
    play.join("a")
    play.beat("a", 2, topics=["t", "u"])
    assert play.group.members["a"].epoch == 3
    assert play.commit("a", 2) == ErrorCode.NONE
    assert play.commit("a", 1) == play.commit("a", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert play.commit("a", 2, partition=9) == ErrorCode.STALE_MEMBER_EPOCH
    too_long = "m" * (play.config.offset_metadata_max_bytes + 1)
    assert play.commit("a", 2, partition=9, metadata=too_long) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_fetch_wants_the_very_epoch(play: Play) -> None:
    """Anybody from outside may fetch; a member only at its epoch."""
    play.join("a")
    assert play.fetch(None, -1).error_code == ErrorCode.NONE
    assert play.fetch(None, 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.fetch("a", 2).error_code == ErrorCode.NONE
    assert play.fetch("a", 1).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert play.fetch("", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.fetch("x", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


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


def test_the_rest_of_a_deleted_group_takes_no_later_group_with_it(play: Play) -> None:
    """A group that began after the deletion, and has neither members nor offsets, keeps its epochs."""
    play.join("a")
    play.leave("a")
    play.handle(EraseOffsets("rest", GROUP, [("t", 0, CommittedOffset(4, -1, "", 0, None))]))
    assert GROUP in play.coordinator.groups
