"""Requests that are encoded once and then patched, and answers that are read in place.

`protocol` encodes a request with marks in place of its variable values, and the request is cut at the marks. To fill it
in is then a join of bytes, which costs the generator a fraction of the cost for any server to read it. This module uses
only versions with the plain headers: all of them have the correlation id at the same position.

House rule: sizes include the four bytes of the size itself, as the frames do.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.header import encode_request
from protocol.messages import (
    ApiVersionsRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CreateAclsRequest,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SyncGroupRequest,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.compile import Message

CLIENT_ID = "benchmark"
TOPIC = "orders"
"""The topic that members subscribe to."""
SESSION_TIMEOUT_MS = 1_800_000
"""The longest timeout that servers allow by default, so that no member expires during a run on a busy machine."""
REBALANCE_TIMEOUT_MS = 300_000

JOIN_DYNAMIC, JOIN_STATIC = 4, 5
SYNC = 3
HEARTBEAT = 3
COMMIT = 7
CREATE_TOPICS = 2
METADATA = 8
FIND_COORDINATOR = 2
CREATE_ACLS = 1
API_VERSIONS = 2
SASL_HANDSHAKE = 1
SASL_AUTHENTICATE = 1
ALLOW = 3

SIZE_BYTES = 4
pack_id = struct.Struct(">i").pack
_unpack_error = struct.Struct(">h").unpack_from
_unpack_joined = struct.Struct(">hih").unpack_from

MEMBER_MARK = "<a member id>"
INSTANCE_MARK = "<an instance id>"
GROUP_MARK = "<a group id>"
GENERATION_MARK = 0x3C67656E  # "<gen"
OFFSET_MARK = 0x3C616E206F666673  # "<an offs"
OFFSET = OFFSET_MARK.to_bytes(8, "big")


def string(text: str) -> bytes:
    """Encode a string as the plain versions do."""
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def generation(number: int) -> bytes:
    """Encode a generation, or any other int32."""
    return number.to_bytes(4, "big", signed=True)


MARKS = (
    string(GROUP_MARK),
    string(MEMBER_MARK),
    string(INSTANCE_MARK),
    generation(GENERATION_MARK),
    OFFSET,
)


class Template:
    """A request with marked values, which are filled in for each send, in their order in the request."""

    __slots__ = ("_parts", "_start")

    def __init__(self, message: Message, version: int) -> None:
        frame = encode_request(message, version, 0, CLIENT_ID)
        found = sorted((frame.index(mark), mark) for mark in MARKS if mark in frame)
        self._start = frame[4:8]
        self._parts: list[bytes] = []
        position = 12
        for place, mark in found:
            self._parts.append(frame[position:place])
            position = place + len(mark)
        self._parts.append(frame[position:])

    def halves(self, *values: bytes) -> tuple[bytes, bytes]:
        """Return the frame before and behind the correlation id: `start + pack_id(number) + rest` is a request."""
        assert len(values) == len(self._parts) - 1
        body = self._parts[0] + b"".join(value + part for value, part in zip(values, self._parts[1:], strict=True))
        return generation(len(body) + 8) + self._start, body

    def fill(self, correlation_id: int, *values: bytes) -> bytes:
        """Return the frame."""
        start, rest = self.halves(*values)
        return start + pack_id(correlation_id) + rest


# Requests.


def subscription() -> bytes:
    """Return the metadata of a consumer of one topic, for JoinGroup."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=[TOPIC]), 0)


@functools.cache
def assignment(number: int, partition_count: int = 2) -> bytes:
    """Return a consumer's assignment: its share of the topic partitions."""
    first = number * partition_count
    given = ConsumerProtocolAssignment.TopicPartition(
        topic=TOPIC, partitions=list(range(first, first + partition_count))
    )
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=[given]), 0)


