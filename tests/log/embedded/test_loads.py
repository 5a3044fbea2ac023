"""Tests loads: appends run between their pages, the end of an ownership ends them, and they report damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from coordinator.log.embedded.loads import PROGRESS_INTERVAL_S
from coordinator.log.engine import Damaged, EngineError, Fenced, Ownership, Unavailable
from coordinator.log.segments.segment import CHUNK_SIZE, partition_folder
from protocol.records.batch import Batch, Record
from protocol.records.walk import decode_batches
from tests.log.calls import (
    Events,
    append,
    append_batch,
    load,
    opened,
    owned,
    record,
)
from tests.log.disks import FailingDisk
from tests.log.embedded.test_engine import running
from tests.support.patience import WITHIN_S

GOLDEN = Path(__file__).parents[2] / "protocol" / "golden" / "record_batch"


class ReadingDisk(FailingDisk):
    """Calls something at one of its reads: (number of the read, function)."""

    at_read: tuple[int, Callable[[], None]] = (0, lambda: None)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().read(descriptor, size, position)
        if self.calls["read"] == self.at_read[0]:
            self.at_read[1]()
        return data


def test_large_load_lets_others_pass(tmp_path: Path) -> None:
    """An append to another partition waits at most for the chunk that the load of a large one is reading."""
    disk = ReadingDisk()
    with running(tmp_path, disk=disk) as engine:
        own, _ = opened(engine)
        for number in range(40):
            assert append(engine, own, record(number, size=100_000)) is None
        other, _ = opened(engine, 1)
        reads: SimpleQueue[int] = SimpleQueue()
        disk.at_read = (
            disk.calls["read"] + 5,
            lambda: append_batch(engine, other, [record(1)], lambda _outcome: reads.put(disk.calls["read"])),
        )
        assert len(load(engine, own)[0]) == 40
        assert reads.get(timeout=WITHIN_S) == disk.at_read[0]
        assert disk.calls["read"] > disk.at_read[0] + 5


def test_load_that_is_interrupted(tmp_path: Path) -> None:
    """A load ends with Fenced when its ownership does, with Unavailable when another load of it begins."""
    with running(tmp_path) as engine:
        own, _ = opened(engine)
        for number in range(20):
            assert append(engine, own, record(number, size=100_000)) is None
        outcomes: SimpleQueue[tuple[str, EngineError | None]] = SimpleQueue()
        pages: SimpleQueue[object] = SimpleQueue()

        def first_page(page: object) -> None:
            if pages.empty():
                engine.load(own, pages.put, lambda outcome: outcomes.put(("second", outcome)))
                engine.acquire(0, acquired.put)
            pages.put(page)

        acquired: SimpleQueue[Ownership | EngineError] = SimpleQueue()
        engine.load(own, first_page, lambda outcome: outcomes.put(("first", outcome)))
        (one, first), (two, second) = outcomes.get(timeout=WITHIN_S), outcomes.get(timeout=WITHIN_S)
        assert (one, type(first)) == ("first", Unavailable)
        assert (two, type(second)) == ("second", Fenced)
        newer = acquired.get(timeout=WITHIN_S)
        assert not isinstance(newer, EngineError)
        assert len(load(engine, newer)[0]) == 20


def test_append_between_a_load_and_its_end(tmp_path: Path) -> None:
    """The engine refuses an append before the load ends, and the load doesn't find it: its maker lacks the state."""
    with running(tmp_path) as engine:
        own, _ = opened(engine)
        outcomes: SimpleQueue[EngineError | None] = SimpleQueue()
        found: list[Record] = []

        def load_and_append(_outcome: EngineError | None) -> None:
            engine.load(own, found.extend, outcomes.put)
            append_batch(engine, own, [record(2)], outcomes.put)

        append_batch(engine, own, [record(1)], load_and_append)
        assert isinstance(outcomes.get(timeout=WITHIN_S), Unavailable)
        assert outcomes.get(timeout=WITHIN_S) is None
        assert found == [record(1)]
        assert append(engine, own, record(3)) is None
        assert load(engine, own) == ([record(1), record(3)], None)


