"""Seats that become free, and the standbys that get them: with and without a rebalance."""

from __future__ import annotations

from coordinator.group.causes import CauseKind
from coordinator.group.classic.seats import STANDBY_GENERATION
from coordinator.group.client import Client
from coordinator.group.notes import RebalanceStarted, SeatTaken, StandbySeated
from coordinator.group.state import State
from protocol.messages import ConsumerProtocolSubscription, encode
from schemas.errors import ErrorCode
from tests.group.classic.standbys import HEARTBEAT_MS, beats, take_seat, with_standby
from tests.group.harness import SESSION_MS, Bench, subscription


def large(size: int) -> bytes:
    """The metadata of a consumer that subscribes to `t`, with so many bytes of its own."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=["t"], user_data=bytes(size)), 0)


def test_standby_takes_the_seat_of_an_expired_member() -> None:
    """The generation stays, no rebalance starts, and the standby gets exactly the assignment of the lost member."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    beats(a, c)
    assert (bench.rebalances, bench.group().generation) == (1, 1)
    assert a.heartbeat().error is ErrorCode.NONE
    take_seat(c)
    assert (c.generation, c.assignment) == (1, b"b")
    assert c.heartbeat().error is ErrorCode.NONE
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    (taken,) = bench.said(SeatTaken)
    assert (taken.member_id, taken.old_member_id, taken.kind) == (c.member_id, b.member_id, "member_expired")
    assert not taken.leads


def test_leave_and_removal_free_a_seat_too() -> None:
    """A standby also takes the seat of a member that leaves, or that an operator removes."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d")
    b.leave()
    take_seat(c)
    bench.leave(members=[(c.member_id, None)], version=5, reason="member was removed by an admin: test")
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)
    assert [note.kind for note in bench.said(SeatTaken)] == ["member_left", "member_removed"]
    assert a.heartbeat().error is ErrorCode.NONE


def test_standby_that_wants_other_topics_takes_no_seat_without_a_rebalance() -> None:
    """The seat's assignment doesn't fit it: the group rebalances as without standbys, and it gets a seat in that."""
    bench, (a, _, c) = with_standby("a", "b", "c")
    c.leave()
    d = bench.dynamic("d", protocols=[("range", subscription("u"))])
    d.enter()
    d.sync()
    beats(a, d, ms=SESSION_MS + HEARTBEAT_MS)
    assert (bench.rebalances, bench.said(SeatTaken)) == (2, [])
    a.join()
    bench.assign(a)
    assert bench.group().members.keys() == {a.member_id, d.member_id}
    assert [note.member_id for note in bench.said(StandbySeated)] == [d.member_id]
    assert d.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    d.join()
    d.sync()
    assert (d.generation, d.assignment) == (2, b"d")


def test_standbys_elsewhere_come_first(bench: Bench) -> None:
    """A standby on the lost member's host comes last. Of the others the one that has waited longest comes first."""
    bench.seats(1)
    a, near, far, last = (
        bench.dynamic(name, client=Client(name, host))
        for name, host in (("a", "/10.0.0.1"), ("near", "/10.0.0.1"), ("far", "/10.0.0.2"), ("last", "/10.0.0.3"))
    )
    bench.settle(a)
    for standby in (near, far, last):
        standby.enter()
        standby.sync()
    a.leave()
    take_seat(far)
    far.leave()
    take_seat(near)
    assert [note.client_id for note in bench.said(SeatTaken)] == ["far", "near"]


def test_standby_in_the_rack_of_the_lost_member_comes_last(bench: Bench) -> None:
    """The rack is in the subscription's version 3 (KIP-881)."""
    bench.seats(1)

    def racked(rack: str) -> list[tuple[str, bytes]]:
        name = rack.encode()
        return [("range", b"\x00\x03" + subscription("t")[2:] + bytes(4) + bytes(4) + len(name).to_bytes(2) + name)]

    a, near, far = (
        bench.dynamic(name, client=Client(name, f"/{name}"), protocols=racked(rack))
        for name, rack in (("a", "x"), ("near", "x"), ("far", "y"))
    )
    bench.settle(a)
    for standby in (near, far):
        standby.enter()
    a.leave()
    assert bench.said(SeatTaken)[0].member_id == far.member_id


def test_loss_without_a_standby_rebalances() -> None:
    """The group rebalances as without the setting."""
    bench, (a, b) = with_standby("a", "b")
    b.leave()
    assert bench.rebalances == 2
    a.join()
    assert bench.group().generation == 2


