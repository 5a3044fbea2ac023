"""Tests the embedded engine's files, locks, threads and disk.

tests/log/test_engine.py tests the contract of all engines; test_partition.py tests that no failure of the disk loses
anything in one partition.
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

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import EngineError, Fenced, Ownership, Unavailable
from coordinator.log.segments.segment import list_segments, partition_folder
from protocol.records.batch import Record
from tests.log.calls import (
    Appending,
    Client,
    Events,
    append,
    append_batch,
    begin_append,
    load,
    numbers_of,
    opened,
    owned,
    record,
)
from tests.log.disks import CrashingDisk, FailingDisk, Killed, OneFails, SharedDisk, each_call, fail_one
from tests.support.length import rounds
from tests.support.patience import WITHIN_S

POWER_CUTS = rounds(15, 30, 1_000)


@contextmanager
def running(data_dir: Path, **options: Any) -> Iterator[EmbeddedEngine]:
    """Yield a started engine of 50 partitions; close it at the end."""
    engine = EmbeddedEngine(data_dir, 50, 1, **options)
    engine.start(lambda _partition, _node_id, _epoch: None)
    try:
        yield engine
    finally:
        engine.close()


class TestFiles:
    """The data folder has a folder for each partition that has records."""

    def test_nothing_for_partitions_that_nobody_uses(self, tmp_path: Path) -> None:
        """An engine that owns all partitions makes no folder; the first append makes one for its partition."""
        with running(tmp_path) as engine:
            owns = [opened(engine, partition)[0] for partition in range(50)]
            assert not list(tmp_path.glob("__consumer_offsets-*"))
            assert append(engine, owns[7], record(1)) is None
            folder = partition_folder(tmp_path, 7)
            assert list(tmp_path.glob("__consumer_offsets-*")) == [folder]
            assert [path.name for path in folder.iterdir()] == ["00000000000000000000.log"]

    def test_logs_share_a_folder(self, tmp_path: Path) -> None:
        """Partitions of one number, of two logs, have folders, locks and records of their own."""
        with running(tmp_path) as groups, running(tmp_path, log="__transaction_state") as others:
            for engine, number in ((groups, 1), (others, 2)):
                own, _ = opened(engine, 7)
                assert append(engine, own, record(number)) is None
        assert {path.name for path in tmp_path.iterdir() if path.name.endswith("7")} == {
            "__consumer_offsets-7",
            "__transaction_state-7",
            ".lock-7",
            ".lock-__transaction_state-7",
        }
        with running(tmp_path, log="__transaction_state") as others:
            assert opened(others, 7)[1] == [record(2)]

    def test_a_log_is_read_once(self, tmp_path: Path, disk: FailingDisk) -> None:
        """An engine that acquires a partition doesn't read its segments."""
        with running(tmp_path) as engine:
            own, _ = opened(engine)
            assert append(engine, own, record(1)) is None
        with running(tmp_path, disk=disk) as engine:
            owned(engine)
            assert disk.calls["open"] == 1  # the lock
            assert disk.calls["read"] == 1

    def test_segments_roll(self, tmp_path: Path) -> None:
        """An engine's segments are as long as it was asked for."""
        with running(tmp_path, segment_size=500) as engine:
            own, _ = opened(engine)
            for number in range(20):
                assert append(engine, own, record(number)) is None
        with running(tmp_path) as engine:
            assert opened(engine)[1] == [record(number) for number in range(20)]
        sizes = [path.stat().st_size for path in partition_folder(tmp_path, 0).iterdir()]
        assert len(sizes) > 2
        assert max(sizes) <= 500