def test_others_serve(tmp_path: Path) -> None:
    """A load of a damaged partition reports file and position, and serves nothing; other partitions serve."""
    events = Events()
    with running(tmp_path) as engine:
        for partition in range(3):
            own, _ = opened(engine, partition)
            for number in range(5):
                assert append(engine, own, record(number)) is None
    segment = partition_folder(tmp_path, 1) / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    positions = [batch.position for batch in decode_batches(content)]
    content[positions[2] + 70] ^= 1
    segment.write_bytes(content)
    with running(tmp_path, report=events) as engine:
        own = owned(engine, 1)
        _, outcome = load(engine, own)
        assert isinstance(outcome, Damaged)
        assert (outcome.file, outcome.position) == (str(segment), positions[2])
        assert isinstance(append(engine, own, record(9)), Unavailable)
        for partition in (0, 2):
            other, records = opened(engine, partition)
            assert records == [record(number) for number in range(5)]
            assert append(engine, other, record(5)) is None
    fields = {"partition": 1, "file": str(segment), "position": positions[2], "reason": outcome.reason}
    assert events == [("partition_damaged", fields)]
    assert segment.read_bytes() == content


def test_open_transaction_is_said(tmp_path: Path) -> None:
    """A load reports how many commits wait for how many open transactions, and hands them on with their producer."""
    events = Events()
    segment = partition_folder(tmp_path, 1) / "00000000000000000042.log"
    segment.parent.mkdir()
    segment.write_bytes((GOLDEN / "transactional.bin").read_bytes())
    pages: list[list[Record]] = []
    ended: SimpleQueue[EngineError | None] = SimpleQueue()
    with running(tmp_path, report=events) as engine:
        engine.load(owned(engine, 1), pages.append, ended.put)
        assert ended.get(timeout=WITHIN_S) is None
    (first, second) = [page for page in pages if isinstance(page, Batch)]
    assert len(pages) == 2
    assert first.producer_id == second.producer_id >= 0
    assert first[0].key == b"first"
    assert events == [("transactions_open", {"partition": 1, "transactions": 1, "commits": 2})]


def test_progress_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load reports its progress: by segments, and by bytes in each."""
    events = Events()
    with running(tmp_path, segment_size=1) as engine:
        own, _ = opened(engine, 1)
        assert append(engine, own, record(1)) is None
        assert append(engine, own, record(2, CHUNK_SIZE), record(3, CHUNK_SIZE)) is None
        assert append(engine, own, record(4)) is None
    monkeypatch.setattr("coordinator.log.embedded.loads.PROGRESS_INTERVAL_S", 0.0)
    with running(tmp_path, report=events) as engine:
        opened(engine, 1)
    assert set(events.names()) == {"load_progress"}
    percents = [int(str(fields["percent"])) for _, fields in events]
    assert percents == sorted(percents)
    assert percents[0] == 33
    assert percents[-1] == 100


def test_progress_is_said_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load reports it once each PROGRESS_INTERVAL_S, not with each page."""
    events, pages = Events(), list[Sequence[Record]]()
    with running(tmp_path, segment_size=1) as engine:
        own, _ = opened(engine, 1)
        for number in range(20):
            assert append(engine, own, record(number)) is None
    now_s = count(0.0, PROGRESS_INTERVAL_S * 0.4)  # the clock is read as a load begins, and behind each page
    monkeypatch.setattr("coordinator.log.embedded.loads.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    ended: SimpleQueue[EngineError | None] = SimpleQueue()
    with running(tmp_path, report=events) as engine:
        engine.load(owned(engine, 1), pages.append, ended.put)
        assert ended.get(timeout=WITHIN_S) is None
    assert len(events) == len(pages) // 3 > 2
