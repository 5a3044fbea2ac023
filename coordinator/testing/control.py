"""One run of the server, from its start to its stop or kill, and all that a test may do to it on the way.

The server's time is a `KitClock`. Requests are seen, counted and changed by `Faults`, which outlives the run, as the
history and the counts of requests do. The queue of events goes by the real time: what happened is told also while the
time stands still.

House rule: everything here runs on the loop's thread; `Tenure` brings it there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TextIO

from coordinator.config import Config
from coordinator.group.consumer.describe import Description, described
from coordinator.group.events import DescribeConsumerGroup, DescribeGroup
from coordinator.group.state import Kind
from coordinator.group.topics import Topics
from coordinator.log.store import OpenStore
from coordinator.loop.lines import Lines
from coordinator.server.app import Server, WorkerPart, random_id
from coordinator.server.faults.faults import Faults
from coordinator.server.nodes.events_topic import Events
from coordinator.server.runtime.replies import Reply
from coordinator.testing.clock import KitClock, Sessions
from coordinator.testing.history import History
from coordinator.testing.requests import Requests
from coordinator.testing.values import Look

if TYPE_CHECKING:
    from protocol.messages import ConsumerGroupDescribeResponse, DescribeGroupsResponse

    Described = DescribeGroupsResponse.DescribedGroup | ConsumerGroupDescribeResponse.DescribedGroup

DESCRIBE_VERSION = 6
"""The version of DescribeGroups that tells a group without members from no group."""

NO_TIME = -1
"""In place of a member's `silent_ms`: not told."""


class Control:
    """See the module. server, clock, sessions: those of this run. The arguments are those of `Server`.

    events: the queue of several nodes, which the caller starts and stops; None for one of this run alone.
    """

    def __init__(
        self,
        config: Config,
        clock: KitClock,
        faults: Faults,
        history: History,
        requests: Requests,
        *,
        opened: OpenStore,
        log: TextIO,
        fresh_id: Callable[[], str] = random_id,
        share: WorkerPart | None = None,
        events: Events | None = None,
    ) -> None:
        self.clock = clock
        self._history = history
        self._has_own_events = events is None
        self._events = events or Events(clock.real, Lines(log, config.log_format, config.node_id, clock))
        self.server = Server(
            config,
            clock=clock,
            clients_clock=clock.real,
            fresh_id=fresh_id,
            opened=opened,
            log=log,
            share=share,
            on_notes=self._events.take,
            faults=faults,
        )
        self.sessions = Sessions(self.server, faults, clock)
        self._count_no_more = faults.watch(requests.see)

    async def start(self) -> None:
        """Start the server and wait until its log is loaded. Raises StartFailed."""
        try:
            await self.server.start()
        except BaseException:
            self._look_away()
            raise
        if self._has_own_events:
            self._events.start(self._history.write, self.server.connections.has)
        await self.server.loaded.wait()

    async def stop(self) -> None:
        """Stop the server in order."""
        self._look_away()
        await self.server.stop()
        if self._has_own_events:
            self._events.stop(lambda: None)

    async def kill(self) -> None:
        """Stop it without another byte to a client."""
        self.server.connections.stop()
        self.server.connections.abort()
        await self.stop()

    def _look_away(self) -> None:
        self.sessions.close()
        self._count_no_more()

    def look(self, group_id: str, future: Future[Look]) -> None:
        """Give `future` a look at a group, once all that the group answered is durable."""
        partition = self.server.runtime.partition_of(group_id)
        group = partition.coordinator.groups.get(group_id)
        generation = 0 if group is None else group.generation
        offsets = {} if group is None else group.offsets
        committed = {(topic, index): held.offset for topic, by in offsets.items() for index, held in by.items()}

        def deliver(answer: Described | Description) -> None:
            shown = whole(self.server.runtime.topics, answer) if isinstance(answer, Description) else answer
            awaited = {member.member_id for member in shown.waiting.members or ()}
            for member in shown.members:
                if member.member_id not in awaited:
                    member.silent_ms = NO_TIME  # two looks at a group that is at rest are equal
            self._events.flush()
            future.set_result(Look(shown, generation, committed, len(self._history)))

        answer = _Answer(deliver)
        if group is not None and group.kind is Kind.CONSUMER:
            partition.submit(group_id, DescribeConsumerGroup(answer, group_id, waiting=True))
        else:
            partition.submit(group_id, DescribeGroup(answer, DESCRIBE_VERSION, group_id, waiting=True))

    def flush(self) -> None:
        """Bring the history up to now."""
        self._events.flush()


def whole(topics: Topics, description: Description) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """A group of the consumer protocol, described in one go."""
    steps = described(topics, description)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            shown: ConsumerGroupDescribeResponse.DescribedGroup = end.value
            return shown


class _Answer(Reply):
    """Passes the answer on."""

    def __init__(self, deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver

    def deliver(self, body: Any) -> None:
        """See Reply."""
        self._deliver(body)