class GatedDisk(FailingDisk):
    """Its fdatasyncs wait until `gate` is set; the first one sets `waiting`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.waiting = threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        self.waiting.set()
        assert self.gate.wait(WITHIN_S)
        super().fdatasync(descriptor)


class TestThread:
    """One thread writes together all appends that wait together."""

    def test_group_commit(self, tmp_path: Path) -> None:
        """Appends that arrive while the disk syncs share the next write and sync of their partition."""
        disk = GatedDisk()
        with running(tmp_path, disk=disk) as engine:
            own, _ = opened(engine)
            other, _ = opened(engine, 1)
            first = begin_append(engine, own, [record(0)])
            assert disk.waiting.wait(WITHIN_S)
            disk.calls.clear()
            later = [begin_append(engine, own, [record(number)]) for number in range(1, 40)]
            later += [begin_append(engine, other, [record(number)]) for number in range(40, 50)]
            assert first.empty()
            disk.gate.set()
            assert [outcome.get(timeout=WITHIN_S) for outcome in [first, *later]] == [None] * 50
            assert (disk.calls["write"], disk.calls["fdatasync"]) == (2, 3)

    def test_nothing_is_told_before_the_sync(self, tmp_path: Path) -> None:
        """The engine doesn't report an append as durable when its bytes are written but not synced."""
        disk = GatedDisk()
        with running(tmp_path, disk=disk) as engine:
            own, _ = opened(engine)
            outcome = begin_append(engine, own, [record(0)])
            assert disk.waiting.wait(WITHIN_S)
            assert list_segments(disk, partition_folder(tmp_path, 0))[0].path.stat().st_size > 0
            assert outcome.empty()
            disk.gate.set()
            assert outcome.get(timeout=WITHIN_S) is None

    def test_callbacks_come_on_one_thread_of_the_engine(self, tmp_path: Path) -> None:
        """One thread of the engine makes all callbacks, and none inside a call."""
        threads: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[object] = SimpleQueue()

        def told(*outcome: object) -> None:
            threads.put(threading.get_ident())
            done.put(outcome[-1])

        engine = EmbeddedEngine(tmp_path, 1, 1)
        engine.start(told)
        done.get(timeout=WITHIN_S)
        engine.acquire(0, told)
        done.get(timeout=WITHIN_S)
        own: Any = done.get(timeout=WITHIN_S)
        engine.load(own, told, told)
        append_batch(engine, own, [record(1)], told)
        engine.load(own, told, told)
        engine.release(own, told)
        engine.close()
        seen = {threads.get_nowait() for _ in range(threads.qsize())}
        assert len(seen) == 1
        assert threading.get_ident() not in seen

    def test_mistake_in_a_callback_is_reported(self, tmp_path: Path) -> None:
        """A callback's unforeseen exception ends the thread; the engine reports it, else the server would wait."""
        events = Events()
        died: SimpleQueue[object] = SimpleQueue()
        hook, threading.excepthook = threading.excepthook, died.put
        try:
            engine = EmbeddedEngine(tmp_path, 1, 1, report=events)
            engine.start(lambda *_change: None)

            def mistaken(_outcome: object) -> None:
                raise ZeroDivisionError

            engine.acquire(0, mistaken)
            died.get(timeout=WITHIN_S)
            engine.close()
        finally:
            threading.excepthook = hook
        assert events == [("engine_failed", {"partition": -1, "error": "ZeroDivisionError()"})]


class SyncingDisk(FailingDisk):
    """Its fdatasyncs wait until `parties` of them are under way, once `parties` is set."""

    parties: threading.Barrier | None = None

    def fdatasync(self, descriptor: int) -> None:
        if self.parties is not None:
            self.parties.wait(WITHIN_S)
        super().fdatasync(descriptor)


def append_together(engine: EmbeddedEngine, owns: list[Ownership], *records: Record) -> list[Appending]:
    """Append to each of the partitions in one window: the thread takes none before it has called back."""
    outcomes: list[Appending] = [SimpleQueue() for _ in owns]

    def appended(_outcome: object) -> None:
        for own, outcome in zip(owns, outcomes, strict=True):
            append_batch(engine, own, list(records), outcome.put)

    engine.acquire(49, appended)
    return outcomes


def all_of(outcomes: list[Appending]) -> list[Fenced | Unavailable | None]:
    """Wait for the outcomes; return them in order."""
    return [outcome.get(timeout=WITHIN_S) for outcome in outcomes]


