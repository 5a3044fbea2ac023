"""The offsets of a group, made of lines: as `coordinator.client.lag` makes them of answers."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.story.offsets import NO_OFFSET, OffsetLine, TopicOffsets


def placed(lines: Iterable[OffsetLine]) -> dict[str, TopicOffsets]:
    """These lines by topic; those that say no more than that all is read are in the columns alone."""
    by_topic: dict[str, dict[int, OffsetLine]] = {}
    for line in lines:
        if line.topic is not None and line.partition is not None:
            by_topic.setdefault(line.topic, {})[line.partition] = line
    return {topic: _columns(dict(sorted(own.items()))) for topic, own in by_topic.items()}


def _columns(lines: dict[int, OffsetLine]) -> TopicOffsets:
    return TopicOffsets(
        list(lines),
        [line.member for line in lines.values()],
        [NO_OFFSET if line.current_offset is None else line.current_offset for line in lines.values()],
        [NO_OFFSET if line.log_end_offset is None else line.log_end_offset for line in lines.values()],
        {index: line for index, line in lines.items() if not _is_at_rest(line)},
    )


def _is_at_rest(line: OffsetLine) -> bool:
    return line.lag is not None and line.lag <= 0 and line == OffsetLine(*line[:5])
