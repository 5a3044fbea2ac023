"""When a log is compacted, and by whom: the policy, and the thread that has it done.

Every log.cleaner.backoff.ms each open partition is looked at (`Upkeep`). As in Kafka (LogCleanerManager), one is worth
compacting when of its closed segments' bytes a larger part than log.cleaner.min.cleanable.ratio is dirty: not yet gone
through by a compaction. What is clean is not kept across restarts, so the first compaction of an ownership goes
through everything. The active segment is closed when its first record is older than log.roll.ms, and, which Kafka
doesn't do, when it alone would make the log worth compacting and nothing was appended since the last look: groups that
are quiet after a storm leave a small folder.

The dirtiest partition comes first, one at a time. `Cleaner` has a thread that only waits: for the time, for the process
(compaction.py) that does the work of a round, and for the engine's thread, which alone looks at partitions and swaps
files in, step by step between the appends. Topics' logs have a Cleaner of their own, which works with their thread and
their policy (topic_upkeep.py) in the same way.

House rule: nothing of a log is touched but on its own thread; what a process has written is used only if the log has
been open, and not been read anew, ever since.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from coordinator.log.compaction import KEYS_MAX, Cleaned, Compaction, Task
from coordinator.log.disk import Disk
from coordinator.log.partition import PartitionLog
from coordinator.log.segment import Segment, list_segments
from coordinator.log.swap import recover_swaps, remove_cleaned, swap_in
from protocol.records.batch import HEADER_SIZE, CorruptBatch, peek_header

QUIET_SIZE_MIN = 64 * 1024
"""An active segment that is smaller isn't worth a file more."""

RETRY_BACKOFFS = 40
"""A compaction that failed is tried again after so many times the backoff: ten minutes, by default."""

LAG_PART = 4
"""One that ended at records that were too young goes on after this part of log.cleaner.min.compaction.lag.ms."""

PRIORITY = 19
"""Of the process that compacts: the least."""

_ROOT = Path(__file__).parents[2]
T = TypeVar("T")


class Cleaning(NamedTuple):
    """Kafka's settings, log.cleaner.* and log.roll.ms; keys_max as in Task."""

    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 86_400_000
    backoff_ms: int = 15_000
    roll_ms: int = 604_800_000
    keys_max: int = KEYS_MAX


class Work(NamedTuple):
    """A compaction to be done. reads: of the partition's log, when it was decided on. ratio: how dirty it is."""

    upkeep: LogUpkeep
    task: Task
    reads: int
    ratio: float


class LogUpkeep(ABC):
    """What the compaction of one log has to do with the log, whoever's it is; on the log's thread."""

    def __init__(self, disk: Disk, folder: Path, log: PartitionLog) -> None:
        self.folder = folder
        self._disk = disk
        self._log = log

    def begin_swap(self, cleaned: Cleaned) -> Iterator[None]:
        """Return the steps in which a new file replaces the old ones, for `swap`; the first is yet to be taken."""
        return swap_in(self._disk, self.folder, cleaned.base_offset, cleaned.next_offset)

    def swap(self, work: Work, steps: Iterator[None]) -> tuple[bool, str]:
        """Take the next step; return whether there are more, and if there aren't, why, "" when all were taken."""
        if not self.is_current(work):
            return False, "the partition was closed meanwhile"
        try:
            for _ in steps:
                return True, ""
        except OSError as error:
            reason = error.strerror or str(error)
            self._stopped(work, reason)
            return False, reason
        except Exception as error:
            self._stopped(work, repr(error))
            raise
        return False, ""

    def is_current(self, work: Work) -> bool:
        """Whether the log has been open ever since; if not, nothing of the work is used: no failure."""
        return self._log.is_open() and self._log.reads == work.reads

    @abstractmethod
    def _stopped(self, work: Work, reason: str) -> None:
        """A step failed: the files have to be mended (`recover_swaps`) before they are read."""


