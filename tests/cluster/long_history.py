"""A long history of a cluster under random faults, checked for linearizability.

    python -m tests.cluster.long_history --minutes 20 --seed 1

Three nodes on three members of etcd serve static members of 12 groups, two each, and a group of each real client
(stage.REAL). Members commit, read, send heartbeats, and restart now and then; real clients don't restart. Meanwhile
chance kills, freezes, stops and cuts off nodes and members of etcd (random_faults). Anchors keep asking the nodes that
coordinated a group once. At the end all that a `Stage` checks must hold, and the whole history must be linearizable:
offsets, and the generation of each member.

It prints figures, and each violation; the exit code is 1 if there is one. `--history FILE` keeps the history.

House rule: what must hold is in `stage` and `linearizable`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.cluster.linearizable import registers, violations
from tests.cluster.random_faults import play
from tests.cluster.stage import Stage
from tests.support.cluster_history import Asked, gaps, percentile, write, wrongs
from tests.support.etcd import MISSING, program

GROUPS, MEMBERS = 12, 2
PAUSE_S = 0.2
RESTARTS = 0.005
"""A member restarts in one of 200 rounds, about once in a minute."""
SESSION_TIMEOUT_MS = 20_000
"""Longer than the faults that keep a member from its coordinator, one after the other: its join waits for a node that
is frozen, then for the next one.
"""
ANCHORED_S = 20.0
"""An anchor asks the former coordinators for so long; then others take its place."""


def record(minutes: float, seed: int) -> tuple[list[Asked], Counter[str], list[str]]:
    """The history of a cluster under faults, how often each fault was, and what else was wrong at the end."""
    faults: Counter[str] = Counter()
    with Stage(
        groups=GROUPS,
        members=MEMBERS,
        pause_s=PAUSE_S,
        proxied=True,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        restarts=RESTARTS,
        seed=seed,
    ) as stage:
        chance = random.Random(seed)
        until = stage.probe.now() + minutes * 60
        while (now := stage.probe.now()) < until:
            stage.probe.anchor(ANCHORED_S)
            play(stage, chance, min(now + ANCHORED_S, until), lambda name: faults.update([name]))
        stage.recover()
        # `check` would say all this too, but only the first of it.
        seats = stage.probe.seats()
        problems = [
            f"{name} had {before} and has {seats[name]}"
            for name, before in stage.seats.items()
            if seats[name] != before
        ]
        problems += [f"a twin has fenced {each}" for each in stage.probe.fenced()]
        problems += [f"lost commit: {each}" for each in stage.probe.lost()]
        problems += [problem for group in stage.real for problem in group.problems()]
        return stage.history(), faults, problems


def problems_of(history: Sequence[Asked]) -> list[str]:
    """All that is wrong with a history, a line each."""
    return [*map(str, violations(history)), *map(str, wrongs(history))]


def figures(history: Sequence[Asked], faults: Counter[str]) -> Iterable[str]:
    """Lines about a history: how much it has, and what clients noticed."""
    began, ended = history[0].sent, max(each.got or each.sent for each in history)
    yield f"{len(history):,} requests in {(ended - began) / 60:.1f} minutes"
    kinds = Counter((each.kind, each.member < 0) for each in history)
    yeses = Counter((each.kind, each.member < 0) for each in history if each.is_yes)
    for (kind, is_anchor), count in sorted(kinds.items()):
        yield f"  {kind}{' of anchors' * is_anchor}: {count:,}, yes {yeses[kind, is_anchor]:,}"
    nothing = sum(each.got is None for each in history)
    yield f"  without an answer: {nothing:,}"
    found = registers(history)
    yield f"{len(found)} registers with {sum(map(len, found.values())):,} operations"
    yield f"{faults.total()} faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))
    longest = gaps(history, began, ended)
    yield (
        f"longest time of a group without success: {max(longest.values()):.2f} s, "
        f"median of groups {percentile(longest.values(), 0.5):.2f} s"
    )


def main(arguments: Sequence[str]) -> int:
    """See the module; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.long_history", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", type=Path, help="keep the history in this file, a line of JSON for each request")
    options = parser.parse_args(arguments)
    if program() is None:
        print(f"long_history is left out: {MISSING}")
        return 0
    history, faults, problems = record(options.minutes, options.seed)
    if options.history is not None:
        write(history, options.history)
    return report(history, faults, problems, options.seed)


def report(history: Sequence[Asked], faults: Counter[str], problems: Sequence[str], seed: int) -> int:
    """Print figures and all problems; returns the exit code."""
    print(*figures(history, faults), sep="\n")
    found = [*problems_of(history), *problems]
    for line in found:
        print(f"WRONG {line}")
    print(f"seed {seed}: {len(found)} problems" if found else f"seed {seed}: linearizable, no seat moved")
    return 1 if found else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
