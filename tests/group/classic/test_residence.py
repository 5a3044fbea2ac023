"""A group loads and unloads with its partition, and every waiting request gets an answer."""

from __future__ import annotations

from coordinator.group.events import Resume
from coordinator.group.notes import GroupLoaded, GroupUnloaded, MemberExpired, RebalanceStarted
from coordinator.group.records import group_key, offset_key
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, INITIAL_DELAY_MS, SESSION_MS, Bench


def test_unload_answers_whoever_waits(bench: Bench) -> None:
    """NOT_COORDINATOR makes the clients look for the new coordinator."""
    leader, follower = bench.static("a", group="h"), bench.static("b", group="h")
    leader.enter()
    follower.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    joining = bench.static("c", group="k").join()
    syncing = follower.sync()
    assert joining.waits
    assert syncing.waits
    bench.unload()
    assert (joining.error, syncing.error) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    assert {note.group for note in bench.said(GroupUnloaded)} == {"h", "k"}


def test_load_brings_groups_back_and_says_so(bench: Bench) -> None:
    """A group comes back in its last synced generation; the load forgets an open rebalance."""
    peers = [bench.static(name) for name in "ab"]
    bench.settle(*peers)
    bench.static("c").enter()
    bench.restart()
    (note,) = bench.said(GroupLoaded)
    assert (note.generation, note.state, note.members) == (1, "Stable", 2)
    assert [peer.heartbeat().error for peer in peers] == [ErrorCode.NONE] * 2


def test_a_group_above_the_limit_is_rebalanced_at_load(bench: Bench) -> None:
    """After group.max.size was lowered, the members that rejoin last are refused (KAFKA-9885)."""
    peers = [bench.static(name) for name in "abc"]
    bench.settle(*peers)
    smaller = Bench(group_max_size=2)
    smaller.records = bench.records
    smaller.restart()
    (started,) = smaller.said(RebalanceStarted)
    assert started.cause.kind.value == "group_over_capacity"
    errors = []
    for peer in peers:
        call = smaller.join(member=peer.member_id, instance=peer.name)
        errors.append(None if call.waits else call.error)
    assert errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert smaller.state() == "CompletingRebalance"


def test_after_a_lapse_every_wait_for_members_starts_in_full(bench: Bench) -> None:
    """A session, a wait for joins, and a member id that no client has used: each gets its whole time again."""
    peers = [bench.static(name) for name in "ab"]
    bench.settle(*peers)
    bench.advance(SESSION_MS - 1)
    bench.handle(Resume())
    bench.advance(SESSION_MS - 1)
    assert [peer.heartbeat().error for peer in peers] == [ErrorCode.NONE] * 2
    bench.advance(SESSION_MS)
    assert {note.member_id for note in bench.said(MemberExpired)} == {peer.member_id for peer in peers}


def test_a_group_that_only_had_offsets_ends_with_a_tombstone() -> None:
    """Apache Kafka 4 makes a group of offsets that it loads; only the group's own tombstone ends it there."""
    for ends in ("delete", "delete_offsets"):
        bench = Bench()
        bench.commit(offsets={("t", 0): 5})
        if ends == "delete":
            bench.delete()
        else:
            bench.delete_offsets(topics={"t": [0]})
        assert not bench.coordinator.groups
        gone = [record.key for record in bench.records if record.value is None]
        assert gone == [offset_key(GROUP, "t", 0), group_key(GROUP)]
