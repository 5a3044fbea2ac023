"""Both protocols in one group: a classic group of consumers goes to the consumer protocol, member by member, and back.

The facts are those of Apache Kafka 4.4.0, asked over the wire.
"""

from __future__ import annotations

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.effects import SESSION
from coordinator.group.events import Resume
from coordinator.group.notes import ClientRefused, GroupConverted, MembersDropped, RebalanceCause, RebalanceStarted
from coordinator.group.state import Kind
from schemas.errors import ErrorCode
from tests.group.consumer.play import CLIENT, GROUP, Play, assigned, given, named, read, subscribed

ALL = {"t": [0, 1, 2, 3]}
LOW, HIGH = {"t": [0, 1]}, {"t": [2, 3]}
NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


def rejoin(play: Play, member_id: str, owned: dict[str, list[int]], generation: int, **said: object) -> int:
    """JoinGroup of a member that owns these partitions; the generation in its answer."""
    answer = play.classic_join(member_id, subscribed("t", owned=owned, generation=generation), **said)  # type: ignore[arg-type]
    assert answer.error_code == NONE
    return int(answer.generation_id)


# Upgrade.


def test_upgrade_keeps_generation_and_assignments(play: Play) -> None:
    """The generation becomes the epoch, what the leader gave becomes the target; the newcomer bumps by one."""
    c, d = play.classic_group(("c", None, LOW), ("d", None, HIGH))
    assert play.group.generation == 2
    answer = play.join("a")
    assert (answer.member_epoch, given(answer)) == (3, {})
    group = play.group
    assert (group.kind, group.generation, group.target_epoch) == (Kind.CONSUMER, 3, 3)
    assert [(group.members[each].epoch, group.members[each].previous_epoch) for each in (c, d)] == [(2, 2), (2, 2)]
    assert play.held() == {c: LOW, d: HIGH, "a": {}}
    assert [member.member_type for member in play.describe().members] == [0, 0, 1]
    assert GroupConverted(GROUP, 2, "consumer", 2) in play.notes


def test_upgrade_answers_whoever_waits(play: Play) -> None:
    """Waiting JoinGroups and SyncGroups get REBALANCE_IN_PROGRESS, and the JoinGroups their member id."""
    (c,) = play.classic_group(("c", None, ALL))
    assert play.classic_join("", version=3, request="d") is None
    play.join("a")
    answer = play.answers["d"]
    assert (answer.error_code, answer.member_id in play.group.members) == (REBALANCE, True)
    assert play.held()[c] == ALL
    play = Play()
    (c,) = play.classic_group(("c", None, ALL))
    play.classic_join("", version=3, request="d")
    play.classic_join(c)
    d = play.answers["d"].member_id
    assert play.classic_sync(d, 2, request="sync d") is None
    play.join("a")
    assert play.answers["sync d"].error_code == REBALANCE
    assert play.group.generation == 3
    assert [key for key in play.timers if not key.member_id] == []


def test_upgrade_writes_the_tombstone_first(play: Play) -> None:
    """The classic group's tombstone comes before the records of the new one, in the same batch."""
    play.classic_group(("c", None, LOW), ("d", None, HIGH))
    before = len(play.log)
    play.join("a")
    written = [(int.from_bytes(record.key[:2]), record.value is None) for record in play.log[before:]]
    assert written[0] == (2, True)
    assert [version for version, _ in written[1:9]] == [5, 5, 3, 7, 7, 6, 8, 8]
    # Then the newcomer: its subscription, the epoch, the targets that change, what it has.
    assert [version for version, _ in written[9:]] == [5, 3, 7, 7, 6, 8]
    assert not any(is_tombstone for _, is_tombstone in written[1:])