def join(group_id: str, *, static: bool, metadata: bytes | None = None) -> Template:
    """Return JoinGroup of a group; to fill in: member id, and the instance id of a static member."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=subscription() if metadata is None else metadata
    )
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=MEMBER_MARK,
        group_instance_id=INSTANCE_MARK if static else None,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return Template(request, JOIN_STATIC if static else JOIN_DYNAMIC)


def sync(group_id: str, *, static: bool, assignments: Mapping[str, bytes]) -> Template:
    """Return SyncGroup of a group; to fill in: generation, member id, and the instance id of a static member."""
    each = SyncGroupRequest.SyncGroupRequestAssignment
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=GENERATION_MARK,
        member_id=MEMBER_MARK,
        group_instance_id=INSTANCE_MARK if static else None,
        assignments=[each(member_id=member_id, assignment=data) for member_id, data in assignments.items()],
    )
    return Template(request, SYNC)


def heartbeat(group_id: str, *, static: bool) -> Template:
    """Return Heartbeat of a group; to fill in: generation, member id, and the instance id of a static member."""
    request = HeartbeatRequest(
        group_id=group_id,
        generation_id=GENERATION_MARK,
        member_id=MEMBER_MARK,
        group_instance_id=INSTANCE_MARK if static else None,
    )
    return Template(request, HEARTBEAT)


def commit(group_id: str, partition_count: int, *, static: bool) -> Template:
    """Return OffsetCommit of a group; to fill in: generation, member id, a static one's instance id, first offset."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=number or OFFSET_MARK, committed_metadata=""
        )
        for number in range(partition_count)
    ]
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=GENERATION_MARK,
        member_id=MEMBER_MARK,
        group_instance_id=INSTANCE_MARK if static else None,
        topics=[topic(name=TOPIC, partitions=partitions)],
    )
    return Template(request, COMMIT)


def create_topic(name: str, partition_count: int) -> bytes:
    """Return CreateTopics of one topic."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
    return encode_request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CREATE_TOPICS, 0, CLIENT_ID)


def metadata(names: Sequence[str]) -> Template:
    """Return Metadata of topics, as a consumer asks for them; nothing is filled in."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return Template(MetadataRequest(topics=topics, allow_auto_topic_creation=True), METADATA)


def find_coordinator(group_id: str) -> Template:
    """Return FindCoordinator of a group; nothing is filled in."""
    return Template(FindCoordinatorRequest(key=group_id), FIND_COORDINATOR)


class Acl(NamedTuple):
    """A rule that allows an operation from everywhere; numbers as on the wire."""

    kind: int
    pattern: int
    name: str
    principal: str
    operation: int


def create_acls(rules: Sequence[Acl]) -> bytes:
    """Return CreateAcls of these rules."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=rule.kind,
            resource_pattern_type=rule.pattern,
            resource_name=rule.name,
            principal=rule.principal,
            host="*",
            operation=rule.operation,
            permission_type=ALLOW,
        )
        for rule in rules
    ]
    return encode_request(CreateAclsRequest(creations=creations), CREATE_ACLS, 0, CLIENT_ID)


@functools.cache
def api_versions() -> bytes:
    """Return ApiVersions."""
    return encode_request(ApiVersionsRequest(), API_VERSIONS, 0, CLIENT_ID)


@functools.cache
def sasl_handshake(mechanism: str) -> bytes:
    """Return SaslHandshake."""
    return encode_request(SaslHandshakeRequest(mechanism=mechanism), SASL_HANDSHAKE, 0, CLIENT_ID)


def sasl_authenticate(token: bytes) -> bytes:
    """Return SaslAuthenticate."""
    return encode_request(SaslAuthenticateRequest(auth_bytes=token), SASL_AUTHENTICATE, 0, CLIENT_ID)


# Answers: size (4), correlation id (4), throttle time (4), and the rest.


def error_of(answer: bytes) -> int:
    """Return the error code of an answer to JoinGroup, SyncGroup or Heartbeat."""
    code: int = _unpack_error(answer, 12)[0]
    return code


def joined(answer: bytes) -> tuple[int, int, str, str]:
    """Return error code, generation, leader and member id of an answer to JoinGroup, without its members."""
    error, generation_id, size = _unpack_joined(answer, 12)
    position = 20 + max(size, 0)
    texts = []
    for _ in range(2):
        (size,) = _unpack_error(answer, position)
        texts.append(answer[position + 2 : position + 2 + size].decode())
        position += 2 + size
    return error, generation_id, texts[0], texts[1]


def topic_error(answer: bytes, name: str) -> int:
    """Return the error code of an answer to CreateTopics of one topic."""
    code: int = _unpack_error(answer, 12 + 4 + len(string(name)))[0]
    return code


def commit_done(partition_count: int) -> bytes:
    """Return the bytes behind the correlation id in an answer to `commit` without an error."""
    head = bytes(4) + generation(1) + string(TOPIC) + generation(partition_count)
    return head + b"".join(generation(number) + b"\0\0" for number in range(partition_count))


def sasl_token(answer: bytes) -> bytes:
    """Return the server's token in an answer to SaslAuthenticate without an error and so without a message."""
    size = int.from_bytes(answer[12:16])
    return answer[16 : 16 + size]


HEARTBEAT_DONE = bytes(6)
"""The bytes behind the correlation id in an answer to Heartbeat without an error."""
