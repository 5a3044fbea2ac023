"""The load generator: a process that does one work to one server.

    python -m benchmarks.load '{"work": "heartbeat", "host": "127.0.0.1", "port": 9092, "pid": 17, ...}'

prints the figures as one line of JSON. It reads what the server used, and itself.

House rule: its own garbage collector stays off, so that no pause of ours becomes a latency of theirs.
"""

from __future__ import annotations

import gc
import json
import resource
import sys

from benchmarks.driver import Stuck
from benchmarks.members import Refused
from benchmarks.meter import Meter
from benchmarks.works import WORKS, Bench


def main(job: str) -> None:
    """Do what the job says."""
    wanted = json.loads(job)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
    bench = Bench(
        host=wanted["host"],
        port=wanted["port"],
        meter=Meter(wanted["pid"], wanted["folder"]),
        tag=wanted["tag"],
        plain=wanted["plain"],
    )
    try:
        figures = WORKS[wanted["work"]](bench, **wanted["parameters"])
    except (Refused, Stuck) as error:
        sys.exit(f"{wanted['work']}: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
