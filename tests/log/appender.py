"""A process that appends for ever, to be killed: `python -m tests.log.appender DATA_DIR FIRST`.

Numbered records from FIRST on go to partition 0, WINDOW of them under way at a time; the number of each that is durable
is a line on standard output. A pipe keeps those, however the process ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Semaphore

from coordinator.log.embedded import EmbeddedEngine
from tests.log.calls import opened, record

WINDOW = 50


def main(data_dir: Path, first: int) -> None:
    """Append."""
    engine = EmbeddedEngine(data_dir, 3, 1, segment_size=20_000)
    engine.start(lambda _partition, _node_id, _epoch: None)
    own, _ = opened(engine)
    window = Semaphore(WINDOW)
    number = first

    def done(outcome: object, number: int) -> None:
        if outcome is not None:
            os._exit(1)
        os.write(1, b"%d\n" % number)
        window.release()

    while True:
        window.acquire()
        engine.append(own, [record(number, number % 300)], lambda outcome, number=number: done(outcome, number))  # type: ignore[misc]
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
