"""HTTP beside a running server, asked over sockets, with real members in its groups."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

from coordinator.client.client import Client
from coordinator.client.connection import Address
from coordinator.config import load
from coordinator.log.store import open_store
from coordinator.server import scrape
from coordinator.server.app import Server
from coordinator.story import transaction_diagnosis
from protocol.messages import (
    HeartbeatRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupResponse,
    TxnOffsetCommitRequest,
)
from schemas.errors import ErrorCode
from tests.client.scripted import Scripted, of_another_kind
from tests.server.harness import memory
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import commit_request, join_request, sync_request


class Asked:
    """A server with HTTP that threads ask while it runs."""

    def __init__(self, server: Server, url: str, log: Path) -> None:
        self.server = server
        self.url = url
        self._log = log

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of this event; all lines are objects."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=WITHIN_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def metric(self, name: str, **labels: str) -> float:
        """Return a sample of a scrape, 0 without one."""
        _, text = await self.get("metrics")
        return sum(
            sample.value
            for family in parse(text)
            for sample in family.samples
            if sample.name == name and sample.labels.items() >= labels.items()
        )

    def join(self, group: str, member_id: str = "", instance_id: str | None = None, **more: Any) -> JoinGroupResponse:
        """Send one JoinGroup of a member."""
        request = join_request(group, member_id, instance_id, session_ms=10_000, rebalance_ms=10_000, **more)
        with self.client() as client:
            answer: JoinGroupResponse = client.request(request)
        return answer

    def client(self) -> Client:
        """Return a client of Kafka's protocol."""
        return Client(str(Address(*self.server.address)), WITHIN_S)


@pytest.fixture
async def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Yield a server in this loop: without events and in memory, or, with a setting as parameter, on the disk."""
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "tenure.http=127.0.0.1:0", "group.initial.rebalance.delay.ms=0"]
    own = getattr(request, "param", "tenure.events.enable=false")
    config, _ = load(sets=[*sets, "tenure.log.format=json", own, f"log.dirs={tmp_path / 'data'}"])
    with (tmp_path / "lines").open("w") as log:
        opened = open_store if hasattr(request, "param") else memory(config)
        server = Server(config, opened=opened, log=log)
        await server.start()
        await server.loaded.wait()
        lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
        (url,) = [line["url"] for line in lines if line["event"] == "http_listening"]
        yield Asked(server, url, tmp_path / "lines")
        await server.stop()


async def test_a_server_says_whether_it_lives_and_whether_it_is_ready(asked: Asked) -> None:
    """The server is alive but not ready while it loads, and not alive when its log can't be written."""
    assert await asked.get("healthz") == (200, "ok\n")
    assert await asked.get("readyz") == (200, "ok\n")
    asked.server.loaded.clear()
    assert await asked.get("healthz") == (200, "ok\n")
    assert await asked.get("readyz") == (503, "groups are being loaded\n")
    asked.server.failed.set()
    assert (await asked.get("healthz"))[0] == 503
    asked.server.failed.clear()


async def test_groups_are_shown_as_the_command_shows_them(asked: Asked) -> None:
    """HTTP shows a group as the command does, also if its name needs escapes in a path."""
    for group in ("orders", "a/b c%2F"):
        answer = await asyncio.to_thread(asked.join, group, instance_id="i-1")
        assert not answer.error_code
    status, text = await asked.get("groups")
    assert status == 200
    assert {each["group_id"] for each in json.loads(text)} == {"orders", "a/b c%2F"}
    status, text = await asked.get("groups/a%2Fb%20c%252F")
    assert status == 200
    found = json.loads(text)
    assert found["state"] == "CompletingRebalance"
    assert [member["group_instance_id"] for member in found["members"]] == ["i-1"]
    assert found["coordinator"]["port"] == asked.server.address[1]


