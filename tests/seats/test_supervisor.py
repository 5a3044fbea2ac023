"""coordinator.seats.supervisor: a session of 10 s, of which 1 s is margin, and 3 s for the end of a program."""

from __future__ import annotations

from signal import SIGINT, SIGTERM

import pytest

from coordinator.seats.supervisor import (
    Action,
    Ended,
    Event,
    Exit,
    KeeperEnded,
    Kill,
    Leased,
    Lost,
    Say,
    Send,
    Signalled,
    Start,
    Supervisor,
    Tick,
    Waits,
    Why,
)


class Play:
    """A supervisor whose time a test sets."""

    def __init__(self, *, waits: bool = True) -> None:
        self.core = Supervisor(10, 3, waits=waits)

    def at(self, now: float, event: Event | None = None) -> list[Action]:
        """Hand in an event; lines for people are left out."""
        given = Tick() if event is None else event
        return [action for action in self.core.handle(given, now) if not isinstance(action, Say)]


@pytest.fixture
def play() -> Play:
    """Return a supervisor whose program began at 0 s with a lease until 10 s."""
    made = Play()
    assert made.at(0, Leased("w-0", 7, 10)) == [Start("w-0", 7)]
    return made


def test_a_program_gets_sigterm_and_then_sigkill_before_its_name_can_go(play: Play) -> None:
    """SIGTERM comes at 10 - 1 - 3 s, SIGKILL at 10 - 1 s, each of them once."""
    assert play.at(5.9) == []
    assert play.at(6) == [Send(SIGTERM)]
    assert play.at(8.9) == []
    assert play.at(9) == [Kill()]
    assert play.at(9.1) == []
    assert play.at(9.2, Ended(137)) == [Exit(Why.LOST, 137)]


def test_a_renewal_moves_both(play: Play) -> None:
    """A renewal moves both signals; an older one that comes late moves nothing back."""
    play.at(1, Leased("w-0", 7, 12))
    play.at(1, Leased("w-0", 7, 11))
    assert play.at(7.9) == []
    assert play.at(8) == [Send(SIGTERM)]


def test_a_renewal_after_sigterm_moves_sigkill(play: Play) -> None:
    """A program that ends slowly, or not at all, has its name for as long as it is renewed; SIGTERM comes once."""
    assert play.at(6) == [Send(SIGTERM)]
    assert play.at(7, Leased("w-0", 7, 17)) == []
    assert play.at(15.9) == []
    assert play.at(16) == [Kill()]


def test_trouble_with_the_lease_is_said_once_each_time(play: Play) -> None:
    """It is why a program may end soon."""
    texts = ["closed", "refused", "", "refused", ""]
    said = [play.core.handle(Leased("w-0", 7, 20, text), 1) for text in texts]
    closed, refused = (Say(f"the lease can't be renewed: {text}") for text in ("closed", "refused"))
    assert said == [[closed], [], [], [refused], []]


def test_a_supervisor_that_wakes_kills_first(play: Play) -> None:
    """SIGKILL comes first with any event, although no SIGTERM came."""
    assert play.at(30, Signalled(SIGINT)) == [Kill(), Send(SIGINT)]


def test_a_program_that_lost_its_name_is_killed_at_once(play: Play) -> None:
    """SIGKILL comes at once, because another program may have the name."""
    assert play.at(2, Lost("the group removed this member")) == [Kill()]


def test_without_a_keeper_the_program_ends_in_order(play: Play) -> None:
    """The program gets SIGTERM at once, and SIGKILL only before 10 s, when the name can go."""
    assert play.at(2, KeeperEnded()) == [Send(SIGTERM)]
    assert play.at(6) == []
    assert play.at(9) == [Kill()]


def test_signals_pass_on_and_the_exit_code_is_the_programs(play: Play) -> None:
    """The program gets each signal, and its exit code ends the run."""
    assert play.at(2, Signalled(SIGTERM)) == [Send(SIGTERM)]
    assert play.at(3, Leased("w-0", 7, 13)) == []
    assert play.at(4, Ended(3)) == [Exit(Why.PROGRAM, 3)]
    assert play.at(50) == []


def test_a_signal_before_the_program_ends_the_wait() -> None:
    """The exit code is that of a shell."""
    play = Play()
    assert play.at(1, Waits("no name is free")) == []
    assert play.at(2, Signalled(SIGTERM)) == [Exit(Why.SIGNAL, 143)]


def test_no_wait_ends_when_no_name_is_free() -> None:
    """No program starts."""
    assert Play(waits=False).at(1, Waits("no name is free")) == [Exit(Why.NO_NAME, 1)]


def test_no_program_starts_with_a_lease_that_is_nearly_over() -> None:
    """A program starts only after a renewal."""
    play = Play()
    assert play.at(6, Leased("w-0", 7, 10)) == []
    assert play.at(7, Leased("w-0", 7, 16)) == [Start("w-0", 7)]


def test_a_refusal_before_the_program_ends_the_wait() -> None:
    """A refusal has an exit of its own."""
    assert Play().at(1, Lost("the coordinator refuses")) == [Exit(Why.REFUSED, 0)]
