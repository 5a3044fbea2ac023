"""Follows the groups' log of the observed cluster, and joins what else is known, on one thread.

Each turn takes new looks at live state, then reads records. When records have come, it first takes new lines of the
broker's log: brokers write the line about the begin of a rebalance before the record of its end. Events go to the
page's feed, and to `takers`, in the order of time within each turn.

An event's place for the feed is its number since the start: after a restart of the observer the log is read anew, and
what was inferred may be less, because compaction went on. So an id of an earlier run gets all events in memory.

A cluster that is away, brokers that restart, leaders that move: one line says that no answer comes, and one that the
cluster is back. The reader goes on where it was. If some broker answers, the lines say that another one is away, and
the others are read meanwhile. A line says that a log was cut.

House rule: nothing here infers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol
from uuid import uuid4

from coordinator.client.client import Client
from coordinator.client.errors import ClientError, Refused, Unauthenticated, Unreachable
from coordinator.client.events import Placed, absent_line
from coordinator.client.offsets_log import Cut, OffsetsReader, cut_line
from coordinator.loop.lines import Lines
from coordinator.observe.begun import Begun
from coordinator.observe.live import Look
from coordinator.site.feed import News
from coordinator.story.events import RebalanceEvent
from coordinator.story.inference.knowledge import Told
from protocol.errors import ProtocolError
from schemas.errors import ErrorCode

TURN_S = 0.2
"""The least time of a turn: each costs the cluster a Fetch for each node. An event is on the page this much later."""

WAIT_MS = 500
"""How long a Fetch waits for records."""

BEGIN_S = 5.0
"""After this time of reading the history, the page shows what there is so far."""

PAUSE_S = 1.0
"""The pause before the next try to reach a cluster that doesn't answer."""

LOOKS_MAX = 10_000
"""Looks that wait for the follower; older ones go."""

Taker = Callable[["list[RebalanceEvent]"], None]
"""Gets the events of a turn."""


class Hearing(Protocol):
    """Other knowledge of causes: a broker's log."""

    def heard(self) -> Iterable[Told]:
        """The causes that the log has named since the last call."""

    def close(self) -> None:
        """Hear no more."""


