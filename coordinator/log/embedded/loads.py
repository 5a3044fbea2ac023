"""The loads in progress, of all engines of a thread.

Only one page of the first load is read at a time, so that appends run between pages.

House rule: all of this runs on the engine's thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from coordinator.log.advice import explain
from coordinator.log.embedded.ownership import Owned
from coordinator.log.engine import Damaged, Done, EngineError, Fenced, Page, Unavailable
from coordinator.log.segments.disk import reason
from protocol.records.batch import Record

PROGRESS_INTERVAL_S = 5.0
"""Interval of the progress reports of a long load."""


class _Load(NamedTuple):
    own: Owned
    pages: Generator[list[Record]]
    page: Page
    done: Done
    loaded: Callable[[Owned], None]


class Loads:
    """See the module. waiting: the loads, the one under way first."""

    def __init__(self) -> None:
        self.waiting: deque[_Load] = deque()
        self._progress_due_s = 0.0

    def begin(self, own: Owned, page: Page, done: Done, loaded: Callable[[Owned], None]) -> None:
        """Queue a load behind the others. It replaces a load of the same owner that is in progress.

        loaded: called with the owner of a log that was read to its end, before the load is done.
        """
        self.end(own, Unavailable("it is loaded anew"))
        if not self.waiting:
            self._progress_due_s = time.monotonic() + PROGRESS_INTERVAL_S
        if own.valid():
            own.log.close("it is being loaded")
            self.waiting.append(_Load(own, own.log.read(), page, done, loaded))
        else:
            done(Fenced.of(own))

    def end(self, own: Owned, outcome: EngineError) -> None:
        """End the owner's load, if there is one, with `outcome`."""
        ended = [load for load in self.waiting if load.own is own]
        self.waiting = deque(load for load in self.waiting if load.own is not own)
        for load in ended:
            load.pages.close()
            load.done(outcome)

    def read_page(self) -> None:
        """Read one more page of the first load."""
        load = self.waiting[0]
        partition, availability = load.own.partition, load.own.availability
        outcome: EngineError | None = None
        try:
            records = next(load.pages, None)
        except Damaged as damage:
            outcome = damage
            availability.report(
                "partition_damaged",
                partition=partition,
                file=damage.file,
                position=damage.position,
                reason=damage.reason,
            )
        except OSError as error:
            outcome = Unavailable(explain(error))
            availability.failed(partition, reason(error))
        else:
            if records is not None:
                if records:
                    load.page(records)
                self._report_progress(load.own)
                return
            availability.works(partition)
            load.loaded(load.own)
            self._report_transactions(load.own)
        if outcome is not None:
            load.own.log.close(str(outcome))
        self.waiting.popleft()
        load.done(outcome)

    def _report_progress(self, own: Owned) -> None:
        now_s = time.monotonic()
        if now_s >= self._progress_due_s:
            self._progress_due_s = now_s + PROGRESS_INTERVAL_S
            own.availability.report("load_progress", partition=own.partition, percent=int(own.log.progress * 100))

    def _report_transactions(self, own: Owned) -> None:
        if own.log.open_transactions:
            own.availability.report(
                "transactions_open",
                partition=own.partition,
                transactions=own.log.open_transactions,
                commits=own.log.waiting_commits,
            )
