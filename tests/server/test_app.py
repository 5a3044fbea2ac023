"""The server as a whole: start, stop, and the state that survives them."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from coordinator.config import Config, load
from coordinator.group.notes import Noted
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import EngineError
from coordinator.log.segments.disk import Disk
from coordinator.log.topics.list import TopicsFile
from coordinator.server.app import Server, StartFailed, random_id
from protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import (
    ManualClock,
    Peer,
    Serving,
    config_of,
    heartbeat_request,
    memory,
    seat,
    serving,
    sync_request,
)
from tests.support.memory import ManualEngine
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request, offsets_request, topics_request


def config_in(folder: Path, *settings: str) -> Config:
    """Return a configuration with a data folder."""
    return config_of(f"log.dirs={folder}", *settings)


class Running:
    """A server on files that the test starts and stops."""

    def __init__(self, config: Config, **arguments: Any) -> None:
        self.log = io.StringIO()
        self.clock = ManualClock()
        self.server = Server(config, clock=self.clock, log=self.log, **arguments)
        self.serving = Serving(self.server, self.clock, self.log)

    async def __aenter__(self) -> Serving:
        await self.server.start()
        await self.serving.loaded()
        return self.serving

    async def __aexit__(self, *_: object) -> None:
        self.serving.close_peers()
        await self.server.stop()


async def cluster_of(server: Serving) -> tuple[str, dict[str, Any]]:
    """Return the cluster id, and id and partitions by topic."""
    peer = await server.peer()
    answer = await peer.ask(MetadataRequest(topics=None), 12)
    return answer.cluster_id, {topic.name: (topic.topic_id, len(topic.partitions)) for topic in answer.topics}


async def test_groups_topics_and_cluster_outlive_the_server(tmp_path: Path) -> None:
    """After a restart on the same folder the member is still a member, and topics keep their ids."""
    config = config_in(tmp_path / "data")
    async with Running(config) as server:
        peer = await server.peer()
        joined = await seat(peer, "g", "i")
        assert (await peer.ask(topics_request({"fresh": 2}), 5)).topics[0].error_code == ErrorCode.NONE
        before = await cluster_of(server)
    async with Running(config) as server:
        assert await cluster_of(server) == before
        assert before[1]["fresh"][1] == 2
        peer = await server.peer()
        assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert [line["group"] for line in server.events("group_loaded")] == ["g"]


async def test_declared_topics_grow_and_never_shrink(tmp_path: Path) -> None:
    """tenure.topics creates missing topics and adds partitions; a smaller number is only a warning."""
    async with Running(config_in(tmp_path, "tenure.topics=a:2,b:5")) as server:
        _, before = await cluster_of(server)
    async with Running(config_in(tmp_path, "tenure.topics=a:4,b:3,c:1")) as server:
        _, after = await cluster_of(server)
        assert {name: count for name, (_, count) in after.items() if name in "abc"} == {"a": 4, "b": 5, "c": 1}
        assert after["a"][0] == before["a"][0]
        (line,) = server.events("topic_not_shrunk")
        assert line["topic"] == "b"


# Reasons for which it doesn't start.


async def refusal(config: Config) -> str:
    """Return the reason for which a server doesn't start."""
    server = Server(config, log=io.StringIO())
    with pytest.raises(StartFailed) as caught:
        await server.start()
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_folder_in_use_is_refused_and_named(tmp_path: Path) -> None:
    """The error names a folder that another server uses, and that server goes on."""
    config = config_in(tmp_path)
    async with Running(config) as server:
        reason = await refusal(config)
        assert reason.startswith("log.dirs: ")
        assert str(tmp_path) in reason
        assert str(os.getpid()) in reason
        assert await cluster_of(server)


