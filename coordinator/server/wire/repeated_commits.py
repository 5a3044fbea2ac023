"""An OffsetCommit that a client repeats: the same bytes, but for the correlation id and the offsets.

The first commit of its kind is decoded. `Commit` keeps what follows from its bytes: where the offsets stand, the core's
`CommitTemplate`, the answer. The next commit is compared with it, and its offsets go to the runtime. Once they are
durable, the kept answer goes out with the new correlation id. The state of the group is not kept: the core checks each
commit, and `Api.dispatch` handles every answer but NONE.

House rule: a request with one other byte is another request.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar

from coordinator.group.answers import commit_answer
from coordinator.group.client import Client
from coordinator.group.events import CommitOffsets
from coordinator.group.offsets import CommitTemplate, template_of
from coordinator.log.topics.list import Topic
from coordinator.server.runtime.replies import RepeatedCommit
from coordinator.server.wire.call import Send, Services
from protocol.header import encode_response
from protocol.messages import API_KEYS, encode
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import OffsetCommitRequest

OFFSET_COMMIT = API_KEYS["OffsetCommit"]

ANSWERED = (OFFSET_COMMIT, int(ErrorCode.NONE))
"""The key under which such an answer counts: an OffsetCommit's answer has no top-level error."""

VERSION_MIN = 1
"""The first version whose commits are stored here."""

TOPIC_IDS_SINCE = 10
"""The first version of OffsetCommit, and of OffsetFetch, whose topics have ids in place of names (KIP-848)."""

REMEMBERED_BYTES_MAX = 4096
"""Longer commits are not kept: they would take more memory than the rest of their connection."""

UNLIKE_MAX = 8
"""After this many kept commits in a row that the client did not repeat, its commits are kept no more. (Kafka Streams
sends other metadata each time.)
"""

MARK = b"\x7fan offs"
"""Stands in place of offsets, to find them. A request that has these bytes elsewhere is not kept."""

CORRELATION_ID = slice(4, 8)
"""Position of the correlation id in an answer with its size."""


class Commit(RepeatedCommit):
    """A connection's last OffsetCommit. It takes the next one if only the correlation id and the offsets differ.

    One commit is under way at a time; this object is the call that its connection waits for, and takes its answer.

    frame_size: size of its frame, as the four bytes in front. is_used: whether it has taken a commit.
    on_sent: as of `Call`; a commit has none.
    """

    on_sent: ClassVar[None] = None

    __slots__ = (
        "_answered",
        "_answers",
        "_body",
        "_client",
        "_commit",
        "_correlation_id",
        "_fixed",
        "_head",
        "_send",
        "_size",
        "_split",
        "_tail",
        "_topic",
        "_topics",
        "_version",
        "frame_size",
        "is_used",
    )

    def __init__(
        self,
        pieces: list[bytes],
        template: CommitTemplate,
        version: int,
        client: Client,
        body: OffsetCommitRequest,
        topics: list[Topic],
        services: Services,
        send: Send,
    ) -> None:
        self._fixed = tuple(pieces)
        start, *rest = pieces
        self.frame_size = start[:4]
        # Size and first bytes, correlation id, then the pieces with the offsets in between.
        self._split = struct.Struct(">8s4s" + "q".join(f"{len(piece)}s" for piece in rest)).unpack
        self._size = 8 + 4 + sum(map(len, rest)) + 8 * (len(rest) - 1)
        self.template = template
        self._version = version
        self._client = client
        self._body = body
        self._topics = topics
        self._topic = services.discovery.topic
        self._commit = services.runtime.partition_of(template.group_id).commit
        self._answers = services.measures.answers
        self._answered = services.measures.answered
        self.is_used = False
        self._send: Send | None = send
        self._correlation_id = b""
        whole = encode_response(OFFSET_COMMIT, version, 0, commit_answer(body, ErrorCode.NONE))
        self._head, self._tail = whole[: CORRELATION_ID.start], whole[CORRELATION_ID.stop :]

    def take(self, data: bytes) -> bool:
        """Take `data`, a request with its size; False if it is another request, which dispatch has to handle."""
        if len(data) != self._size:
            return False
        parts = self._split(data)
        if parts[::2] != self._fixed:
            return False
        for topic in self._topics:
            if self._topic(topic.name) is not topic:
                return False
        self._correlation_id, self.offsets = parts[1], parts[3::2]
        self._commit(self)
        return True

    def event(self) -> CommitOffsets:
        """See RepeatedCommit."""
        offsets = iter(self.offsets)
        for topic in self._body.topics:
            for partition in topic.partitions:
                partition.committed_offset = next(offsets)
        return CommitOffsets(self, self._version, self._client, self._body)

    def done(self) -> None:
        """See RepeatedCommit."""
        self.is_used = True
        self._answers[ANSWERED] += 1
        if self._send is not None:
            self._send(self._head + self._correlation_id + self._tail)

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self.is_used = True
        self._answered(OFFSET_COMMIT, body)
        if self._send is not None:
            correlation_id = int.from_bytes(self._correlation_id, signed=True)
            self._send(encode_response(OFFSET_COMMIT, self._version, correlation_id, body))

    def close(self) -> None:
        """The connection is gone: the answer will be dropped."""
        self._send = None


def has_names(services: Services, frame: bytes, version: int, request: OffsetCommitRequest) -> bool:
    """Whether a commit may be kept, as far as its topics have names. Those that it names by their ids get theirs."""
    if version < TOPIC_IDS_SINCE:
        return True
    if len(frame) > REMEMBERED_BYTES_MAX:
        return False
    for topic in request.topics:
        found = services.discovery.topic_by_id(topic.topic_id)
        if found is None:
            return False
        topic.name = found.name
    return True


def commit_of(
    services: Services,
    frame: bytes,
    body_at: int,
    version: int,
    client: Client,
    request: OffsetCommitRequest,
    send: Send,
) -> Commit | None:
    """The `Commit` of a request; None if it can't be repeated this way.

    frame: of the request. body_at: where its body starts.
    """
    if version < VERSION_MIN or len(frame) > REMEMBERED_BYTES_MAX:
        return None
    discovery = services.discovery
    topics: list[Topic] = []
    for asked in request.topics:
        topic = discovery.topic(asked.name)
        exist = [discovery.has_partition(asked.name, each.partition_index) for each in asked.partitions]
        # Topic partitions that don't exist, or a topic without any, don't reach the coordinator.
        if topic is None or not exist or not all(exist):
            return None
        topics.append(topic)
    template = template_of(request, services.config.group)
    pieces = _pieces(frame, body_at, version, request)
    if not topics or template is None or pieces is None:
        return None
    return Commit(pieces, template, version, client, request, topics, services, send)


def _pieces(frame: bytes, body_at: int, version: int, request: OffsetCommitRequest) -> list[bytes] | None:
    """The bytes of a request that stay the same: its size and start, and the pieces around the offsets.

    None if the offsets can't be found, or if the request isn't written as this program would write it.
    """
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    offsets = [partition.committed_offset for partition in partitions]
    for partition in partitions:
        partition.committed_offset = int.from_bytes(MARK)
    around = encode(request, version).split(MARK)
    for partition, offset in zip(partitions, offsets, strict=True):
        partition.committed_offset = offset
    if len(around) != len(offsets) + 1 or encode(request, version) != frame[body_at:]:
        return None
    return [struct.pack(">i", len(frame)) + frame[:4], frame[8:body_at] + around[0], *around[1:]]
