"""A group as a test looks at it: looks, waits, blocks."""

from __future__ import annotations

import re

import pytest

from coordinator.testing import Group, Tenure, assert_nothing_moved
from tests.support.heartbeats import AWAY, Beating
from tests.support.heartbeats import settle as shared
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request
from tests.support.scripted import Member, settle
from tests.testing.conftest import Join, join_in, port_of


def commit(member: Member, offset: int) -> None:
    """Commit an offset of t-0."""
    request = commit_request(member.group, {("t", 0): offset}, member.generation, member.member_id)
    answer = member.connection.ask(request, 5)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_group_shows_its_state_and_its_history(server: Tenure, member: Join) -> None:
    """Each property is that of the last look, or of the whole history."""
    one = member("one", instance="one")
    group = server.group("workers")
    assert group is server.group("workers")
    assert (group.state, group.generation, group.rebalances) == ("Dead", 0, [])
    settle(one)
    commit(one, 7)
    assert (group.state, group.generation, group.committed) == ("Stable", 1, {("t", 0): 7})
    assert group.assignment == {"one": {"t": [0]}}
    assert [each.group_instance_id for each in group.members] == ["one"]
    assert [each.cause for each in group.rebalances] == ["member_joined"]
    assert (group.restarts, group.rejoins, group.takeovers, group.fencings) == ([], [], [], [])
    assert [entry["type"] for entry in group.timeline] == ["rebalance"]
    assert "1 topic partition assigned (t-0 -> one)" in group.explain()
    assert server.groups == [group]


def test_the_history_is_there_after_a_stop(server: Tenure, member: Join) -> None:
    """A report about a failed test may come then."""
    settle(member("one"))
    group = server.group("workers")
    server.stop()
    assert len(group.rebalances) == 1
    assert "rebalance, generation 0 -> 1" in group.explain()
    assert server.groups == [group]


def test_a_wait_in_vain_says_what_was_there(server: Tenure, member: Join) -> None:
    """The error has the wish, what the group had, its members, and its timeline."""
    one = member("one")
    settle(one)
    group = server.group("workers")
    with pytest.raises(AssertionError) as caught:
        group.wait_until_stable(members=3, timeout=0)
    first, second, *rest = str(caught.value).splitlines()
    assert first == "group workers did not reach state=Stable, members=3 within 0 s; it had state=Stable, members=1"
    assert second == "it is Stable in generation 1, members: 1"
    assert rest[0] == f"    {one.member_id} (one): {{'t': [0]}}"
    assert rest[1] == "committed: nothing"
    assert "rebalance, generation 0 -> 1" in rest[2]
    with pytest.raises(AssertionError, match="did not reach generation=2, restarts=1 within 0 s; it had generation=1"):
        group.wait_until(generation=2, restarts=1, timeout=0)
    with pytest.raises(AssertionError, match=r"a member's first return after a start of the server is a rejoin\n"):
        group.wait_until(restarts=1, timeout=0)
    with pytest.raises(AssertionError, match=r"did not reach the condition within 0 s\n"):
        group.wait_until(lambda group: group.committed, timeout=0)
    with pytest.raises(AssertionError, match="there is no such group"):
        server.group("nobody").wait_until_stable(timeout=0)


def test_a_wait_in_vain_says_what_is_committed_and_that_time_is_frozen(server: Tenure, member: Join) -> None:
    """The offsets of the group, and a time that stands still: no session ends then."""
    one = member("one")
    settle(one)
    commit(one, 3)
    group = server.group("workers")
    for stop, is_told in ((server.freeze, True), (server.thaw, False)):
        stop()
        with pytest.raises(AssertionError) as caught:
            group.wait_until(generation=2, timeout=0)
        lines = str(caught.value).splitlines()
        assert "committed: t-0 at 3" in lines
        assert ("time is frozen: until advance() or thaw() no session ends and no timer rings" in lines) == is_told


def test_a_stuck_join_names_who_is_silent(server: Tenure, member: Join) -> None:
    """The member that the group waits for, for how long it said nothing, and when its session ends."""
    one, other = member("one"), member("other")
    settle(one, other)
    group = server.group("workers")
    server.freeze()
    assert other.heartbeat() == 0
    one.send_join()
    group.wait_until(state="PreparingRebalance")
    server.advance(2, unheard=[("workers", other.member_id)])
    with pytest.raises(AssertionError) as caught:
        group.wait_until_stable(timeout=0)
    waits = f"it waits for {other.member_id} (other at 127.0.0.1) to join; silent for 2.0 s, its session ends in "
    assert waits in str(caught.value)
    assert group.look() == group.look()