class Follower:
    """See the module; a source of the feed.

    client: makes one, with a timeout in seconds. takers: get all events. newcomers: get events that happen after the
    history was read. changed: called with the groups that have news after that. on_caught_up: called once, when the
    history is read. reached: called once, when the cluster has answered, by a refusal too.

    reader: reads the log; None until the cluster has answered. is_caught_up: set once the history is read. is_away:
    whether the cluster doesn't answer.
    """

    def __init__(
        self,
        client: Callable[[float], Client],
        timeout: float,
        lines: Lines,
        *,
        hearing: Sequence[Hearing] = (),
        takers: Sequence[Taker] = (),
        newcomers: Sequence[Taker] = (),
        changed: Callable[[Iterable[str]], None] = lambda _: None,
        on_caught_up: Callable[[], None] = lambda: None,
        reached: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._lines = lines
        self._hearing = hearing
        self._takers = takers
        self._newcomers = newcomers
        self._changed = changed
        self._on_caught_up = on_caught_up
        self._reached: Callable[[], object] | None = reached
        self._clock = clock
        self._looks: deque[Look] = deque(maxlen=LOOKS_MAX)
        self._begun = Begun()
        self._history: list[RebalanceEvent] | None = []
        """The events of the history, until the feed has got them."""
        self._count = 0
        self._id = uuid4().hex
        self._absent: tuple[int, ...] = ()
        self._failed = 0
        """How many turns failed in a row."""
        self._broker_problem = ""
        self.reader: OffsetsReader | None = None
        self.is_caught_up = threading.Event()
        self.is_away = False

    def see(self, looks: Iterable[Look]) -> None:
        """Take looks at groups. For any thread."""
        self._looks.extend(looks)

    def follow(self, news: News, stopping: threading.Event) -> None:
        """As EventSource."""
        began_s = self._clock()
        with self._client(self._timeout) as client:
            client.try_once()
            while not stopping.is_set():
                turn_s = self._clock()
                try:
                    if self.reader is None:
                        self.reader = OffsetsReader(client)
                        self.reader.on_fetched = partial(self._hear, self.reader)
                        self.reader.on_cut = self._say_cut
                    events, problem = self._turn(self.reader)
                except (ClientError, ProtocolError) as error:
                    events, problem = [], error
                if self._reached is not None and not isinstance(problem, Unreachable):
                    self._reached()
                    self._reached = None  # to wake the loop up in each turn costs CPU
                self._give(events, news, is_over=self._clock() - began_s >= BEGIN_S)
                self._say(problem, is_partial=self.reader is not None and self.reader.is_answered)
                if problem is not None:
                    stopping.wait(PAUSE_S)
                else:
                    stopping.wait(max(TURN_S - (self._clock() - turn_s), 0.0))
        for each in self._hearing:
            each.close()

    def _hear(self, reader: OffsetsReader) -> None:
        for each in self._hearing:
            for told in each.heard():
                observed = reader.observed_of(told.group)
                if observed is not None:
                    observed.told(told)

    def _turn(self, reader: OffsetsReader) -> tuple[list[RebalanceEvent], Exception | None]:
        looks = [self._looks.popleft() for _ in range(len(self._looks))]
        for look in filter(self._begun.is_current, looks):
            observed = reader.observed_of(look.group.group_id)
            if observed is not None:
                members = frozenset(member.member_id for member in look.group.members)
                observed.described(look.group.group_id, look.at_ms, look.group.state, members)
        events, problem = reader.poll_each(WAIT_MS if self.is_caught_up.is_set() else 0)
        self._begun.add(events, self._clock())
        if self.is_caught_up.is_set():
            self._changed(dict.fromkeys(event.group for event in events if event.group is not None))
            return [*events, *self._begun.begins(looks)], problem
        if problem is None and not reader.behind:
            self._on_caught_up()
            self.is_caught_up.set()
        return events, problem

    def _give(self, events: list[RebalanceEvent], news: News, *, is_over: bool) -> None:
        """Hand events on. is_over: the feed must not wait longer for the history."""
        for take in self._takers:
            take(events)
        if self._history is not None:
            self._history += events
            if self.is_caught_up.is_set() or is_over:
                placed = self._placed(sorted(self._history, key=lambda event: event.at_ms))
                self._history = None
                news.begin(self._id, {0: self._count}, placed)
            return
        if events:
            if self.is_caught_up.is_set():
                for take in self._newcomers:
                    take(events)
            news.put(self._placed(events))

    def _placed(self, events: Iterable[RebalanceEvent]) -> list[Placed]:
        placed = []
        for event in events:
            placed.append(Placed(0, self._count, event))
            self._count += 1
        return placed

    def _say_broker(self, problem: str) -> None:
        if problem and not self._broker_problem:
            self._lines.warn("broker_away", f"A broker doesn't answer, trying again: {problem}", reason=problem)
        elif self._broker_problem and not problem:
            self._lines.info("broker_back", "Each partition of the groups' log has a broker that answers")
        self._broker_problem = problem

    def _say_cut(self, cut: Cut) -> None:
        self._lines.warn("log_was_cut", cut_line(cut), partition=cut.partition, read=cut.read, kept=cut.kept)

    def _say(self, problem: Exception | None, *, is_partial: bool) -> None:
        """Say once that the cluster is away, or a broker of it, and once that it is back."""
        is_of_broker = is_partial and isinstance(problem, Unreachable)
        if is_of_broker or problem is None:
            self._say_broker("" if problem is None else str(problem))
        if is_of_broker:
            problem = None
        # One turn may fail because the first broker that is asked for the leaders has just ended.
        self._failed = 0 if problem is None else self._failed + 1
        if self._failed == 1:
            return
        if problem is not None and not self.is_away:
            text = str(problem)
            why = "refuses the observer" if _is_refusal(problem) else "is away"
            self._lines.warn("cluster_away", f"The cluster {why}, trying again: {text}", reason=text)
        elif problem is None and self.is_away:
            self._lines.info("cluster_back", "The cluster is back")
        self.is_away = problem is not None
        absent = () if self.reader is None else self.reader.absent
        if absent not in {self._absent, ()}:
            self._lines.warn("partitions_without_node", absent_line(absent, OffsetsReader.topic), partitions=absent)
        self._absent = absent


def _is_refusal(problem: Exception) -> bool:
    """Whether the cluster doesn't let the observer in, or doesn't let it read the log."""
    codes = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    return isinstance(problem, Unauthenticated) or (isinstance(problem, Refused) and problem.error_code in codes)
