"""Static members of the consumer protocol: away for a while, back in the same seat (KIP-848)."""

from __future__ import annotations

from coordinator.group.events import Resume
from schemas.errors import ErrorCode
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


def test_restart_moves_nothing() -> None:
    """A static member leaves with -2 and comes back under another member id: same partitions, same epochs."""
    play = seats()
    before, epoch = play.held(), play.group.generation
    away = play.beat("m0", -2, instance_id="i0")
    assert (away.error_code, away.member_epoch, away.heartbeat_interval_ms) == (ErrorCode.NONE, -2, 0)
    assert play.group.members["m0"].epoch == -2
    assert play.state() == "Reconciling"
    back = play.join("n0", instance_id="i0")
    assert (back.member_epoch, given(back)) == (epoch, before["m0"])
    assert play.held() == {"m1": before["m1"], "n0": before["m0"]}
    assert (play.group.generation, play.state()) == (epoch, "Stable")
    assert given(play.beat("m1", epoch)) is None


def test_active_seat_is_not_taken() -> None:
    """While its member is active, a seat is UNRELEASED_INSTANCE_ID for everybody, also under its own member id."""
    play = seats()
    for member_id in ("n0", "m0"):
        assert play.join(member_id, instance_id="i0").error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_former_holder_is_fenced() -> None:
    """Once another has the seat, requests under the old member id are FENCED_INSTANCE_ID, whatever their epoch."""
    play = seats()
    epoch = play.group.generation
    play.beat("m0", -2, instance_id="i0")
    play.join("n0", instance_id="i0")
    assert play.beat("m0", epoch, instance_id="i0").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert play.beat("m0", 99, instance_id="i0").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert play.beat("m0", -1, instance_id="i0").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert play.beat("x", 1, instance_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_is_away_is_fenced_at_its_old_epoch() -> None:
    """Heartbeats of a member that is away are fenced; a second -2 is fine."""
    play = seats()
    epoch = play.group.generation
    play.beat("m0", -2, instance_id="i0")
    assert play.beat("m0", epoch, instance_id="i0").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert play.beat("m0", -2, instance_id="i0").error_code == ErrorCode.NONE


def test_time_away_counts_from_the_last_heartbeat() -> None:
    """-2 does not restart the session; a seat whose member stays away goes to the others."""
    play = seats()
    play.wait(30_000)
    play.beat("m1", play.group.generation)
    play.beat("m0", -2, instance_id="i0")
    play.wait(14_000)
    assert "i0" in play.group.static_members
    play.wait(2_000)
    assert "i0" not in play.group.static_members
    assert given(play.beat("m1", play.group.members["m1"].epoch)) == {"t": [0, 1, 2, 3]}


def test_return_with_another_subscription_bumps() -> None:
    """Other names on the return bump the epoch; what the member left is given up at once, as it owns nothing."""
    play = seats()
    play.set_topics(u=1)
    epoch = play.group.generation
    play.beat("m0", -2, instance_id="i0")
    back = play.join("n0", ["u"], instance_id="i0")
    assert (back.member_epoch, given(back)) == (epoch + 1, {"u": [0]})
    assert given(play.beat("m1", epoch)) == {"t": [0, 1, 2, 3]}


def test_leaving_for_good_frees_the_seat() -> None:
    """-1 of a static member removes it at once, also without its instance id."""
    play = seats()
    epoch = play.group.generation
    assert play.leave("m0").error_code == ErrorCode.NONE
    assert (play.group.generation, play.group.static_members) == (epoch + 1, {"i1": "m1"})
    assert play.join("n0", instance_id="i0").error_code == ErrorCode.NONE


def test_going_away_in_the_middle_of_a_revocation_frees_partitions() -> None:
    """-2 of a member that was told to give up partitions frees them at once; before it was told it frees nothing."""
    play = Play()
    play.join("m0", instance_id="i0")
    play.join("b")
    play.beat("m0", -2, instance_id="i0")
    assert given(play.beat("b", 3)) is None
    play.join("n0", instance_id="i0")
    assert play.group.members["n0"].epoch == 3
    assert len((given(play.beat("b", 3)) or {})["t"]) == 2


def test_a_seat_stays_with_its_new_holder() -> None:
    """The former holder goes later, as in a log in which its tombstone comes last."""
    play = Play()
    play.join("a", instance_id="i")
    group = play.group
    group.put(group.members["a"]._replace(member_id="b", assigned={}))
    group.remove("a")
    assert group.static_members == {"i": "b"}


def test_dynamic_member_becomes_static_by_rejoining() -> None:
    """Joining again with an instance id takes a seat without a bump; a mere heartbeat with one is unknown."""
    play = Play()
    play.join("a")
    assert play.beat("a", 2, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.join("a", instance_id="i").member_epoch == 2
    assert play.group.static_members == {"i": "a"}


def test_administrator_removes_members() -> None:
    """LeaveGroup removes static members by instance id and others by member id."""
    play = seats()
    play.join("d")
    epoch = play.group.generation
    assert play.remove(group_instance_id="i0") == ErrorCode.NONE
    assert play.remove(member_id="d") == ErrorCode.NONE
    assert play.remove(member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.remove(group_instance_id="i9") == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.remove(member_id="x", group_instance_id="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert list(play.group.members) == ["m1"]
    assert play.group.generation == epoch + 2


def test_seat_survives_a_restart_of_the_coordinator() -> None:
    """A member that is away while the coordinator restarts finds its seat, and its time starts in full."""
    play = seats()
    held = play.held()
    play.beat("m0", -2, instance_id="i0")
    play.restart()
    play.wait(40_000)
    back = play.join("n0", instance_id="i0")
    assert given(back) == held["m0"]


def test_a_member_that_comes_back_with_another_instance_id_frees_its_first_seat() -> None:
    """Nobody has that seat any more, so another member may take it, also when the one before is gone."""
    play = Play({"t": 1})
    play.join("m", instance_id="first")
    assert not play.join("m", instance_id="second").error_code
    assert play.group.static_members == {"second": "m"}
    play.beat("m", -1, instance_id="second")
    assert play.beat("m", 1, instance_id="first").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not play.join("n", instance_id="first").error_code


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