def pool_threads() -> list[str]:
    """Return the names of the threads that write windows."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("log-sync")]


class Windows:
    """Windows of appends to four partitions, on a disk that fails; after a refusal, the partition is loaded again.

    durable: by partition, the acknowledged numbers. The windows end early when the engine's thread does.
    """

    COUNT = 6

    def __init__(self, disk: FailingDisk, folder: Path, fails: Callable[[str, int], BaseException | None]) -> None:
        self.durable: list[list[int]] = [[] for _ in range(4)]
        self._told: SimpleQueue[tuple[int, object]] = SimpleQueue()
        folder.mkdir(exist_ok=True)
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
        partition, outcome = self._told.get(timeout=WITHIN_S)
        if outcome == "engine_failed":
            raise Killed
        return partition, outcome


class TestPool:
    """A pool of threads writes to the partitions of one window."""

    def test_syncs_run_at_the_same_time(self, tmp_path: Path) -> None:
        """As many syncs as the setting allows run at the same time."""
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
        """The engine makes threads only for a window of several partitions, no more than it may, and ends them all."""
        with running(tmp_path, syncs_max=2) as engine:
            owns = [opened(engine, partition)[0] for partition in range(5)]
            assert [append(engine, own, record(0)) for own in owns] == [None] * 5
            assert pool_threads() == []
            assert all_of(append_together(engine, owns, record(1))) == [None] * 5
            assert 1 <= len(pool_threads()) <= 2
        assert pool_threads() == []

    def test_one_after_the_other(self, tmp_path: Path) -> None:
        """If the engine may write to one partition at a time, it writes on its own thread."""
        with running(tmp_path, syncs_max=1) as engine:
            owns = [opened(engine, partition)[0] for partition in range(5)]
            assert all_of(append_together(engine, owns, record(1))) == [None] * 5
            assert pool_threads() == []

    def test_told_in_order_on_the_engines_thread(self, tmp_path: Path) -> None:
        """Whichever sync ends first, the engine reports outcomes in the window's order, on one thread."""
        told: SimpleQueue[tuple[int, str]] = SimpleQueue()
        with running(tmp_path) as engine:
            owns = [opened(engine, partition)[0] for partition in range(6)]

            def tell(partition: int, _outcome: object) -> None:
                told.put((partition, threading.current_thread().name))

            def appended(_outcome: object) -> None:
                for partition, own in enumerate(owns):
                    append_batch(engine, own, [record(0, 10 if partition else 3_000_000)], partial(tell, partition))

            engine.acquire(49, appended)
            assert [told.get(timeout=WITHIN_S) for _ in owns] == [(partition, "log") for partition in range(6)]

    def test_failure_of_one_partition(self, tmp_path: Path, disk: FailingDisk) -> None:
        """If one partition's write fails, it alone is Unavailable; the other partitions keep their appends."""
        events = Events()
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
        """If an append needs a segment for each batch, those before the failed one are reported as durable, and are."""
        disk = FailingDisk(fail_one("write", 3))
        told: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
        with running(tmp_path, disk=disk, segment_size=1) as engine:
            own, _ = opened(engine)
            disk.calls.clear()
            engine.append(own, [[record(number)] for number in range(4)], lambda *outcome: told.put(outcome))
            durable, error = told.get(timeout=WITHIN_S)
            assert (durable, type(error)) == (2, Unavailable)
            assert load(engine, own) == ([record(0), record(1)], None)

    @pytest.mark.parametrize("name", ["open", "write", "fdatasync", "truncate", "sync_folder", "close"])
    def test_nth_call(self, tmp_path: Path, name: str) -> None:
        """Whichever call of the disk fails, each partition has the records that it acknowledged and no more."""
        for one in each_call(name):

            def fails(called: str, at: int, one: OneFails = one) -> OSError | None:
                always = OSError(errno.EIO, "always") if (called, at) in {("write", 9), ("write", 14)} else None
                return one(called, at) or always

            folder = tmp_path / f"{one.number}"
            durable = Windows(FailingDisk(), folder, fails).durable
            with running(folder) as engine:
                assert [numbers_of(opened(engine, partition)[1]) for partition in range(4)] == durable

    @pytest.mark.rounds
    def test_power_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a power cut while threads write, each partition has all acknowledged records, and one more at most."""
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


class TestFailingDisk:
    """A disk fails, and then works again."""

    @pytest.mark.parametrize("name", ["open", "lock", "read", "write", "truncate", "fdatasync", "sync_folder", "close"])
    def test_nth_call(self, tmp_path: Path, name: str) -> None:
        """Whichever call fails, for n = 1, 2, 3, ..., the engine keeps everything acknowledged, and serves again."""
        for one in each_call(name):

            def fails(called: str, at: int, one: OneFails = one) -> OSError | None:
                return one(called, at) or fail_one("write", 9)(called, at)

            folder = tmp_path / f"{one.number}"
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
