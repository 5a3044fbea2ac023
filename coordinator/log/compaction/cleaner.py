"""Has a process compact the logs, one at a time.

The log's own thread chooses the log (`find`), by the policy of the groups' logs (embedded/upkeep.py) or of the topics'
(topics/upkeep.py). The thread of `Cleaner` only waits: for the next round, for the process (compaction/process.py) that
does the work of a round, and for the log's thread. The log's thread swaps in each file that the process wrote, step by
step between appends.

House rule: only its own thread changes a log. A file of the process is used only if the log stayed open, and wasn't
read anew, since the work was chosen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from coordinator.log.compaction.task import Cleaned, Compaction, Task
from coordinator.log.segments.disk import Disk, describe
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.swap import swap_in

RETRY_BACKOFFS = 40
"""A failed compaction is tried again after so many times the backoff: ten minutes, by default."""

PRIORITY = 19
"""The priority of the process that compacts: the lowest."""

_ROOT = Path(__file__).parents[3]
T = TypeVar("T")


class Work(NamedTuple):
    """A compaction to do. reads: the log's count of reads when it was chosen. ratio: the dirty part of the log."""

    upkeep: LogUpkeep
    task: Task
    reads: int
    ratio: float


class LogUpkeep:
    """The steps of a compaction in one log, of groups or of a topic; the log's thread calls them.

    dirty_ratio: the dirty part of the segments that may be compacted, as of the last look, from 0 to 1.
    """

    def __init__(self, disk: Disk, folder: Path, log: PartitionLog) -> None:
        self.folder = folder
        self._disk = disk
        self.log = log
        self.dirty_ratio = 0.0
        self._stopped_at_read = -1

    def begin_swap(self, cleaned: Cleaned) -> Iterator[None]:
        """Return the steps in which a new file replaces the old ones, for `swap`; this takes no step itself."""
        return swap_in(self._disk, self.folder, cleaned.base_offset, cleaned.next_offset)

    def swap(self, work: Work, steps: Iterator[None]) -> tuple[bool, str]:
        """Take the next step; return whether more follow, and why the swap failed ("" if it didn't)."""
        if not self.is_current(work):
            return False, "the partition was closed meanwhile"
        try:
            for _ in steps:
                return True, ""
        except OSError as error:
            reason = describe(error)
            self._stopped(work, reason)
            return False, reason
        except Exception as error:
            self._stopped(work, repr(error))
            raise
        return False, ""

    def is_current(self, work: Work) -> bool:
        """Whether the log stayed open since `work` was made; otherwise the result is dropped, which is no failure."""
        return self.log.is_open() and self.log.reads == work.reads

    def _stopped(self, work: Work, reason: str) -> None:  # noqa: ARG002 - a log of groups goes on
        """A step failed: `recover_swaps` must mend the files before they are compacted, or read."""
        self._stopped_at_read = work.reads


def _fields(line: bytes) -> dict[str, Any]:
    """The fields in a line of the process; none if another program wrote the line."""
    with suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict):
            return said
    return {}


def call_on(
    thread: threading.Thread, put: Callable[[Callable[[], None]], object], call: Callable[[], object]
) -> object:
    """Queue `call` with `put` for `thread`; return its result or raise its error; None if the thread has ended."""
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
    """Write to the process's standard input, unbuffered: a buffer can't be closed after the process has ended."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        while data:
            data = data[os.write(process.stdin.fileno(), data) :]


class Cleaner:
    """Runs compactions, from `start` to `stop`.

    backoff_ms: time between rounds; None: only `look` begins a round.
    find: returns the next compaction; is_new_round says whether a round begins.
    finish: gets the work, its result, the reason of a failure ("" if there is none to report), and the duration in
    seconds.
    on_thread: calls a function on the thread of the logs, and waits; Cleaner calls find and finish through it. find and
    finish raise nothing; finish gets every other error as its reason.
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
        """Start; the thread of the logs must run."""
        self._thread.start()

    def look(self) -> None:
        """Begin a new round, at once or after the current one."""
        self._is_due.set()

    def set_backoff(self, backoff_ms: int) -> None:
        """Change the time between rounds. If it differs, a new round begins, as by `look`."""
        if self._backoff_s != backoff_ms / 1000:
            self._backoff_s = backoff_ms / 1000
            self.look()

    def stop(self) -> None:
        """End, and end a running compaction; the thread of the logs must run until then."""
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
        """Let the process compact; return its result (None: not finished), and the reason of a failure."""
        process = self._process or self._ask(self._begin)
        if process is None:
            return None, ""
        if isinstance(process, OSError):
            return None, describe(process)
        answered = False
        try:
            order = {"folder": str(work.upkeep.folder.absolute()), "task": work.task._asdict()}
            _send(process, json.dumps(order).encode() + b"\n")
            compaction, reason, answered = self._follow(work, process)
        finally:
            if not answered:
                self._end_process()
        return compaction, reason

    def _follow(self, work: Work, process: subprocess.Popen[bytes]) -> tuple[Compaction | None, str, bool]:
        """Swap in each file that the process has written, before it goes on.

        Returns the results of `_compact`, and whether the process has answered and can be used again.
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
                # Messages of the interpreter or the system before the process ends.
                last = line.decode(errors="replace").rstrip()
        return None, last or f"the process ended with {process.wait()}", False

    def _end_process(self) -> None:
        """End the process, if there is one, and wait for it."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.kill()  # the end of its standard input isn't enough: a forked process may have a copy of our end
            with process:
                pass

    def _swap(self, work: Work, cleaned: Cleaned) -> str:
        """Have the log's thread swap in a file; return why it failed, "" if it didn't."""
        step = partial(work.upkeep.swap, work, work.upkeep.begin_swap(cleaned))
        more, reason = True, ""
        while more:
            if self._stopping.is_set():  # the next load finishes the swap
                return "the engine is being closed"
            more, reason = self._ask(step) or (False, "the engine has ended")
        return reason

    def _begin(self) -> subprocess.Popen[bytes] | OSError | None:
        """Start the process; None if the cleaner is stopping.

        Runs on the thread of the logs: a new process holds all locks of this one until it runs its own program.
        Meanwhile no lock may be released and locked again.
        """
        command = [sys.executable, "-m", "coordinator.log.compaction.process"]
        with self._guard:
            if self._stopping.is_set():
                return None
            try:
                # A process group of its own, so that the signals of a terminal go to the server alone. The session is
                # the server's, because Linux may divide processors among sessions before it looks at priorities.
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
            with suppress(OSError):  # a process with normal priority does its work too
                # The server sets it, as the start of the interpreter takes as much CPU as compacting a small log.
                os.setpriority(os.PRIO_PROCESS, self._process.pid, PRIORITY)
            return self._process
