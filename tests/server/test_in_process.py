"""The server's requests to itself take the way of all requests, but without a socket."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.client import Client, Node
from coordinator.client.connection import Address
from coordinator.client.errors import Unreachable
from coordinator.client.groups import list_groups
from coordinator.config import ConfigError, load
from coordinator.group.client import Client as Caller
from coordinator.security.access import OWN
from coordinator.server.app import StartFailed, client_security
from coordinator.server.in_process import CLIENT_ID, InProcess
from protocol.connection import SIZE_BYTES
from protocol.header import encode_request
from protocol.messages import ListGroupsRequest, ListGroupsResponse
from tests.server.harness import Serving, seat, serving
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure


class Own:
    """A server, and the way in which it asks itself."""

    def __init__(self, serving: Serving) -> None:
        server = serving.server
        self.serving = serving
        self.asking = InProcess(
            server._api,
            server._api._services.discovery,
            1,
            "PLAINTEXT",
            asyncio.get_running_loop(),
            server._lines,
        )

    async def ask(self, question: Callable[[Client], Any]) -> Any:
        """Ask with a client on a thread; returns its answer."""

        def on_thread() -> Any:
            with self.asking.open() as client:
                return question(client)

        return await asyncio.wait_for(asyncio.to_thread(on_thread), WITHIN_S)

    async def held(self, asking: Coroutine[Any, Any, Any]) -> tuple[asyncio.Task[Any], Any]:
        """A task that asks for ListGroups, and its call, which has no answer."""
        calls: asyncio.Queue[Any] = asyncio.Queue()
        self.answer_with(lambda call, _request: calls.put_nowait(call))
        return asyncio.create_task(asking), await calls.get()

    def answer_with(self, answer: Callable[[Any, Any], None]) -> None:
        """Answer ListGroups in this way."""
        self.serving.server._api._handlers[16] = answer, ListGroupsRequest


@pytest.fixture
async def own() -> AsyncIterator[Own]:
    """Yield a server."""
    async with serving() as server:
        yield Own(server)


async def test_no_connection_is_made(own: Own) -> None:
    """The server makes no connection for its own request: only the group's one member has one."""
    await seat(await own.serving.peer(), "g", "i")
    groups = await own.ask(list_groups)
    assert [group.group_id for group in groups] == ["g"]
    assert len(own.serving.server.connections) == 1


async def test_the_server_is_a_principal_of_its_own(own: Own) -> None:
    """A handler sees a principal that belongs to the server alone."""
    seen: list[Caller] = []

    def answer(call: Any, _request: Any) -> None:
        seen.append(call.client)
        call.answer(ListGroupsResponse())

    own.answer_with(answer)
    await own.ask(list_groups)
    (client,) = seen
    assert (client.id, client.host, client.principal, client.listener) == (
        CLIENT_ID, "/127.0.0.1", OWN, "PLAINTEXT",
    )  # fmt: skip


async def test_an_answer_that_comes_later_is_waited_for(own: Own) -> None:
    """The client waits for a late answer, and the handler learns that the answer was taken.

    A Fetch then returns its part of the memory budget.
    """
    taken: list[str] = []

    def answer(call: Any, _request: Any) -> None:
        call.on_sent = lambda: taken.append("answer")
        asyncio.get_running_loop().call_soon(call.answer, ListGroupsResponse())

    own.answer_with(answer)
    assert await own.ask(list_groups) == []
    assert taken == ["answer"]


async def test_a_question_without_an_answer_ends_with_its_deadline(own: Own) -> None:
    """A request without an answer ends at its deadline, and its call is closed like that of a lost connection."""
    calls: list[Any] = []
    own.answer_with(lambda call, _request: calls.append(call))

    def ask(client: Client) -> Any:
        client.timeout = 1.0  # the request must arrive by then
        return client.request(ListGroupsRequest())

    with pytest.raises(Unreachable, match="did not answer in time"):
        await own.ask(ask)
    assert [call.is_closed for call in calls] == [True]