class Upkeep(LogUpkeep):
    """Compaction of one partition, as its owner sees it; on the engine's thread.

    dirty_ratio: how much of its closed segments no compaction has gone through, as of the last look.
    """

    def __init__(
        self, disk: Disk, partition: int, folder: Path, log: PartitionLog, segment_size: int, cleaning: Cleaning
    ) -> None:
        super().__init__(disk, folder, log)
        self.partition = partition
        self.dirty_ratio = 0.0
        self._segment_size = segment_size
        self._cleaning = cleaning
        self._dirty_offset = 0
        self._seen_offset = -1
        self._not_before_ms = 0
        self._stopped_at_read = -1

    def look(self, now_ms: int, *, is_new_round: bool) -> Work | None:
        """Return the compaction that is due. Raises OSError. Rolls the active segment first where that is due."""
        log, cleaning = self._log, self._cleaning
        if not log.is_open() or not self._is_swapped(now_ms):
            return None
        if is_new_round:
            self._roll(now_ms)
        if not log.is_open() or now_ms < self._not_before_ms:
            return None
        end_offset, total, dirty, _ = self._measure()
        self.dirty_ratio = dirty / total if total else 0.0
        if dirty <= cleaning.min_cleanable_ratio * total:
            return None
        task = Task(
            end_offset,
            self._dirty_offset,
            now_ms,
            cleaning.min_compaction_lag_ms,
            cleaning.delete_retention_ms,
            self._segment_size,
            cleaning.keys_max,
        )
        return Work(self, task, log.reads, self.dirty_ratio)

    def _stopped(self, work: Work, reason: str) -> None:  # noqa: ARG002 - the engine reports it
        self._stopped_at_read = work.reads

    def finish(self, work: Work, compaction: Compaction | None) -> None:
        """Take note of how it went: None if it was broken off. Raises OSError. The partition's lock is held."""
        if (compaction is None or compaction.reason) and self.is_current(work):
            self._pause(work.task.now_ms)
        if compaction is None:
            remove_cleaned(self._disk, self.folder)
            return
        self._dirty_offset = compaction.clean_offset
        if compaction.reason:
            return
        if work.task.lag_ms and compaction.clean_offset < work.task.end_offset:
            self._not_before_ms = work.task.now_ms + work.task.lag_ms // LAG_PART

    def _is_swapped(self, now_ms: int) -> bool:
        """Whether no swap was broken off; one that was is finished here, unless a read did it. Raises OSError."""
        if self._log.reads == self._stopped_at_read:
            if now_ms < self._not_before_ms:
                return False
            self._pause(now_ms)
            recover_swaps(self._disk, self.folder)
            self._stopped_at_read = -1
            self._not_before_ms = now_ms
        return True

    def _pause(self, now_ms: int) -> None:
        """Leave it alone for a while."""
        self._not_before_ms = now_ms + RETRY_BACKOFFS * self._cleaning.backoff_ms

    def _roll(self, now_ms: int) -> None:
        """Close the active segment if it is old, or quiet and what makes the log dirty."""
        is_quiet = self._seen_offset == self._log.next_offset
        self._seen_offset = self._log.next_offset
        _, total, dirty, active = self._measure()
        if active is None or self._log.size == 0:
            return
        size = self._log.size
        is_dirty = size >= QUIET_SIZE_MIN and dirty + size > self._cleaning.min_cleanable_ratio * (total + size)
        if not (is_quiet and is_dirty):
            try:
                is_old = now_ms - self._first_ms(active) >= self._cleaning.roll_ms
            except CorruptBatch:
                return  # the next load says so
            if not is_old:
                return
        self._log.roll()

    def _measure(self) -> tuple[int, int, int, Segment | None]:
        """Where the active segment starts, bytes of the closed ones, of the dirty ones among them, the active one."""
        segments = list_segments(self._disk, self.folder)
        if not segments:
            return 0, 0, 0, None
        total = dirty = 0
        for segment, following in pairwise(segments):
            descriptor = self._disk.open(segment.path)
            try:
                size = self._disk.size(descriptor)
            finally:
                self._disk.close(descriptor)
            total += size
            dirty += size if following.base_offset > self._dirty_offset else 0
        return segments[-1].base_offset, total, dirty, segments[-1]

    def _first_ms(self, segment: Segment) -> int:
        """When its first record was made."""
        descriptor = self._disk.open(segment.path)
        try:
            return peek_header(self._disk.read(descriptor, HEADER_SIZE, 0)).base_timestamp_ms
        finally:
            self._disk.close(descriptor)


def _fields(line: bytes) -> dict[str, Any]:
    """What a line of the process says; nothing if it is another's."""
    with suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict):
            return said
    return {}


def call_on(
    thread: threading.Thread, put: Callable[[Callable[[], None]], object], call: Callable[[], object]
) -> object:
    """Have `put` queue a call for `thread`, and wait for what it returns, or raises; None if the thread has ended."""
    outcome: Future[object] = Future()

    def called() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 - who waits gets it
            outcome.set_exception(error)

    put(called)
    while thread.is_alive():
        wait([outcome], timeout=1.0)
        if outcome.done():
            return outcome.result()
    return None


