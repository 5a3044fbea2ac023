"""Requests, responses and records in few words: the structs in them are dicts.

    request("Metadata", topics=[{"name": "orders"}])

House rule: a field that a struct doesn't have is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.security.acls import Operation, Pattern, Permission
from protocol import messages
from protocol.definition import Struct
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    Message,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)


def message(name: str, /, **fields: Any) -> Any:
    """Return the message or record of this name."""
    made = getattr(messages, name)
    return _filled(made, made, messages.definition(name).struct, fields)


def request(api: str, **fields: Any) -> Message:
    """Return the request of an API."""
    made: Message = message(f"{api}Request", **fields)
    return made


def response(api: str, **fields: Any) -> Any:
    """Return the response of an API."""
    return message(f"{api}Response", **fields)


def join_request(
    group: str,
    member_id: str = "",
    instance: str | None = None,
    *,
    session_ms: int = 60_000,
    rebalance_ms: int = 60_000,
    protocol_type: str = "consumer",
    protocols: Sequence[tuple[str, bytes]] = (("range", bytes(10)),),
    **more: Any,
) -> JoinGroupRequest:
    """Return the JoinGroup of a member. protocols: names and metadata; without them, those of no topic."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        **more,
    )


def sync_request(
    group: str,
    generation: int,
    member_id: str,
    instance: str | None = None,
    given: Mapping[str, bytes] | None = None,
    *,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    """Return the SyncGroup of a member. given: a leader's assignments, by member id."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (given or {}).items()
        ],
    )


def heartbeat_request(group: str, generation: int, member_id: str, instance: str | None = None) -> HeartbeatRequest:
    """Return the Heartbeat of a member."""
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def leave_request(
    group: str, *members: tuple[str, str | None], member_id: str = "", reason: str | None = None
) -> LeaveGroupRequest:
    """Return the LeaveGroup of members by their ids and instance ids; before version 3 of `member_id`."""
    left = [
        LeaveGroupRequest.MemberIdentity(member_id=each, group_instance_id=instance, reason=reason)
        for each, instance in members
    ]
    return LeaveGroupRequest(group_id=group, member_id=member_id, members=left)


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
    **more: Any,
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
        **more,
    )
    assert isinstance(made, OffsetCommitRequest)
    return made


def topics_request(counts: Mapping[str, int], configs: Mapping[str, str] | None = None, **fields: Any) -> Message:
    """Return the CreateTopics of topics with these numbers of partitions, on one broker each. configs: of them all."""
    made = [{"name": name, "value": value} for name, value in (configs or {}).items()]
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "configs": made}
        for name, count in counts.items()
    ]
    return request("CreateTopics", **{"topics": topics, "timeout_ms": 60_000, **fields})


def configs_request(
    kind: int,
    names: Sequence[str],
    configs: Mapping[str, str | None] | Sequence[tuple[str, int, str | None]],
    **fields: Any,
) -> Message:
    """Return the IncrementalAlterConfigs that makes the same changes of these resources.

    configs: values to set, or to delete where they are None; or names, operations and values.
    """
    if isinstance(configs, Mapping):
        configs = [(name, 1 if value is None else 0, value) for name, value in configs.items()]
    made = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in configs]
    resources = [{"resource_type": kind, "resource_name": name, "configs": made} for name in names]
    return request("IncrementalAlterConfigs", resources=resources, **fields)


def describe_configs_request(kind: int, *names: str, keys: Sequence[str] | None = None, **fields: Any) -> Message:
    """Return the DescribeConfigs of these resources. keys: the settings to describe, without which it is all."""
    wanted = None if keys is None else [*keys]
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": wanted} for name in names]
    return request("DescribeConfigs", resources=resources, **fields)


def produce_request(parts: Mapping[tuple[str, int], bytes | None], **fields: Any) -> Message:
    """Return the Produce of these records, by topic and partition, which all replicas acknowledge."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), records in parts.items():
        topics.setdefault(topic, []).append({"index": index, "records": records})
    data = [{"name": name, "partition_data": partitions} for name, partitions in topics.items()]
    return request("Produce", **{"acks": -1, "timeout_ms": 60_000, "topic_data": data, **fields})


def fetch_request(offsets: Mapping[tuple[str, int], int], size: int = 1_000_000, **fields: Any) -> Message:
    """Return the Fetch, without a session, from these offsets on, by topic and partition."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
        topics.setdefault(topic, []).append(wanted)
    asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": size, "session_epoch": -1}
    return request("Fetch", topics=asked, **{**limits, **fields})


def grow_request(counts: Mapping[str, int], timeout_ms: int = 60_000) -> Message:
    """Return the CreatePartitions that gives topics these numbers of partitions."""
    topics = [{"name": name, "count": count, "assignments": None} for name, count in counts.items()]
    return request("CreatePartitions", topics=topics, timeout_ms=timeout_ms)


def delete_offsets_request(group: str, partitions: Mapping[str, Sequence[int]]) -> OffsetDeleteRequest:
    """Return the OffsetDelete of these partitions, by topic."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in partitions.items()
    ]
    made = request("OffsetDelete", group_id=group, topics=topics)
    assert isinstance(made, OffsetDeleteRequest)
    return made


def acl(
    kind: int, name: str, operation: int = Operation.READ, permission: int = Permission.ALLOW, **fields: Any
) -> CreateAclsRequest.AclCreation:
    """Return an ACL to create: for alice from any host, unless the fields say otherwise."""
    whom = {"principal": "User:alice", "host": "*", "resource_pattern_type": Pattern.LITERAL, **fields}
    return CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, operation=operation, permission_type=permission, **whom
    )


def list_offsets_request(timestamps: Mapping[tuple[str, int], int], **fields: Any) -> Message:
    """Return the ListOffsets of these timestamps, by topic and partition."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), timestamp in timestamps.items():
        topics.setdefault(topic, []).append({"partition_index": index, "timestamp": timestamp})
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return request("ListOffsets", replica_id=-1, topics=asked, **fields)


def offsets_request(group: str, partitions: Mapping[str, Sequence[int]] | None = None) -> Message:
    """Return the OffsetFetch of a group in the form before version 8. partitions: by topic; without them, of all."""
    topics = None if partitions is None else _of_topics(partitions)
    return request("OffsetFetch", group_id=group, topics=topics)


def group_offsets_request(
    *groups: str, partitions: Mapping[str, Sequence[int]] | None = None, stable: bool = False
) -> Message:
    """Return the OffsetFetch of groups, as of version 8. partitions: by topic, of each; without them, of all."""
    topics = None if partitions is None else _of_topics(partitions)
    asked = [{"group_id": group, "topics": topics} for group in groups]
    return request("OffsetFetch", groups=asked, require_stable=stable)


def _of_topics(partitions: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"name": name, "partition_indexes": [*indexes]} for name, indexes in partitions.items()]


def _filled(top: type[Message], made: type[Message], struct: Struct, values: Mapping[str, Any]) -> Message:
    """Return a message or a struct of it. top: the class of the message, which has those of all structs."""
    inner = {field.name: field.struct for field in struct.fields}
    return made(**{name: _of_structs(top, inner.get(name), value) for name, value in values.items()})


def _of_structs(top: type[Message], struct: Struct | None, value: Any) -> Any:
    if struct is None or value is None or isinstance(value, Message):
        return value
    if isinstance(value, Mapping):
        return _filled(top, getattr(top, struct.name), struct, value)
    return [_of_structs(top, struct, each) for each in value]
