"""Nodes of the simulated cluster: each has a real runtime over an engine, on the model of etcd.

A node is a process in virtual time. It can be frozen, killed and started again; its clock may begin anywhere, and its
wall clock may jump. Its loop may be busy: then it hears its engine late, although requests come in. Clients' requests
come without sockets: the events that the handlers make of them go to the runtime; repeated heartbeats and commits take
their short cuts first, as they do on a connection.

House rule: no answer of a node is looked at here but to say whether it is a yes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from coordinator.group.answers import commit_answer
from coordinator.group.events import CommitOffsets, ConsumerHeartbeat, Heartbeat
from coordinator.group.group import Group
from coordinator.group.offsets import template_of
from coordinator.log.cluster.claims import wait_for
from coordinator.log.cluster.core import Core
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.runtime.replies import RepeatedCommit, Reply
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.measures import Measures
from coordinator.server.telemetry.note_lines import NoteLines
from coordinator.server.wire.repeated_beats import CONSUMER_HEARTBEAT, Beat, beat_of
from coordinator.server.wire.repeated_heartbeats import HEARTBEAT, heartbeats_of
from protocol.connection import SIZE_BYTES
from protocol.header import decode_response, encode_request, encode_response
from protocol.messages import HeartbeatResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.group.offsets import CommitTemplate
    from coordinator.group.topics import Topics
    from coordinator.log.cluster.keys import Keys
    from coordinator.log.engine import Acquired, Appended, Done, OnOwnership, Ownership, Page
    from coordinator.loop.clock import Handle
    from protocol.records.batch import Record
    from tests.support.etcd_model import ModelPort
    from tests.support.virtual_time import Process

TTL_MS = 3_000
"""Of each node's lease."""

HEARTBEAT_VERSION, BEAT_VERSION = 3, 1
"""Of heartbeats of the classic and of the consumer protocol."""

REPEATED_SHARE = 0.5
"""How many commits take the short cut of repeated ones, as nearly all do on a connection."""

WALL_MS = 1_700_000_000_000


class NodeClock:
    """A node's clock. wall_offset_ms: how far its wall clock has jumped."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.wall_offset_ms = 0

    def ms(self) -> int:
        """As Clock.ms."""
        return self._process.now_ms()

    def wall_ms(self) -> int:
        """As Clock.wall_ms."""
        return WALL_MS + self._process.now_ms() + self.wall_offset_ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Handle:
        """As Clock.call_at."""
        return _Call(self._process.later(at_ms - self._process.now_ms(), callback))


class _Call:
    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class Answer(Reply):
    """The place of a request's answer on a node; it takes one."""

    def __init__(self, node: Node, event: Any, done: Callable[[Any], None]) -> None:
        self._node = node
        self._event = event
        self._done: Callable[[Any], None] | None = done

    def deliver(self, body: Any) -> None:
        """Take the answer, once."""
        done, self._done = self._done, None
        assert done is not None, "answered twice"
        del self._node.open[self]
        if isinstance(self._event, ConsumerHeartbeat) and not body.error_code:
            self._node.remember(self._event, body)
        self._node.on_answer(self._node, self._event, body)
        done(body)


class Repeat(RepeatedCommit):
    """A commit that takes the short cut of commits that differ from an earlier one in their offsets alone."""

    def __init__(self, answer: Answer, template: CommitTemplate, event: CommitOffsets) -> None:
        self.template = template
        self.offsets = [each.committed_offset for topic in event.body.topics for each in topic.partitions]
        self._answer = answer
        self._event = event

    def event(self) -> CommitOffsets:
        """As RepeatedCommit.event."""
        return replace(self._event, request=self)

    def deliver(self, body: Any) -> None:
        """Take an answer."""
        self._answer.deliver(body)

    def done(self) -> None:
        """Take the answer NONE."""
        self.deliver(commit_answer(self._event.body, ErrorCode.NONE))


