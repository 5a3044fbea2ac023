"""What a supervisor and its workers tell each other, over a pair of sockets: one JSON object a line.

    worker to supervisor    ready                          it accepts requests
                            failed    reason               it can't start, and ends
                            create    number, topics       please create these, and change the list otherwise
                            known     number               of `created` topics: they are known here
    supervisor to worker    created   number, topics       these exist now, and what else is changed
                            answer    number, taken, error to the worker's own `create` of that number: what was not
                                                           created, because of whom; or why nothing was

Both ends number what they ask. Lines come in order, so whoever gets an `answer` has had its topics before. Beside
`topics`, and only where there are any, stand what is `altered` about topics and ids of topics that are `deleted`; these
are known when the worker uses nothing of them any more, neither records nor folders.

House rule: both ends are of one start of one program, so there are no versions, and what can't be read is a bug.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from coordinator.log.topics.list import Topic
from coordinator.server.nodes.topics import Altered, Change

READY, FAILED, CREATE, KNOWN, CREATED, ANSWER = "ready", "failed", "create", "known", "created", "answer"


def line(kind: str, **fields: Any) -> bytes:
    """A message."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


class LineReader:
    """Takes bytes as they come, gives messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete now."""
        begun, end, rest = data.rpartition(b"\n")
        if not end:
            self._rest += data
            return []
        lines = bytes(self._rest + begun)
        self._rest = bytearray(rest)
        return [json.loads(each) for each in lines.split(b"\n")]


def topics_as_fields(topics: Iterable[Topic]) -> list[dict[str, Any]]:
    """Topics as a field of a message."""
    return [
        {
            "name": topic.name,
            "topic_id": str(topic.topic_id),
            "partition_count": topic.partition_count,
            "configs": topic.configs,
        }
        for topic in topics
    ]


def change_as_fields(change: Change) -> dict[str, Any]:
    """A change of the list, as fields of a message."""
    fields: dict[str, Any] = {"topics": topics_as_fields(change.created)}
    if change.altered:
        fields["altered"] = [[str(each.topic_id), each.partition_count, each.configs] for each in change.altered]
    if change.deleted:
        fields["deleted"] = [str(topic_id) for topic_id in change.deleted]
    return fields


def change_from_fields(message: dict[str, Any]) -> Change:
    """The change again."""
    deleted = [UUID(topic_id) for topic_id in message.get("deleted", ())]
    altered = [Altered(UUID(topic_id), *rest) for topic_id, *rest in message.get("altered", ())]
    return Change(topics_from_fields(message["topics"]), altered, deleted)


def topics_from_fields(fields: Iterable[dict[str, Any]]) -> list[Topic]:
    """The topics again."""
    return [Topic(each["name"], UUID(each["topic_id"]), each["partition_count"], each["configs"]) for each in fields]
