"""LeaveGroup beyond what KIP-345 says."""

from __future__ import annotations

import pytest

from schemas.errors import ErrorCode
from tests.group.harness import Bench

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def test_one_bad_entry_does_not_spoil_the_others() -> None:
    """Each entry gets its own error, with the ids exactly as in the request (KAFKA-8221, KAFKA-18188)."""
    bench = Bench()
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


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_error_stands_on_top_before_v3(version: int) -> None:
    """Before v3 a request names one member, and its error is the error of the answer."""
    bench = Bench()
    peer = bench.dynamic("a")
    bench.settle(peer)
    assert bench.leave(member="ghost", version=version).error is UNKNOWN
    assert bench.leave(member=peer.member_id, version=version).error is NONE
    assert bench.leave(group="nowhere", member="m", version=version).error is UNKNOWN


def test_an_unknown_group_knows_nobody() -> None:
    """From v3 on the answer itself has no error, and each member gets UNKNOWN_MEMBER_ID."""
    call = Bench().leave(group="nowhere", members=[("m", None), ("", "i")])
    assert (call.error, call.errors) == (NONE, [UNKNOWN, UNKNOWN])


def test_a_batch_that_empties_the_group_writes_it_once() -> None:
    """The batch causes one rebalance and writes one record, of the empty generation."""
    bench = Bench()
    peers = [bench.static(name) for name in "abc"]
    bench.settle(*peers)
    bench.leave(members=[("", name) for name in "abc"])
    assert (bench.state(), bench.rebalances, len(bench.written())) == ("Empty", 2, 2)


def test_whoever_leaves_while_its_join_waits_is_answered() -> None:
    """The JoinGroup gets UNKNOWN_MEMBER_ID and an empty id, so that a client that still runs joins anew."""
    bench = Bench()
    join = bench.static("a").join()
    bench.leave(members=[("", "a")])
    assert (join.error, join.response.member_id) == (UNKNOWN, "")


def test_leaving_by_member_id_frees_the_instance_id() -> None:
    """A static member can so become a dynamic one (KIP-345)."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    assert bench.leave(members=[(peer.member_id, None)]).errors == [NONE]
    assert bench.group().static_members == {}


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