def test_loss_during_a_rebalance_is_filled_at_its_end() -> None:
    """A standby doesn't prolong the rebalance of the others: it has its place in the generation and joins later."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    a.join(protocols=[("range", subscription("t", "u"))])
    assert c.heartbeat().error is ErrorCode.NONE
    b.leave()
    assert bench.state() == State.COMPLETING_REBALANCE.value
    assert bench.group().members.keys() == {a.member_id, c.member_id}
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join()
    bench.assign(a)
    c.sync()
    assert (c.generation, c.assignment) == (2, b"c")


def test_all_members_go_and_the_standby_leads() -> None:
    """The last member's seat goes to the standby, so the group doesn't become empty."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    a.leave()
    take_seat(c)
    b.leave()
    c.join()
    c.sync()
    assert (c.assignment, bench.group().leader) == (b"c", c.member_id)


def test_late_members_and_a_standby() -> None:
    """All members are late: the standby gets a seat, is waited for, and leads."""
    bench, (_, b, c) = with_standby("a", "b", "c")
    b.join(protocols=[("range", subscription("t", "u"))])
    b.leave()
    for _ in range(9):
        c.heartbeat()
        bench.advance(HEARTBEAT_MS)
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join()
    c.sync()
    assert bench.group().members.keys() == {c.member_id}


def test_crash_after_a_seat_was_taken_leaves_the_new_holder() -> None:
    """The record has the standby in the seat. The next coordinator tells it so."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    b.leave()
    bench.restart()
    assert bench.group().members.keys() == {a.member_id, c.member_id}
    take_seat(c)
    assert (c.generation, c.assignment) == (1, b"b")


def test_crash_before_the_record_leaves_the_old_holder() -> None:
    """A leave that can't be written gives no seat away."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    with bench.failing_disk():
        assert b.leave().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.group().members.keys() == {a.member_id, b.member_id}
    assert c.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    c.restart()
    c.sync()
    assert c.generation == STANDBY_GENERATION


def test_called_standby_that_does_not_join_loses_the_seat() -> None:
    """Heartbeats alone keep the seat for its rebalance timeout. Then the next standby has it."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", rebalance_ms=12_000)
    b.leave()
    beats(a, c, d, ms=15_000)
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)


def test_larger_size_seats_standbys_in_one_rebalance() -> None:
    """Two standbys, one rebalance; without the setting all get seats."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d")
    bench.seats(0)
    assert bench.said(RebalanceStarted)[-1].cause.kind is CauseKind.TARGET_SIZE_CHANGED
    a.join()
    b.join()
    bench.assign(a, b)
    for peer in (c, d):
        assert peer.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
        peer.join()
        peer.sync()
    assert (bench.rebalances, len(bench.group().members), d.assignment) == (2, 4, b"d")


def test_smaller_size_makes_the_last_members_standbys() -> None:
    """They rejoin with the others, so that no partition has two readers, and get no partitions. The leader stays."""
    bench, (a, b) = with_standby("a", "b")
    bench.seats(1)
    a.join()
    b.join()
    bench.assign(a)
    assert (a.generation, b.generation) == (2, STANDBY_GENERATION)
    a.leave()
    take_seat(b)
    assert b.assignment == b"a"


def test_size_is_kept_over_a_load() -> None:
    """A group that was loaded with too many members rebalances once."""
    bench, (a, b, _) = with_standby("a", "b", "c")
    bench.group_configs = {"g": bench.config.group_settings._replace(target_size=1)}
    bench.restart()
    a.join()
    b.join()
    assert b.generation == STANDBY_GENERATION


def test_other_protocol_types_have_no_standbys(bench: Bench) -> None:
    """The coordinator knows only a consumer's assignment without partitions. Kafka Streams adds tasks."""
    bench.seats(1)
    worker = bench.dynamic("w", protocol_type="connect", protocols=[("compatible", b"")])
    other = bench.dynamic("o", protocol_type="connect", protocols=[("compatible", b"")])
    bench.settle(worker)
    other.enter()
    assert bench.state() == State.PREPARING_REBALANCE.value


