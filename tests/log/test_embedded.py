"""The embedded engine where it is more than an engine: its files, its locks, its thread, its disk.

That it does what every engine must, test_engine.py shows; that no failure of the disk loses anything in one partition,
test_partition.py.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

import pytest

from coordinator.log.embedded import EmbeddedEngine
from coordinator.log.engine import Damaged, EngineError, Fenced, Ownership, Unavailable
from coordinator.log.lock import DataFolderLocked
from coordinator.log.segment import CHUNK_SIZE, list_segments, partition_folder
from protocol.records.batch import Record
from protocol.records.walk import decode_batches
from tests.log.calls import (
    PATIENCE_S,
    Appending,
    Client,
    Events,
    acquire,
    append,
    append_batch,
    begin_append,
    load,
    numbers_of,
    opened,
    owned,
    record,
    release,
)
from tests.log.disks import CrashingDisk, FailingDisk, Killed, SharedDisk, fail_one

GOLDEN = Path(__file__).parents[1] / "protocol" / "golden" / "record_batch"
POWER_CUTS = 1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 30


@contextmanager
def running(data_dir: Path, **options: Any) -> Iterator[EmbeddedEngine]:
    """An engine of 50 partitions, started; closed at the end."""
    engine = EmbeddedEngine(data_dir, 50, 1, **options)
    engine.start(lambda _partition, _node_id, _epoch: None)
    try:
        yield engine
    finally:
        engine.close()


class TestFiles:
    """What is in the data folder."""

    def test_nothing_for_partitions_that_nobody_uses(self, tmp_path: Path) -> None:
        """Taking all partitions makes no folder; the first append makes its own."""
        disk = FailingDisk()
        with running(tmp_path / "a" / "b", disk=disk) as engine:
            assert disk.calls["sync_folder"] == 2  # the data folder and the one above it were made, and are durable
            owns = [opened(engine, partition)[0] for partition in range(50)]
            assert not list((tmp_path / "a" / "b").glob("__consumer_offsets-*"))
            assert append(engine, owns[7], record(1)) is None
            folder = partition_folder(tmp_path / "a" / "b", 7)
            assert list((tmp_path / "a" / "b").glob("__consumer_offsets-*")) == [folder]
            assert [path.name for path in folder.iterdir()] == ["00000000000000000000.log"]

    def test_epoch_of_the_owner_is_in_its_batches(self, tmp_path: Path) -> None:
        """partitionLeaderEpoch is the epoch of the ownership that wrote the batch."""
        epochs = []
        with running(tmp_path) as engine:
            for number in range(3):
                own, _ = opened(engine)
                assert append(engine, own, record(number)) is None
                epochs.append(own.epoch)
        content = (partition_folder(tmp_path, 0) / "00000000000000000000.log").read_bytes()
        assert [batch.leader_epoch for batch in decode_batches(content)] == epochs

    def test_epoch_without_lock_files(self, tmp_path: Path) -> None:
        """If what the lock files say is lost, the epoch is still higher than that of every batch."""
        with running(tmp_path) as engine:
            owned(engine)
            own, _ = opened(engine)
            assert append(engine, own, record(1)) is None
        for path in tmp_path.glob(".lock*"):
            path.unlink()
        told: list[tuple[int, int | None, int]] = []
        engine = EmbeddedEngine(tmp_path, 50, 1)
        engine.start(lambda *change: told.append(change))
        newer, records = opened(engine)
        assert (newer.epoch, records) == (own.epoch + 1, [record(1)])
        assert append(engine, newer, record(2)) is None
        assert load(engine, newer) == ([record(1), record(2)], None)
        assert newer.epoch == own.epoch + 1
        engine.close()
        assert told[50:] == [(0, 1, 0), (0, 1, newer.epoch), (0, None, newer.epoch)]
        with running(tmp_path) as engine:
            assert owned(engine).epoch == newer.epoch + 1

    def test_last_epoch(self, tmp_path: Path) -> None:
        """After the highest epoch there is none: refused, not wrapped around."""
        with running(tmp_path) as engine:
            own, _ = opened(engine)
            assert append(engine, own, record(1)) is None
        segment = partition_folder(tmp_path, 0) / "00000000000000000000.log"
        content = bytearray(segment.read_bytes())
        content[12:16] = (2**31 - 1).to_bytes(4, "big")
        segment.write_bytes(content)
        with running(tmp_path) as engine:
            outcome = load(engine, owned(engine))[1]
            assert isinstance(outcome, Damaged)
            assert "epoch" in outcome.reason
            opened(engine, 1)
        (tmp_path / ".lock-0").write_bytes(b"%010d\n" % (2**31 - 1))
        with running(tmp_path) as engine:
            refused = acquire(engine, 0)
            assert isinstance(refused, Damaged)
            assert "epoch" in refused.reason

    def test_a_log_is_read_once(self, tmp_path: Path) -> None:
        """To acquire a partition takes no look at its segments."""
        with running(tmp_path) as engine:
            own, _ = opened(engine)
            assert append(engine, own, record(1)) is None
        disk = FailingDisk()
        with running(tmp_path, disk=disk) as engine:
            owned(engine)
            assert disk.calls["open"] == 2  # the locks
            assert disk.calls["read"] == 1

    def test_segments_roll(self, tmp_path: Path) -> None:
        """Segments are as long as was asked for."""
        with running(tmp_path, segment_size=500) as engine:
            own, _ = opened(engine)
            for number in range(20):
                assert append(engine, own, record(number)) is None
        with running(tmp_path) as engine:
            assert opened(engine)[1] == [record(number) for number in range(20)]
        sizes = [path.stat().st_size for path in partition_folder(tmp_path, 0).iterdir()]
        assert len(sizes) > 2
        assert max(sizes) <= 500


class TestLocks:
    """One server for a data folder, one owner for a partition."""

    def test_second_server(self, tmp_path: Path) -> None:
        """It is told which folder, and by which process; once the first has closed, it may."""
        with running(tmp_path), pytest.raises(DataFolderLocked, match=str(tmp_path)) as caught:
            EmbeddedEngine(tmp_path, 50, 1).start(lambda *_change: None)
        assert caught.value.process_id == os.getpid()
        assert f"process {os.getpid()}" in str(caught.value)
        with running(tmp_path):
            pass

    def test_second_owner(self, tmp_path: Path) -> None:
        """Of two workers under one supervisor, one owns a partition; the other gets it when it was released."""
        with running(tmp_path, lock_folder=False) as first, running(tmp_path, lock_folder=False) as second:
            own, _ = opened(first)
            assert append(first, own, record(1)) is None
            outcome = acquire(second, 0)
            assert isinstance(outcome, Unavailable)
            assert "owned by another process" in str(outcome)
            opened(second, 1)
            assert own.valid()
            release(first, own)
            taken, records = opened(second)
            assert taken.epoch > own.epoch
            assert records == [record(1)]
            assert isinstance(append(first, own, record(2)), Fenced)

    def test_data_folder_that_cannot_be_used(self, tmp_path: Path) -> None:
        """A file where the folder should be: said at the start, with its name."""
        (tmp_path / "file").touch()
        with pytest.raises(Unavailable, match="file"):
            EmbeddedEngine(tmp_path / "file" / "data", 50, 1).start(lambda *_change: None)


class GatedDisk(FailingDisk):
    """Its fdatasyncs wait until `gate` is set; `waiting` is set once the first does."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.waiting = threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        self.waiting.set()
        assert self.gate.wait(PATIENCE_S)
        super().fdatasync(descriptor)