def _send(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write to the process's standard input, past the buffer, which could not be closed once the process has ended."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        while data:
            data = data[os.write(process.stdin.fileno(), data) :]


class Cleaner:
    """Has compactions done, from `start` to `stop`.

    backoff_ms: after so long a new round begins; None: with each `look`. find: the compaction that is most worth doing,
    told whether a new round begins (is_new_round). finish: told how it went and how long it took in seconds; if the
    Compaction is None, why, or "" if nobody needs to know. on_thread: calls a function on the thread of the logs, as
    find and finish have to be, and waits. find and finish raise nothing; what else does is told through finish.
    """

    def __init__(
        self,
        backoff_ms: int | None,
        find: Callable[..., Work | None],
        finish: Callable[[Work, Compaction | None, str, float], None],
        on_thread: Callable[[Callable[[], object]], object],
    ) -> None:
        self._backoff_s = None if backoff_ms is None else backoff_ms / 1000
        self._find = find
        self._finish = finish
        self._on_thread = on_thread
        self._stopping = threading.Event()
        self._is_due = threading.Event()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="cleaner", daemon=True)

    def start(self) -> None:
        """Begin; the thread of the logs runs."""
        self._thread.start()

    def look(self) -> None:
        """Begin a new round, now or behind the one that is under way."""
        self._is_due.set()

    def stop(self) -> None:
        """End, and a compaction that is at work as well; the thread of the logs runs until then."""
        with self._guard:
            self._stopping.set()
            self._is_due.set()
            if self._process is not None:
                self._process.kill()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._is_due.wait(self._backoff_s)
            self._is_due.clear()
            if self._stopping.is_set():
                break
            work = self._ask(partial(self._find, is_new_round=True))
            while work is not None and not self._stopping.is_set():
                self._clean(work)
                work = self._ask(partial(self._find, is_new_round=False))
            self._end_process()

    def _clean(self, work: Work) -> None:
        begin = time.monotonic()
        compaction: Compaction | None
        try:
            compaction, reason = self._compact(work)
        except Exception as error:  # noqa: BLE001 - a mistake of ours: it is told, and other logs are compacted
            compaction, reason = None, repr(error)
        if self._stopping.is_set():
            reason = ""
        duration_s = time.monotonic() - begin
        self._ask(partial(self._finish, work, compaction, reason, duration_s))

    def _ask(self, call: Callable[[], T]) -> T | None:
        return self._on_thread(call)  # type: ignore[return-value]

    def _compact(self, work: Work) -> tuple[Compaction | None, str]:
        """Have the process do it; return what it did, if all of it, and why something wasn't done."""
        process = self._process or self._ask(self._begin)
        if process is None:
            return None, ""
        if isinstance(process, OSError):
            return None, str(process)
        answered = False
        try:
            order = {"folder": str(work.upkeep.folder.absolute()), "task": work.task._asdict()}
            _send(process, json.dumps(order).encode() + b"\n")
            compaction, reason, answered = self._follow(work, process)
        finally:
            if not answered:
                self._end_process(kill=True)
        return compaction, reason

    def _follow(self, work: Work, process: subprocess.Popen[bytes]) -> tuple[Compaction | None, str, bool]:
        """Swap in each file that the process has written, before it goes on.

        Returns what `_compact` does, and whether the process has said how it went, and so can be asked again.
        """
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            said = _fields(line)
            if "cleaned" in said:
                if reason := self._swap(work, Cleaned(*said["cleaned"])):
                    return None, reason, False
                _send(process, b"\n")
            elif "clean_offset" in said:
                compaction = Compaction(**said | {"files": [Cleaned(*cleaned) for cleaned in said["files"]]})
                return compaction, compaction.reason, True
            elif "error" in said:
                return None, said["error"], True
            else:
                # What the interpreter or the system have to say before it ends.
                last = line.decode(errors="replace").rstrip()
        return None, last or f"the process ended with {process.wait()}", False

    def _end_process(self, *, kill: bool = False) -> None:
        """Have the process end, if there is one, and wait for it."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            if kill:
                process.kill()
            with process:  # without its standard input it ends
                pass

    def _swap(self, work: Work, cleaned: Cleaned) -> str:
        """Have a file swapped in; return why it wasn't, "" if it was."""
        step = partial(work.upkeep.swap, work, work.upkeep.begin_swap(cleaned))
        more, reason = True, ""
        while more:
            if self._stopping.is_set():  # the next load goes on with it
                return "the engine is being closed"
            more, reason = self._ask(step) or (False, "the engine has ended")
        return reason

    def _begin(self) -> subprocess.Popen[bytes] | OSError | None:
        """Start the process; None if it is too late for one.

        On the thread of the logs: until a new process runs its program it holds all locks of this one, and meanwhile
        none may be given up and taken again.
        """
        command = [sys.executable, "-m", "coordinator.log.compaction"]
        with self._guard:
            if self._stopping.is_set():
                return None
            try:
                # A process group of its own: what a terminal sends to the server is the server's to deal with. But in
                # the same session: Linux may share processors out among sessions first, whatever priorities they hold.
                self._process = subprocess.Popen(  # noqa: S603 - this very program
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=_ROOT,
                    process_group=0,
                )
            except OSError as error:
                return error
            with suppress(OSError):  # it does its work all the same
                # From here, not by itself: to start the interpreter takes as much CPU as a small log.
                os.setpriority(os.PRIO_PROCESS, self._process.pid, PRIORITY)
            return self._process
