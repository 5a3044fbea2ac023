"""What an administrator sees of groups, and deleting them."""

from __future__ import annotations

import pytest

from coordinator.group.notes import GroupDeleted
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, RANGE, Bench


def test_a_stable_group_shows_everything() -> None:
    """Members with instance ids, metadata and assignments."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    shown = bench.describe().response
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Stable", "consumer", "range")
    (member,) = shown.members
    assert (member.member_id, member.group_instance_id) == (peer.member_id, "a")
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (RANGE[0][1], b"a")


def test_what_is_being_decided_is_blank() -> None:
    """Outside Stable there is no protocol name, no metadata and no assignment; the members are there."""
    bench = Bench()
    bench.static("a").enter()
    for state in ("PreparingRebalance", "CompletingRebalance"):
        shown = bench.describe().response
        assert (shown.group_state, shown.protocol_type, shown.protocol_data) == (state, "consumer", "")
        assert [(m.group_instance_id, m.member_metadata, m.member_assignment) for m in shown.members] == [
            ("a", b"", b"")
        ]
        bench.advance(INITIAL_DELAY_MS)


def test_an_emptied_group_keeps_its_type() -> None:
    """So that its offsets expire as a consumer group's."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    peer.leave()
    shown = bench.describe().response
    assert (shown.group_state, shown.protocol_type, shown.members) == ("Empty", "consumer", [])


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_an_absent_group_is_dead(version: int, error: ErrorCode) -> None:
    """And from v6 on an error with a text (KIP-1043)."""
    shown = Bench().describe(group="nowhere", version=version)
    assert (shown.response.group_state, shown.error) == ("Dead", error)
    assert shown.response.error_message == ("Group nowhere not found." if version >= 6 else None)


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        ([], [], {"work", "simple"}),
        (["stable"], [], {"work"}),
        (["STABLE", "Empty"], [], {"work", "simple"}),
        (["Dead"], [], set()),
        (["nonsense"], [], set()),
        ([], ["Classic"], {"work", "simple"}),
        ([], ["consumer"], set()),
        (["Stable"], ["classic", "share"], {"work"}),
    ],
)
def test_list_filters(states: list[str], types: list[str], names: set[str]) -> None:
    """By state and by type, in any letter case; both have to pass."""
    bench = Bench()
    bench.settle(bench.static("a", group="work"))
    bench.commit(group="simple", offsets={("t", 0): 1})
    listed = bench.list_groups(states=states, types=types).response
    assert {group.group_id for group in listed} == names
    assert {group.group_type for group in listed} <= {"classic"}


def test_delete_takes_the_offsets_with_it() -> None:
    """All with tombstones, and nothing comes back."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    peer.commit(1)
    assert bench.delete().error is ErrorCode.NON_EMPTY_GROUP
    peer.leave()
    assert bench.delete().error is ErrorCode.NONE
    assert bench.delete().error is ErrorCode.GROUP_ID_NOT_FOUND
    (note,) = bench.said(GroupDeleted)
    assert (note.offsets, note.expired) == (1, False)
    bench.restart()
    assert bench.coordinator.groups == {}


def test_delete_forgets_pending_members() -> None:
    """They are no members yet."""
    bench = Bench()
    peer = bench.dynamic("a")
    peer.join()
    assert bench.delete().error is ErrorCode.NONE
    assert bench.timers == {}
    assert peer.join().error is ErrorCode.UNKNOWN_MEMBER_ID