def test_called_standby_that_joins_and_does_not_sync_loses_the_seat() -> None:
    """It has one time for both, whatever heartbeats it sends; then the next standby has the seat. No rebalance."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", rebalance_ms=12_000)
    b.leave()
    beats(a, c, d, ms=6_000)
    c.join()
    beats(a, c, d, ms=3_000)
    assert c.heartbeat().error is ErrorCode.NONE
    beats(a, c, d, ms=3_000)
    assert c.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)


def test_called_standby_has_no_say_in_the_time_of_others(bench: Bench) -> None:
    """Its JoinGroup gives a member that has not synced no more time. A standby takes that seat too, at no rebalance."""
    bench.seats(3)
    a, b, silent, c, d = (bench.dynamic(name, rebalance_ms=12_000) for name in ("a", "b", "silent", "c", "d"))
    for peer in (a, b, silent, c, d):
        peer.enter()
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    bench.assign(a, b, c, d)
    beats(a, b, silent, c, d, ms=9_000)
    b.leave()
    take_seat(c)
    beats(a, c, silent, d, ms=3_000)
    assert silent.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    take_seat(d)
    assert (c.assignment, d.assignment, bench.rebalances) == (b"b", b"silent", 1)
    assert [note.kind for note in bench.said(SeatTaken)] == ["member_left", "sync_timed_out"]


def test_standby_seated_by_a_rebalance_that_never_joins_gives_the_seat_to_the_next() -> None:
    """The others sync and go on. After its time the next standby has the seat; nobody else notices."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", rebalance_ms=12_000)
    a.join(protocols=[("range", subscription("t", "u"))])
    b.leave()
    bench.assign(a)
    assert bench.group().members.keys() == {a.member_id, c.member_id}
    beats(a, d, ms=12_000)
    take_seat(d)
    assert (d.generation, d.assignment, bench.rebalances) == (2, b"c", 2)
    assert a.heartbeat().error is ErrorCode.NONE


def test_crash_after_a_leaders_seat_was_taken_leaves_the_new_leader() -> None:
    """Its generation tells the next coordinator that it was a standby: it joins with other bytes, and leads."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    a.leave()
    bench.restart()
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join(protocols=[("range", b"\x00\x01" + subscription("t")[2:] + bytes(4))])
    c.sync(assignments={})
    assert (c.generation, c.assignment, bench.group().leader) == (1, b"a", c.member_id)
    assert (bench.rebalances, b.heartbeat().error) == (1, ErrorCode.NONE)


def test_crash_does_not_give_a_called_standby_endless_time() -> None:
    """It counts as called once more, from its first heartbeat on."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", rebalance_ms=12_000)
    b.leave()
    bench.restart()
    d.restart()
    d.sync()
    beats(a, c, d, ms=15_000)
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)


def test_static_standby_that_misses_a_rebalance_after_a_crash_has_the_time_of_the_others(bench: Bench) -> None:
    """The coordinator doesn't know that it was a standby until its heartbeat says so: it has to sync as all members."""
    bench.seats(2)
    a, b, c, d = (bench.static(name, rebalance_ms=12_000, session_ms=30_000) for name in ("a", "b", "c", "d"))
    bench.settle(a, b)
    for standby in (c, d):
        standby.enter()
        standby.sync()
    b.leave()
    bench.restart()
    a.join(protocols=[("range", subscription("t", "u"))])
    beats(a, ms=12_000)
    bench.assign(a)
    assert bench.group().members.keys() == {a.member_id, c.member_id}
    beats(a, ms=6_000)
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    beats(a, c, ms=3_000)
    take_seat(c)
    assert (c.generation, c.assignment) == (2, b"c")
    beats(a, c, ms=30_000)
    assert (bench.rebalances, bench.state()) == (2, "Stable")


def test_standby_whose_metadata_the_store_has_no_room_for_gets_no_seat() -> None:
    """The loss rebalances, as it does without a standby. The limit is the store's, not that of a batch."""
    bench = Bench(message_max_bytes=10_000_000, stored_max_bytes=30_000)
    bench.seats(2)
    a, b, c = bench.dynamic("a"), bench.dynamic("b"), bench.dynamic("c", protocols=[("range", large(40_000))])
    bench.settle(a, b)
    c.enter()
    c.sync()
    b.leave()
    assert (bench.rebalances, bench.said(SeatTaken), bench.state()) == (2, [], "PreparingRebalance")


def test_static_standby_whose_restart_does_not_fit_is_called_still() -> None:
    """Its old program has the seat again, and the time that it had."""
    bench = Bench(message_max_bytes=1_000)
    bench.seats(2)
    a, b, c, d = (bench.static(name, rebalance_ms=12_000) for name in ("a", "b", "c", "d"))
    bench.settle(a, b)
    for standby in (c, d):
        standby.enter()
        standby.sync()
    b.leave()
    twin = bench.join(instance="c", protocols=[("range", large(1_000))])
    assert twin.error is ErrorCode.UNKNOWN_SERVER_ERROR
    beats(a, c, d, ms=15_000)
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)


def test_a_called_standby_that_syncs_has_to_join_again() -> None:
    """Its generation is no group's, and yet no error: the answer is the one that calls it."""
    bench, (_, b, c) = with_standby("a", "b", "c")
    b.leave()
    assert c.sync().error is ErrorCode.REBALANCE_IN_PROGRESS
    take_seat(c)
    assert (c.assignment, bench.rebalances) == (b"b", 1)
