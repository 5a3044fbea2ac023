"""Events reach a file once each, over restarts of the observer; a gap counts those that don't fit."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from coordinator.client.client import Cluster
from coordinator.client.errors import Unreachable
from coordinator.client.topics import user_topics
from coordinator.log.segments.disk import Disk
from coordinator.observe import published
from coordinator.observe.published import FileTarget, Published, TopicTarget
from coordinator.story.events import RebalanceEvent
from coordinator.testing.tenure import Tenure
from tests.observe.conftest import Written
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until
from tests.support.told import told


def event(number: int, group: str = "g") -> RebalanceEvent:
    """An event with that number as its time and generation."""
    made: RebalanceEvent = told("rebalance_ended", at_ms=number, group=group, generation=number)
    return made


def numbers(path: Path) -> list[int]:
    """The times of the events in a file."""
    return [json.loads(line)["at_ms"] for line in path.read_text().splitlines()]


def publish(path: Path, written: Written, *events: RebalanceEvent) -> None:
    """Write events, as one run of an observer."""
    writing = Published(FileTarget(path), written.lines)
    writing.put(events)
    writing.start()
    writing.stop(WITHIN_S)


def test_a_restart_writes_no_event_again(tmp_path: Path, written: Written) -> None:
    """The next run finds the history anew, and writes only what isn't there; nothing older than the file."""
    path = tmp_path / "events.jsonl"
    publish(path, written, event(5), event(6))
    publish(path, written, event(4), event(5), event(6), event(6, "other"), event(7))
    assert numbers(path) == [5, 6, 6, 7]
    assert written.events == []


@pytest.mark.parametrize("odd", ["no folder", "fifo"])
def test_a_file_that_cannot_be_written_is_said_once(
    tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    """The events wait until the file can be written; a line says that it can't, and one that it can again."""
    monkeypatch.setattr(published, "PAUSE_S", 0.01)
    path = tmp_path / "folder" / "events.jsonl"
    if odd == "fifo":
        path.parent.mkdir()
        os.mkfifo(path)
    writing = Published(FileTarget(path), written.lines)
    writing.start()
    writing.put([event(1)])
    wait_until(lambda: len(written.events) == 1, "a line", WITHIN_S)
    if odd == "fifo":
        path.unlink()
    else:
        path.parent.mkdir()
    wait_until(lambda: len(written.events) == 2, "another line", WITHIN_S)
    writing.stop(WITHIN_S)
    assert written.events == ["events_not_written", "events_written"]
    assert numbers(path) == [1]


def test_events_that_do_not_fit_are_told(tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit events are lost; an event says how many and when."""
    monkeypatch.setattr(published, "QUEUED_MAX", 2)
    monkeypatch.setattr(published, "HOLD_S", 0.0)
    path = tmp_path / "events.jsonl"
    writing = Published(FileTarget(path), written.lines)
    writing.put(event(number) for number in range(1, 6))
    writing.start()
    writing.stop(WITHIN_S)
    *_, gap = [json.loads(line) for line in path.read_text().splitlines()]
    assert numbers(path) == [1, 2, 5]
    assert (gap["type"], gap["events"], gap["first_ms"], gap["last_ms"]) == ("events_dropped", 3, 3, 5)
    assert writing.lost == 3


def test_a_long_history_waits_for_a_target_that_works(
    tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events at once than may wait are all written: `put` waits for room."""
    monkeypatch.setattr(published, "QUEUED_MAX", 10)
    path = tmp_path / "events.jsonl"
    writing = Published(FileTarget(path), written.lines)
    writing.start()
    writing.put(event(number) for number in range(1, 1_000))
    writing.stop(WITHIN_S)
    assert numbers(path) == list(range(1, 1_000))
    assert writing.lost == 0


def test_a_topic_is_made_and_written(tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing topic is created with one partition; each record has the group as its key, and is written once."""
    monkeypatch.setattr(published, "EVENTS_TOPIC", "told")  # no client may write to a topic of the server's own
    with Tenure(settings={"tenure.events.enable": False}) as cluster:
        where = Cluster(cluster.bootstrap_servers)
        writing = Published(TopicTarget(where.client(WITHIN_S)), written.lines)
        writing.start()
        writing.put([event(number, f"group-{number % 2}") for number in range(500)])
        writing.stop(WITHIN_S)
        with where.client(WITHIN_S) as client:
            assert user_topics(client) == {"told": 1}
        found: list[tuple[str, int]] = []
        with closing(Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reads"})) as consumer:
            consumer.assign([TopicPartition("told", 0, 0)])
            while len(found) < 500:
                (message,) = consumer.consume(1, WITHIN_S)
                found.append(((message.key() or b"").decode(), json.loads(message.value() or b"")["at_ms"]))
    assert found == [(f"group-{number % 2}", number) for number in range(500)]
    assert written.events == []


class Forgetful:
    """A target that writes, and then fails as if its answer had been lost."""

    name = "a forgetful target"

    def __init__(self) -> None:
        self.events: list[RebalanceEvent] = []
        self.failures = 1

    def newest(self) -> list[RebalanceEvent]:
        """As Target."""
        return list(self.events)

    def write(self, events: Sequence[RebalanceEvent]) -> None:
        """As Target."""
        self.events += events
        if self.failures:
            self.failures -= 1
            raise Unreachable("closed the connection")

    def close(self) -> None:
        """As Target."""


def test_a_lost_answer_writes_nothing_twice(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write may have been carried out; older events that still wait are written all the same."""
    monkeypatch.setattr(published, "PAUSE_S", 0.01)
    target = Forgetful()
    writing = Published(target, written.lines)
    writing.put([event(5)])
    writing.start()
    wait_until(lambda: "events_written" in written.events, "a second try", WITHIN_S)
    writing.put([event(4), event(6)])
    writing.stop(WITHIN_S)
    assert [each.at_ms for each in target.events] == [5, 4, 6]


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path, written: Written) -> None:
    """A crash may leave half a line at the end; the next event has a line of its own."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"type": "rebal')
    publish(path, written, event(1))
    assert [each.at_ms for each in FileTarget(path).newest()] == [1]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up takes half of the events; the next try writes them all, each once."""
    path = tmp_path / "events.jsonl"
    target = FileTarget(path)
    target.write([event(1)])
    rest = [10]

    def write(_: Disk, descriptor: int, parts: Sequence[bytes], position: int) -> int:
        if not rest:
            raise OSError(28, "No space left on device")
        return os.pwrite(descriptor, parts[0][: rest.pop()], position)

    monkeypatch.setattr(Disk, "write", write)
    with pytest.raises(OSError, match="No space"):
        target.write([event(2)])
    assert numbers(path) == [1]


def test_a_target_that_hangs_holds_once(tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an answer nor an error comes: the follower waits HOLD_S for all of its events, not for each."""
    monkeypatch.setattr(published, "QUEUED_MAX", 1)
    monkeypatch.setattr(published, "HOLD_S", 0.01)
    writing = Published(FileTarget(tmp_path / "events.jsonl"), written.lines)
    waits: list[float] = []
    wait_for = writing._changed.wait_for

    def counted(condition: Any, timeout: Any = None) -> Any:
        waits.append(timeout)
        return wait_for(condition, timeout)

    monkeypatch.setattr(writing._changed, "wait_for", counted)
    writing.put(event(number) for number in range(5))
    assert waits == [0.01]
    assert writing.lost == 4
