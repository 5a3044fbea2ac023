"""A partition as a whole: load, unload, the empty group id, groups side by side."""

from __future__ import annotations

from coordinator.group.coordinator import Coordinator
from coordinator.group.events import Load
from coordinator.group.notes import GroupLoaded
from coordinator.group.replay import Replay
from schemas.errors import ErrorCode
from tests.group.harness import Bench


def test_groups_of_one_partition_do_not_touch_each_other(bench: Bench) -> None:
    """The same instance id in two groups means two members."""
    bench.settle(bench.static("a", group="g"))
    bench.settle(bench.static("a", group="h"))
    bench.leave(group="g", members=[("", "a")])
    assert (bench.state("g"), bench.state("h")) == ("Empty", "Stable")


def test_a_load_after_a_failed_write_says_which_groups_are_gone(bench: Bench) -> None:
    """A group with nothing durable is gone, and a note says that it is Dead."""
    bench.settle(bench.static("a", group="g"))
    replay = Replay()
    replay.add(bench.records)
    coordinator = Coordinator(0, bench.config)
    loaded = {group.group_id: group for group in replay.groups()}
    coordinator.handle(Load(loaded, is_last=False, write_failed=True), bench.now)
    effects = coordinator.handle(Load({}, write_failed=True, before=["g", "gone"]), bench.now)
    assert effects.notes == [GroupLoaded("gone", 0, "Dead", 0, True)]


def test_the_empty_group_id(bench: Bench) -> None:
    """No member can join it, but offsets may be stored under it, as old clients do."""
    for _ in range(2):
        assert bench.join(group="").error is ErrorCode.INVALID_GROUP_ID
        assert bench.sync(group="", member="m", generation=1).error is ErrorCode.INVALID_GROUP_ID
        assert bench.heartbeat(group="", member="m", generation=1).error is ErrorCode.INVALID_GROUP_ID
        assert bench.leave(group="", members=[("m", None)]).error is ErrorCode.INVALID_GROUP_ID
        assert bench.delete_offsets(group="", topics={"t": [0]}).error is ErrorCode.INVALID_GROUP_ID
        assert bench.commit(group="", offsets={("t", 0): 4}).errors == [ErrorCode.NONE]
        assert bench.committed("t", 0, group="") == 4
    assert bench.state("") == "Empty"
    assert bench.delete(group="").error is ErrorCode.NONE


def test_a_refused_join_creates_no_group_unless_it_got_that_far(bench: Bench) -> None:
    """As in Kafka, the group exists once the coordinator checks the protocols, but not when an earlier check fails."""
    assert bench.join(session_ms=1).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert bench.join(member="m").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "Dead"
    assert bench.join(protocols=[]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() == "Empty"
