"""Offsets in transactions are as on Apache Kafka. The numbers are those of the measured facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.config import GroupConfig
from coordinator.group import pending
from coordinator.group.any_group import Prepared
from coordinator.group.client import NOBODY, Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.events import (
    CommitInTransaction,
    CommitOffsets,
    EndTransaction,
    FetchOffsets,
    Load,
)
from coordinator.group.group import Group, Member
from coordinator.group.offsets import prepare
from coordinator.group.replay import Replay
from coordinator.group.state import STABLE
from coordinator.log.engine import Ownership
from coordinator.log.memory import MemoryEngine
from protocol.messages import OffsetCommitRequest, OffsetFetchRequest, TxnOffsetCommitRequest
from schemas.errors import ErrorCode
from tests.support.calls import calls_of
from tests.support.requests import commit_request

A, B, C = 680, 690, 700
UNSTABLE = "unstable"


class Bench:
    """A coordinator over an engine in memory, so that a restart replays what it has written."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(1, 1)
        self.engine.start(lambda *_: None)
        self.owned: list[Ownership] = []
        self.start()

    def start(self) -> None:
        """Read the log anew."""
        self.core = Coordinator(0, replace(GroupConfig(), offset_metadata_max_bytes=10))
        self.engine.acquire(0, self.owned.append)  # type: ignore[arg-type]
        replay = Replay()
        self.engine.load(self.owned[-1], replay.add, lambda _: None)
        self.handle(Load({group.group_id: group for group in replay.groups()}))

    def handle(self, event: Any) -> Any:
        effects = self.core.handle(event, Now(0, 1_000))
        if effects.records:
            self.engine.append(self.owned[-1], [effects.records], lambda *_: None)
        return effects.responses[0].body if effects.responses else None

    def commit(self, producer: int, offset: int, group: str = "g", metadata: str = "", **claim: Any) -> ErrorCode:
        """TxnOffsetCommit of partition t-0."""
        body = TxnOffsetCommitRequest(transactional_id="x", group_id=group, producer_id=producer, **claim)
        committed = commit_request(group, {("t", 0): offset}, metadata=metadata)
        steps = prepare(committed, self.core.config, 1_000)
        prepared: Prepared | None = None
        while prepared is None:
            try:
                next(steps)
            except StopIteration as end:
                prepared = end.value
        assert prepared is not None
        found: ErrorCode = self.handle(CommitInTransaction("r", NOBODY, body, prepared))
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if prepared.too_large else found

    def plain(self, offset: int) -> None:
        """A plain OffsetCommit of the same partition."""
        kinds = OffsetCommitRequest
        partition = kinds.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [kinds.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        body = kinds(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        assert self.handle(CommitOffsets("r", 7, NOBODY, body)).topics[0].partitions[0].error_code == 0

    def end(self, producer: int, *, commit: bool = True) -> None:
        """The marker of a producer's transaction."""
        assert self.handle(EndTransaction("r", producer, 0, commit, 5)) is ErrorCode.NONE

    def fetch(self, *, stable: bool = False, partition: int = 0) -> int | str:
        """The offset as OffsetFetch answers it."""
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        found = self.handle(FetchOffsets("r", "g", topics, stable)).topics[0].partitions[0]
        if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (-1, -1, "")
            return UNSTABLE
        return int(found.committed_offset)

    def member(self) -> Group:
        """Let the group have a static member "m" behind the instance id "one", in generation 3."""
        group = self.core.groups["g"] = Group("g", None)
        group.protocol_type, group.generation, group.protocol_name = "consumer", 3, "range"
        group.add(Member("m", "one", "c", "/h", 1, 1, [("range", b"")], b""))
        group.state = STABLE
        return group


@pytest.fixture(params=[False, True], ids=["live", "after a restart"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A bench; the second one restarts before each marker, so that what is pending comes from the log."""
    made = Bench()
    if request.param:
        end = made.end

        def restart_first(producer: int, *, commit: bool = True) -> None:
            made.start()
            end(producer, commit=commit)

        made.end = restart_first  # type: ignore[method-assign]
    return made


def test_nothing_pending_expires() -> None:
    """Facts 45, 46: a group with pending offsets stays; a deleted topic takes them along."""
    bench = Bench()
    bench.commit(A, 10)
    for event in bench.core.offsets_in(None):
        bench.handle(event) if event else None
    assert "g" in bench.core.groups
    for event in bench.core.offsets_in(["t"]):
        bench.handle(event) if event else None
    bench.end(A)
    assert bench.fetch() == -1


def test_pending_offsets_have_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with too many of them, of all producers, takes none of a further topic partition until a marker."""
    monkeypatch.setattr(pending, "OFFSETS_MAX", 1)
    assert bench.commit(A, 10) is ErrorCode.NONE
    assert bench.commit(A, 11) is ErrorCode.NONE
    assert bench.commit(B, 20) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    bench.end(A)
    assert bench.commit(B, 20) is ErrorCode.NONE


def test_a_marker_makes_room_beside_what_stays_pending(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of an ended transaction count no more, also while another producer has pending ones."""
    monkeypatch.setattr(pending, "OFFSETS_MAX", 2)
    assert [bench.commit(producer, 10) for producer in (A, B)] == [ErrorCode.NONE] * 2
    assert bench.commit(C, 30) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    bench.end(A)
    assert bench.commit(C, 30) is ErrorCode.NONE


@pytest.mark.parametrize("is_stable", [True, False], ids=["a stable fetch", "a plain commit"])
def test_many_producers_cost_no_call_more(is_stable: bool) -> None:
    """The work for a topic partition is the same however many producers have pending offsets in the group."""
    bench = Bench()
    bench.engine.append = lambda *_: None  # type: ignore[method-assign]
    work = (lambda: bench.fetch(stable=True, partition=1)) if is_stable else (lambda: bench.plain(5))
    assert bench.commit(A, 10) is ErrorCode.NONE
    one = [calls_of(work) for _ in range(2)][1]
    for producer in range(100):
        bench.commit(producer, 20)
    assert calls_of(work) == one