def test_a_wait_ends_when_all_is_so(server: Tenure, member: Join) -> None:
    """Numbers of what happened may be higher, the number of members not; the condition gets the group."""
    one = member("one", instance="one")
    settle(one)
    commit(one, 3)
    group = server.group("workers")
    assert group.wait_until(lambda group: group.committed == {("t", 0): 3}) is group
    assert group.wait_until(rebalances=1, generation=0, members=1, fencings=0) is group
    with pytest.raises(AssertionError):
        group.wait_until(members=0, timeout=0)


def test_a_block_passes_if_nothing_happens_in_it(server: Tenure, member: Join) -> None:
    """What happened before the block doesn't count."""
    settle(member("one", instance="one"))
    group = server.group("workers")
    with group.no_rebalance(), group.nothing_moved(), group.moved_at_most(0), group.same_seats():
        again = member("one", instance="one")
        again.send_join()
        assert again.receive_join().error_code == 0
    with group.rebalances(exactly=0):
        pass
    assert len(group.restarts) == 1


@pytest.mark.parametrize("block", ["no_rebalance", "nothing_moved", "same_seats", "moved_at_most", "rebalances"])
def test_a_block_fails_for_what_happens_in_it(server: Tenure, member: Join, block: str) -> None:
    """Each block sees the member that joins inside."""
    one, other = member("b"), member("a")
    settle(one)
    group = server.group("workers")
    arguments = {"moved_at_most": [0], "rebalances": [2]}.get(block, [])
    with pytest.raises(AssertionError, match="group workers"), getattr(group, block)(*arguments):
        join_in(server, other, one)


def test_an_error_in_a_block_is_the_error(server: Tenure, member: Join) -> None:
    """A block checks nothing if its test fails inside."""
    one = member("one")
    settle(one)
    group = server.group("workers")

    def leave_and_fail() -> None:
        with group.no_rebalance(), group.same_seats():
            one.leave()
            raise LookupError

    with pytest.raises(LookupError):
        leave_and_fail()


def test_a_block_without_rebalance_begins_at_rest(server: Tenure, member: Join) -> None:
    """A rebalance under way would take in what the block causes, so the block refuses to begin."""
    settle(member("one"))
    member("other").send_join()
    group = server.group("workers").wait_until(state="PreparingRebalance")
    with pytest.raises(AssertionError, match="rebalances already"), group.no_rebalance():
        raise LookupError


def test_a_wait_inside_ends_when_a_rebalance_began(server: Tenure, member: Join) -> None:
    """It doesn't wait for its timeout; after the block waits go on as usual."""
    one, other = member("one"), member("other")
    settle(one)
    group = server.group("workers")

    def join_and_wait() -> None:
        with group.no_rebalance():
            other.send_join()
            group.wait_until(restarts=1, timeout=WITHIN_S)

    with pytest.raises(AssertionError, match="rebalanced once, expected none"):
        join_and_wait()
    settle(one, other)
    group.wait_until_stable(members=2)


def test_an_unknown_cause_fails_before_the_block(server: Tenure) -> None:
    """A slip in a name shows at once."""
    with pytest.raises(ValueError, match="no cause"), server.group("workers").rebalances(exactly=1, cause="left"):
        raise LookupError


def test_an_explanation_can_be_cut(server: Tenure, member: Join) -> None:
    """Only the newest lines, or only those since a mark, and the members that the group waits for."""
    one, other = member("one"), member("other")
    settle(one)
    group: Group = server.group("workers")
    mark = group.mark()
    join_in(server, other, one)
    assert group.explain(last=1).startswith("... 1 earlier entries; explain() without `last` has them\n")
    assert "generation 0 -> 1" not in group.explain(mark)
    other.leave()
    assert f"it waits for {one.member_id}" in group.explain()


# The consumer protocol.


def join_by_heartbeat(server: Tenure, name: str) -> Beating:
    """A static member of the group "workers" that has joined; it may wait for its partitions."""
    member = Beating(port_of(server), "workers", name, ["t"], instance=name)
    assert member.join() == 0
    return member