async def test_an_address_in_use_is_refused_and_named(tmp_path: Path) -> None:
    """The error names an address in use, and the folder is free again afterwards."""
    async with Running(config_in(tmp_path / "one")) as server:
        port = server.server.address[1]
        taken = config_in(tmp_path / "two", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert await refusal(taken) == f"listeners: 127.0.0.1:{port}: the address is in use"
    async with Running(config_in(tmp_path / "two")) as server:
        assert await cluster_of(server)


async def test_a_folder_that_can_not_be_is_refused_and_named(tmp_path: Path) -> None:
    """The error names a folder that can't exist because a file is in its place."""
    (tmp_path / "file").write_text("")
    reason = await refusal(config_in(tmp_path / "file" / "data"))
    assert reason.startswith("log.dirs: ")
    assert str(tmp_path / "file" / "data") in reason


async def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    """A server refuses the data folder of another node."""
    async with Running(config_in(tmp_path)):
        pass
    assert "node.id: 2" in await refusal(config_in(tmp_path, "node.id=2"))


async def test_a_damaged_list_of_topics_is_refused(tmp_path: Path) -> None:
    """A server refuses a damaged list of topics, and drops no topic in silence."""
    async with Running(config_in(tmp_path)):
        pass
    (tmp_path / "topics.json").write_text("garbage")
    assert "topics.json" in await refusal(config_in(tmp_path))


async def test_only_the_servers_user_reads_its_folder(tmp_path: Path) -> None:
    """All in a folder that the server made is its user's alone; an open folder keeps its mode, and a line warns."""
    made = tmp_path / "made"
    async with Running(config_in(made, "tenure.topics=orders:1")) as server:
        await seat(await server.peer(), "g", "i")
        assert server.events("data_folder_open") == []
    modes = {path: S_IMODE(path.stat().st_mode) for path in (made, *made.rglob("*"))}
    assert {path: mode for path, mode in modes.items() if mode & (S_IRWXG | S_IRWXO)} == {}
    assert any(path.is_file() for path in modes)
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    async with Running(config_in(there)) as server:
        (line,) = server.events("data_folder_open")
        assert (line["level"], line["folder"], line["mode"]) == ("warn", str(there), "0755")
    assert S_IMODE(there.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["topics.json", "meta.properties"])
async def test_a_lost_file_is_said(tmp_path: Path, name: str) -> None:
    """One log line names a lost file; the server writes it anew and uses the new one."""
    config = config_in(tmp_path)
    async with Running(config) as server:
        assert server.events("file_lost") == []
        await seat(await server.peer(), "g", "i")
    (tmp_path / name).unlink()
    async with Running(config) as server:
        (line,) = server.events("file_lost")
        assert (line["level"], line["file"]) == ("warn", str(tmp_path / name))
    async with Running(config) as server:
        assert server.events("file_lost") == []


async def test_warnings_of_the_configuration_are_logged(tmp_path: Path) -> None:
    """Each warning of the configuration is one log line."""
    async with Running(config_in(tmp_path), warnings=["not used: x"]) as server:
        (line,) = server.events("setting_ignored")
        assert (line["level"], line["message"]) == ("warn", "not used: x")


# The end.


async def test_a_stop_lets_answers_go_that_are_on_their_way() -> None:
    """While the server stops, it answers a SyncGroup whose record is being written, and ignores later requests."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine, stop=False) as server:
        peer, idle = await server.peer(), await server.peer()
        await idle.ask(ApiVersionsRequest(), 0)
        joined = await peer.join("g", instance="i")
        engine.hold = True
        await peer.send(sync_request("g", joined, "i"), 5)
        await peer.send(ApiVersionsRequest(), 0)
        await server.barrier()
        stopping = asyncio.ensure_future(server.server.stop())
        async with asyncio.timeout(WITHIN_S):
            while not server.server.runtime._on_idle:
                await asyncio.wait([stopping], timeout=0)
        assert peer.is_silent()
        engine.flush()
        assert (await peer.receive()).error_code == ErrorCode.NONE
        assert await peer.is_closed()
        assert await idle.is_closed()
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await server.peer()
    assert len(engine.records[server.server.runtime.partition_of("g").index]) == 1


async def test_nothing_expires_while_it_stops(tmp_path: Path) -> None:
    """No member expires while the server stops."""
    config = config_in(tmp_path)
    async with Running(config) as server:
        peer = await server.peer()
        joined = await seat(peer, "g", "i")
        server.server.runtime.wind_down()
        await server.advance(60_000)
        assert server.events("member_expired") == []
    async with Running(config) as server:
        peer = await server.peer()
        assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE


async def test_an_engine_that_dies_is_noticed(server: Serving) -> None:
    """When the log's engine dies, the process that runs the server can end it."""
    server.server._report("engine_failed", partition=-1, error="AssertionError()")
    await asyncio.wait_for(server.server.failed.wait(), WITHIN_S)
    assert server.events("engine_failed")[0]["level"] == "error"


async def test_a_cut_tail_is_logged(server: Serving) -> None:
    """The engine's report becomes a line that says what was removed."""
    server.server._report("tail_cut", partition=3, file="00.log", position=7, size=99)
    await server.until(lambda: bool(server.events("tail_cut")))
    (line,) = server.events("tail_cut")
    assert (line["partition"], line["position"], line["size"]) == (3, 7, 99)
    assert "99 bytes from 7 of 00.log" in line["message"]
    assert "an interrupted write, or damage to the last batch" in line["message"]


async def test_a_test_kit_gets_notes(tmp_path: Path) -> None:
    """Durable notes go to `on_notes` behind their lines."""
    heard: list[str] = []

    def on_notes(noted: Sequence[Noted]) -> None:
        for each in noted:
            heard.extend(type(note).__name__ for note in each.notes)
            assert len(running.serving.events("rebalance_started")) == heard.count("RebalanceStarted")

    running = Running(config_in(tmp_path / "data"), on_notes=on_notes)
    async with running as server:
        await seat(await server.peer(), "g", "i")
        assert heard.count("RebalanceStarted") == heard.count("RebalanceEnded") == 1


async def test_a_stop_in_order_is_logged(tmp_path: Path) -> None:
    """The last line of an orderly stop says so, once, unless the log's thread has died."""
    for fails in (False, True):
        async with Running(config_in(tmp_path)) as server:
            assert server.events("server_stopped") == []
            if fails:
                server.server.failed.set()
        assert ["server_stopped"] * (not fails) == [line["event"] for line in server.events("server_stopped")]
        assert fails or server.events()[-1]["event"] == "server_stopped"


async def test_a_load_is_logged(server: Serving) -> None:
    """A long load logs its progress, and the commits that don't count."""
    server.server._report("load_progress", partition=3, percent=42)
    server.server._report("transactions_open", partition=3, transactions=2, commits=5)
    await server.until(lambda: bool(server.events("transactions_open")))
    assert server.events("load_progress")[0]["percent"] == 42
    (line,) = server.events("transactions_open")
    assert (line["level"], line["transactions"], line["commits"]) == ("warn", 2, 5)


async def test_a_folder_that_is_written_over_and_over_stays_small(tmp_path: Path) -> None:
    """Commits of one offset are compacted while the server runs: a log line says so, and the last one counts."""
    config = config_in(
        tmp_path,
        "offsets.topic.num.partitions=1",
        "offsets.topic.segment.bytes=2000",
        "log.cleaner.backoff.ms=1",
        "log.cleaner.min.cleanable.ratio=0.3",
    )
    async with Running(config) as server:
        peer = await server.peer()
        offset = 0
        while not server.events("compacted"):
            offset += 1
            assert await commit(peer, offset) == 0
        line = server.events("compacted")[0]
        assert line["level"] == "info"
        assert line["size_after"] < line["size_before"]
        server.server._report("compaction_failed", partition=0, reason="No space left on device")
        await server.until(lambda: bool(server.events("compaction_failed")))
    async with Running(config) as server:
        assert await committed(await server.peer()) == (0, offset)


# A real disk that fails.


class FailingDisk(Disk):
    """A disk with no free space while `is_full`, and without any writes while `is_broken`."""

    is_full = False
    is_broken = False

    def write(self, descriptor: int, parts: Any, position: int) -> int:
        """Write as Disk.write."""
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.is_full and position + sum(len(part) for part in parts) > self.size(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, parts, position)


async def commit(peer: Peer, offset: int) -> int:
    """Commit an offset of a simple group; returns the error code."""
    answer = await peer.ask(commit_request("simple", {("orders", 0): offset}), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer) -> tuple[int, int]:
    """Return error code and committed offset."""
    answer = await peer.ask(offsets_request("simple", {"orders": [0]}), 7)
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


async def test_a_full_disk_costs_commits_and_nothing_else(tmp_path: Path) -> None:
    """While the disk is full, commits get error 15 and heartbeats go on; with free space everything works."""
    disk = FailingDisk()
    config = config_in(tmp_path, "offsets.topic.num.partitions=1")
    async with Running(config, opened=memory(config, EmbeddedEngine(tmp_path, 1, 1, disk=disk))) as server:
        peer, member = await server.peer(), await server.peer()
        joined = await seat(member, "g", "i")
        assert await commit(peer, 1) == ErrorCode.NONE
        disk.is_full = True
        for tries in range(2, 7):
            assert await commit(peer, tries) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
            await server.at_rest()
            assert await committed(peer) == (ErrorCode.NONE, 1)
            await server.advance(9_000)
        disk.is_full = False
        assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert await commit(peer, 7) == ErrorCode.NONE
        assert await committed(peer) == (ErrorCode.NONE, 7)
        assert len(server.events("log_failed")) == len(server.events("log_recovered")) == 1
        assert server.events("member_expired") == []


async def test_a_broken_disk_takes_its_partition_until_it_works(tmp_path: Path) -> None:
    """If the failed write can't be removed either, the server answers nothing from memory until the disk works."""
    disk = FailingDisk()
    config = config_in(tmp_path, "offsets.topic.num.partitions=1")
    async with Running(config, opened=memory(config, EmbeddedEngine(tmp_path, 1, 1, disk=disk))) as server:
        peer, member = await server.peer(), await server.peer()
        joined = await seat(member, "g", "i")
        assert await commit(peer, 1) == ErrorCode.NONE
        disk.is_broken = True
        assert await commit(peer, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await server.until(lambda: bool(server.events("partition_refused")))
        for _ in range(3):
            await server.advance(10_000)
            assert (await committed(peer))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.is_broken = False
        await server.advance(10_000)
        assert (await member.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert await committed(peer) == (ErrorCode.NONE, 1)
        assert await commit(peer, 3) == ErrorCode.NONE
        names = ["log_failed", "partition_refused", "log_recovered"]
        assert [line["event"] for line in server.events() if line["event"] in names] == names


async def test_a_topic_that_can_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that can't be written is KAFKA_STORAGE_ERROR and doesn't exist; it can be created later."""
    save = TopicsFile.save
    failing = True

    def fail(self: TopicsFile, topics: Any) -> None:
        if failing:
            raise EngineError("No space left on device")
        save(self, topics)

    async with Running(config_in(tmp_path)) as server:
        monkeypatch.setattr(TopicsFile, "save", fail)
        peer = await server.peer()
        (result,) = (await peer.ask(topics_request({"fresh": 2}), 5)).topics
        assert (result.error_code, result.error_message) == (56, "No space left on device")
        assert "fresh" not in (await cluster_of(server))[1]
        failing = False
        (result,) = (await peer.ask(topics_request({"fresh": 2}), 5)).topics
        assert result.error_code == ErrorCode.NONE
        assert (await cluster_of(server))[1]["fresh"][1] == 2


def test_defaults_need_nobody() -> None:
    """A server can be made from a configuration alone, without a loop."""
    assert Server(load()[0]).addresses == []


def test_random_ids_are_uuids() -> None:
    """Random ids are UUIDs of version 4 like Kafka's: lower case with hyphens, and different each time."""
    made = {random_id() for _ in range(100)}
    assert len(made) == 100
    for text in made:
        known = UUID(text)
        assert (str(known), known.version, known.variant) == (text, 4, RFC_4122)
    # Two bits of the digit for the variant are random.
    assert {text[19] for text in made} == set("89ab")
