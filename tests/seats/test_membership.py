"""coordinator.seats.membership and supervisor in random worlds, by seed: never do two programs work under one name.

`make test` runs few worlds, `make nightly` 300. Planted faults show that the model would tell.
"""

from __future__ import annotations

import pytest

from coordinator.seats.membership import Answer, Joined, Membership, Request
from coordinator.seats.supervisor import Action, Event, Kill, Supervisor
from tests.seats.pool_model import GRACE_S, POOL, SESSION_S, PoolWorld, Process
from tests.support.length import rounds

SEEDS = rounds(6, 40, 300)
FAULTY = 300


@pytest.mark.rounds
def test_two_programs_never_work_under_one_name() -> None:
    """No two programs share a name, and each name has a program when the world has been at rest."""
    wrong = {seed: problems[:3] for seed in range(SEEDS) if (problems := PoolWorld(seed).run())}
    assert wrong == {}


class CountsFromTheAnswer(Membership):
    """Counts the time from when an answer came."""

    def answered(self, request: Request, answer: Answer | None, now: float, now_ms: int) -> None:
        """See Membership."""
        super().answered(request._replace(sent=now), answer, now, now_ms)


class ForgetsTheRebalance(Membership):
    """Takes each heartbeat for a renewal, however long the rebalance lasts."""

    @property
    def until(self) -> float:
        """See Membership."""
        return self._known_at + SESSION_S


class RepeatsTokens(Membership):
    """Gives all names the same token, as the leader."""

    def _joined(self, answer: Joined, now: float, now_ms: int) -> None:
        super()._joined(answer, now, now_ms)
        if self._next is not None:
            given = {member_id: each._replace(token=1) for member_id, each in self._next.given.items()}
            self._next = self._next._replace(given=given)


class TakesWhatIsClaimed(Membership):
    """Gives names to members in their order, as the leader: it ignores claims."""

    def _joined(self, answer: Joined, now: float, now_ms: int) -> None:
        wishes = {member_id: wish._replace(claim="", token=0) for member_id, wish in answer.wishes.items()}
        super()._joined(answer._replace(wishes=wishes), now, now_ms)


class TrustsSignals(Supervisor):
    """Takes a program for dead that got SIGTERM."""

    def handle(self, event: Event, now: float) -> list[Action]:
        """See Supervisor."""
        return [action for action in super().handle(event, now) if not isinstance(action, Kill)]


class SleepsOn(Process):
    """The keeper leaves the program to the supervisor."""

    def guard(self, now: float) -> None:
        """See Process."""


def with_member(kind: type[Membership]) -> type[PoolWorld]:
    """A world whose keepers are of this kind."""

    class Faulty(PoolWorld):
        def make_member(self, identity: str) -> Membership:
            return kind(POOL, identity, SESSION_S)

    return Faulty


class WithoutKill(PoolWorld):
    """Neither half kills."""

    process = SleepsOn

    def make_supervisor(self) -> Supervisor:
        """See PoolWorld."""
        return TrustsSignals(SESSION_S, GRACE_S)


class WithoutGuard(PoolWorld):
    """One half alone kills."""

    process = SleepsOn


FAULTS = {
    "counts from the answer": with_member(CountsFromTheAnswer),
    "forgets the rebalance": with_member(ForgetsTheRebalance),
    "repeats tokens": with_member(RepeatsTokens),
    "takes what is claimed": with_member(TakesWhatIsClaimed),
    "never kills": WithoutKill,
    "one half alone kills": WithoutGuard,
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    """Each planted fault lets a world fail."""
    found = next(
        (seed for seed in range(FAULTY) if any("nobody" not in each for each in FAULTS[fault](seed).run())), None
    )
    assert found is not None
