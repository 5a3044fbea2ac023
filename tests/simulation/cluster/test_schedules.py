"""Schedules of faults in a simulated cluster of three nodes and three members of etcd: `world` says what must hold.

`make test` plays a few, `make nightly` ten thousand. A seed that fails prints its trace; `python -m
tests.simulation.cluster.play SEED` repeats it.
"""

from __future__ import annotations

import pytest

from tests.simulation.cluster.faults import run
from tests.simulation.cluster.mutants import MUTANTS
from tests.support.length import rounds

SHARES = 4
"""Tests that can run side by side."""

SEEDS = rounds(8, 32, 1_000)
"""How many schedules are played."""

MUTANT_SEEDS = 80
"""Each mutant shows in one of ten schedules, or more."""


@pytest.mark.rounds
@pytest.mark.parametrize("share", range(SHARES))
def test_no_schedule_breaks_a_promise(share: int) -> None:
    """Nothing acknowledged is lost, no read is stale, no yes is late, no group rebalances, and every wait ends."""
    for seed in range(share, SEEDS, SHARES):
        wrongs = run(seed).wrongs
        if wrongs:
            world = run(seed, keep_trace=True)
            pytest.fail("\n".join([f"seed {seed}", *world.time.trace, *world.wrongs]))


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    """A design with one part left out breaks a promise in one of a few schedules."""
    assert any(run(seed, port=MUTANTS[name]).wrongs for seed in range(MUTANT_SEEDS)), name


def test_a_seed_repeats_its_run() -> None:
    """The same seed gives the same trace, step by step."""
    first, second, other = (run(seed, keep_trace=True).time.trace for seed in (3, 3, 4))
    assert first == second
    assert first != other
