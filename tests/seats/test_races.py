"""Races of scale-down, scale-up and the return of a member, by seed: no living member is ever removed.

`make test` runs few worlds, `make nightly` 1,000 with one controller and as many with two. Planted faults show that the
model would tell. That a late answer doesn't count is too rare for it: test_core.py has that.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.seats.core import Confirm, Confirmed, Event, PodGone, PodSeen, Seats, SetSeen, SetsListed
from coordinator.seats.pods import Seat, StatefulSet
from tests.seats.model import Watcher, World
from tests.support.length import rounds

SEEDS = rounds(50, 200, 1_000)
"""Worlds for each number of controllers."""
FAULTY = 3_000
"""Each planted fault shows in one of so many worlds: in 2 to 48 of them."""


@pytest.mark.rounds
@pytest.mark.parametrize("controllers", [1, 2])
def test_no_living_member_is_removed(controllers: int) -> None:
    """And each seat that should be free is free when the world stands still."""
    wrong = {seed: problems for seed in range(SEEDS) if (problems := World(seed, controllers=controllers).run())}
    assert wrong == {}


class FreesOnTerminating(World):
    """Takes a pod that is being deleted for one that has ended."""

    def tell(self, watcher: Watcher, event: Event) -> None:
        """See World."""
        if isinstance(event, PodSeen) and event.pod.is_ending:
            event = PodGone(event.pod._replace(has_ended=True))
        super().tell(watcher, event)

    def read_pod(self, watcher: Watcher, action: Confirm, found: StatefulSet) -> None:
        """See World: such a pod doesn't count."""
        watcher.doing.append(lambda: self.tell(watcher, Confirmed(action.step, found, pod_exists=False)))


class IgnoresStart(World):
    """Counts ordinals from 0."""

    def tell(self, watcher: Watcher, event: Event) -> None:
        """See World."""
        if isinstance(event, SetSeen):
            event = SetSeen(event.set._replace(start=0))
        elif isinstance(event, SetsListed):
            event = SetsListed(tuple(each._replace(start=0) for each in event.sets))
        elif isinstance(event, Confirmed):
            assert event.set is not None
            event = event._replace(set=event.set._replace(start=0))
        super().tell(watcher, event)


class ForgetsTheMemberId(World):
    """Removes any member that has the seat."""

    def leave(self, seat: Seat, member_id: str) -> int:
        """See World."""
        program = self.members.get(seat.instance_id)
        return super().leave(seat, program.member_id if program is not None else member_id)


class ConfirmsFromItsCache(World):
    """Asks the watches in place of the API server."""

    def read_set(self, watcher: Watcher) -> StatefulSet:
        """See World."""
        (found,) = watcher.core._sets.values()
        return found

    def read_pod(self, watcher: Watcher, action: Confirm, found: StatefulSet) -> None:
        """See World."""
        exists = action.step.place in watcher.core._at
        watcher.doing.append(lambda: self.tell(watcher, Confirmed(action.step, found, exists)))


class TrustsAForcedEnd(World):
    """Takes a pod that was forced out for one that has ended."""

    def tell(self, watcher: Watcher, event: Event) -> None:
        """See World."""
        if isinstance(event, PodGone):
            event = PodGone(event.pod._replace(has_ended=True))
        super().tell(watcher, event)


class ForgetsSuspects(World):
    """Forgets that the program of an earlier pod may still run."""

    def make_core(self) -> Seats:
        """See World."""

        class Trusting(Seats):
            def handle(self, event: Event, now: float) -> Any:
                self._suspects.clear()
                return super().handle(event, now)

        return Trusting(frees=True)


@pytest.mark.parametrize(
    "fault",
    [
        FreesOnTerminating,
        IgnoresStart,
        ForgetsTheMemberId,
        TrustsAForcedEnd,
        pytest.param(ConfirmsFromItsCache, marks=pytest.mark.long),
        pytest.param(ForgetsSuspects, marks=pytest.mark.long),
    ],
)
def test_a_planted_fault_is_found(fault: type[World]) -> None:
    """One of the worlds shows it."""
    found = next((seed for seed in range(FAULTY) if any("removed" in each for each in fault(seed).run())), None)
    assert found is not None
