"""Writes the observer's events to a file, as JSON lines, or to a topic, in the form of `__rebalance_events`.

A thread writes, so that a slow disk or cluster doesn't hold up the follower. At most QUEUED_MAX events wait. If a long
history brings more, the follower waits for a target that works, as long as it writes something within HOLD_S.
Otherwise further events are lost, and an event `events_dropped` then says how many, as a server does.

A write whose answer is lost may have been carried out; so after a failure the newest events are read once more.

After a start the follower reads the log from its beginning again. The newest TAIL_EVENTS events of the file or topic
say what is there already: nothing that is older than all of them is written, and nothing that is one of them.

The topic is `__rebalance_events`, where `tenure explain`, `watch` and `doctor` look for events. Those of all groups are
in partition 0, each with its group as the key. A missing topic is created.

House rule: to the observed cluster nothing is written but this topic.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from coordinator.client.client import Client, Node, metadata_request, nodes_of
from coordinator.client.errors import ClientError, Refused
from coordinator.client.events import EventReader, NoEvents, only, topic_of
from coordinator.log.files import open_regular
from coordinator.log.segments.disk import Disk, write_all
from coordinator.loop.lines import Lines
from coordinator.story.events import EventsDropped, RebalanceEvent, event_json, read_event
from coordinator.story.schema import EVENTS_TOPIC
from protocol.errors import ProtocolError
from protocol.messages import CreateTopicsRequest, ProduceRequest
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import CreateTopicsResponse, MetadataResponse, ProduceResponse

QUEUED_MAX = 20_000
"""Events that wait: 20 to 40 MB."""

HOLD_S = 10.0
"""How long `put` waits at most for a target to write the next events, unless that target fails."""

WRITTEN_AT_ONCE = 200
"""Events in a batch; most have 1 to 2 kB, and a batch of 1 MB is the most that a topic takes by default."""

BATCH_BYTES = 512 * 1024
"""A batch takes no further event above this size."""

TAIL_EVENTS = 2_000
TAIL_BYTES = 4 * 1024 * 1024
"""The part of the end of a topic, and of a file, that tells what is there."""

PAUSE_S = 2.0
"""The pause before the next try."""

RETENTION_MS = 7 * 86_400_000
"""How long a topic that is made here keeps events: as long as a server's (tenure.events.retention.ms)."""

LOOKS_MAX, LOOK_S = 20, 0.2
"""How often, and at which interval, a new topic is looked at until it has a leader."""

NOT_YET = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Codes of a topic that was just created."""

SINCE_BATCHES = 3
"""The first version of Produce that takes batches in the current format."""

BROKERS_DEFAULT = -1
"""As a replication factor: that of the cluster's settings (KIP-464)."""

TOPIC = "topic"
"""In place of a file's name, the topic of events."""

Known = set[tuple[Any, ...]]


class Target(Protocol):
    """A place for events."""

    name: str

    def newest(self) -> list[RebalanceEvent]:
        """The newest events that are there. Raises OSError, ClientError or ProtocolError, as `write` does."""

    def write(self, events: Sequence[RebalanceEvent]) -> None:
        """Write events behind the others."""

    def close(self) -> None:
        """Let go of it."""


def identity(event: RebalanceEvent) -> tuple[Any, ...]:
    """The fields that are equal in two events about the same."""
    return tuple(getattr(event, name, None) for name in ("type", "at_ms", "group", "generation", "member_id", "kind"))