class ReadingDisk(FailingDisk):
    """Calls something at one of its reads: (which, what)."""

    at_read: tuple[int, Callable[[], None]] = (0, lambda: None)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().read(descriptor, size, position)
        if self.calls["read"] == self.at_read[0]:
            self.at_read[1]()
        return data


class TestThread:
    """One thread, which writes together what came together."""

    def test_group_commit(self, tmp_path: Path) -> None:
        """What is appended while the disk syncs shares the next write and sync, one per partition."""
        disk = GatedDisk()
        with running(tmp_path, disk=disk) as engine:
            own, _ = opened(engine)
            other, _ = opened(engine, 1)
            first = begin_append(engine, own, [record(0)])
            assert disk.waiting.wait(PATIENCE_S)
            disk.calls.clear()
            later = [begin_append(engine, own, [record(number)]) for number in range(1, 40)]
            later += [begin_append(engine, other, [record(number)]) for number in range(40, 50)]
            assert first.empty()
            disk.gate.set()
            assert [outcome.get(timeout=PATIENCE_S) for outcome in [first, *later]] == [None] * 50
            assert (disk.calls["write"], disk.calls["fdatasync"]) == (2, 3)

    def test_nothing_is_told_before_the_sync(self, tmp_path: Path) -> None:
        """An append whose bytes are written but not synced isn't durable, and isn't said to be."""
        disk = GatedDisk()
        with running(tmp_path, disk=disk) as engine:
            own, _ = opened(engine)
            outcome = begin_append(engine, own, [record(0)])
            assert disk.waiting.wait(PATIENCE_S)
            assert list_segments(disk, partition_folder(tmp_path, 0))[0].path.stat().st_size > 0
            assert outcome.empty()
            disk.gate.set()
            assert outcome.get(timeout=PATIENCE_S) is None

    def test_callbacks_come_on_one_thread_of_the_engine(self, tmp_path: Path) -> None:
        """All of them, and none inside a call."""
        threads: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[object] = SimpleQueue()

        def told(*outcome: object) -> None:
            threads.put(threading.get_ident())
            done.put(outcome[-1])

        engine = EmbeddedEngine(tmp_path, 1, 1)
        engine.start(told)
        done.get(timeout=PATIENCE_S)
        engine.acquire(0, told)
        done.get(timeout=PATIENCE_S)
        own: Any = done.get(timeout=PATIENCE_S)
        engine.load(own, told, told)
        append_batch(engine, own, [record(1)], told)
        engine.load(own, told, told)
        engine.release(own, told)
        engine.close()
        seen = {threads.get_nowait() for _ in range(threads.qsize())}
        assert len(seen) == 1
        assert threading.get_ident() not in seen

    def test_large_load_lets_others_pass(self, tmp_path: Path) -> None:
        """An append to another partition waits for no more than the chunk that a load of a large one is reading."""
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
            assert reads.get(timeout=PATIENCE_S) == disk.at_read[0]
            assert disk.calls["read"] > disk.at_read[0] + 5

    def test_load_that_is_interrupted(self, tmp_path: Path) -> None:
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
            (one, first), (two, second) = outcomes.get(timeout=PATIENCE_S), outcomes.get(timeout=PATIENCE_S)
            assert (one, type(first)) == ("first", Unavailable)
            assert (two, type(second)) == ("second", Fenced)
            newer = acquired.get(timeout=PATIENCE_S)
            assert not isinstance(newer, EngineError)
            assert len(load(engine, newer)[0]) == 20

    def test_append_between_a_load_and_its_end(self, tmp_path: Path) -> None:
        """It is refused though the log was open, and not in what the load finds: its maker has yet to see that."""
        with running(tmp_path) as engine:
            own, _ = opened(engine)
            outcomes: SimpleQueue[EngineError | None] = SimpleQueue()
            found: list[Record] = []

            def load_and_append(_outcome: EngineError | None) -> None:
                engine.load(own, found.extend, outcomes.put)
                append_batch(engine, own, [record(2)], outcomes.put)

            append_batch(engine, own, [record(1)], load_and_append)
            assert isinstance(outcomes.get(timeout=PATIENCE_S), Unavailable)
            assert outcomes.get(timeout=PATIENCE_S) is None
            assert found == [record(1)]
            assert append(engine, own, record(3)) is None
            assert load(engine, own) == ([record(1), record(3)], None)

    def test_mistake_in_a_callback_is_reported(self, tmp_path: Path) -> None:
        """An exception that nobody foresaw ends the thread, which is said, for the server must not wait for ever."""
        events = Events()
        died: SimpleQueue[object] = SimpleQueue()
        hook, threading.excepthook = threading.excepthook, died.put
        try:
            engine = EmbeddedEngine(tmp_path, 1, 1, report=events)
            engine.start(lambda *_change: None)

            def mistaken(_outcome: object) -> None:
                raise ZeroDivisionError

            engine.acquire(0, mistaken)
            died.get(timeout=PATIENCE_S)
            engine.close()
        finally:
            threading.excepthook = hook
        assert events == [("engine_failed", {"partition": -1, "error": "ZeroDivisionError()"})]


