"""A kind of log decides what the runtime makes of its partitions."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coordinator.group.client import Now
from coordinator.group.effects import Effects, Response
from coordinator.group.events import DescribeGroup, Load, Unload
from coordinator.loop.lines import Lines
from coordinator.loop.pace import Pace
from coordinator.server.runtime.kinds import GROUPS, LogKind
from coordinator.server.runtime.replies import Reply
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.note_lines import NoteLines
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock, config_of
from tests.support.memory import ManualEngine


class Answer(Reply):
    """Keeps the answer that it gets."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def deliver(self, body: Any) -> None:
        self.bodies.append(body)


class Counting:
    """A coordinator that answers each request with the number of records that its partition has."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.groups: dict[str, int] = {}

    def handle(self, event: object, now: Now) -> Effects:
        effects = Effects()
        if isinstance(event, Load):
            self.groups |= {key: self.groups.get(key, 0) + 1 for key in event.groups}
        elif not isinstance(event, Unload):
            self.groups["written"] = len(self.groups)
            effects.records.append(Record(b"written", b"", now.wall_ms))
            effects.responses.append(Response(event.request, self.groups))  # type: ignore[attr-defined]
        return effects

    def close(self) -> None:
        self.groups.clear()


class Keys:
    """The reader of that log: each key counts once."""

    def __init__(self) -> None:
        self.skipped: dict[int, int] = {}
        self._keys: list[str] = []

    def add(self, page: Iterable[Record]) -> None:
        self._keys += [record.key.decode() for record in page]

    def groups_in_steps(self) -> Iterator[Any]:
        return (type("Key", (), {"group_id": key})() for key in self._keys)

    def size_of(self, _group: Any) -> int:
        return 1


NUMBERS = LogKind("numbers", "numbers", "keys", lambda _config: 2, lambda index, _host: Counting(index), Keys)


def test_a_partition_takes_all_of_its_kind() -> None:
    """Its name, its coordinators and their records are those of the kind; an event says how it is refused."""
    config, clock, out = config_of(), ManualClock(), io.StringIO()
    turn: list[Callable[[], None]] = []
    lines = Lines(out, "logfmt", 1, clock)
    engine = ManualEngine(2, 1)
    engine.records[1].append(Record(b"one", b"", 0))
    pace = Pace(clock, turn.append)
    take_notes = [NoteLines(lines).take]
    runtime = Runtime(config, engine, clock, lines, take_notes, turn.append, turn.append, pace, lambda: None, NUMBERS)
    early, late = Answer(), Answer()
    partition = runtime.partitions[1]
    assert partition.name == "numbers-1"
    partition.submit("key", DescribeGroup(early, 0, "key"))
    runtime.start()
    while turn:
        turn.pop(0)()
    partition.submit("key", DescribeGroup(late, 0, "key"))
    while turn:
        turn.pop(0)()
    assert [body.error_code for body in early.bodies] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert late.bodies == [{"one": 1, "written": 1}]
    assert [record.key for record in engine.records[1]] == [b"one", b"written"]
    assert "loading numbers from 2 of 2 partitions" in out.getvalue()


def test_groups_are_the_default() -> None:
    """The kind of groups names the log and counts the partitions that the settings name."""
    assert (GROUPS.log, GROUPS.partition_count(config_of("offsets.topic.num.partitions=7"))) == (
        "__consumer_offsets",
        7,
    )
