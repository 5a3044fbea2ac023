"""A partition as a whole: it loads, it goes, and nobody waits for ever."""

from __future__ import annotations

from coordinator.group import records
from coordinator.group.coordinator import Coordinator
from coordinator.group.events import Load
from coordinator.group.notes import GroupLoaded, GroupUnloaded, RebalanceStarted
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, Bench


def test_groups_of_one_partition_do_not_touch_each_other() -> None:
    """The same ids in two groups are two members."""
    bench = Bench()
    bench.settle(bench.static("a", group="g"))
    bench.settle(bench.static("a", group="h"))
    bench.leave(group="g", members=[("", "a")])
    assert (bench.state("g"), bench.state("h")) == ("Empty", "Stable")


def test_unload_answers_whoever_waits() -> None:
    """NOT_COORDINATOR sends them to look for the new one."""
    bench = Bench()
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


def test_a_load_after_a_failed_write_says_which_groups_are_gone() -> None:
    """Nothing of them was durable; of the others it says what they are again."""
    bench = Bench()
    bench.settle(bench.static("a", group="g"))
    replay = records.Replay()
    replay.add(bench.records)
    coordinator = Coordinator(0, bench.config)
    loaded = {group.group_id: group for group in replay.groups()}
    coordinator.handle(Load(loaded, is_last=False, write_failed=True), bench.now)
    effects = coordinator.handle(Load({}, write_failed=True, before=["g", "gone"]), bench.now)
    assert effects.notes == [GroupLoaded("gone", 0, "Dead", 0, True)]


def test_load_brings_groups_back_and_says_so() -> None:
    """In their last synced generation; a rebalance under way is forgotten."""
    bench = Bench()
    peers = [bench.static(name) for name in "ab"]
    bench.settle(*peers)
    bench.static("c").enter()
    bench.restart()
    (note,) = bench.said(GroupLoaded)
    assert (note.generation, note.state, note.members) == (1, "Stable", 2)
    assert [peer.heartbeat().error for peer in peers] == [ErrorCode.NONE] * 2


def test_a_group_above_the_limit_is_rebalanced_at_load() -> None:
    """KAFKA-9885: after group.max.size was lowered the last to rejoin are turned away."""
    bench = Bench()
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


def test_the_empty_group_id() -> None:
    """No group of members has it; offsets may be stored under it, as in old clients' time."""
    bench = Bench()
    assert bench.join(group="").error is ErrorCode.INVALID_GROUP_ID
    assert bench.sync(group="", member="m", generation=1).error is ErrorCode.INVALID_GROUP_ID
    assert bench.leave(group="", members=[("m", None)]).error is ErrorCode.INVALID_GROUP_ID
    assert bench.commit(group="", offsets={("t", 0): 4}).errors == [ErrorCode.NONE]
    assert bench.committed("t", 0, group="") == 4
    assert bench.state("") == "Empty"
    assert bench.delete(group="").error is ErrorCode.NONE


def test_a_refused_join_creates_no_group_unless_it_got_that_far() -> None:
    """Kafka creates the group before it looks at the protocols."""
    bench = Bench()
    assert bench.join(session_ms=1).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert bench.join(member="m").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "Dead"
    assert bench.join(protocols=[]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() == "Empty"
