"""Connections: the order of answers, what is answered although it is wrong, and what costs the connection."""

from __future__ import annotations

import struct
from typing import cast

from protocol.header import decode_response, encode_request
from protocol.messages import (
    ApiVersionsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.oracle.stage import Client, Stage, script, script_for

HEARTBEAT, METADATA, API_VERSIONS, PRODUCE = 12, 3, 18, 0


@script()
def requests_behind_a_waiting_join_wait(stage: Stage) -> None:
    """The server handles no request behind a waiting Join on its connection until it has answered the Join."""
    a, b = stage.clients("a b", version=3)
    stage.form(a)
    b.join()
    b.send(HeartbeatRequest(group_id=stage.group, generation_id=1, member_id=a.member_id), 2)
    b.waits()
    a.join()
    a.joined()
    b.joined()
    b.receive()


@script()
def requests_behind_a_waiting_sync_wait(stage: Stage) -> None:
    """The same for Sync; a leave that is sent behind it takes effect only then."""
    a, b = stage.clients("a b")
    stage.form(a, b, assign=False)
    b.sync()
    b.send(HeartbeatRequest(group_id=stage.group, generation_id=2, member_id=b.member_id), 3)
    b.send(MetadataRequest(topics=[]), 4)
    b.waits()
    a.sync({a: b"a", b: b"b"})
    a.synced()
    b.synced()
    b.receive()
    b.receive()


@script()
def many_requests_at_once(stage: Stage) -> None:
    """Requests that arrive together are answered in their order."""
    a = stage.client("a")
    stage.form(a)
    requests = [
        HeartbeatRequest(group_id=stage.group, generation_id=1 + number % 2, member_id=a.member_id)
        for number in range(10)
    ]
    for request in requests:
        a.send(request, 3)
    for _ in requests:
        a.receive()


@script()
def request_in_pieces(stage: Stage) -> None:
    """A request that arrives byte by byte is a request."""
    a = stage.client("a")
    frame = encode_request(HeartbeatRequest(group_id=stage.group, member_id="x"), 3, 7, "oracle")
    for position in range(len(frame)):
        a.connection.send_bytes(frame[position : position + 1])
    a.is_closed()


@script_for(0, 1, 2, 3, 4)
def api_versions(stage: Stage, version: int) -> None:
    """The server answers in each version; another test compares the listed APIs."""
    a = stage.client("a")
    a.ask(ApiVersionsRequest(client_software_name="oracle", client_software_version="1.0"), version)


@script()
def api_versions_of_the_future(stage: Stage) -> None:
    """An unknown version is answered in v0 with UNSUPPORTED_VERSION and key 18 alone; the connection goes on."""
    a = stage.client("a")
    for version in (5, 99, 32_767):
        _send_frame(a, _header(API_VERSIONS, version, 7) + b"\0whatever", f"ApiVersions v{version}")
        a.is_closed()
    a.ask(ApiVersionsRequest(), 0)


@script_for(3, 4)
def api_versions_with_a_bad_name(stage: Stage, version: int) -> None:
    """A client software name or version that is no name: INVALID_REQUEST, and the connection goes on."""
    a = stage.client("a")
    for name, number in (("", "1"), ("oracle", ""), ("-oracle", "1"), ("or acle", "1"), ("oracle.1-x", "1.0-rc1")):
        a.ask(ApiVersionsRequest(client_software_name=name, client_software_version=number), version)
    a.ask(ApiVersionsRequest(), 0)


@script()
def api_versions_twice(stage: Stage) -> None:
    """Asked again it is answered again."""
    a = stage.client("a")
    for _ in range(2):
        a.ask(ApiVersionsRequest(client_software_name="oracle", client_software_version="1.0"), 3)


@script()
def what_costs_the_connection(stage: Stage) -> None:
    """Unknown APIs and versions, broken bodies and absurd sizes close the connection without an answer."""
    heartbeat = struct.pack(">h", 1) + b"g" + struct.pack(">ih", 1, 1) + b"m"
    for name, frame in {
        "unknown API": _header(9_999, 0, 1),
        "negative API": _header(-1, 0, 1),
        "unsupported version": _header(HEARTBEAT, 5, 1) + heartbeat,
        "negative version": _header(HEARTBEAT, -1, 1) + heartbeat,
        "empty frame": b"",
        "half a header": b"\0\x0c\0",
        "header without client id": _header(HEARTBEAT, 0, 1)[:8],
        "no body": _header(HEARTBEAT, 0, 1),
        "truncated body": _header(HEARTBEAT, 0, 1) + heartbeat[:-1],
        "null group id": _header(HEARTBEAT, 0, 1) + struct.pack(">h", -1) + heartbeat[3:],
        "group id longer than the frame": _header(HEARTBEAT, 0, 1) + struct.pack(">h", 30_000) + heartbeat[2:],
        "group id of length -2": _header(HEARTBEAT, 0, 1) + struct.pack(">h", -2) + heartbeat[2:],
        "array longer than the frame": _header(METADATA, 1, 1) + struct.pack(">i", 1_000_000_000),
        "flexible body cut": _header(HEARTBEAT, 4, 1) + b"\0\x02g\0\0",
        "flexible array longer than the frame": _header(METADATA, 9, 1) + b"\0\xff\xff\xff\xff\x07",
        "client id longer than the frame": struct.pack(">hhih", HEARTBEAT, 0, 1, 100) + b"x",
    }.items():
        a = stage.client(name)
        _send_frame(a, frame, "")
        a.is_closed()


@script()
def sizes_that_cost_the_connection(stage: Stage) -> None:
    """A size that is negative, or larger than socket.request.max.bytes."""
    for name, size in {"negative": -1, "smallest": -(2**31), "too large": 104_857_601, "largest": 2**31 - 1}.items():
        a = stage.client(name)
        a.send_bytes(struct.pack(">i", size), "")
        a.is_closed()


@script()
def bytes_behind_a_body(stage: Stage) -> None:
    """Bytes behind the end of a body are ignored."""
    a = stage.client("a")
    body = struct.pack(">h", 1) + b"g" + struct.pack(">ih", 1, 1) + b"m"
    _send_frame(a, _header(HEARTBEAT, 0, 1) + body + b"more", "Heartbeat and more")
    a.is_closed()


@script()
def unknown_tagged_fields(stage: Stage) -> None:
    """Tagged fields that nobody knows, in header and body, are skipped."""
    a = stage.client("a")
    stage.form(a)
    heartbeat = HeartbeatRequest(group_id=stage.group, generation_id=1, member_id=a.member_id)
    heartbeat.unknown_tagged_fields = {7: b"seven", 4_000_000_000: b""}
    a.ask(heartbeat, 4)
    join = JoinGroupRequest(
        group_id=f"{stage.group}.other",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", unknown_tagged_fields={0: b"x"})],
    )
    a.ask(join, 9)


@script()
def empty_and_odd_texts(stage: Stage) -> None:
    """Group, member and instance ids are any text: empty, long, of all planes."""
    for number, text in enumerate(("ü", "\U0001f600", "a b\tc", "x" * 1_000, "__consumer_offsets", "../..")):
        group = f"{stage.group}.{number}.{text}"
        a = stage.client(f"a{number}", group=group, instance=text, client_id=text)
        stage.form(a)
        a.describe(group)
    empty = stage.client("empty", instance="", group=f"{stage.group}.empty")
    empty.join()
    empty.joined()
    empty.describe(empty.group)


NOT_UTF8 = {
    "Latin-1": "größe".encode("latin-1"),
    "binary": b"\xff\xfe\x80\xc3(\xe0\x80\x80",
    "surrogates": b"a\xed\xa0\x80\xed\xbf\xbf\xed\xa0z",
    "cut": b"\xf4\x90\x80\x80\xe2\x82",
}


@script()
def strings_that_are_not_utf8(stage: Stage) -> None:
    """U+FFFD stands for each malformed sequence in ids, names and metadata, also in those that are kept."""
    topic = stage.topic("not-utf8", 1)
    for name, content in NOT_UTF8.items():
        a = stage.client(name)

        def ask(request: Message, version: int, client: Client = a, content: bytes = content) -> None:
            """Send a request with `content` in place of its mark, also in its client id."""
            mark = "@" * len(content)
            frame = encode_request(request, version, 7, mark).replace(mark.encode(), content)
            client.send_bytes(frame, f"{request.NAME} v{version} {content!r}")
            answer = decode_response(cast("int", request.API_KEY), version, client.connection.receive_frame())[1]
            stage.transcript.add(client.name, f"< {answer.NAME}", answer)

        mark = "@" * len(content)
        group = f"{stage.group}.{mark}"
        committed = OffsetCommitRequest.OffsetCommitRequestPartition(
            committed_offset=5, committed_leader_epoch=0, committed_metadata=mark
        )
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(name=each, partitions=[committed]) for each in (topic, mark)
        ]
        for version in (7, 8):
            ask(OffsetCommitRequest(group_id=group, topics=topics), version)
        ask(OffsetFetchRequest(group_id=group, topics=None), 7)
        fetched = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        ask(OffsetFetchRequest(groups=[fetched]), 8)
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=mark,
            protocol_type=mark,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=mark, metadata=mark.encode())],
        )
        ask(join, 5)
        ask(DescribeGroupsRequest(groups=[group]), 4)
        ask(HeartbeatRequest(group_id=group, generation_id=1, member_id=mark, group_instance_id=mark), 3)
        ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=mark)]), 4)


def _header(api_key: int, version: int, correlation_id: int, client_id: bytes = b"oracle") -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id


def _send_frame(client: Client, frame: bytes, what: str) -> None:
    client.send_bytes(struct.pack(">i", len(frame)) + frame, what)