async def test_an_answer_as_its_asker_gives_up_reaches_nobody(own: Own) -> None:
    """An answer in the turn in which its asker gives up is dropped: the deliverer has other answers to deliver."""
    frame = encode_request(ListGroupsRequest(), 0, 1, CLIENT_ID)[SIZE_BYTES:]
    question, call = await own.held(own.asking._answer(frame))
    question.cancel()
    call.deliver(ListGroupsResponse())
    with pytest.raises(asyncio.CancelledError):
        await question
    assert call.is_closed


async def test_a_thread_that_waits_when_the_loop_ends_gets_an_error(own: Own) -> None:
    """The end of the loop cancels what it does; a thread that waits for its answer gets an error that it knows."""

    def ask(client: Client) -> Any:
        client.try_once()
        return client.request(ListGroupsRequest())

    asked, _ = await own.held(own.ask(ask))
    for task in asyncio.all_tasks():
        if getattr(task.get_coro(), "__qualname__", "") == "InProcess._answer":
            task.cancel()
    with pytest.raises(Unreachable, match="has stopped"):
        await asked


async def test_a_mistake_costs_one_question(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a handler, at once or later, is a log line, and only the asker of that request gets an error."""
    monkeypatch.setattr("coordinator.client.client.PAUSE_FIRST", 2 * WITHIN_S)  # the client tries once

    def fail(*_: Any) -> None:
        raise ValueError("a mistake of ours")

    def failing() -> Iterator[None]:
        yield
        fail()

    def fail_later(call: Any, _request: Any) -> None:
        asyncio.get_running_loop().call_soon(call.do, failing())

    def ask(client: Client) -> Any:
        client.timeout = WITHIN_S
        return client.request(ListGroupsRequest())

    for answer in (fail, fail_later):
        own.answer_with(answer)
        with pytest.raises(Unreachable, match="its log says more"):
            await own.ask(ask)
        lines = own.serving.events("http_broke")
        assert "a mistake of ours" in lines[-1]["message"]


async def test_another_node_is_asked_over_a_socket(own: Own) -> None:
    """The server asks another node over a socket, at the node's advertised address."""
    async with serving() as other:
        await seat(await other.peer(), "h", "i")
        node = Node(2, Address(*other.server.address))
        answer = await own.ask(lambda client: client.request(ListGroupsRequest(), node))
        assert [group.group_id for group in answer.groups] == ["h"]


async def test_a_server_that_has_ended_says_so(own: Own) -> None:
    """After the server's end a thread that still asks gets an error."""
    own.asking._loop = asyncio.new_event_loop()
    own.asking._loop.close()

    def ask(client: Client) -> Any:
        client.timeout = 0.05
        return client.request(ListGroupsRequest())

    with pytest.raises(Unreachable, match="has stopped"):
        await own.ask(ask)


def test_workers_ask_each_other_as_a_file_says(tmp_path: Path) -> None:
    """Without a PLAINTEXT listener, the page of a worker logs in at the other one; a wrong password is the answer."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = f"""listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={module} user_alice="secret";
"""
    file = tmp_path / "client.properties"
    settings: dict[str, str | int] = {
        "tenure.workers": 2,
        "tenure.http": "127.0.0.1:0",
        "tenure.http.client.config": str(file),
    }
    answers = []
    for password in ("secret", "wrong"):
        login = f'sasl.jaas.config={module} username="alice" password="{password}";'
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n")
        with Tenure(settings, listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as server:
            for line in server.events("http_listening"):
                answers.append(status_of(f"{line['url']}groups"))
    assert answers == [200, 200, 502, 502]


def status_of(url: str) -> int:
    """The status of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_workers_without_a_way_to_each_other_do_not_start(tmp_path: Path) -> None:
    """One line names the setting: no file, and a file that isn't there."""
    given = ["tenure.http=127.0.0.1:0", "tenure.workers=2", "listeners=SASL_PLAINTEXT://127.0.0.1:0"]
    with pytest.raises(ConfigError, match=r"^tenure\.http\.client\.config: with tenure\.workers"):
        load(sets=given)
    config, _ = load(sets=[*given, f"tenure.http.client.config={tmp_path / 'no'}"])
    with pytest.raises(StartFailed, match=r"^tenure\.http\.client\.config: .*no: No such file"):
        client_security(config)
