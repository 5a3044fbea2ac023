"""Appends for ever until somebody kills it: `python -m tests.log.appender DATA_DIR FIRST JOURNAL [KEYS]`.

It appends numbered records from FIRST on to partition 0, WINDOW of them at a time. It prints the number of each durable
record as one line. The pipe keeps these lines, however the process ends. JOURNAL: 1 for an engine with a journal, or 0.
With KEYS, the records take that many keys in turn, and the engine compacts the log all the time.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from threading import Semaphore

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.upkeep import Cleaning
from protocol.records.batch import Record
from tests.log.calls import append_batch, opened, record

WINDOW = 50


def keyed(number: int, keys: int) -> Record:
    """Return the record of that number, which has one of `keys` keys."""
    return record(number, number % 300)._replace(key=b"key-%d" % (number % keys))


def main(data_dir: Path, first: int, keys: int, *, journal: bool) -> None:
    """Append until the process is killed."""
    cleaning = Cleaning(backoff_ms=1, min_cleanable_ratio=0.1) if keys else None
    segment_size = 60_000 if journal and not keys else 20_000
    engine = EmbeddedEngine(
        data_dir, 3, 1, segment_size=segment_size, cleaning=cleaning, journal=journal, journal_size=65_536
    )
    engine.start(lambda _partition, _node_id, _epoch: None)
    own, _ = opened(engine)
    window = Semaphore(WINDOW)
    number = first

    def done(number: int, outcome: object) -> None:
        if outcome is not None:
            os._exit(1)
        os.write(1, b"%d\n" % number)
        window.release()

    while True:
        window.acquire()
        made = keyed(number, keys) if keys else record(number, number % 300)
        append_batch(engine, own, [made], partial(done, number))
        number += 1


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[4]) if len(sys.argv) > 4 else 0,
        journal=sys.argv[3] == "1",
    )