class SyncingDisk(FailingDisk):
    """Its fdatasyncs wait until as many are under way as `parties` says, once it is set."""

    parties: threading.Barrier | None = None

    def fdatasync(self, descriptor: int) -> None:
        if self.parties is not None:
            self.parties.wait(PATIENCE_S)
        super().fdatasync(descriptor)


def append_together(engine: EmbeddedEngine, owns: list[Ownership], *records: Record) -> list[Appending]:
    """Append to each of the partitions, all in one window: its thread takes none before it has called back."""
    outcomes: list[Appending] = [SimpleQueue() for _ in owns]

    def appended(_outcome: object) -> None:
        for own, outcome in zip(owns, outcomes, strict=True):
            append_batch(engine, own, list(records), outcome.put)

    engine.acquire(49, appended)
    return outcomes


def all_of(outcomes: list[Appending]) -> list[Fenced | Unavailable | None]:
    """What they come to."""
    return [outcome.get(timeout=PATIENCE_S) for outcome in outcomes]


def pool_threads() -> list[str]:
    """The names of the threads that write windows."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("log-sync")]


class Windows:
    """Windows of appends to four partitions, on a disk that fails; each is loaded anew after a refusal.

    durable: by partition, the numbers that were acknowledged. Ends early when the engine's thread does.
    """

    COUNT = 6

    def __init__(self, disk: FailingDisk, folder: Path, fails: Callable[[str, int], BaseException | None]) -> None:
        self.durable: list[list[int]] = [[] for _ in range(4)]
        self._told: SimpleQueue[tuple[int, object]] = SimpleQueue()
        engine = EmbeddedEngine(
            folder, 50, 1, segment_size=300, syncs_max=3, disk=SharedDisk(disk), report=self._report
        )
        engine.start(lambda *_change: None)
        self._owns = [opened(engine, partition)[0] for partition in range(4)]
        disk.calls.clear()
        disk.fails = fails
        try:
            self._append(engine)
        except Killed:
            pass
        else:
            disk.fails = lambda _name, _number: None
        engine.close()

    def _append(self, engine: EmbeddedEngine) -> None:
        refused: set[int] = set()
        for number in range(self.COUNT):
            for partition in refused:
                engine.load(self._owns[partition], lambda _page: None, lambda outcome: self._told.put((-1, outcome)))
            for _ in refused:
                self._next()
            refused = set()

            def appended(_outcome: object, number: int = number) -> None:
                for partition, own in enumerate(self._owns):
                    append_batch(engine, own, [record(number, 100)], partial(self._tell, partition))

            engine.acquire(49, appended)
            for _ in self._owns:
                partition, outcome = self._next()
                if outcome is None:
                    self.durable[partition].append(number)
                else:
                    refused.add(partition)

    def _tell(self, partition: int, outcome: object) -> None:
        self._told.put((partition, outcome))

    def _report(self, name: str, /, **_fields: object) -> None:
        if name == "engine_failed":
            self._told.put((-1, name))

    def _next(self) -> tuple[int, object]:
        partition, outcome = self._told.get(timeout=PATIENCE_S)
        if outcome == "engine_failed":
            raise Killed
        return partition, outcome


class TestPool:
    """Threads that write to the partitions of one window."""

    def test_syncs_run_at_the_same_time(self, tmp_path: Path) -> None:
        """As many as may: none waits for the end of another."""
        disk = SyncingDisk()
        with running(tmp_path, disk=disk, syncs_max=3) as engine:
            owns = [opened(engine, partition)[0] for partition in range(6)]
            assert [append(engine, own, record(0)) for own in owns] == [None] * 6
            disk.parties = threading.Barrier(3)
            outcomes = append_together(engine, owns, record(1))
            assert all_of(outcomes) == [None] * 6
            disk.parties = None
            assert [load(engine, own) for own in owns] == [([record(0), record(1)], None)] * 6

    def test_one_partition_takes_no_detour(self, tmp_path: Path) -> None:
        """Threads are made when a window has several partitions, no more than may be; none outlives its engine."""
        with running(tmp_path, syncs_max=2) as engine:
            owns = [opened(engine, partition)[0] for partition in range(5)]
            assert [append(engine, own, record(0)) for own in owns] == [None] * 5
            assert pool_threads() == []
            assert all_of(append_together(engine, owns, record(1))) == [None] * 5
            assert 1 <= len(pool_threads()) <= 2
        assert pool_threads() == []

    def test_one_after_the_other(self, tmp_path: Path) -> None:
        """Where one may be written to at a time, it is on the engine's thread."""
        with running(tmp_path, syncs_max=1) as engine:
            owns = [opened(engine, partition)[0] for partition in range(5)]
            assert all_of(append_together(engine, owns, record(1))) == [None] * 5
            assert pool_threads() == []

    def test_told_in_order_on_the_engines_thread(self, tmp_path: Path) -> None:
        """Whichever sync comes back first, outcomes are told in the order of the window, by one thread."""
        told: SimpleQueue[tuple[int, str]] = SimpleQueue()
        with running(tmp_path) as engine:
            owns = [opened(engine, partition)[0] for partition in range(6)]

            def tell(partition: int, _outcome: object) -> None:
                told.put((partition, threading.current_thread().name))

            def appended(_outcome: object) -> None:
                for partition, own in enumerate(owns):
                    append_batch(engine, own, [record(0, 10 if partition else 3_000_000)], partial(tell, partition))

            engine.acquire(49, appended)
            assert [told.get(timeout=PATIENCE_S) for _ in owns] == [(partition, "log") for partition in range(6)]

    def test_failure_of_one_partition(self, tmp_path: Path) -> None:
        """Where one partition's write fails, it alone is Unavailable; what the others appended is there."""
        events = Events()
        disk = FailingDisk()
        with running(tmp_path, disk=disk, report=events) as engine:
            owns = [opened(engine, partition)[0] for partition in range(5)]
            assert [append(engine, own, record(0)) for own in owns] == [None] * 5
            disk.fails = fail_one("write", disk.calls["write"] + 3)
            outcomes = all_of(append_together(engine, owns, record(1)))
            (failed,) = [partition for partition, outcome in enumerate(outcomes) if outcome is not None]
            assert isinstance(outcomes[failed], Unavailable)
            assert events == [("partition_unavailable", {"partition": failed, "reason": os.strerror(errno.EIO)})]
            for partition, own in enumerate(owns):
                assert load(engine, own) == ([record(0)] + [record(1)] * (partition != failed), None)

    def test_a_part_is_durable(self, tmp_path: Path) -> None:
        """Of batches that need a segment each, those before the one that fails are told to be durable, and are."""
        disk = FailingDisk(fail_one("write", 3))
        told: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
        with running(tmp_path, disk=disk, segment_size=1) as engine:
            own, _ = opened(engine)
            disk.calls.clear()
            engine.append(own, [[record(number)] for number in range(4)], lambda *outcome: told.put(outcome))
            durable, error = told.get(timeout=PATIENCE_S)
            assert (durable, type(error)) == (2, Unavailable)
            assert load(engine, own) == ([record(0), record(1)], None)

    @pytest.mark.parametrize("name", ["open", "write", "fdatasync", "truncate", "sync_folder", "close"])
    def test_nth_call(self, tmp_path: Path, name: str) -> None:
        """The n-th call of whatever partition fails, for each n: what each has acknowledged is there, no more."""
        number = 0
        failed = True
        while failed:
            number += 1
            failed = False

            def fails(called: str, at: int, chosen: int = number) -> OSError | None:
                nonlocal failed
                if (called, at) == (name, chosen):
                    failed = True
                    return OSError(errno.EIO, "the test wants it")
                return OSError(errno.EIO, "always") if (called, at) in {("write", 9), ("write", 14)} else None

            durable = Windows(FailingDisk(), tmp_path / f"{number}", fails).durable
            with running(tmp_path / f"{number}") as engine:
                assert [numbers_of(opened(engine, partition)[1]) for partition in range(4)] == durable
        assert number > 1

    def test_power_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The power fails while threads write: each partition has what it acknowledged, and at most one record more."""
        monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
        cut = 0
        for seed in range(POWER_CUTS):
            chance = Random(seed)
            disk = CrashingDisk(chance, in_order=seed % 3 > 0)
            end = chance.randrange(1, 200)

            def fails(_name: str, _number: int, disk: FailingDisk = disk, end: int = end) -> Killed | None:
                return Killed() if disk.calls.total() >= end else None

            durable = Windows(disk, tmp_path / f"{seed}", fails).durable
            cut += disk.calls.total() >= end
            disk.crash()
            with running(tmp_path / f"{seed}") as engine:
                for partition, acknowledged in enumerate(durable):
                    found = numbers_of(opened(engine, partition)[1])
                    assert found in (acknowledged, list(range(len(acknowledged) + 1)))
        assert cut > POWER_CUTS // 2


class TestDamage:
    """A damaged partition is refused and said; the others work."""

    def test_others_serve(self, tmp_path: Path) -> None:
        """File and position are told, to the caller and in the report; nothing of the partition is served."""
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

    def test_open_transaction_is_said(self, tmp_path: Path) -> None:
        """How many commits wait for how many transactions; they aren't handed on."""
        events = Events()
        segment = partition_folder(tmp_path, 1) / "00000000000000000042.log"
        segment.parent.mkdir()
        segment.write_bytes((GOLDEN / "transactional.bin").read_bytes())
        with running(tmp_path, report=events) as engine:
            assert opened(engine, 1)[1] == []
        assert events == [("transactions_open", {"partition": 1, "transactions": 1, "commits": 2})]

    def test_progress_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """How far a load is: by segments, and by bytes in each."""
        events = Events()
        with running(tmp_path, segment_size=1) as engine:
            own, _ = opened(engine, 1)
            assert append(engine, own, record(1)) is None
            assert append(engine, own, record(2, CHUNK_SIZE), record(3, CHUNK_SIZE)) is None
            assert append(engine, own, record(4)) is None
        monkeypatch.setattr("coordinator.log.embedded.PROGRESS_INTERVAL_S", 0.0)
        with running(tmp_path, report=events) as engine:
            opened(engine, 1)
        assert set(events.names()) == {"load_progress"}
        percents = [int(str(fields["percent"])) for _, fields in events]
        assert percents == sorted(percents)
        assert percents[0] == 33
        assert percents[-1] == 100

    def test_torn_tail_is_said(self, tmp_path: Path) -> None:
        """Where, and how much was cut."""
        events = Events()
        with running(tmp_path) as engine:
            own, _ = opened(engine, 3)
            assert append(engine, own, record(1)) is None
        segment = partition_folder(tmp_path, 3) / "00000000000000000000.log"
        size = segment.stat().st_size
        with segment.open("ab") as file:
            file.write(bytes(77))
        with running(tmp_path, report=events) as engine:
            assert opened(engine, 3)[1] == [record(1)]
        assert events == [("tail_cut", {"partition": 3, "file": str(segment), "position": size, "size": 77})]
        assert segment.stat().st_size == size


