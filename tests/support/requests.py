"""Requests in few words: the structs in them are dicts.

    request("Metadata", topics=[{"name": "orders"}])

House rule: a field that a struct doesn't have is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.definition import Struct
from protocol.messages import (
    API_KEYS,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    Message,
    OffsetCommitRequest,
    SyncGroupRequest,
    definition,
    request_class,
)


def request(api: str, **fields: Any) -> Message:
    """Return the request of an API."""
    made = request_class(API_KEYS[api])
    return _filled(made, made, definition(made.NAME).struct, fields)


def join_request(
    group: str,
    member_id: str = "",
    instance: str | None = None,
    *,
    session_ms: int = 60_000,
    rebalance_ms: int = 60_000,
    protocols: Sequence[tuple[str, bytes]] = (("range", bytes(10)),),
    **more: Any,
) -> JoinGroupRequest:
    """Return the JoinGroup of a consumer. protocols: names and metadata; without them, those of no topic."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        **more,
    )


def sync_request(
    group: str, generation: int, member_id: str, instance: str | None = None, given: Mapping[str, bytes] | None = None
) -> SyncGroupRequest:
    """Return the SyncGroup of a consumer. given: a leader's assignments, by member id."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (given or {}).items()
        ],
    )


def heartbeat_request(group: str, generation: int, member_id: str, instance: str | None = None) -> HeartbeatRequest:
    """Return the Heartbeat of a member."""
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def first_heartbeat(
    group: str, member_id: str = "m", topics: Sequence[str] = ("orders",), instance: str | None = None, **more: Any
) -> ConsumerGroupHeartbeatRequest:
    """Return the ConsumerGroupHeartbeat with which a member joins a group."""
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **more}
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, instance_id=instance, subscribed_topic_names=[*topics], **fields
    )


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
