"""KIP-848, the consumer protocol: the clauses that no test beside the code shows. tests/kip/kip-848.md has all.

Most clauses are shown by scripts of `tests/oracle` and tests of `tests/group/consumer`, which the table names.

House rule: as in test_kip_345.py. Kafka is 4.4 here.
"""

from __future__ import annotations

from coordinator.config import GroupConfig
from coordinator.group.events import LeaveGroup
from coordinator.group.notes import MemberReplaced
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    decode,
    encode,
)
from schemas.errors import ErrorCode
from tests.group.consumer.play import CLIENT, GROUP, Owned, Play, given, named


def settle(play: Play) -> None:
    """Let each member do as it is told until nobody is on the way."""
    for _ in range(10):
        if play.state() == "Stable":
            return
        for member_id in list(play.group.members):
            member = play.group.members[member_id]
            play.beat(member_id, member.epoch, named(member.assigned))
    raise AssertionError("nobody settles")


def crew(*member_ids: str, partitions: int = 6) -> Play:
    """A stable group of these members."""
    play = Play({"t": partitions})
    for member_id in member_ids:
        play.join(member_id)
    settle(play)
    return play


def moved(before: dict[str, Owned], after: dict[str, Owned]) -> int:
    """How many partitions have another member than before."""
    owners = {partition: member_id for member_id, held in before.items() for partition in held.get("t", [])}
    return sum(owners[partition] != member_id for member_id, held in after.items() for partition in held.get("t", []))


def test_numbers_of_apis_and_errors() -> None:
    """ConsumerGroupHeartbeat is 68, ConsumerGroupDescribe 69; each new error has its number."""
    assert (ConsumerGroupHeartbeatRequest.API_KEY, ConsumerGroupDescribeRequest.API_KEY) == (68, 69)
    assert (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID) == (110, 111)
    assert (ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.STALE_MEMBER_EPOCH) == (112, 113)
    assert int(ErrorCode.INVALID_REGULAR_EXPRESSION) == 128


def test_fields_of_other_apis() -> None:
    """ListGroups says a group's type from v5 on; OffsetFetch names the member and its epoch from v9 on."""
    listed = ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id="g", group_type="consumer")])
    assert decode(ListGroupsResponse, encode(listed, 5), 5).groups[0].group_type == "consumer"
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3, topics=[])
    read = decode(OffsetFetchRequest, encode(OffsetFetchRequest(groups=[asked]), 9), 9).groups[0]
    assert (read.member_id, read.member_epoch) == ("m", 3)
    older = decode(OffsetFetchRequest, encode(OffsetFetchRequest(groups=[asked]), 8), 8).groups[0]
    assert (older.member_id, older.member_epoch) == (None, -1)


def test_settings_have_kafkas_defaults() -> None:
    """A session of 45 s, a heartbeat each 5 s, no limit of members, `uniform` before `range`, and both protocols."""
    config = GroupConfig()
    assert (config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms) == (45_000, 5_000)
    assert config.group_consumer_max_size == 2_147_483_647
    assert config.group_consumer_assignors == ("uniform", "range")
    assert config.group_coordinator_rebalance_protocols == ("classic", "consumer")


def test_answers_tell_the_heartbeat_interval() -> None:
    """The coordinator says how often a member sends heartbeats."""
    assert Play(group_consumer_heartbeat_interval_ms=7_000).join("a").heartbeat_interval_ms == 7_000


def test_each_change_of_members_is_an_epoch() -> None:
    """The group epoch grows by one when a member comes, goes, or subscribes to something else."""
    play = crew("a")
    play.set_topics(u=1)
    epochs = [play.group.generation]
    play.join("b")
    epochs.append(play.group.generation)
    play.beat("b", play.group.members["b"].epoch, topics=["u"])
    epochs.append(play.group.generation)
    play.leave("b")
    epochs.append(play.group.generation)
    assert [epoch - epochs[0] for epoch in epochs] == [0, 1, 2, 3]


def test_epochs_of_group_target_and_member() -> None:
    """A new epoch of the group has its target with the next heartbeat; members follow one by one."""
    play = crew("a", "b")
    epoch = play.group.generation
    play.leave("b")
    assert (play.group.generation, play.group.target_epoch, play.state()) == (epoch + 1, epoch, "Assigning")
    play.beat("a", epoch)
    assert (play.group.target_epoch, play.group.members["a"].epoch, play.state()) == (epoch + 1, epoch + 1, "Stable")


def test_newcomer_takes_only_its_share() -> None:
    """Targets are sticky: a third member takes two of six partitions, and the others keep the rest."""
    play = crew("a", "b")
    before = play.held()
    play.join("c")
    settle(play)
    after = play.held()
    assert [len(held["t"]) for held in after.values()] == [2, 2, 2]
    assert moved(before, after) == 2


