"""A transaction coordinator with a clock, whose records are replayed after each event."""

from __future__ import annotations

from collections import Counter
from typing import Any

from coordinator.group.client import NOBODY, Now
from coordinator.group.events import Load, TimerFired
from coordinator.transaction.coordinator import Coordinator, Settings
from coordinator.transaction.events import AddPartitions, EndTxn, Granted, InitProducerId, Markers, MarkersWritten
from coordinator.transaction.records import Replay
from coordinator.transaction.state import NO_EPOCH, NO_PRODUCER_ID, V2, TopicPartition, TransactionalId
from protocol.records.batch import Record
from schemas.errors import ErrorCode

ORDERS = TopicPartition("orders", 0)


class Bench:
    """The coordinator of the id "t". records: what it has written. markers: asked for and not written yet."""

    def __init__(self) -> None:
        self.now = Now(0, 1_000_000)
        self.ids_of: Counter[str] = Counter()
        self.core = Coordinator(0, Settings(), "markers", self.ids_of)
        self.records: list[Record] = []
        self.markers: list[Markers] = []
        self.timers: dict[Any, int | None] = {}
        self.fresh = 100
        self.answers: dict[object, Any] = {}

    @property
    def known(self) -> TransactionalId:
        return self.core.groups["t"]

    def handle(self, event: Any) -> Any:
        """Hand an event in; returns its answer, None if it waits."""
        effects = self.core.handle(event, self.now)
        self.records += effects.records
        self.timers.update(effects.timers)
        for request, body in effects.responses:
            if request == "markers":
                self.markers.append(body)
            else:
                self.answers[request] = body
        replay = Replay()
        replay.add(self.records)
        assert {each.group_id: each for each in replay.groups_in_steps()} == self.core.groups
        return self.answers.pop(getattr(event, "request", None), None)

    def init(self, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH, timeout_ms: int = 60_000) -> Granted:
        self.fresh += 1
        found: Granted = self.handle(InitProducerId("init", NOBODY, "t", timeout_ms, self.fresh, producer_id, epoch))
        return found

    def add(self, producer: Granted, *partitions: TopicPartition, version: int = 0, **options: bool) -> Any:
        """Add partitions; returns their errors."""
        found = self.handle(
            AddPartitions(
                "add",
                NOBODY,
                "t",
                producer.producer_id,
                producer.epoch,
                partitions or (ORDERS,),
                version=version,
                **options,
            )
        )
        return None if found is None else set(found.values())

    def end(self, producer: Granted, *, commit: bool = True, version: int = 0) -> Granted:
        self.fresh += 1
        found: Granted = self.handle(
            EndTxn("end", NOBODY, "t", producer.producer_id, producer.epoch, commit, version, self.fresh)
        )
        return found

    def end_v2(self, producer: Granted, *, commit: bool = True) -> Granted:
        return self.end(producer, commit=commit, version=V2)

    def write_markers(self) -> Markers:
        """Write the markers that are due."""
        asked = self.markers.pop(0)
        self.handle(MarkersWritten(asked))
        return asked

    def time_out(self) -> None:
        """Let the armed timer ring."""
        ((key, at_ms),) = [(key, at_ms) for key, at_ms in self.timers.items() if at_ms is not None]
        self.now = Now(at_ms, self.now.wall_ms + at_ms - self.now.ms)
        self.timers.clear()
        self.handle(TimerFired(key))

    def restart(self) -> None:
        """A coordinator that reads the log of this one takes its place."""
        replay = Replay()
        replay.add(self.records)
        self.core.close()
        self.core, self.markers = Coordinator(0, self.core.config, "markers", self.ids_of), []
        groups: Any = {each.group_id: each for each in replay.groups_in_steps()}
        self.handle(Load(groups))


def error(code: ErrorCode) -> Granted:
    """The answer that has nothing but an error."""
    return Granted(code)
