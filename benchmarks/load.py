"""The load generator: a process that does one work to one server.

    python -m benchmarks.load JOB

does the job that `works.Bench.job` describes, and prints the figures as one line of JSON. It reads the CPU and the
memory of the server and of itself.

House rule: its own garbage collector stays off, so that its pauses don't add to the server's latency.
"""

from __future__ import annotations

import gc
import json
import resource
import signal
import sys

from benchmarks.driver import Stuck
from benchmarks.members import UnexpectedAnswer
from benchmarks.works import WORKS, Bench


def main(job: str) -> None:
    """Do the job."""
    # The process that started it ends it, and reports.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wanted = json.loads(job)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
    try:
        figures = WORKS[wanted["work"]](Bench.of(wanted), **wanted["parameters"])
    except (UnexpectedAnswer, Stuck) as error:
        sys.exit(f"{wanted['work']}: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
