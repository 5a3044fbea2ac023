"""Every API: which versions are spoken, and who answers.

`Api.dispatch` is the one way in, and so the place where a request could be delayed, dropped or refused before anybody
sees it. A heartbeat takes a short cut through it: look up, move a deadline, answer; neither event nor `Call` is made,
and the answer is a template with the correlation id put in. A member's heartbeats differ in their correlation id only,
so what dispatch let through once is remembered (`Heartbeat`), and the connection answers the same bytes by it. So is an
OffsetCommit (`repeats`). Whoever changes what dispatch lets through sets `Connection.heartbeat` and `commit` to None.

House rule: whoever answers a request is found in HANDLERS; a version is checked nowhere else than in
`protocol.header.decode_request_header`, with the one exception that KIP-511 makes for ApiVersions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coordinator.group.heartbeat import again
from coordinator.server.call import Call, Services
from coordinator.server.repeats import UNLIKE_MAX, commit_of
from protocol.connection import SIZE_BYTES
from protocol.errors import ProtocolError
from protocol.header import decode_request_header, encode_response
from protocol.messages import (
    API_KEYS,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    api_schema,
    decode,
    request_class,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.server.connection import Connection
    from coordinator.server.runtime import Partition, Runtime
    from protocol.messages import ApiVersionsRequest, OffsetCommitRequest

API_VERSIONS = API_KEYS["ApiVersions"]
HEARTBEAT = API_KEYS["Heartbeat"]
OFFSET_COMMIT = API_KEYS["OffsetCommit"]

SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"
"""What a client's program may be called, and its version (KIP-511)."""

SIZES_CACHED_MAX = 1024
"""Sizes of heartbeats remembered: a client can make up any number of them."""

CORRELATION_ID = slice(4, 8)
"""Where the correlation id stands: in a request's frame, and in a response with its size in front."""


def api_versions(services: Services, call: Call, request: ApiVersionsRequest) -> None:  # noqa: ARG001 - as all handlers
    """ApiVersions: what is in HANDLERS, in the versions of the schemas."""
    if call.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if re.fullmatch(SOFTWARE, name) is None or re.fullmatch(SOFTWARE, version) is None:
            call.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        call.set_software(f"{name} {version}")
    call.answer(ApiVersionsResponse(api_keys=[_spoken(key) for key in sorted(HANDLERS)]))


def _spoken(api_key: int) -> ApiVersionsResponse.ApiVersion:
    first, last = api_schema(api_key).VERSIONS
    return ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=first, max_version=last)


def _speaks(api_versions_version: int) -> bool:
    first, last = api_schema(API_VERSIONS).VERSIONS
    return bool(first <= api_versions_version <= last)


def refuse_api_versions(call: Call) -> None:
    """ApiVersions in a version that we don't speak: in version 0, which one we do (KIP-511)."""
    body = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_spoken(API_VERSIONS)])
    call.answer(body, api_version=0)


Handler = Callable[[Services, Call, Any], None]

HANDLERS = {
    API_KEYS["Produce"]: "data_requests.produce",
    API_KEYS["Fetch"]: "data_requests.fetch",
    API_KEYS["ListOffsets"]: "data_requests.list_offsets",
    API_KEYS["Metadata"]: "topic_requests.metadata",
    API_KEYS["OffsetCommit"]: "group_requests.commit_offsets",
    API_KEYS["OffsetFetch"]: "group_requests.fetch_offsets",
    API_KEYS["FindCoordinator"]: "topic_requests.find_coordinator",
    API_KEYS["JoinGroup"]: "group_requests.join_group",
    API_KEYS["Heartbeat"]: "group_requests.heartbeat",
    API_KEYS["LeaveGroup"]: "group_requests.leave_group",
    API_KEYS["SyncGroup"]: "group_requests.sync_group",
    API_KEYS["DescribeGroups"]: "group_requests.describe_groups",
    API_KEYS["ListGroups"]: "group_requests.list_groups",
    API_KEYS["ApiVersions"]: "api.api_versions",
    API_KEYS["CreateTopics"]: "topic_requests.create_topics",
    API_KEYS["DeleteTopics"]: "topic_requests.delete_topics",
    API_KEYS["DeleteRecords"]: "data_requests.delete_records",
    API_KEYS["InitProducerId"]: "data_requests.init_producer_id",
    API_KEYS["OffsetForLeaderEpoch"]: "data_requests.offset_for_leader_epoch",
    API_KEYS["TxnOffsetCommit"]: "data_requests.commit_in_transaction",
    API_KEYS["DescribeConfigs"]: "config_requests.describe_configs",
    API_KEYS["AlterConfigs"]: "config_requests.alter_configs",
    API_KEYS["CreatePartitions"]: "topic_requests.create_partitions",
    API_KEYS["DeleteGroups"]: "group_requests.delete_groups",
    API_KEYS["IncrementalAlterConfigs"]: "config_requests.incremental_alter_configs",
    API_KEYS["OffsetDelete"]: "group_requests.delete_offsets",
    API_KEYS["DescribeCluster"]: "topic_requests.describe_cluster",
}
"""Who answers, by API key: a function of a module beside this one, imported with the first request of its kind."""