class TestFailingDisk:
    """The disk fails, and works again."""

    def test_said_once_until_it_works(self, tmp_path: Path) -> None:
        """Unavailable is reported when it begins, not at each attempt, and so is the end of it."""
        events = Events()
        disk = FailingDisk()
        with running(tmp_path, disk=disk, report=events) as engine:
            own, _ = opened(engine, 5)
            disk.fails = lambda name, _number: OSError(errno.EIO, "Input/output error") if name == "fdatasync" else None
            assert append(engine, own, record(1)) is not None
            assert append(engine, own, record(1)) is not None
            for _ in range(3):
                assert isinstance(load(engine, own)[1], Unavailable)
                assert str(append(engine, own, record(1))) == "Input/output error"
            disk.fails = lambda _name, _number: None
            assert load(engine, own) == ([], None)
            assert append(engine, own, record(1)) is None
        unavailable = ("partition_unavailable", {"partition": 5, "reason": "Input/output error"})
        assert events == [unavailable, ("partition_available", {"partition": 5})]

    @pytest.mark.parametrize("name", ["open", "lock", "read", "write", "truncate", "fdatasync", "sync_folder", "close"])
    def test_nth_call(self, tmp_path: Path, name: str) -> None:
        """The n-th call fails, for n = 1, 2, 3, ... until none does: acknowledged is durable, and service resumes."""
        number = 0
        failed = True
        while failed:
            number += 1
            failed = False

            def fails(called: str, at: int, chosen: int = number) -> OSError | None:
                nonlocal failed
                if (called, at) == (name, chosen):
                    failed = True
                    return OSError(errno.EIO, "the test wants it")
                return OSError(errno.EIO, "always") if (called, at) == ("write", 9) else None

            folder = tmp_path / f"{number}"
            folder.mkdir()
            engine = EmbeddedEngine(folder, 50, 1, disk=FailingDisk(fails), segment_size=300)
            try:
                engine.start(lambda *_change: None)
            except Unavailable:
                continue
            client = Client(engine)
            for _ in range(20):
                if len(client.durable) < 10:
                    client.append(len(client.durable))
            engine.close()
            with running(folder) as engine:
                assert opened(engine)[1] == [record(durable) for durable in range(10)]
        assert number > 1