async def test_a_cluster_without_events_says_so(asked: Asked) -> None:
    """A cluster without events answers so, and everything else works."""
    for path in ("events", "groups/g/events"):
        status, text = await asked.get(path)
        assert status == 404
        assert "__rebalance_events" in text
    assert await asked.get("overview") == (200, "[]")


@pytest.mark.parametrize("asked", ["tenure.topics=t:1"], indirect=True)
async def test_a_group_whose_offsets_are_held_back(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings about it have the transaction."""
    monkeypatch.setattr(transaction_diagnosis, "AWAITED_MS", 0)

    def begin() -> None:
        """Commit an offset, then another one in a transaction that stays open."""
        pending = TxnOffsetCommitRequest
        with asked.client() as client, Connection(asked.server.address[1]) as connection:
            connection.ask(commit_request("g", {("t", 0): 1}), 8)
            init = InitProducerIdRequest(transactional_id="mover", transaction_timeout_ms=60_000)
            producer: InitProducerIdResponse = client.request(init)
            own = pending.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2)
            request = pending(
                transactional_id="mover",
                group_id="g",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                topics=[pending.TxnOffsetCommitRequestTopic(name="t", partitions=[own])],
            )
            answer: Any = connection.ask(request, 5)  # with names of topics
            assert not answer.topics[0].partitions[0].error_code

    await asyncio.to_thread(begin)
    status, text = await asked.get("groups/g/events")
    assert status == 200
    (found,) = json.loads(text)["findings"]
    assert (found["kind"], "transactional id mover" in found["found"]) == ("hanging_transaction", True)


async def test_the_sums_of_all_groups_are_told_as_they_become_known(asked: Asked) -> None:
    """The first answer begins to find them out; a later one has members and lag of each group."""
    for group in ("b", "a"):
        assert not (await asyncio.to_thread(asked.join, group, instance_id="i-1")).error_code
    assert await asked.get("sums") == (200, '{"groups":0,"is_complete":false,"sums":[]}')
    told: dict[str, Any] = {}
    async with asyncio.timeout(WITHIN_S):
        while not told.get("is_complete"):
            told = json.loads((await asked.get("sums"))[1])
    assert told["groups"] == 2
    assert [(each["group_id"], each["members"], each["lag"]) for each in told["sums"]] == [
        ("a", 1, None),
        ("b", 1, None),
    ]


async def test_a_probe_of_a_static_member(asked: Asked) -> None:
    """200 while it takes part in a rebalance; 503 without such a member, 404 without the group."""
    await asyncio.to_thread(asked.join, "g", instance_id="seat")
    assert await asked.get("alive?group=g&instance-id=seat") == (200, "ok\n")
    assert await asked.get("alive?group=g&instance-id=other") == (503, "the group has no such member\n")
    status, _ = await asked.get("alive?group=nobody&instance-id=seat")
    assert status == 404


async def test_a_group_that_is_not_there_is_said(asked: Asked) -> None:
    """For a group that doesn't exist the status is 404, also if no group could have such a long name."""
    assert await asked.get("groups/none") == (404, '{"error":"no such group"}')
    assert await asked.get(f"groups/{'x' * 33_000}") == (404, '{"error":"no such group"}')
    assert (await asked.get("nothing"))[0] == 404


async def test_a_group_of_another_kind_is_named(asked: Asked) -> None:
    """A group that only Apache Kafka can have is described. It has no static member, so the probe gets 501."""
    assert asked.server._site is not None
    with Scripted(of_another_kind("streams")) as kafka:
        asked.server._site._ask = partial(Client, kafka.bootstrap, WITHIN_S)
        status, text = await asked.get("groups/g")
        assert (status, json.loads(text)["group_type"]) == (200, "streams")
        status, text = await asked.get("alive?group=g&instance-id=i")
    assert status == 501
    assert "group g is a streams group (Stable)" in text


async def test_a_mistake_of_ours_is_a_log_line(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in our code is one log line with the trace; the client gets an error like any other."""

    async def break_down(*_: object) -> list[Metric]:
        raise ZeroDivisionError

    monkeypatch.setattr(scrape, "census", break_down)
    status, text = await asked.get("metrics")
    assert (status, list(json.loads(text))) == (500, ["error"])
    (line,) = asked.lines("http_broke")
    assert line["level"] == "error"
    assert "ZeroDivisionError" in line["message"]
    assert "break_down" in line["message"]


async def test_what_is_no_http_is_a_log_line(asked: Asked) -> None:
    """Bytes that aren't HTTP are a log line, for example from a Kafka client with the wrong port."""
    host, _, port = asked.url.removeprefix("http://").rstrip("/").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x00\x00\x00\x10\x00\x12\x00\x03" + b"\x00" * 20)
    assert b"400" in await reader.read()
    writer.close()
    await writer.wait_closed()
    assert [line["level"] for line in asked.lines("http_broke")] == ["warn"]


async def test_what_the_disk_does_is_scraped(tmp_path: Path) -> None:
    """A scrape has the disk times of the group log and of the topics' logs, where the server keeps events."""
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "tenure.http=127.0.0.1:0", "group.initial.rebalance.delay.ms=0"]
    config, _ = load(sets=[*sets, "tenure.log.format=json", f"log.dirs={tmp_path / 'data'}"])
    with (tmp_path / "lines").open("w") as log:
        server = Server(config, log=log)
        await server.start()
        try:
            await server.loaded.wait()
            lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
            (url,) = [line["url"] for line in lines if line["event"] == "http_listening"]
            asked = Asked(server, url, tmp_path / "lines")
            member_id = (await asyncio.to_thread(asked.join, "g", instance_id="i-1")).member_id

            def sync() -> None:
                with asked.client() as client:
                    assert not client.request(sync_request("g", 1, member_id, "i-1")).error_code

            await asyncio.to_thread(sync)
            stopped = asyncio.Event()
            server.events.stop(stopped.set)
            await stopped.wait()
            for kind, topic in (("topics", "__rebalance_events"), ("groups", "__consumer_offsets")):
                size = sum(path.stat().st_size for path in (tmp_path / "data").glob(f"{topic}-*/*.log"))
                assert await asked.metric("tenure_log_appended_bytes_total", log=kind) == size > 0
                assert await asked.metric("tenure_log_flush_seconds_count", log=kind) > 0
            assert await asked.metric("tenure_partition_load_seconds_count") == 50
        finally:
            await server.stop()


async def test_what_is_counted_is_scraped(asked: Asked) -> None:
    """A scrape counts fifty rebalances, answers with and without an error, and repeated heartbeats."""
    member_id = (await asyncio.to_thread(asked.join, "g", instance_id="i-1")).member_id
    generation = 1

    def sync() -> None:
        with asked.client() as client:
            assert not client.request(sync_request("g", generation, member_id, "i-1")).error_code

    def rejoin(count: int) -> None:
        nonlocal generation
        for _ in range(count):
            generation = asked.join("g", member_id, "i-1").generation_id
            sync()

    def heartbeats() -> None:
        with asked.client() as client:
            for _ in range(5):
                request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
                assert not client.request(request).error_code
            refused = client.request(HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody"))
            assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    await asyncio.to_thread(sync)
    before = await asked.metric("tenure_rebalances_total")
    assert before == 1
    await asyncio.to_thread(rejoin, 50)
    await asyncio.to_thread(heartbeats)
    assert await asked.metric("tenure_rebalances_total") - before == 50
    assert await asked.metric("tenure_rebalances_total", cause="leader_rejoined") == 50
    assert await asked.metric("tenure_group_rebalances_total", group="g") == before + 50
    assert await asked.metric("tenure_answers_total", api="Heartbeat", error="NONE") == 5
    assert await asked.metric("tenure_answers_total", api="Heartbeat", error="UNKNOWN_MEMBER_ID") == 1
    assert await asked.metric("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert await asked.metric("tenure_partitions", standing="active") == 50