def handler(api_key: int) -> Handler:
    """Who answers requests of this API."""
    module, _, function = HANDLERS[api_key].partition(".")
    found: Handler = getattr(import_module(f"coordinator.server.{module}"), function)
    return found


class Heartbeat:
    """A connection's last heartbeat, which got a plain yes: answers the next one, if only the correlation id differs.

    Nothing is remembered of the answer, only the bytes, and the member that they are about; any answer but a plain yes
    is left to `Api.dispatch`. Heartbeats of other members that share the connection are decoded and looked up, and
    spared the rest of the way. What comes twice in a row is left to `dispatch`, to be remembered.

    frame_size: of its frame, as the four bytes in front.
    """

    __slots__ = (
        "_another",
        "_body_at",
        "_generation",
        "_group",
        "_head",
        "_header",
        "_heartbeats",
        "_life",
        "_member",
        "_member_id",
        "_ms",
        "_partition",
        "_rest",
        "_runtime",
        "_size",
        "_split",
        "_start",
        "_tail",
        "_version",
        "frame_size",
    )

    def __init__(
        self,
        frame: bytes,
        body_at: int,
        version: int,
        request: HeartbeatRequest,
        services: Services,
        partition: Partition,
    ) -> None:
        self.frame_size = struct.pack(">i", len(frame))
        data = self.frame_size + frame
        self._size = len(data)
        self._split = splitter(self._size)
        self._start, _, self._rest = self._split(data)
        # Of the header what is the same in each: API and version, and what stands behind the correlation id.
        self._body_at = SIZE_BYTES + body_at
        self._header = data[4:8], data[12 : self._body_at]
        self._another = b""
        self._version = version
        self._runtime = services.runtime
        self._ms = services.runtime.ms
        self._heartbeats = services.measures.heartbeats
        self._partition = partition
        self._life = partition.life
        self._group = partition.coordinator.groups[request.group_id]
        self._member = self._group.members[request.member_id]
        self._member_id = self._member.member_id
        self._generation = request.generation_id
        self._head, self._tail = heartbeat_template(version, ErrorCode.NONE)

    def answer(self, data: bytes) -> bytes | None:
        """The answer, size included, to the request that `data` is, size included; None if dispatch has to answer."""
        if len(data) == self._size:
            start, correlation_id, rest = self._split(data)
            if rest == self._rest and start == self._start:
                if self._partition.life != self._life or not again(
                    self._group, self._member, self._member_id, self._generation, self._ms()
                ):
                    return None
                self._heartbeats[0] += 1
                return self._head + correlation_id + self._tail
        return self._answer_another(data)

    def _answer_another(self, data: bytes) -> bytes | None:
        """The answer to another heartbeat, if `data` is one; None if dispatch has to answer."""
        kind, behind = self._header
        if data[4:8] != kind or not data.startswith(behind, 12) or int.from_bytes(data[:4]) != len(data) - SIZE_BYTES:
            return None
        rest = data[self._body_at :]
        if rest == self._another:
            return None
        self._another = rest
        try:
            request = decode(HeartbeatRequest, rest, self._version, 0)
        except ProtocolError:
            return None
        error = look_up(self._runtime, request)
        if error is None:
            return None
        self._heartbeats[int(error)] += 1
        head, tail = heartbeat_template(self._version, error)
        return head + data[8:12] + tail


