"""The topics that groups of the consumer protocol see, and their hash."""

from __future__ import annotations

from uuid import UUID

from coordinator.group.topics import TopicImage, TopicTable, metadata_hash


def table(**partitions: int) -> TopicTable:
    """Topics with these numbers of partitions."""
    return TopicTable(
        TopicImage(UUID(bytes=name.encode().ljust(16, b"\0")), name, count) for name, count in partitions.items()
    )


def test_hash_tells_every_change_of_a_topic() -> None:
    """More partitions, another id or another topic has another hash; order and other topics do not matter."""
    topics = table(a=1, b=2, c=3)
    both = metadata_hash(topics, ["a", "b"])
    assert both == metadata_hash(topics, ["b", "a", "b", "nowhere"])
    assert both == metadata_hash(table(a=1, b=2), ["a", "b"])
    assert len({both, metadata_hash(table(a=1, b=3), ["a", "b"]), metadata_hash(topics, ["a"])}) == 3
    other_id = TopicTable([TopicImage(UUID(int=7), "a", 1)])
    assert metadata_hash(other_id, ["a"]) != metadata_hash(topics, ["a"])
    assert -(2**63) <= both < 2**63


def test_no_topic_has_hash_0() -> None:
    """As in Kafka."""
    assert metadata_hash(table(a=1), []) == metadata_hash(table(a=1), ["b"]) == 0


def test_topics_are_found_by_name_and_id() -> None:
    """Names that no topic has are left out."""
    topics = table(a=1, b=2)
    assert [topic.name for topic in topics.find(["b", "x", "a"])] == ["b", "a"]
    (found,) = topics.find(["a"])
    assert topics.by_id(found.topic_id) == found
    assert topics.by_id(UUID(int=9)) is None
    assert sorted(topics.names()) == ["a", "b"]