class CoreEngine:
    """The engine of a node: the core on a lane of the node's process, in place of a thread of its own."""

    def __init__(self, core: Core, process: Process) -> None:
        self.core = core
        self._process = process

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the lane make a call."""
        self._process.later(0, partial(function, *arguments), "engine")

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine."""
        self.call(self.core.start, on_ownership)

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine."""
        self.call(self.core.acquire, partition, done)

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """See Engine."""
        self.call(self.core.load, own, page, done)

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        self.call(self.core.append, own, batches, done)

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        self.call(self.core.release, own, done)

    def close(self) -> None:
        """See Engine. A node of the simulation is killed, or hands everything over first."""


class Node:
    """One life of a node, from its start to its end.

    on_answer: called with each answer that leaves. open: requests without an answer, and when each came. under_way:
    calls that tell clients of closed connections.
    """

    def __init__(
        self,
        config: Config,
        port: ModelPort,
        keys: Keys,
        topics: Topics,
        on_answer: Callable[[Node, Any, Any], None],
    ) -> None:
        self.node_id = config.node_id
        self.process = port.process
        self.port = port
        self.clock = NodeClock(self.process)
        self.log = io.StringIO()
        self.open: dict[Answer, int] = {}
        self.under_way: dict[Callable[[], None], None] = {}
        self.on_answer = on_answer
        self._config = config
        self._topics = topics
        core = Core(port, keys, config.node_id, config.offsets_topic_num_partitions, TTL_MS)
        self.engine = CoreEngine(core, self.process)
        self.runtime: Runtime | None = None
        self._busy_until_ms = 0
        self._beats: dict[str, Beat | None] = {}
        self.engine.call(core.begin)
        wait_for(port, lambda: core.known, lambda: self._soon(self._serve))

    def _serve(self) -> None:
        """As the server starts once its engine is open."""
        lines = Lines(self.log, "json", self.node_id, self.clock)
        pace = Pace(self.clock, self._soon)
        self.runtime = Runtime(
            self._config,
            self.engine,
            self.clock,
            lines,
            [NoteLines(lines).take],
            self._soon,
            self._soon,
            pace,
            lambda: None,
        )
        self.runtime.lease = self.engine.core.session.valid
        services: Any = SimpleNamespace(runtime=self.runtime, clock=self.clock, measures=Measures())
        self._services, self._heartbeats = services, heartbeats_of(services)
        self.runtime.topics_changed(self._topics, None)
        self.runtime.start()
        self.engine.call(self.engine.core.claims.register, b"{}")

    def be_busy(self, ms: int) -> None:
        """Let the loop make no further turn for so long."""
        self._busy_until_ms = max(self._busy_until_ms, self.process.timeline.ms + ms)

    def _soon(self, callback: Callable[[], None]) -> None:
        self.process.later(max(self._busy_until_ms - self.process.timeline.ms, 0), callback, "loop")

    def ask(self, group_id: str, event: Any, done: Callable[[Any], None]) -> None:
        """A request has come in; called on the node's process."""
        runtime = self.runtime
        if runtime is None:
            return  # nothing listens yet; the client waits in vain
        answer = Answer(self, event, done)
        self.open[answer] = self.process.timeline.ms
        event.request = answer
        if isinstance(event, (Heartbeat, ConsumerHeartbeat)):
            body = self._heartbeat(event) if isinstance(event, Heartbeat) else self._beat(event)
            if body is not None:
                answer.deliver(body)
                return
        if isinstance(event, CommitOffsets) and self.process.timeline.random.random() < REPEATED_SHARE:
            template = template_of(event.body, self._config.group)
            assert template is not None
            runtime.partition_of(group_id).commit(Repeat(answer, template, event))
            return
        runtime.submit(group_id, event)

    def _heartbeat(self, event: Heartbeat) -> Any:
        """The answer that a connection gives by itself, or None: as `Connection` and `Api` do it."""
        assert self.runtime is not None
        body = event.body
        data = encode_request(body, HEARTBEAT_VERSION, 0, None)
        answer = self._heartbeats.answer(data)
        if answer is not None:
            return decode_response(HEARTBEAT, HEARTBEAT_VERSION, answer[SIZE_BYTES:])[1]
        partition = self.runtime.partition_of(body.group_id)
        error = partition.heartbeat(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
        if error is None:
            return None
        if not error:
            group = partition.coordinator.groups[body.group_id]
            assert isinstance(group, Group)
            self._heartbeats.remember(data[SIZE_BYTES:], HEARTBEAT_VERSION, group, group.members[body.member_id])
        return HeartbeatResponse(error_code=error)

    def _beat(self, event: ConsumerHeartbeat) -> Any:
        """The same for the consumer protocol."""
        beat = self._beats.get(event.body.member_id)
        answer = None if beat is None else beat.answer(encode_request(event.body, BEAT_VERSION, 0, None))
        return None if answer is None else decode_response(CONSUMER_HEARTBEAT, BEAT_VERSION, answer[SIZE_BYTES:])[1]

    def remember(self, event: ConsumerHeartbeat, body: Any) -> None:
        """A heartbeat of the consumer protocol has its answer: the next one may repeat it."""
        frame = encode_request(event.body, BEAT_VERSION, 0, None)[SIZE_BYTES:]
        outcome = encode_response(CONSUMER_HEARTBEAT, BEAT_VERSION, 0, body)
        self._beats[event.body.member_id] = beat_of(self._services, frame, BEAT_VERSION, event.body, outcome)


def error_of(body: Any) -> int:
    """The error of an answer, 0 for a yes."""
    if getattr(body, "topics", None) and not getattr(body, "error_code", 0):
        first = body.topics[0].partitions[0]
        return int(first.error_code)
    return int(body.error_code)
