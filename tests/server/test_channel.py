"""Messages between supervisor and workers."""

from __future__ import annotations

import os
from uuid import UUID

from msgspec import convert

from coordinator.log.topics.list import Topic
from coordinator.server.channel import Kind, LineReader, line
from coordinator.server.nodes.topics import Altered, Change

TOPICS = [Topic("a", UUID(int=1), 3, {"retention.ms": "1"}), Topic("b", UUID(int=2), 1)]


def test_messages_come_out_as_they_went_in() -> None:
    """Messages arrive unchanged, whether their bytes come at once, one by one, or with other messages."""
    sent = line(Kind.READY) + line(Kind.CHANGE_REQUEST, number=7, change=Change(TOPICS)) + line(Kind.READY)
    for size in (1, 7, len(sent)):
        reader = LineReader()
        messages = [message for at in range(0, len(sent), size) for message in reader.feed(sent[at : at + size])]
        assert [message["kind"] for message in messages] == [Kind.READY, Kind.CHANGE_REQUEST, Kind.READY]
        assert messages[1]["number"] == 7
        assert convert(messages[1]["change"], Change).created == TOPICS


def test_what_a_setting_says_can_not_end_a_line() -> None:
    """A topic's setting, which comes from a client, can't end a message's line."""
    topic = Topic("a", UUID(int=1), 1, {"x": 'a\nb\r"'})
    (message,) = LineReader().feed(line(Kind.CHANGE_REQUEST, change=Change([topic])))
    assert convert(message["change"], Change).created == [topic]


def test_a_change_arrives_as_it_was_sent() -> None:
    """A change arrives with all its parts, or with the first part alone."""
    altered = [Altered(UUID(int=7), 4, {"retention.ms": "1", "segment.ms": None}), Altered(UUID(int=8))]
    for change in (Change(TOPICS, altered, [UUID(int=5)]), Change(TOPICS, [], [])):
        (message,) = LineReader().feed(line(Kind.CHANGE_REQUEST, change=change))
        assert convert(message["change"], Change) == change


def test_a_reason_may_name_any_path() -> None:
    """A reason arrives although it names a path whose bytes aren't UTF-8: neither end may break over it."""
    (message,) = LineReader().feed(line(Kind.START_FAILED, reason="Is a directory: " + os.fsdecode(b"/data/\xff")))
    assert message == {"kind": Kind.START_FAILED, "reason": "Is a directory: /data/\\udcff"}