def look_up(runtime: Runtime, request: HeartbeatRequest) -> int | None:
    """The error code that answers a heartbeat; None if it has to be handled as an event."""
    group_id = request.group_id
    return runtime.heartbeat(
        runtime.partition_of(group_id), group_id, request.member_id, request.group_instance_id, request.generation_id
    )


@lru_cache(SIZES_CACHED_MAX)
def splitter(size: int) -> Callable[[bytes], tuple[bytes, bytes, bytes]]:
    """Cuts a request of `size` bytes into what stands before its correlation id, that id, and what stands behind.

    One call, where three slices would take twice as long.
    """
    return struct.Struct(f"8s4s{size - 12}s").unpack


@cache
def heartbeat_template(version: int, error: int) -> tuple[bytes, bytes]:
    """What stands before and behind the correlation id of a heartbeat's answer."""
    whole = encode_response(HEARTBEAT, version, 0, HeartbeatResponse(error_code=error))
    return whole[: CORRELATION_ID.start], whole[CORRELATION_ID.stop :]


class Api:
    """Answers the requests of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._handlers: dict[int, tuple[Handler, type[Message]]] = {}

    def dispatch(self, connection: Connection, frame: bytes) -> bytes | None:
        """The answer to a request, size included; None if it comes later, by `connection.send`.

        Raises ProtocolError if the request breaks the rules: the connection is to be closed.
        """
        last = connection.heartbeat
        if last is not None:
            answer = last.answer(last.frame_size + frame)
            if answer is not None:
                return answer
        commit = connection.commit
        if commit is not None and commit.take(commit.frame_size + frame):
            connection.wait_for(commit)
            return None
        api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
        if api_key == HEARTBEAT:
            answer = self._heartbeat(connection, frame, version, offset)
            if answer is not None:
                return answer
        call = Call(
            api_key,
            version,
            correlation_id,
            connection.client(client_id),
            connection.listener,
            connection.local_host,
            connection.set_software,
            self._services.measures.answered,
        )
        if api_key == API_VERSIONS and not _speaks(version):
            refuse_api_versions(call)
        else:
            known = self._handlers.get(api_key)
            if known is None:
                known = self._handlers[api_key] = handler(api_key), request_class(api_key)
            handle, request_type = known
            request: Any = decode(request_type, frame, version, offset)
            if api_key == OFFSET_COMMIT:
                self._remember(connection, frame, offset, call, request)
            handle(self._services, call, request)
        answer = call.take(connection.send)
        if answer is None:
            connection.wait_for(call)
        return answer

    def _remember(
        self, connection: Connection, frame: bytes, offset: int, call: Call, request: OffsetCommitRequest
    ) -> None:
        """Remember a commit, unless its connection's are never alike."""
        last = connection.commit
        if last is not None and last.is_used:
            connection.unlike_commits = 0
        connection.commit = None
        if connection.unlike_commits < UNLIKE_MAX:
            connection.unlike_commits += 1
            connection.commit = commit_of(
                self._services, frame, offset, call.api_version, call.client, request, connection.send
            )

    def _heartbeat(self, connection: Connection, frame: bytes, version: int, offset: int) -> bytes | None:
        """The answer to a heartbeat; None if it has to be handled as an event."""
        request = decode(HeartbeatRequest, frame, version, offset)
        error = look_up(self._services.runtime, request)
        if error is None:
            return None
        # A last one that this isn't is forgotten first: members that share a connection would be remembered in vain.
        last, connection.heartbeat = connection.heartbeat, None
        if last is None and not error:
            partition = self._services.runtime.partition_of(request.group_id)
            connection.heartbeat = Heartbeat(frame, offset, version, request, self._services, partition)
        self._services.measures.heartbeats[int(error)] += 1
        head, tail = heartbeat_template(version, error)
        return head + frame[CORRELATION_ID] + tail
