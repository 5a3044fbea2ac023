"""Requests in few words: the structs in them are dicts.

    request("Metadata", topics=[{"name": "orders"}])

House rule: a field that a struct doesn't have is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.definition import Struct
from protocol.messages import API_KEYS, Message, OffsetCommitRequest, definition, request_class


def request(api: str, **fields: Any) -> Message:
    """Return the request of an API."""
    made = request_class(API_KEYS[api])
    return _filled(made, made, definition(made.NAME).struct, fields)


def commit_request(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    """Return a commit of these offsets, by topic and partition: of a simple consumer, unless a member is named."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        position = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        topics.setdefault(topic, []).append(position)
    made = request(
        "OffsetCommit",
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    )
    assert isinstance(made, OffsetCommitRequest)
    return made


def _filled(top: type[Message], made: type[Message], struct: Struct, values: Mapping[str, Any]) -> Message:
    """Return a message or a struct of it. top: the class of the message, which has those of all structs."""
    inner = {field.name: field.struct for field in struct.fields}
    return made(**{name: _of_structs(top, inner.get(name), value) for name, value in values.items()})


def _of_structs(top: type[Message], struct: Struct | None, value: Any) -> Any:
    if struct is None or value is None:
        return value
    made = getattr(top, struct.name)
    return [each if isinstance(each, Message) else _filled(top, made, struct, each) for each in value]
