"""Repeated commits: the short cut answers and writes the same as dispatch."""

from __future__ import annotations

import gc
from random import Random
from typing import Any
from uuid import UUID

import pytest

from coordinator.log.engine import Appended, Ownership, Unavailable
from coordinator.server import app
from coordinator.server.telemetry.measures import Measures
from coordinator.server.wire.api import DECODED_IN_STEPS_ABOVE
from coordinator.server.wire.repeated_commits import MARK, REMEMBERED_BYTES_MAX, UNLIKE_MAX, Commit
from protocol.messages import (
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    LeaveGroupRequest,
    Message,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from protocol.records.batch import Record
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, heartbeat_request, join_request, serving, sync_request
from tests.server.requests.test_acls import STANDARD
from tests.support.length import rounds
from tests.support.memory import ManualEngine
from tests.support.requests import delete_offsets_request, group_offsets_request, request, topics_request

STEPS = 200
SESSION_MS = 10_000


def commit_request(*targets: tuple[str, int, int], metadata: str | None = "m", **identity: Any) -> OffsetCommitRequest:
    """A commit of (topic, partition, offset), with the topics in the given order."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, offset in targets:
        position = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        topics.setdefault(topic, []).append(position)
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, **identity}
    made = request(
        "OffsetCommit", topics=[{"name": name, "partitions": each} for name, each in topics.items()], **fields
    )
    assert isinstance(made, OffsetCommitRequest)
    return made


class Way:
    """A run of random steps, with the short cut or without it; all else is the same.

    short: whether the short cut may be taken.
    heard: the answers, byte for byte, None where a connection was closed.
    """

    def __init__(self, server: Serving, engine: ManualEngine, chance: Random, *, short: bool) -> None:
        self._server = server
        self._engine = engine
        self._chance = chance
        self._short = short
        self._peers: list[Peer] = []
        self._kinds: list[tuple[OffsetCommitRequest, int]] = []
        self._joined: Any = None
        self._offset = 0
        self.heard: list[bytes | None] = []

    async def run(self) -> None:
        """Take random steps, most of them commits."""
        self._peers = [await self._server.peer() for _ in range(3)]
        await self._restart()
        self._new_kinds()
        for _ in range(STEPS):
            step = self._chance.random()
            if step < 0.88:
                await self._commit()
            else:
                other = (
                    self._new_kinds, self._restart, self._rejoin, self._leave, self._fail, self._pass_time,
                    self._delete_topic, self._delete_group, self._delete_offset, self._hold, self._beat, self._stay,
                    self._two,
                )  # fmt: skip
                done = self._chance.choice(other)()
                if done is not None:
                    await done
            await self._server.barrier()

    async def _ask(self, data: bytes, number: int = 0) -> None:
        peer = self._peers[number]
        await peer.send_bytes(data)
        frame = await peer.receive_frame()
        self.heard.append(frame)
        if frame is None:
            self._peers[number] = await self._server.peer()

    def _frame(self, number: int, request: Message, version: int) -> bytes:
        """The bytes of a request that is sent next; its answer is read as bytes too."""
        if not self._short:
            for connection in self._server.connections():
                connection.commit = None
        frame = self._peers[number].frame(request, version)
        self._peers[number]._due.clear()
        return frame

    def _new_kinds(self) -> None:
        """Choose the commits that are repeated from now on."""
        chance, joined = self._chance, self._joined
        who = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        self._kinds = []
        for _ in self._peers:
            identity: dict[str, Any] = dict(who)
            if chance.random() < 0.1:
                identity["generation_id_or_member_epoch"] = 77
            if chance.random() < 0.3:
                identity = {"group_id": chance.choice(["h", "h", ""])}
            version = chance.randrange(1, 11)
            if version >= 7 and chance.random() < 0.5:
                identity["group_instance_id"] = "i"
            if version in {2, 3, 4} and chance.random() < 0.2:
                identity["retention_time_ms"] = 1_000
            targets = [("orders", each, 0) for each in chance.sample(range(3), k=chance.randint(1, 3))]
            if chance.random() < 0.3:
                targets.append(chance.choice([("orders", 9, 0), ("orders", 1, 0), ("gone", 1, 0), ("never", 0, 0)]))
            metadata = chance.choice(["", None, "m", "m", "m", "Bär", "x" * 5000, MARK.decode()])
            self._kinds.append((commit_request(*targets, metadata=metadata, **identity), version))

    def _plain(self) -> None:
        """Make one of them a correct commit of the member."""
        joined = self._joined
        who = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        self._kinds[1] = commit_request(("orders", 0, 0), **who), 7

    async def _stay(self) -> None:
        """The member stays in its group because it commits before its session ends."""
        self._plain()
        for pause_ms in (1, SESSION_MS - 1, SESSION_MS - 1, 1):
            await self._commit(1)
            await self._server.advance(pause_ms)

    async def _two(self) -> None:
        """Send two commits with one write: the second waits for the first."""
        request, version = self._kinds[1]
        await self._peers[1].send_bytes(self._frame(1, request, version) + self._frame(1, request, version))
        self.heard += [await self._peers[1].receive_frame() for _ in range(2)]

    async def _commit(self, chosen: int | None = None) -> None:
        number = self._chance.randrange(len(self._peers)) if chosen is None else chosen
        request, version = self._kinds[number]
        for topic in request.topics:
            found = self._server.server._api._services.discovery.topic(topic.name)
            if found is not None:
                topic.topic_id = found.topic_id
            for partition in topic.partitions:
                self._offset += 1
                partition.committed_offset = self._chance.choice([self._offset, -1, 2**62])
        frame = bytearray(self._frame(number, request, version))
        if chosen is None and self._chance.random() < 0.1:
            frame[self._chance.randrange(4, len(frame))] ^= 1 << self._chance.randrange(8)
        await self._ask(bytes(frame), number)

    async def _restart(self) -> None:
        """The static member joins anew, which fences its old member id."""
        while True:
            self._joined = await self._peers[0].join("g", instance="i")
            if self._joined.error_code == ErrorCode.NONE:
                break
            await self._server.advance(1_000)
        await self._peers[0].ask(sync_request("g", self._joined, "i"), 5)
        if self._chance.random() < 0.7:
            self._new_kinds()

    async def _rejoin(self) -> None:
        """The member rejoins with its id and other metadata, and commits before it syncs."""
        request = join_request("g", self._joined.member_id, instance="i")
        request.protocols[0].metadata += b"+"
        answer = await self._peers[0].ask(request, 5)
        if answer.error_code == ErrorCode.NONE:
            self._joined = answer
            await self._commit()
            await self._peers[0].ask(sync_request("g", self._joined, "i"), 5)

    async def _leave(self) -> None:
        member = LeaveGroupRequest.MemberIdentity(member_id=self._joined.member_id, group_instance_id="i")
        await self._peers[0].ask(LeaveGroupRequest(group_id="g", members=[member]), 5)
        await self._commit()
        await self._restart()

    async def _fail(self) -> None:
        """Let the next write fail."""
        self._engine.fail_next(Unavailable("No space left on device"))
        for _ in range(3):
            await self._commit()
        await self._pass_time()
        await self._commit()
        await self._server.barrier()
        await self._restart()

    async def _pass_time(self) -> None:
        await self._server.advance(self._chance.choice([1, 600, 9_999, 10_001]))
        if self._chance.random() < 0.5:
            await self._restart()

    async def _delete_topic(self) -> None:
        await self._peers[0].ask(topics_request({"gone": 2}), 4)
        await self._commit()
        await self._commit()
        await self._peers[0].ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1_000), 4)

    async def _delete_group(self) -> None:
        await self._peers[0].ask(DeleteGroupsRequest(groups_names=["h"]), 1)

    async def _delete_offset(self) -> None:
        await self._peers[0].ask(delete_offsets_request("h", {"orders": [1]}), 0)

    async def _hold(self) -> None:
        """Slow the disk down: a fetch of an offset waits for its commit."""
        self._plain()
        await self._commit(1)
        self._engine.hold = True
        request, version = self._kinds[1]
        await self._peers[1].send_bytes(self._frame(1, request, version))
        await self._server.barrier()
        await self._peers[2].send_bytes(self._frame(2, OffsetFetchRequest(group_id="g", topics=None), 5))
        await self._server.barrier()
        self.heard += [b"silent" if self._peers[number].is_silent() else b"" for number in (1, 2)]
        self._engine.hold = False
        self._engine.flush()
        self.heard += [await self._peers[number].receive_frame() for number in (1, 2)]

    async def _beat(self) -> None:
        await self._peers[0].ask(heartbeat_request("g", self._joined), 3)


async def way(seed: int, *, short: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """The answers, the records, the log lines, and the counts of answers."""
    engine, measures = ManualEngine(4, 1), Measures()
    monkeypatch.setattr(app, "Measures", lambda _groups_max: measures)
    async with serving(engine=engine) as server:
        walk = Way(server, engine, Random(seed), short=short)
        await walk.run()
        # Ports differ from run to run.
        lines = [{**line, "peer": "", "message": ""} for line in server.events()]
        return walk.heard, engine.records, lines, measures.answers


@pytest.mark.rounds
async def test_both_ways_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers, records and log lines of commits are the same with the short cut and without it."""
    taken = 0
    done = Commit.done

    def counted(commit: Commit) -> None:
        nonlocal taken
        taken += 1
        done(commit)

    seeds = range(rounds(6, 12, 100))
    for seed in seeds:
        with monkeypatch.context() as patch:
            whole = await way(seed, short=False, monkeypatch=patch)
            patch.setattr(Commit, "done", counted)
            assert await way(seed, short=True, monkeypatch=patch) == whole, f"seed {seed}"
    assert taken > 5 * len(seeds)


async def test_commits_of_a_turn_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated commits to all groups of a partition share a batch, and each gets its own answer."""
    engine = ManualEngine(1, 1)
    batches: list[list[Record]] = []
    append = engine.append

    def watched(own: Ownership, appended: list[list[Record]], done: Appended) -> None:
        batches.extend(appended)
        append(own, appended, done)

    monkeypatch.setattr(engine, "append", watched)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        peers = [await server.peer() for _ in range(5)]
        requests = [commit_request(("orders", 0, 1), group_id=f"g{number % 2}") for number in range(5)]
        for peer, request in zip(peers, requests, strict=True):
            await peer.ask(request, 7)
        assert [len(batch) for batch in batches] == [1] * 5
        connections = {connection.peer: connection for connection in server.connections()}
        for peer, request in zip(peers, requests, strict=True):
            host, port = peer.socket.getsockname()
            connections[f"{host}:{port}"].data_received(peer.frame(request, 7))
        for peer in peers:
            assert (await peer.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert [len(batch) for batch in batches] == [1] * 5 + [5]


async def test_long_commits_are_not_remembered() -> None:
    """The bytes that a connection keeps of its commits have a limit."""
    async with connected("tenure.topics=orders:1000") as (server, peer):
        (connection,) = server.connections()
        for count, is_remembered in ((1, True), (1000, False)):
            request = commit_request(*(("orders", partition, 1) for partition in range(count)))
            assert (len(peer.frame(request, 7)) <= REMEMBERED_BYTES_MAX) == is_remembered
            peer._due.clear()
            answer = await peer.ask(request, 7)
            assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}
            assert (connection.commit is not None) == is_remembered


async def test_a_commit_that_is_decoded_in_steps_is_remembered() -> None:
    """It takes the next one, as a small commit does."""
    async with connected("tenure.topics=orders:1000") as (server, peer):
        (connection,) = server.connections()
        request = commit_request(*(("orders", partition, 1) for partition in range(100)))
        assert DECODED_IN_STEPS_ABOVE < len(peer.frame(request, 7)) <= REMEMBERED_BYTES_MAX
        peer._due.clear()
        for _ in range(2):
            answer = await peer.ask(request, 7)
            assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}
        assert connection.commit is not None
        assert connection.commit.is_used


async def test_a_commit_by_topic_ids_is_remembered_until_its_topic_goes() -> None:
    """The next one takes the short cut; a topic of the same name has another id, so that the commit is refused."""
    async with connected("auto.create.topics.enable=true") as (server, peer):

        async def made() -> UUID:
            created = await peer.ask(topics_request({"fresh": 1}), 7)
            topic_id = created.topics[0].topic_id
            assert isinstance(topic_id, UUID)
            return topic_id

        async def commit(topic_id: UUID, offset: int) -> int:
            request = commit_request(("fresh", 0, offset))
            request.topics[0].topic_id = topic_id
            (topic,) = (await peer.ask(request, 10)).topics
            assert topic.topic_id == topic_id
            return int(topic.partitions[0].error_code)

        def kept() -> Commit | None:
            (connection,) = server.connections()
            return connection.commit

        topic_id = await made()
        assert [await commit(topic_id, offset) for offset in (1, 2)] == [0, 0]
        last = kept()
        assert last is not None
        assert last.is_used
        assert await commit(UUID(int=7), 3) == ErrorCode.UNKNOWN_TOPIC_ID
        assert kept() is None
        assert await commit(topic_id, 4) == 0
        await peer.ask(DeleteTopicsRequest(topic_names=["fresh"]), 5)
        await made()
        assert await commit(topic_id, 5) == ErrorCode.UNKNOWN_TOPIC_ID
        (answered,) = (await peer.ask(group_offsets_request("g"), 10)).groups
        assert answered.topics == []


async def test_commits_that_are_never_alike_are_not_remembered_for_ever(peer: Peer, server: Serving) -> None:
    """After UNLIKE_MAX kept commits without a repeat the connection keeps no more; a repeat starts the count anew."""
    (connection,) = server.connections()
    for _ in range(2):
        for number in range(UNLIKE_MAX + 1):
            last = connection.commit
            await peer.ask(commit_request(("orders", 0, 1), metadata=str(number)), 7)
            assert (connection.commit is None) == (number == UNLIKE_MAX)
            assert connection.commit is None or connection.commit is not last
        connection.unlike_commits = 0
    for number in range(2 * UNLIKE_MAX):
        for _ in range(2):
            await peer.ask(commit_request(("orders", 0, 1), metadata=str(number)), 7)
        assert connection.commit is not None
        assert connection.commit.is_used


async def test_an_answer_to_a_closed_connection_goes_nowhere() -> None:
    """The commit is stored all the same, and what the connection kept is freed."""
    engine = ManualEngine(4, 1)
    async with connected(engine=engine) as (server, peer):
        for _ in range(2):
            await peer.ask(commit_request(("orders", 0, 1)), 7)
        engine.hold = True
        await peer.send(commit_request(("orders", 0, 2)), 7)
        await server.barrier()
        peer.close()
        await server.until(lambda: not server.connections())
        engine.flush()
        await server.barrier()
        other = await server.peer()
        fetched = await other.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert fetched.topics[0].partitions[0].committed_offset == 2
        assert not server.events("runtime_broke")
        assert [each for each in gc.get_objects() if isinstance(each, Commit)] == []


async def test_a_denied_commit_is_in_the_log_once() -> None:
    """The question whether it may be remembered is none of the client's."""
    async with connected(STANDARD, "super.users=User:admin") as (server, peer):
        for count in (1, 2):
            answer = await peer.ask(commit_request(("orders", 0, 1)), 7)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert len(server.events("authorizer_denied")) == count


async def test_a_commit_never_passes_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated commit waits for the log, and its client gives up and commits more by another connection.

    The later commit stays, in memory and in the log.
    """
    engine = ManualEngine(1, 1)
    offsets: list[bytes | None] = []
    append = engine.append

    def watched(own: Ownership, appended: list[list[Record]], done: Appended) -> None:
        offsets.extend(record.value for batch in appended for record in batch)
        append(own, appended, done)

    monkeypatch.setattr(engine, "append", watched)
    async with serving("offsets.topic.num.partitions=1", engine=engine) as server:
        first, other, second = [await server.peer() for _ in range(3)]
        for _ in range(2):
            await first.ask(commit_request(("orders", 0, 1)), 7)
        offsets.clear()
        engine.hold = True
        await other.send(commit_request(("orders", 0, 1), group_id="other"), 7)
        await server.barrier()
        await first.send(commit_request(("orders", 0, 2)), 7)
        await server.barrier()
        first.close()
        await second.send(commit_request(("orders", 0, 3)), 7)
        await server.barrier()
        engine.hold = False
        engine.flush()
        assert (await second.receive()).topics[0].partitions[0].error_code == ErrorCode.NONE
        fetched = await second.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert fetched.topics[0].partitions[0].committed_offset == 3
        written = [int.from_bytes((value or b"")[2:10]) for value in offsets]
        assert written == [1, 2, 3]
