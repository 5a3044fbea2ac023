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
    DeleteGroup,
    DeleteOffsets,
    EndTransaction,
    FetchOffsets,
    ListGroups,
    Load,
)
from coordinator.group.group import Group, Member
from coordinator.group.offsets import prepare
from coordinator.group.replay import Replay
from coordinator.group.state import COMPLETING_REBALANCE, STABLE
from coordinator.log.engine import Ownership
from coordinator.log.memory import MemoryEngine
from protocol.messages import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, TxnOffsetCommitRequest
from schemas.errors import ErrorCode
from tests.support.calls import calls_of

A, B = 680, 690
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
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        steps = prepare(OffsetCommitRequest(group_id=group, topics=topics), self.core.config, 1_000)
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


def test_a_marker_settles_what_is_pending(bench: Bench) -> None:
    """Facts 28, 40: visible with the commit marker; until then unstable for who asks, and the old offset for others."""
    bench.plain(5)
    assert bench.commit(A, 10) is ErrorCode.NONE
    assert (bench.fetch(), bench.fetch(stable=True)) == (5, UNSTABLE)
    bench.end(A)
    assert (bench.fetch(), bench.fetch(stable=True)) == (10, 10)


def test_an_abort_forgets_it(bench: Bench) -> None:
    """Facts 41, 44: the old offset stays; a group that had nothing else has no offsets, and is listed until then."""
    bench.commit(A, 10)
    assert [each.group_state for each in bench.handle(ListGroups("r", [], []))] == ["Empty"]
    bench.end(A, commit=False)
    assert (bench.fetch(), bench.fetch(stable=True)) == (-1, -1)


@pytest.mark.parametrize(("first", "counts"), [("transaction", 20), ("plain", 10)])
def test_the_place_in_the_log_decides(bench: Bench, first: str, counts: int) -> None:
    """Fact 41: transactional 10 and plain 20: the later one of them, not the marker."""
    for step in ("transaction", "plain") if first == "transaction" else ("plain", "transaction"):
        bench.commit(A, 10) if step == "transaction" else bench.plain(20)
    assert bench.fetch() == 20
    bench.end(A)
    assert bench.fetch() == counts


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_two_producers(bench: Bench, order: tuple[int, int]) -> None:
    """Fact 41: A writes 10, B 20: B's 20 whoever ends first; unstable until both have ended (fact 40)."""
    bench.commit(A, 10)
    bench.commit(B, 20)
    bench.end(order[0])
    assert bench.fetch() == (10 if order[0] == A else 20)
    bench.end(order[1])
    assert (bench.fetch(), bench.fetch(stable=True)) == (20, 20)


def test_the_last_offset_of_a_transaction_counts(bench: Bench) -> None:
    """Fact 41: within one transaction the last commit of a partition counts; B aborts, so A's stays."""
    bench.commit(A, 10)
    bench.commit(A, 11)
    bench.commit(B, 20)
    bench.end(B, commit=False)
    bench.end(A)
    assert bench.fetch() == 11


def test_deletion_takes_what_is_pending(bench: Bench) -> None:
    """Fact 42: EndTxn doesn't bring it back, after a restart neither; a commit after the deletion counts."""
    kinds = OffsetDeleteRequest
    partitions = [kinds.OffsetDeleteRequestPartition(partition_index=0)]
    body = kinds(group_id="g", topics=[kinds.OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    bench.commit(A, 10)
    bench.handle(DeleteOffsets("r", body))
    bench.end(A)
    assert bench.fetch() == -1
    bench.commit(A, 10)
    bench.handle(DeleteOffsets("r", body))
    bench.commit(A, 12)
    bench.end(A)
    assert bench.fetch() == 12


def test_a_deleted_group_stays_away(bench: Bench) -> None:
    """Fact 43: NONE, and EndTxn doesn't bring the offset back."""
    bench.commit(A, 10)
    assert bench.handle(DeleteGroup("r", "g")).error_code == 0
    bench.end(A)
    assert bench.fetch() == -1


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


def test_who_claims_nothing_is_taken() -> None:
    """Facts 32, 33: without a claim in any state; without members a generation is 25, or 69 without a group."""
    bench = Bench()
    assert bench.commit(A, 1, generation_id=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.commit(A, 1, member_id="m") is ErrorCode.NONE
    assert bench.commit(A, 1, generation_id=3) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.member()
    assert bench.commit(A, 1) is ErrorCode.NONE


@pytest.mark.parametrize("state", [STABLE, COMPLETING_REBALANCE])
def test_members_are_checked(state: Any) -> None:
    """Facts 34, 37: in any state of the group, and without a longer session."""
    bench = Bench()
    group = bench.member()
    group.state = state
    good: dict[str, Any] = {"member_id": "m", "generation_id": 3, "group_instance_id": "one"}
    deadline_ms = group.members["m"].deadline_ms
    assert bench.commit(A, 1, **good) is ErrorCode.NONE
    assert bench.commit(A, 1, **good | {"group_instance_id": None}) is ErrorCode.NONE
    assert bench.commit(A, 1, **good | {"generation_id": 2}) is ErrorCode.ILLEGAL_GENERATION
    assert bench.commit(A, 1, **good | {"generation_id": -1}) is ErrorCode.ILLEGAL_GENERATION
    assert bench.commit(A, 1, generation_id=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit(A, 1, **good | {"member_id": "other"}) is ErrorCode.FENCED_INSTANCE_ID
    assert bench.commit(A, 1, **good | {"group_instance_id": "two"}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.members["m"].deadline_ms == deadline_ms


def test_large_metadata() -> None:
    """Fact 48: too large for that partition only; nothing is pending."""
    bench = Bench()
    assert bench.commit(A, 1, metadata="x" * 11) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not pending.is_pending(bench.core.groups["g"], "t", 0)


def test_pending_offsets_have_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with too many of them, of all producers, takes none of a further topic partition until a marker."""
    monkeypatch.setattr(pending, "OFFSETS_MAX", 1)
    assert bench.commit(A, 10) is ErrorCode.NONE
    assert bench.commit(A, 11) is ErrorCode.NONE
    assert bench.commit(B, 20) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    bench.end(A)
    assert bench.commit(B, 20) is ErrorCode.NONE


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