class FileTarget:
    """A file with one event in a line. The file is opened for each write, so that it may be rotated."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def newest(self) -> list[RebalanceEvent]:
        """As Target."""
        try:
            with os.fdopen(open_regular(self._path), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - TAIL_BYTES, 0))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        return [event for line in lines[-TAIL_EVENTS:] if (event := read_event(line)) is not None]

    def write(self, events: Sequence[RebalanceEvent]) -> None:
        """As Target."""
        data = b"".join(event_json(event) + b"\n" for event in events)
        with os.fdopen(
            open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666), "a+b", buffering=0
        ) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # a crash cut the last line
                    data = b"\n" + data
            try:
                write_all(Disk(), file.fileno(), [data], size)
            except OSError:
                file.truncate(size)  # the next try writes all of them
                raise

    def close(self) -> None:
        """As Target."""


class TopicTarget:
    """A topic of the observed cluster."""

    def __init__(self, client: Client) -> None:
        self.name = f"topic {EVENTS_TOPIC}"
        self._client = client
        self._found: tuple[Node, UUID] | None = None

    def newest(self) -> list[RebalanceEvent]:
        """As Target."""
        try:
            reader = EventReader(self._client)
        except NoEvents:
            return []
        reader.begin_with(TAIL_EVENTS)
        return reader.read()

    def write(self, events: Sequence[RebalanceEvent]) -> None:
        """As Target."""
        records = [Record((event.group or "").encode(), event_json(event), event.at_ms) for event in events]
        leader, topic_id = self._found or self._find()
        data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch(records, 0, 0))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(self._client.timeout * 1000),
            topic_data=[ProduceRequest.TopicProduceData(name=EVENTS_TOPIC, topic_id=topic_id, partition_data=[data])],
        )
        self._found = None
        response: ProduceResponse = self._client.request(request, leader, at_least=SINCE_BATCHES)
        answer = only(each for topic in response.responses for each in topic.partition_responses)
        if answer.error_code:
            raise Refused(answer.error_code, f"topic {EVENTS_TOPIC!r}")
        self._found = leader, topic_id

    def close(self) -> None:
        """As Target."""
        self._client.close()

    def _find(self) -> tuple[Node, UUID]:
        """The leader of partition 0 and the topic's id; a topic that isn't there is created."""
        request = metadata_request([EVENTS_TOPIC])
        code: int = ErrorCode.LEADER_NOT_AVAILABLE
        for look in range(LOOKS_MAX):
            response: MetadataResponse = self._client.request(request, at_least=4)
            topic = topic_of(response, EVENTS_TOPIC)
            leader = next((each.leader_id for each in topic.partitions if each.partition_index == 0), -1)
            node = nodes_of(response).get(leader)
            if node is not None and not topic.error_code:
                return node, topic.topic_id
            code = topic.error_code or code
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not look:
                self._create()
            elif topic.error_code not in NOT_YET:
                break
            else:
                time.sleep(LOOK_S)
        raise Refused(code, f"topic {EVENTS_TOPIC!r}")

    def _create(self) -> None:
        configs = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        topic = CreateTopicsRequest.CreatableTopic(
            name=EVENTS_TOPIC,
            num_partitions=1,
            replication_factor=BROKERS_DEFAULT,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._client.timeout * 1000))
        response: CreateTopicsResponse = self._client.request(request, at_least=4)
        for result in response.topics:
            if result.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                raise Refused(result.error_code, f"topic {EVENTS_TOPIC!r} can't be created")


class Published:
    """Writes events to a target, on a thread.

    lost: events that could not be written. thread: the one that writes.
    """

    def __init__(self, target: Target, lines: Lines) -> None:
        self._target = target
        self._lines = lines
        self._waiting: deque[RebalanceEvent] = deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._dropped: list[int] = []
        """How many events were lost since the last gap, and the first and the last time of them."""
        self._known: Known | None = None
        self._retried: Known | None = set()
        """The newest events there, read after a write whose answer may have been lost; None until they are read."""
        self._since_ms = 0
        self._said = ""
        self.lost = 0
        self.thread = threading.Thread(target=self._run, name="published", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self.thread.start()

    def put(self, events: Iterable[RebalanceEvent]) -> None:
        """Have events written. For any thread but the one that writes."""
        with self._changed:
            writes = True
            for event in events:
                if len(self._waiting) >= QUEUED_MAX and not self._said and writes:
                    self._changed.notify_all()
                    writes = bool(self._changed.wait_for(lambda: len(self._waiting) < QUEUED_MAX or self._said, HOLD_S))
                if len(self._waiting) < QUEUED_MAX:
                    self._waiting.append(event)
                    continue
                self.lost += 1
                if not self._dropped:
                    self._dropped = [0, event.at_ms, event.at_ms]
                self._dropped[0] += 1
                self._dropped[2] = event.at_ms
            self._changed.notify_all()

    def stop(self, within_s: float) -> None:
        """Write what waits, if that is possible in time, and stop."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self.thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._dropped or self._is_stopping)
                if not self._waiting and not self._dropped:
                    break
            try:
                self._write()
            except (ClientError, ProtocolError, OSError) as error:
                self._say(error)
                self._retried = None
                with self._changed:
                    if self._is_stopping or self._changed.wait_for(lambda: self._is_stopping, PAUSE_S):
                        break
            else:
                self._say(None)
        self._target.close()

    def _write(self) -> None:
        """Write the next events. Raises the target's errors; then they are still the next."""
        if self._known is None:
            newest = self._target.newest()
            self._known = {identity(event) for event in newest}
            self._since_ms = min((event.at_ms for event in newest), default=0)
        if self._retried is None:
            self._retried = {identity(event) for event in self._target.newest()}
        there = self._known, self._retried
        with self._changed:
            taken = self._next()
        since = [event for event in taken if event.at_ms >= self._since_ms]
        fresh = [event for event in since if not any(identity(event) in known for known in there)]
        if fresh:
            self._target.write(fresh)
        with self._changed:
            for _ in taken:
                self._waiting.popleft()
            self._changed.notify_all()
            gap, self._dropped = (self._dropped, []) if not self._waiting else ([], self._dropped)
            if gap:
                events, first_ms, last_ms = gap
                told = EventsDropped(at_ms=last_ms, events=events, first_ms=first_ms, last_ms=last_ms, inferred=True)
                self._waiting.append(told)

    def _next(self) -> list[RebalanceEvent]:
        taken: list[RebalanceEvent] = []
        size = 0
        for event in self._waiting:
            size += len(event_json(event))
            if taken and (len(taken) == WRITTEN_AT_ONCE or size > BATCH_BYTES):
                break
            taken.append(event)
        return taken

    def _say(self, problem: Exception | None) -> None:
        text = "" if problem is None else str(problem)
        if text and not self._said:
            self._lines.warn(
                "events_not_written", f"Events can't be written to {self._target.name}: {text}", reason=text
            )
        elif self._said and not text:
            self._lines.info("events_written", f"Events are written to {self._target.name} again")
        with self._changed:
            self._said = text
            self._changed.notify_all()


def target_of(text: str, client: Callable[[], Client]) -> Target:
    """The target of `--events`: TOPIC, or the name of a file. client: makes one."""
    return TopicTarget(client()) if text == TOPIC else FileTarget(Path(text))