def heartbeats(server: Tenure, *names: str) -> list[Beating]:
    """Static members of the group "workers" that share topic t in a Stable group."""
    members = [join_by_heartbeat(server, name) for name in names]
    shared(*members)
    server.group("workers").wait_until_stable(members=len(members))
    return members


def test_a_look_at_a_group_of_the_consumer_protocol(server: Tenure) -> None:
    """Its epoch is the generation, and its assignment what members hold."""
    heartbeats(server, "one", "other")
    group = server.group("workers")
    assert (group.state, group.generation) == ("Stable", 3)
    assert [each.group_instance_id for each in group.members] == ["one", "other"]
    assert sorted(index for held in group.assignment.values() for index in held["t"]) == [0, 1, 2]
    assert [each.cause for each in group.rebalances] == ["member_joined", "member_joined"]


def test_restart_in_the_consumer_protocol_passes_all_blocks(server: Tenure) -> None:
    """A static member goes away and comes back: no rebalance, nothing moved, the same seats; one restart."""
    one, _other = heartbeats(server, "one", "other")
    group = server.group("workers")
    with group.no_rebalance(), group.nothing_moved(), group.same_seats():
        assert one.leave(AWAY) == 0
        with group.no_rebalance():  # an absence is no rebalance, whatever the state is
            assert group.state == "Reconciling"
        join_by_heartbeat(server, "one")
        group.wait_until_stable(members=2).wait_until(restarts=1)


@pytest.mark.parametrize("block", ["no_rebalance", "nothing_moved", "same_seats", "moved_at_most", "rebalances"])
def test_a_block_sees_an_epoch_of_the_consumer_protocol(server: Tenure, block: str) -> None:
    """A member that leaves for good is one rebalance, and its partitions move."""
    one, other = heartbeats(server, "one", "other")
    group = server.group("workers")
    arguments = {"moved_at_most": [0], "rebalances": [2]}.get(block, [])

    def leave() -> None:
        with getattr(group, block)(*arguments):
            assert one.leave() == 0
            shared(other)

    with pytest.raises(AssertionError, match="group workers"):
        leave()
    with group.rebalances(exactly=1, cause="member_joined"):
        shared(other, join_by_heartbeat(server, "third"))


def test_a_block_begins_at_rest_in_the_consumer_protocol(server: Tenure) -> None:
    """While a newcomer waits for its partitions, a rebalance is under way."""
    heartbeats(server, "one")
    join_by_heartbeat(server, "other")
    group = server.group("workers").wait_until(state="Reconciling")
    with pytest.raises(AssertionError, match="rebalances already") as caught, group.no_rebalance():
        raise LookupError
    assert "it waits for a heartbeat of one-" in str(caught.value)


def test_failure_in_the_consumer_protocol_names_member_and_request(server: Tenure) -> None:
    """The text has the member, the request, and the epochs."""
    one, other = heartbeats(server, "one", "other")
    group = server.group("workers")

    def leave() -> None:
        with group.no_rebalance():
            assert one.leave() == 0
            shared(other)

    with pytest.raises(AssertionError, match="rebalanced once, expected none") as caught:
        leave()
    assert "ConsumerGroupHeartbeat" in str(caught.value)
    assert "one" in str(caught.value)


def test_members_of_the_consumer_protocol_have_their_client_ids_beside_them(server: Tenure) -> None:
    """Their ids are made by chance, so each line that names one by its id names its client too."""
    server.group("workers").fill(1, static=False, protocol="consumer", topics=["t"], client_id="first")
    group = server.group("workers").wait_until_stable(members=1)
    since = group.mark()
    server.group("workers").fill(1, static=False, protocol="consumer", topics=["t"], client_id="second")
    group.wait_until_stable(members=2)
    ids = {each.client_id: each.member_id for each in group.members}
    first, second = ids["first"], ids["second"]
    (index,) = group.assignment[second]["t"]
    first, second = f"first ({first})", f"second ({second})"
    moved = f"t-{index} {first} -> {second}"
    with pytest.raises(AssertionError) as caught:
        assert_nothing_moved(group, since)
    assert f"    {moved}" in str(caught.value).splitlines()
    assert f"moved ({moved})" in group.explain()
    assert re.search(rf"waited longest for ({re.escape(first)}|{re.escape(second)}) to ", group.explain())