def test_upgrade_needs_consumers_and_one_owner_for_each_partition(play: Play) -> None:
    """A group of another protocol type stays, and so does one whose leader gave a partition twice. A line says why."""
    play.classic_join("", version=3, protocol_type="connect")
    assert play.join("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (note,) = refusals(play)
    assert (note.error, note.until, note.client) == ("GROUP_ID_NOT_FOUND", "the group is empty", CLIENT)
    play = Play()
    play.classic_group(("c", None, ALL), ("d", None, ALL))
    assert play.join("a").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (note,) = refusals(play)
    assert (note.error, note.until) == ("UNKNOWN_SERVER_ERROR", "a rebalance brings other assignments")
    assert "gave a topic partition to two members" in note.why


def refusals(play: Play) -> list[ClientRefused]:
    """The notes about clients that were refused."""
    return [note for note in play.notes if isinstance(note, ClientRefused)]


def test_upgrade_waits_for_a_first_rebalance() -> None:
    """A newcomer is asked to try again until there is a generation to go on with; one line says so (KAFKA-21581)."""
    play = Play(group_initial_rebalance_delay_ms=3_000)
    play.classic_join("", version=3)
    for _ in range(3):
        assert play.join("a").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "join" not in play.answers
    (note,) = refusals(play)
    assert (note.member_id, note.error, note.until) == ("a", "COORDINATOR_LOAD_IN_PROGRESS", "its rebalance is over")
    play.wait(3_000)
    assert play.join("a").member_epoch == 2


def test_upgrade_waits_for_a_rebalance_to_another_protocol(play: Play) -> None:
    """The same if members that join don't list the protocol name of the last generation."""
    both = [("range", subscribed("t")), ("roundrobin", subscribed("t"))]
    c = play.classic_join("", protocols=both, version=3).member_id
    play.classic_sync(c, 1, {c: assigned(**ALL)})
    play.classic_join("", name="roundrobin", version=3, request="d")
    assert play.join("a").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    play.classic_join(c, protocols=both)
    play.classic_sync(c, 2, {c: assigned(**ALL)}, protocol_name="roundrobin")
    assert play.join("a").member_epoch == 3
    assert len(refusals(play)) == 1


def test_upgrade_keeps_offsets(play: Play) -> None:
    """Committed offsets stay with the group."""
    (c,) = play.classic_group(("c", None, ALL))
    assert play.commit(c, 1) == NONE
    play.join("a")
    assert play.fetch(None, -1).topics[0].partitions[0].committed_offset == 7


def test_upgrade_of_a_group_that_is_too_large_for_the_consumer_protocol() -> None:
    """It stays classic until it has at most group.consumer.max.size members."""
    play = Play(group_consumer_max_size=1)
    c, _ = play.classic_group(("c", None, LOW), ("d", None, HIGH))
    refused = play.join("a")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "exceeds the consumer group maximum size" in refused.error_message
    assert play.coordinator.groups[GROUP].kind is Kind.CLASSIC
    play.remove_all(c)
    assert play.join("a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def large_group(play: Play, assignment: bytes) -> None:
    """A Stable classic group of a hundred members, each with this assignment."""
    names = [f"m{number}" for number in range(100)]
    for name in names:
        play.classic_join("", version=3, request=name)
    play.classic_join(play.answers["m0"].member_id, request="m0")
    ids = [play.answers[name].member_id for name in names]
    play.classic_sync(ids[0], 2, dict.fromkeys(ids, assignment))
    assert play.state() == "Stable"


def test_large_group_that_cannot_be_upgraded_is_not_read_again_at_once(play: Play) -> None:
    """The same refusal holds for a millisecond for each member; the newcomer's own mistakes come before it."""
    large_group(play, assigned(**ALL)[:-4] + b"\0\0\0\1x")
    assert play.join("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert play.join("a", regex="(", regex_error="missing )").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    members = list(play.coordinator.groups[GROUP].members)
    for number, member in enumerate(members):
        play.classic_join(member, subscribed("t", "u"), request=f"again {number}")
    play.classic_sync(members[0], 3, {members[0]: assigned(**ALL)})
    assert play.state() == "Stable"
    assert play.join("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    play.wait(100)
    assert play.join("a").error_code == NONE


def test_large_group_that_was_downgraded_stays_classic_for_a_while(play: Play) -> None:
    """A client that joins and leaves all the time must not stop the server; it is told to try again."""
    large_group(play, b"")
    assert play.join("a").error_code == NONE
    play.leave("a")
    assert play.join("a").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert play.coordinator.groups[GROUP].kind is Kind.CLASSIC
    play.wait(100)
    assert play.join("a").error_code == NONE


def test_upgraded_group_has_a_limit_of_topics(play: Play) -> None:
    """Its members and the newcomer subscribe to 20,000 topics by name at most."""
    c = play.classic_join("", subscribed(*[f"t{number}" for number in range(15_000)]), version=3).member_id
    play.classic_sync(c, 1, {c: b""})
    assert play.join("a", [f"u{number}" for number in range(6_000)]).error_code == ErrorCode.INVALID_REQUEST
    assert play.join("a", [f"t{number}" for number in range(6_000)]).error_code == NONE


# Upgrade with gaps (KAFKA-21584).


def three(play: Play) -> tuple[str, str, str]:
    """A Stable classic group of the static members `c` and `d`, and of `e`, which has partitions 2 and 3."""
    c, d, e = play.classic_group(("c", "C", {"t": [0]}), ("d", "D", {"t": [1]}), ("e", None, HIGH))
    return c, d, e


def settle(play: Play) -> dict[str, list[int]]:
    """Let all members do what they hear, until the group is Stable; each one's partitions of the topic t."""
    for _ in range(10):
        for member_id, member in list(play.group.members.items()):
            if member.classic is None:
                play.beat(member_id, member.epoch, named(member.assigned))
            elif play.classic_beat(member_id, member.epoch, member.instance_id) == REBALANCE:
                said = subscribed(*member.topics, owned=named(member.assigned), generation=member.epoch)
                answer = play.classic_join(member_id, said, instance_id=member.instance_id)
                play.classic_sync(member_id, answer.generation_id)
    assert play.state() == "Stable"
    return {member_id: held.get("t", []) for member_id, held in play.held().items()}


@pytest.mark.parametrize("how", ["left", "expired"])
def test_upgrade_in_a_rebalance_gives_what_nobody_has(play: Play, how: str) -> None:
    """The partitions of a member that is gone get an owner, although the newcomer takes over a seat (KAFKA-21584)."""
    c, d, e = three(play)
    if how == "left":
        play.remove(member_id=e)
    else:
        play.wait(44_000)
        play.classic_beat(c, 3)
        play.classic_beat(d, 3)
        play.wait(1_000)
    assert classic_state(play) == REBALANCING
    answer = play.join("a", instance_id="C")
    assert answer.member_epoch == 4
    assert CauseKind.TARGET_INCOMPLETE in {note.cause.kind for note in play.notes if isinstance(note, RebalanceStarted)}
    held = settle(play)
    assert sorted(held["a"] + held[d]) == ALL["t"]


def test_upgrade_of_a_group_whose_topic_grew() -> None:
    """Partitions that came while the classic group prepared have owners at once, not after the next growth."""
    play = Play({"t": 2})
    play.classic_group(("c", "C", LOW))
    play.classic_join("", version=3, request="d")
    play.set_topics(t=4)
    assert play.join("a", instance_id="C").member_epoch == 2
    targets = play.group.targets.values()
    assert sorted(each for target in targets for part in target.values() for each in part) == ALL["t"]


def test_upgrade_of_a_group_whose_leader_missed_a_growth() -> None:
    """The same in a Stable group: the target that is taken over has to cover what is there."""
    play = Play({"t": 2})
    play.classic_group(("c", "C", LOW))
    play.set_topics(t=4)
    answer = play.join("a", instance_id="C")
    assert (answer.member_epoch, given(answer)) == (2, ALL)


def test_upgrade_while_a_member_changes_its_subscription() -> None:
    """A topic that only the open rebalance would bring in has owners, and no member keeps one that it gave up."""
    play = Play({"t": 4, "u": 2})
    _, d, e = three(play)
    play.classic_join(d, subscribed("u"), instance_id="D", request="again")
    play.remove(member_id=e)
    assert play.join("a", instance_id="C").member_epoch == 4
    assert settle(play) == {"a": ALL["t"], d: []}
    assert play.held()[d] == {"u": [0, 1]}


def test_upgrade_while_a_first_assignment_is_awaited(play: Play) -> None:
    """A member that waits for its first assignment gets partitions, also where no member has had any."""
    play.classic_group(("c", "C", ALL))
    play.classic_join("", version=3, request="d")
    assert play.join("a", instance_id="C").member_epoch == 2
    held = settle(play)
    assert [len(held["a"]), len(held[play.answers["d"].member_id])] == [2, 2]
    play = Play()
    play.classic_join("", version=9, instance_id="C")
    assert play.coordinator.groups[GROUP].state.value == "CompletingRebalance"
    answer = play.join("a", instance_id="C")
    assert (answer.member_epoch, given(answer)) == (2, ALL)


def test_upgrade_without_gaps_bumps_nothing(play: Play) -> None:
    """A seat that is taken over while nobody else waits moves nothing, whatever the state: the target covers all."""
    _, d = play.classic_group(("c", "C", LOW), ("d", "D", HIGH))
    play.classic_join(d, subscribed("t"), instance_id="D", request="again", protocols=None)
    answer = play.join("a", instance_id="C")
    assert (answer.member_epoch, given(answer), play.state()) == (2, LOW, "Stable")


def test_group_that_was_upgraded_with_gaps_is_read_from_the_log() -> None:
    """A log of Kafka, or from before the rule was on: the first heartbeat makes another epoch, and no further one."""
    play = Play(fixes=frozenset())
    _, d, e = three(play)
    play.remove(member_id=e)
    assert play.join("a", instance_id="C").member_epoch == 3
    play.restart()
    assert play.beat("a", 3).member_epoch == 3
    play.configure(fixes=frozenset({"kafka-21584"}))
    play.restart()
    assert play.beat("a", 3).member_epoch == 4
    held = settle(play)
    assert sorted(held["a"] + held[d]) == ALL["t"]
    play.restart()
    assert play.beat("a", 4).member_epoch == 4


def test_gaps_of_a_loaded_group_are_looked_for_once_it_is_settled() -> None:
    """Partitions without a holder are no gap while a member is away or on its way; behind that they are."""
    play = Play(fixes=frozenset())
    _, d, e = three(play)
    play.remove(member_id=e)
    play.join("a", instance_id="C")
    play.beat("a", -2, instance_id="C")
    play.configure(fixes=frozenset({"kafka-21584"}))
    play.restart()
    assert play.join("b", instance_id="C").member_epoch == 3
    assert play.beat("b", 3).member_epoch == 4
    held = settle(play)
    assert sorted(held["b"] + held[d]) == ALL["t"]


def test_without_the_rule_a_taken_seat_bumps_nothing() -> None:
    """As in Kafka, a member that waited for its first assignment gets none until something else makes an epoch."""
    play = Play(fixes=frozenset())
    play.classic_group(("c", "C", ALL))
    play.classic_join("", version=3, request="d")
    assert play.join("a", instance_id="C").member_epoch == 1
    d = play.answers["d"].member_id
    assert rejoin(play, d, {}, -1) == 1
    assert read(play.classic_sync(d, 1).assignment) == {}
    assert play.classic_beat(d, 1) == NONE
    assert play.state() == "Stable"


# Classic members inside.


def test_assignment_has_the_version_of_the_subscription(play: Play) -> None:
    """A member that subscribes in version 0 gets its assignment in version 0."""
    play.join("a", ["t"])
    for version in (0, 1, 3):
        answer = play.classic_join("m", subscribed("t", version=version))
        assert play.classic_sync("m", answer.generation_id).assignment[:2] == version.to_bytes(2)


def test_full_group_takes_no_classic_member() -> None:
    """group.consumer.max.size counts for them too; a member may rejoin."""
    play = Play(group_consumer_max_size=2)
    play.join("a")
    assert play.classic_join("m").error_code == NONE
    assert play.classic_join("n").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.classic_join("m").error_code == NONE


def test_wrong_syncs_and_heartbeats_are_refused(play: Play) -> None:
    """Unknown members, other generations, other protocols; members of the consumer protocol send neither."""
    play.join("a")
    play.classic_join("m", instance_id=None)
    d = play.classic_join("", instance_id="D").member_id
    assert play.classic_beat("nobody", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.classic_beat("a", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.classic_beat("m", 9) == ErrorCode.ILLEGAL_GENERATION
    assert play.classic_beat(d, 4, "X") == ErrorCode.UNKNOWN_MEMBER_ID
    assert play.classic_beat("m", 3, "D") == ErrorCode.FENCED_INSTANCE_ID
    for member_id, generation, said, error in (
        ("nobody", 3, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 9, {}, ErrorCode.ILLEGAL_GENERATION),
        ("m", 3, {"instance": "D"}, ErrorCode.FENCED_INSTANCE_ID),
        ("m", 3, {"protocol_type": "another"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("m", 3, {"protocol_name": "another"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("m", 3, {}, REBALANCE),
        (d, 4, {}, NONE),
    ):
        assert play.classic_sync(member_id, generation, **said).error_code == error, (member_id, said)  # type: ignore[arg-type]


def test_waiting_classic_member_hears_none_until_its_partitions_are_free(play: Play) -> None:
    """Its heartbeat is NONE while others hold its partitions, then REBALANCE_IN_PROGRESS until it rejoined.

    Then only sessions have timers: it need not rejoin or sync any more.
    """
    play.join("a")
    assert play.classic_join("m").generation_id == 3
    assert read(play.classic_sync("m", 3).assignment) == {}
    assert play.classic_beat("m", 3) == NONE
    kept = given(play.beat("a", 2))
    assert play.classic_beat("m", 3) == NONE
    assert play.beat("a", 2, kept).member_epoch == 3
    assert play.classic_beat("m", 3) == REBALANCE
    assert play.classic_beat("m", 3) == REBALANCE
    assert rejoin(play, "m", {}, 3) == 3
    assert len(read(play.classic_sync("m", 3).assignment)["t"]) == 2
    assert play.classic_beat("m", 3) == NONE
    assert play.state() == "Stable"
    assert {key.kind for key in play.timers} == {SESSION}


def test_classic_member_that_does_not_rejoin_is_removed(play: Play) -> None:
    """Its rebalance timeout runs from when it was told first; heartbeats don't prolong it."""
    (c,) = play.classic_group(("c", None, ALL))
    play.join("a")
    play.wait(20_000)
    assert c in play.group.members
    assert play.classic_beat(c, 1) == REBALANCE
    play.wait(6_000)
    assert play.classic_beat(c, 1) == REBALANCE
    play.wait(4_000)
    assert list(play.group.members) == ["a"]
    assert play.group.generation == 3
    assert MembersDropped(GROUP, 2, (c,), "did not rejoin in time") in play.notes
    assert play.classic_beat(c, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert given(play.beat("a", 2)) == ALL


def test_classic_member_that_does_not_sync_is_removed(play: Play) -> None:
    """It has its rebalance timeout for that, from its join on."""
    play.join("a")
    play.classic_join("m")
    play.classic_join("n")
    play.wait(9_999)
    assert play.classic_sync("n", 4).error_code == NONE
    play.wait(1)
    assert list(play.group.members) == ["a", "n"]
    assert MembersDropped(GROUP, 4, ("m",), "did not sync in time") in play.notes
    play.wait(20_000)
    assert list(play.group.members) == ["a", "n"]


def test_members_that_could_not_reach_the_server_wait_in_full(play: Play) -> None:
    """A classic member that must sync or rejoin has its whole rebalance timeout again, and then goes."""
    (c,) = play.classic_group(("c", None, ALL))
    play.join("a")
    assert play.classic_beat(c, 1) == REBALANCE
    play.classic_join("m")
    play.wait(9_000)
    play.handle(Resume())
    play.wait(9_999)
    assert list(play.group.members) == [c, "a", "m"]
    play.wait(1)
    assert list(play.group.members) == ["a"]


def test_classic_member_has_a_session_of_its_own_length(play: Play) -> None:
    """The session timeout of its JoinGroup counts, and heartbeats renew it; a commit does not."""
    play.join("a")
    play.classic_join("m", session_ms=12_000)
    play.classic_sync("m", 3)
    play.wait(11_000)
    assert play.classic_beat("m", 3) == NONE
    play.wait(11_000)
    assert play.commit("m", 3) == NONE
    play.wait(999)
    assert "m" in play.group.members
    play.wait(1)
    assert list(play.group.members) == ["a"]


def test_after_a_restart_its_session_is_as_long_as_others() -> None:
    """Until its next request, as in Kafka; then its own session timeout counts again."""
    play = Play({"t": 1})
    play.join("a")
    play.classic_join("m", session_ms=12_000)
    play.restart()
    play.wait(40_000)
    assert play.classic_beat("m", 3) == NONE
    play.beat("a", 2)
    play.wait(11_999)
    assert "m" in play.group.members
    play.wait(1)
    assert "m" not in play.group.members


def test_classic_member_leaves(play: Play) -> None:
    """LeaveGroup bumps the epoch. The last classic member's departure is no downgrade."""
    (c,) = play.classic_group(("c", None, ALL))
    play.join("a")
    assert play.remove(member_id=c) == NONE
    assert (play.group.kind, play.group.generation) == (Kind.CONSUMER, 3)
    (cause,) = [note.cause for note in play.notes if isinstance(note, RebalanceCause)][-1:]
    assert cause.kind is CauseKind.MEMBER_LEFT
    assert given(play.beat("a", 2)) == ALL


def test_dynamic_member_goes_on_under_its_id(play: Play) -> None:
    """A heartbeat under a classic member's own id bumps nothing, and ends its waits; JoinGroup leads back."""
    c, _ = play.classic_group(("c", None, LOW), ("d", None, HIGH))
    answer = play.join(c)
    assert (answer.member_epoch, given(answer), play.group.generation) == (2, LOW, 2)
    assert play.group.members[c].classic is None
    play.join("a")
    assert rejoin(play, c, LOW, 2) == 3
    assert play.group.members[c].classic is not None
    assert play.join(c).member_epoch == 3
    play.wait(30_000)
    assert c in play.group.members
    assert play.group.classic_size == 1


def test_mixed_group_survives_a_restart(play: Play) -> None:
    """Classic members go on where they were."""
    c, d = play.classic_group(("c", None, LOW), ("d", "D", HIGH))
    play.join("a")
    play.restart()
    assert play.classic_beat(c, 2) == REBALANCE
    assert play.classic_beat(d, 2, "D") == REBALANCE
    assert rejoin(play, c, LOW, 2) in (2, 3)


# Static seats across the protocols.


def test_seat_of_a_member_that_is_away_goes_to_a_classic_one(play: Play) -> None:
    """After -2 a classic member takes the seat as well; it inherits the partitions."""
    play.join("a", instance_id="A")
    play.join("b", instance_id="B")
    kept = given(play.beat("a", 2, instance_id="A"))
    play.beat("a", 2, kept, instance_id="A")
    moved = given(play.beat("b", 3, {}, instance_id="B"))
    play.beat("a", -2, instance_id="A")
    answer = play.classic_join("", instance_id="A")
    assert (answer.generation_id, play.group.kind) == (3, Kind.CONSUMER)
    assert read(play.classic_sync(answer.member_id, 3).assignment) == kept
    assert play.held()["b"] == moved


# Downgrade.


def mixed(play: Play, instance_id: str | None = None) -> None:
    """A group of the consumer protocol of `a`, which has all partitions, and a classic member `m` that waits."""
    play.join("a", instance_id=instance_id)
    play.classic_join("m")
    play.classic_sync("m", 3)


def classic_state(play: Play) -> tuple[Kind, str, int]:
    """Kind, state and generation."""
    group = play.coordinator.groups[GROUP]
    return group.kind, group.state.value, group.generation


REBALANCING = (Kind.CLASSIC, "PreparingRebalance", 3)


def test_downgrade_when_the_last_consumer_member_leaves(play: Play) -> None:
    """The classic members rebalance: the next generation is the epoch + 1, and offsets stay."""
    mixed(play)
    play.commit("a", 2)
    play.leave("a")
    assert classic_state(play) == REBALANCING
    assert GroupConverted(GROUP, 3, "classic", 1) in play.notes
    assert play.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert play.classic_beat("m", 3) == REBALANCE
    answer = play.classic_join("m")
    assert (answer.generation_id, answer.leader) == (4, "m")
    play.classic_sync("m", 4, {"m": assigned(**ALL)})
    assert play.state() == "Stable"
    assert play.fetch(None, -1).topics[0].partitions[0].committed_offset == 7


def test_downgrade_writes_tombstones_first(play: Play) -> None:
    """The tombstones of the consumer group come in Kafka's order, then the classic group's record."""
    mixed(play)
    before = len(play.log)
    play.leave("a")
    written = [(int.from_bytes(record.key[:2]), record.value is None) for record in play.log[before:]]
    assert [version for version, _ in written] == [8, 8, 7, 7, 6, 5, 5, 4, 3, 2]
    assert [is_tombstone for _, is_tombstone in written] == [True] * 9 + [False]


def test_downgraded_group_is_read_back(play: Play) -> None:
    """After a restart the classic group is Stable in the generation that was the epoch, with targets as assignments."""
    mixed(play)
    target = play.describe().members[1].target_assignment.topic_partitions[0].partitions
    play.leave("a")
    play.restart()
    assert classic_state(play) == (Kind.CLASSIC, "Stable", 3)
    assert read(play.classic_sync("m", 3).assignment) == {"t": target}


def test_no_downgrade_of_a_group_that_is_empty_or_too_large(play: Play) -> None:
    """Nobody left is an empty consumer group; group.max.size counts for the classic group."""
    play.join("a")
    play.leave("a")
    assert classic_state(play) == (Kind.CONSUMER, "Empty", 3)
    play = Play(group_max_size=1)
    mixed(play)
    play.classic_join("n")
    play.leave("a")
    assert play.group.kind is Kind.CONSUMER


def test_all_members_leave_at_once(play: Play) -> None:
    """One request that removes everybody leaves an empty group, not a classic one."""
    mixed(play)
    assert play.remove_all("a", "m") == [NONE, NONE]
    assert classic_state(play) == (Kind.CONSUMER, "Empty", 4)


def test_static_classic_member_takes_the_last_consumer_seat(play: Play) -> None:
    """The classic group is Stable at once, in the generation that was the epoch: nobody rejoins."""
    play.join("a", instance_id="A")
    play.join("b", instance_id="B")
    kept = given(play.beat("a", 2, instance_id="A"))
    play.beat("a", 2, kept, instance_id="A")
    moved = given(play.beat("b", 3, {}, instance_id="B"))
    assert kept is not None
    assert moved is not None
    c = play.classic_join("", instance_id="A").member_id
    play.classic_sync(c, 3)
    before = len(play.log)
    answer = play.classic_join("", instance_id="B", request="d")
    d = answer.member_id
    assert (answer.error_code, answer.generation_id, classic_state(play)) == (NONE, 3, (Kind.CLASSIC, "Stable", 3))
    written = [int.from_bytes(record.key[:2]) for record in play.log[before:]]
    # The seat, the member as it joins, what it has; then the tombstones and the classic group.
    assert written == [8, 7, 5, 5, 7, 8, 5, 8, *[8, 8, 7, 7, 6, 5, 5, 4, 3], 2]
    assert read(play.classic_sync(d, 3).assignment) == moved
    assert read(play.classic_sync(c, 3).assignment) == kept
    assert (play.classic_beat(c, 3, "A"), play.classic_beat(d, 3, "B")) == (NONE, NONE)
    assert play.beat("b", 3, instance_id="B").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    play.wait(44_000)
    assert set(play.coordinator.groups[GROUP].members) == {c, d}


def test_last_seat_with_another_subscription_is_read_back() -> None:
    """The log has the generation that the members know: whoever takes the group over lets them go on with it."""
    play = Play({"t": 4, "u": 2})
    mixed(play, instance_id="A")
    play.beat("a", 2, LOW, instance_id="A")
    assert rejoin(play, "m", {}, 3) == 3
    held = read(play.classic_sync("m", 3).assignment)
    play.classic_join("", subscribed("t", "u"), instance_id="A")
    play.restart()
    assert classic_state(play) == (Kind.CLASSIC, "Stable", 3)
    assert play.classic_beat("m", 3) == NONE
    assert play.commit("m", 3) == NONE
    assert read(play.classic_sync("m", 3).assignment) == held
