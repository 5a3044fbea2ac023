"""Plays schedules from the command line.

    python -m tests.simulation.cluster.play 17             one schedule, with its trace
    python -m tests.simulation.cluster.play 0 100000       all of these seeds; a line for each that breaks a promise

House rule: nothing is decided here.
"""

from __future__ import annotations

import gc
import sys
import time

from tests.simulation.cluster.faults import run

REPORTED_EVERY = 1_000
COLLECTED_EVERY = 20
"""Schedules; their objects take less than 100 MB."""


def play_one(seed: int) -> bool:
    """Play one schedule and print what happened; returns whether all was right."""
    world = run(seed, keep_trace=True)
    print(*world.time.trace, *world.wrongs, sep="\n")
    return not world.wrongs


def play_all(first: int, end: int) -> bool:
    """Play the seeds before `end`, and print those that fail; returns whether all was right."""
    began_s = time.monotonic()
    bad = 0
    # A run leaves many objects that refer to each other, and few that live longer: looking for them all the time takes
    # a sixth of the time.
    gc.disable()
    for seed in range(first, end):
        wrongs = run(seed).wrongs
        if not seed % COLLECTED_EVERY:
            gc.collect()
        bad += bool(wrongs)
        if wrongs:
            print(f"seed {seed}: {wrongs[0]}", flush=True)
        if (seed + 1) % REPORTED_EVERY == 0:
            took_s = time.monotonic() - began_s
            print(f"{seed + 1 - first} schedules in {took_s:.0f} s, {bad} broke a promise", flush=True)
    print(f"{end - first} schedules, {bad} broke a promise", flush=True)
    return not bad


if __name__ == "__main__":
    seeds = [int(each) for each in sys.argv[1:]]
    sys.exit(not (play_one(*seeds) if len(seeds) == 1 else play_all(*seeds)))
