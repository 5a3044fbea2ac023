"""A worker's end of the channel, and a whole worker, with the test as its supervisor."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import convert

from coordinator.config import configs_of_workers
from coordinator.log.engine import Unavailable
from coordinator.log.topics.list import Topic
from coordinator.server import worker
from coordinator.server.app import addresses_of, bind_all
from coordinator.server.channel import Kind, line
from coordinator.server.nodes.discovery import node_addresses
from coordinator.server.nodes.topics import Change
from coordinator.server.worker import WorkerLink
from protocol.messages import MetadataRequest
from tests.server.harness import Peer, config_of
from tests.support.patience import WITHIN_S

A, B, OTHER = (Topic(name, UUID(int=number), 1) for number, name in enumerate(("a", "b", "other")))


class Supervisor:
    """The supervisor's end of the channel."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._rest = b""

    async def hear(self) -> dict[str, Any]:
        """Return the worker's next message."""
        while b"\n" not in self._rest:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._end, 65_536), WITHIN_S)
            assert data, "hung up"
            self._rest += data
        first, self._rest = self._rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def say(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        self._end.sendall(line(kind, **fields))

    def hang_up(self) -> None:
        """Close the channel, as if the supervisor were killed."""
        self._end.close()


class Linked:
    """A link, its supervisor, and the results of creations."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.supervisor = Supervisor(ours)
        self.lost = asyncio.Event()
        self.link = WorkerLink([], self.lost.set)
        self.outcomes: list[object] = []
        self._theirs = theirs

    async def connect(self) -> None:
        """Open the worker's end of the channel."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self.link, sock=self._theirs)


@pytest.fixture
async def linked() -> AsyncIterator[Linked]:
    """Yield an open link."""
    made = Linked()
    await made.connect()
    yield made
    made.supervisor.hang_up()
    await made.link.close()


async def test_a_topic_is_created_when_the_supervisor_says_so(linked: Linked) -> None:
    """A worker asks for a topic, takes it in when the supervisor sends it, acknowledges it, and answers last."""
    linked.link.topics.create([A], linked.outcomes.append)
    asked = await linked.supervisor.hear()
    assert (asked["kind"], convert(asked["change"], Change)) == (Kind.CHANGE_REQUEST, Change([A], [], []))
    assert linked.link.topics.get("a") is None
    linked.supervisor.say(Kind.APPLY, number=5, change=Change([A]))
    assert await linked.supervisor.hear() == {"kind": Kind.APPLIED, "number": 5}
    assert linked.link.topics.get("a") == A
    assert linked.outcomes == []
    linked.supervisor.say(Kind.CHANGE_RESULT, number=asked["number"], taken={}, error=None)
    linked.supervisor.say(Kind.APPLY, number=6, change=Change())
    assert await linked.supervisor.hear() == {"kind": Kind.APPLIED, "number": 6}
    assert linked.outcomes == [{}]


async def test_what_others_create_is_taken_in(linked: Linked) -> None:
    """A worker takes in topics that others create; its request for such a name is answered with that topic."""
    linked.link.topics.create([A, B], linked.outcomes.append)
    asked = await linked.supervisor.hear()
    theirs = Topic("a", UUID(int=99), 4)
    linked.supervisor.say(Kind.APPLY, number=1, change=Change([theirs]))
    linked.supervisor.say(Kind.APPLY, number=2, change=Change([B]))
    linked.supervisor.say(Kind.CHANGE_RESULT, number=asked["number"], taken={"a": "a"}, error=None)
    linked.supervisor.say(Kind.APPLY, number=3, change=Change([OTHER]))
    assert [(await linked.supervisor.hear())["number"] for _ in range(3)] == [1, 2, 3]
    assert linked.outcomes == [{"a": "a"}]
    assert list(linked.link.topics) == [theirs, B, OTHER]


async def test_a_deletion_is_known_when_nothing_of_the_topic_is_in_use(linked: Linked) -> None:
    """A worker acknowledges a deletion only after it has released the topic's records and folders."""
    given_up: list[Callable[[], None]] = []
    linked.link.topics.on_deleted = lambda gone, done: map(given_up.append, [done for _ in gone])
    linked.supervisor.say(Kind.APPLY, number=1, change=Change([A]))
    linked.supervisor.say(Kind.APPLY, number=2, change=Change(deleted=[A.topic_id]))
    linked.supervisor.say(Kind.APPLY, number=3, change=Change())
    assert [(await linked.supervisor.hear())["number"] for _ in range(2)] == [1, 3]
    assert linked.link.topics.get("a") is None
    given_up.pop()()
    assert await linked.supervisor.hear() == {"kind": Kind.APPLIED, "number": 2}


async def test_what_can_not_be_written_is_not_there(linked: Linked) -> None:
    """If a topic can't be written, its creation fails with the supervisor's reason."""
    linked.link.topics.create([A], linked.outcomes.append)
    asked = await linked.supervisor.hear()
    linked.supervisor.say(Kind.CHANGE_RESULT, number=asked["number"], taken={}, error="No space left on device")
    linked.supervisor.say(Kind.APPLY, number=1, change=Change())
    await linked.supervisor.hear()
    (outcome,) = linked.outcomes
    assert isinstance(outcome, Unavailable)
    assert str(outcome) == "No space left on device"
    assert linked.link.topics.get("a") is None


async def test_workers_ask_each_other(linked: Linked) -> None:
    """A question goes out and its answer comes back; a question of another worker is answered, at first with None."""
    link, supervisor = linked.link, linked.supervisor
    answers: list[object] = []
    link.ask(1, ["how?", 7], answers.append)
    asked = await supervisor.hear()
    assert asked == {"kind": Kind.ASK, "number": asked["number"], "node": 1, "question": ["how?", 7]}
    supervisor.say(Kind.ASKED, number=5, question=["open"])
    assert await supervisor.hear() == {"kind": Kind.ANSWER, "number": 5, "answer": None}
    link.on_asked = lambda question, answer: answer([*question, "so"])
    supervisor.say(Kind.ANSWERED, number=asked["number"], answer="so")
    supervisor.say(Kind.ASKED, number=6, question=["open"])
    assert await supervisor.hear() == {"kind": Kind.ANSWER, "number": 6, "answer": ["open", "so"]}
    assert answers == ["so"]


async def test_without_a_supervisor_nobody_answers(linked: Linked) -> None:
    """Questions get None, earlier and later ones."""
    answers: list[object] = []
    linked.link.ask(1, "how?", answers.append)
    linked.supervisor.hang_up()
    await asyncio.wait_for(linked.lost.wait(), WITHIN_S)
    linked.link.ask(1, "how?", answers.append)
    assert answers == [None, None]


async def test_without_a_supervisor_nothing_is_created(linked: Linked) -> None:
    """Without a supervisor all creations fail, earlier and later ones, and `on_lost` is called."""
    linked.link.topics.create([A], linked.outcomes.append)
    await linked.supervisor.hear()
    linked.supervisor.hang_up()
    await asyncio.wait_for(linked.lost.wait(), WITHIN_S)
    linked.link.topics.create([B], linked.outcomes.append)
    assert [type(outcome) for outcome in linked.outcomes] == [Unavailable, Unavailable]
    assert list(linked.link.topics) == []


async def test_a_worker_whose_callbacks_fail_ends(linked: Linked) -> None:
    """A callback that fails ends the channel, and `on_lost` is called, although the next callback fails too."""

    def fail(_: object) -> None:
        raise ValueError

    for topic in (A, B):
        linked.link.topics.create([topic], fail)
    asked = await linked.supervisor.hear()
    linked.supervisor.say(Kind.CHANGE_RESULT, number=asked["number"], taken={}, error=None)
    assert await asyncio.wait_for(linked.lost.wait(), WITHIN_S)


# A worker as a whole.


async def test_a_worker_ends_with_its_supervisor(tmp_path: Path) -> None:
    """A worker serves until the channel ends, and then ends in order."""
    config = config_of(f"log.dirs={tmp_path}", "tenure.workers=2")
    configs = configs_of_workers(config)
    bound = [bind_all(each) for each in configs]
    nodes = [node_addresses(*each) for each in zip(configs, map(addresses_of, bound), strict=True)]
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(ours)
    working = asyncio.ensure_future(worker.work(configs[1], bound[1], nodes, "cluster", [A], theirs))
    assert await supervisor.hear() == {"kind": Kind.READY}
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, bound[1][0][1].getsockname())
    peer = Peer(sock, "test")
    answer = await peer.ask(MetadataRequest(topics=None), 12)
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 0)
    assert [(each.node_id, each.port) for each in answer.brokers] == [
        (index, listening.getsockname()[1]) for index, ((_, listening),) in enumerate(bound)
    ]
    assert [topic.name for topic in answer.topics] == ["__consumer_offsets", "a"]
    supervisor.hang_up()
    assert await peer.is_closed()
    assert await asyncio.wait_for(working, WITHIN_S) == worker.DONE
    peer.close()
    bound[0][0][1].close()
    locked = [name for name in (".lock", ".lock-0", ".lock-1", ".lock-2", ".lock-3") if (tmp_path / name).exists()]
    assert locked == [".lock-1", ".lock-3"]


async def test_a_worker_says_what_keeps_it_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't start sends the reason to its supervisor, in one line."""
    monkeypatch.setattr(worker, "allow_files", lambda: 20)
    config = config_of(f"log.dirs={tmp_path}")
    bound = bind_all(config)
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(ours)
    nodes = [node_addresses(config, addresses_of(bound))]
    ended = await asyncio.wait_for(worker.work(config, bound, nodes, "cluster", [], theirs), WITHIN_S)
    said = await supervisor.hear()
    assert (ended, said["kind"]) == (worker.NOT_STARTED, Kind.START_FAILED)
    assert "20 files" in said["reason"]
    supervisor.hang_up()
