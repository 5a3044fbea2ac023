"""LeaveGroup beyond what KIP-345 says."""

from __future__ import annotations

from coordinator.group.notes import PendingExpired
from schemas.errors import ErrorCode
from tests.group.harness import Bench

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def test_one_bad_entry_does_not_spoil_the_others(bench: Bench) -> None:
    """Each entry gets its own error, with the ids exactly as in the request (KAFKA-8221, KAFKA-18188)."""
    a, b, c = (bench.static(name) for name in "abc")
    d = bench.dynamic("d")
    bench.settle(a, b, c, d)
    pending = bench.dynamic("p")
    pending.join()
    asked = [
        ("", "a"),
        ("ghost", "b"),
        (b.member_id, "nobody"),
        (b.member_id, None),
        (d.member_id, None),
        (pending.member_id, None),
        ("ghost", None),
        ("", None),
        ("", "a"),
    ]
    call = bench.leave(members=asked)
    assert call.errors == [NONE, FENCED, UNKNOWN, NONE, NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN]
    assert [(row.member_id, row.group_instance_id) for row in call.response.members] == asked
    assert call.error is NONE
    assert list(bench.group().static_members) == ["c"]
    (given_back,) = bench.said(PendingExpired)
    assert (given_back.member_id, given_back.left) == (pending.member_id, True)


def test_a_batch_that_empties_the_group_writes_it_once(bench: Bench) -> None:
    """The batch causes one rebalance and writes one record, of the empty generation."""
    peers = [bench.static(name) for name in "abc"]
    bench.settle(*peers)
    bench.leave(members=[("", name) for name in "abc"])
    assert (bench.state(), bench.rebalances, len(bench.written())) == ("Empty", 2, 2)


def test_a_leave_that_empties_is_written_however_small_the_limit() -> None:
    """The leave is acknowledged, so it must survive a restart."""
    bench = Bench(message_max_bytes=1_000)
    bench.settle(bench.static("a"))
    small = Bench(message_max_bytes=0)
    small.records = bench.records
    small.restart()
    assert small.leave(members=[("", "a")]).errors == [NONE]
    small.restart()
    assert small.state() == "Empty"