def test_nobody_waits_for_members_that_give_up_nothing() -> None:
    """There is no barrier: a member that keeps its partitions goes on while another still gives up its own."""
    play = crew("a", "b", partitions=3)
    keeps, gives = sorted(play.group.members, key=lambda member_id: len(play.held()[member_id]["t"]))
    play.join("c")
    target = play.group.target_epoch
    assert play.beat(keeps, play.group.members[keeps].epoch).member_epoch == target
    assert play.beat(gives, play.group.members[gives].epoch).member_epoch == target - 1
    assert play.group.members["c"].assigned == {}


def test_freed_partitions_come_one_by_one() -> None:
    """A newcomer gets what one member has given up while it waits for another."""
    play = crew("a", "b")
    play.join("c")
    target = play.group.target_epoch
    told = play.beat("a", target - 1)
    play.beat("a", target - 1, given(told))
    first = given(play.beat("c", target, {})) or {}
    assert len(first["t"]) == 1
    assert play.state() == "Reconciling"
    settle(play)
    assert len(play.held()["c"]["t"]) == 2


def test_fenced_member_abandons_all_and_joins_again() -> None:
    """After FENCED_MEMBER_EPOCH a dynamic member joins with epoch 0 and has its partitions again, without an epoch."""
    play = crew("a", "b")
    before, epoch = play.held(), play.group.generation
    assert play.beat("a", epoch + 5).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = play.join("a")
    assert (again.member_epoch, given(again)) == (epoch, before["a"])
    assert (play.group.generation, play.held()) == (epoch, before)


def test_rejected_member_has_to_join_as_new() -> None:
    """A member that was removed hears UNKNOWN_MEMBER_ID, and joins as a new one: an epoch."""
    play = crew("a", "b")
    play.remove(member_id="a")
    epoch = play.group.generation
    assert play.beat("a", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.join("a").error_code == ErrorCode.NONE
    assert play.group.generation == epoch + 1


def test_rack_and_timeout_are_no_epoch() -> None:
    """Another rebalance timeout is stored and bumps nothing; another assignor does."""
    play = crew("a", "b")
    epoch = play.group.generation
    assert play.beat("a", epoch, timeout_ms=60_000).error_code == ErrorCode.NONE
    assert play.group.generation == epoch
    assert play.beat("a", epoch, assignor="range").error_code == ErrorCode.NONE
    assert play.group.generation == epoch + 1
    assert play.group.members["a"].rebalance_timeout_ms == 60_000


def test_lost_answer_of_a_static_member_locks_it_out(play: Play) -> None:
    """A static member whose first answer was lost is active, so its next join is refused until its session ends."""
    play.join("a", instance_id="i")
    play.wait(30_000)
    assert play.join("a", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    play.wait(16_000)
    assert play.join("a", instance_id="i").error_code == ErrorCode.NONE


def test_member_that_is_away_counts() -> None:
    """A static member that is away has its place in targets: a newcomer gets what is left over by all three."""
    play = Play({"t": 3})
    for number in range(2):
        play.join(f"m{number}", instance_id=f"i{number}")
    settle(play)
    play.beat("m0", -2, instance_id="i0")
    play.join("n")
    assert {member_id: sum(map(len, target.values())) for member_id, target in play.group.targets.items()} == {
        "m0": 1,
        "m1": 1,
        "n": 1,
    }


def test_return_of_a_static_member_is_noted(play: Play) -> None:
    """The log says which member id has taken the seat of which."""
    play.join("m", instance_id="i")
    play.beat("m", -2, instance_id="i")
    play.join("n", instance_id="i")
    (note,) = (note for note in play.notes if isinstance(note, MemberReplaced))
    assert (note.member_id, note.old_member_id, note.group_instance_id) == ("n", "m", "i")


def test_instance_ids_are_looked_at_before_epochs(play: Play) -> None:
    """The wrong member of a seat is FENCED_INSTANCE_ID; the right one with a wrong epoch is FENCED_MEMBER_EPOCH."""
    play.join("m", instance_id="i")
    assert play.beat("x", 9, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert play.beat("m", 9, instance_id="i").error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_several_removals_are_one_epoch() -> None:
    """Members that go by one request bump the group once; members that go one by one do so each."""
    play = crew("a", "b", "c")
    epoch = play.group.generation
    leaving = [LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in ("a", "b")]
    play.handle(LeaveGroup("r", 5, CLIENT, LeaveGroupRequest(group_id=GROUP, members=leaving)))
    assert (play.group.generation, list(play.group.members)) == (epoch + 1, ["c"])
    play.leave("c")
    assert play.group.generation == epoch + 2


def test_refused_regex_changes_nothing() -> None:
    """An expression that RE2 can't read is INVALID_REGULAR_EXPRESSION; the member goes on with its subscription."""
    play = crew("a")
    epoch = play.group.generation
    refused = play.beat("a", epoch, regex="(", regex_error="missing )")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (play.group.generation, play.group.members["a"].regex) == (epoch, "")
    assert play.beat("a", epoch).error_code == ErrorCode.NONE
