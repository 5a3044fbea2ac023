"""The list of topics that several workers share: which workers learn of a change, and when its asker is answered."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coordinator.log.topics.list import Topic, TopicsFile
from coordinator.loop.lines import Lines
from coordinator.server.channel import Kind
from coordinator.server.nodes.topics import Change
from coordinator.server.shared_topics import SharedTopics
from tests.server.harness import ManualClock

GONE = Change(deleted=[UUID(int=1)])


class Worker:
    """A worker: the messages to it, and the identity of its process."""

    def __init__(self) -> None:
        self.channel: object | None = object()
        self.sent: list[tuple[str, Mapping[str, Any]]] = []

    def last(self) -> Mapping[str, Any]:
        """Return the one message since the last call."""
        ((kind, fields),) = self.sent
        self.sent.clear()
        return {"kind": kind, **fields}


class Shared:
    """Two workers, of which the first asks; there is one topic, `a`."""

    def __init__(self, data_dir: Path) -> None:
        clock = ManualClock()
        self.log = io.StringIO()
        self.workers = [Worker(), Worker()]
        self.file = TopicsFile(data_dir)
        lines = Lines(self.log, "json", None, clock)
        topics = {"a": Topic("a", UUID(int=1), 1)}
        self.topics: SharedTopics[Worker] = SharedTopics(topics, self.file, data_dir, lines, self.send)

    def send(self, worker: Worker, kind: str, fields: Mapping[str, Any]) -> None:
        """Keep the message; see `Send`."""
        worker.sent.append((kind, fields))

    def ask(self, number: int, change: Change) -> Mapping[str, Any]:
        """Ask as the first worker; returns its immediate message."""
        self.topics.change(self.workers[0], number, change, [each for each in self.workers if each.channel])
        return self.workers[0].last()


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    """Yield the list on an empty data folder."""
    return Shared(tmp_path)


def test_a_name_is_free_when_no_worker_uses_what_had_it(shared: Shared) -> None:
    """A deleted topic's name is free when no worker uses its folders; a new topic would lose records earlier."""
    first = shared.workers[0]

    def create(number: int, topic_id: int) -> object:
        heard = shared.ask(number, Change([Topic("a", UUID(int=topic_id), 1)]))
        for worker in shared.workers:
            shared.topics.applied(worker, heard["number"])
        answer = first.last()
        assert answer["number"] == number
        return answer["taken"]

    heard = shared.ask(1, GONE)
    assert heard["change"].deleted == [UUID(int=1)]
    shared.topics.applied(first, heard["number"])
    assert create(2, 2) == {"a": "a"}
    shared.topics.applied(shared.workers[1], heard["number"])
    answer = first.last()
    assert (answer["number"], answer["taken"]) == (1, {})
    assert create(3, 3) == {}


def test_a_name_is_created_once_in_one_message(shared: Shared) -> None:
    """Two requests of one worker for one name, around a deletion, create it once in one message."""
    heard = shared.ask(1, Change([Topic("a.b", UUID(int=2), 1), Topic("a_b", UUID(int=3), 1)]))
    assert [topic.name for topic in heard["change"].created] == ["a.b"]


def test_a_change_is_durable_before_any_worker_knows_it(shared: Shared) -> None:
    """A change is durable before any worker learns of it, and its asker is answered after all workers know it."""
    heard = shared.ask(7, Change([Topic("b", UUID(int=2), 1)]))
    assert heard["kind"] == Kind.APPLY
    assert set(shared.file.load() or ()) == {"a", "b"}
    shared.topics.applied(shared.workers[0], heard["number"])
    assert not shared.workers[0].sent
    shared.topics.applied(shared.workers[1], heard["number"])
    assert shared.workers[0].last() == {"kind": Kind.CHANGE_RESULT, "number": 7, "taken": {}, "error": None}


def test_a_worker_that_ends_holds_up_nobody(shared: Shared) -> None:
    """A worker that ends delays no one, and its successor doesn't get its answers."""
    shared.ask(1, Change([Topic("b", UUID(int=2), 1)]))
    second = shared.workers[1]
    second.channel = None
    shared.topics.forget(second)
    heard = 1
    shared.topics.applied(shared.workers[0], heard)
    assert shared.workers[0].last()["kind"] == Kind.CHANGE_RESULT
    shared.ask(2, Change([Topic("c", UUID(int=3), 1)]))
    shared.workers[0].channel = object()
    shared.topics.forget(shared.workers[0])
    assert not shared.workers[0].sent


def test_a_change_that_can_not_be_written_reaches_no_worker(shared: Shared, tmp_path: Path) -> None:
    """A change that can't be written reaches no worker; the asker gets the reason, and a log line has it."""
    (tmp_path / "topics.json.new").mkdir()
    answer = shared.ask(1, Change([Topic("b", UUID(int=2), 1)]))
    assert answer["kind"] == Kind.CHANGE_RESULT
    assert answer["error"]
    assert not shared.workers[1].sent
    assert "topics_not_written" in shared.log.getvalue()
    assert shared.topics.list.get("b") is None
