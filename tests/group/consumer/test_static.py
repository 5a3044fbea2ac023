"""Static members of the consumer protocol: away for a while, back in the same seat (KIP-848)."""

from __future__ import annotations

from coordinator.group.events import Resume
from tests.group.consumer.play import Play, given


def seats(count: int = 2) -> Play:
    """A stable group of static members i0, i1, ... with member ids m0, m1, ...; 2 partitions each."""
    play = Play({"t": 2 * count})
    for number in range(count):
        play.join(f"m{number}", instance_id=f"i{number}")
    for _ in range(3):
        for number in range(count):
            member = play.group.members[f"m{number}"]
            owned = {"t": sorted(*member.assigned.values())} if member.assigned else {}
            play.beat(f"m{number}", member.epoch, owned)
    assert play.state() == "Stable"
    return play


def test_a_seat_stays_with_its_new_holder(play: Play) -> None:
    """The former holder goes later, as in a log in which its tombstone comes last."""
    play.join("a", instance_id="i")
    group = play.group
    group.put(group.members["a"]._replace(member_id="b", assigned={}))
    group.remove("a")
    assert group.static_members == {"i": "b"}


def test_seat_survives_a_restart_of_the_coordinator() -> None:
    """A member that is away while the coordinator restarts finds its seat, and its time starts in full."""
    play = seats()
    held = play.held()
    play.beat("m0", -2, instance_id="i0")
    play.restart()
    play.wait(40_000)
    back = play.join("n0", instance_id="i0")
    assert given(back) == held["m0"]


def test_after_a_lapse_every_session_starts_in_full() -> None:
    """The coordinator could not be reached for a while: nobody expires before a whole session timeout is over."""
    play = seats()
    timeout_ms = play.group.sessions["m0"].session_timeout_ms
    play.wait(timeout_ms - 1)
    play.handle(Resume())
    play.wait(timeout_ms - 1)
    assert set(play.group.members) == {"m0", "m1"}
    play.wait(1)
    assert not play.group.members
