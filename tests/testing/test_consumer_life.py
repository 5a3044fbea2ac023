"""Members of the consumer protocol without clients: their group is what the server says it is.

House rule: as in test_members.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.client.errors import Refused
from coordinator.testing import Group, Tenure
from coordinator.testing.member import Doing, NotSeated
from coordinator.testing.members import Members
from tests.support.patience import WITHIN_S


@pytest.fixture
def server() -> Iterator[Tenure]:
    """Yield a server whose waiters have patience."""
    with Tenure(topics={"orders": 6}, timeout=WITHIN_S) as made:
        yield made


def filled(server: Tenure, count: int, *, static: bool = True) -> tuple[Group, Members]:
    """A stable group of members."""
    group = server.group("workers")
    members = group.fill(count, static=static, topics=["orders"], protocol="consumer")
    group.wait_until_stable(members=count)
    return group, members


def seats(members: Members) -> list[list[int]]:
    """The partitions that each member believes to have."""
    return [list(member.assignment.get("orders", ())) for member in members]


@pytest.mark.parametrize("static", [True, False])
def test_members_share_a_topic(server: Tenure, static: bool) -> None:
    """The members know what the server says they have; all are at the group's epoch."""
    group, members = filled(server, 3, static=static)
    members.wait_until_seated(group.generation, within_s=WITHIN_S)
    group.wait_until(lambda _: sorted(index for seat in seats(members) for index in seat) == [0, 1, 2, 3, 4, 5])
    assert sorted(map(len, seats(members))) == [2, 2, 2]
    assert {member.instance_id is None for member in members} == {not static}


def test_a_restart_moves_nothing(server: Tenure) -> None:
    """A static member says that it will be back, and is, under another member id."""
    group, members = filled(server, 3)
    before = members[1].member_id
    with group.no_rebalance(), group.nothing_moved(), group.same_seats():
        members.restart(1)
        group.wait_until(restarts=1).wait_until_stable(members=3)
    assert members[1].member_id != before


def test_a_dynamic_restart_is_a_new_member(server: Tenure) -> None:
    """The old one is silent, and holds what it has until it expires."""
    group, members = filled(server, 2, static=False)
    former = members[0].member_id
    with group.rebalances(exactly=1, cause="member_joined"):
        members.restart(0)
        group.wait_until(state="Reconciling", members=3)
        group.expire(former)
        group.wait_until_stable(members=2)
    assert members[0].member_id != former


def test_a_member_leaves(server: Tenure) -> None:
    """Its partitions go to the other one, in one rebalance."""
    group, members = filled(server, 2)
    with group.rebalances(exactly=1, cause="member_left"):
        members.leave(0)
        group.wait_until_stable(members=1)
    assert members[0].doing is Doing.LEFT
    with pytest.raises(Refused):
        members.leave(0)


def test_a_silent_member_expires_and_comes_back(server: Tenure) -> None:
    """While it sends nothing it can't give up its seat; when it speaks again it hears so and joins anew."""
    group, members = filled(server, 2)
    members.fall_silent(0)
    group.expire("member-0")
    group.wait_until_stable(members=1)
    members.speak_again(0)
    group.wait_until_stable(members=2)
    group.wait_until(lambda _: sorted(map(len, seats(members))) == [3, 3])
    assert [member.doing for member in members] == [Doing.SEATED] * 2


def test_a_slow_member_is_waited_for(server: Tenure) -> None:
    """It gives up its partitions late: until then the newcomer waits, and the slow one stays a member."""
    group, members = filled(server, 1)
    members.be_slow(0, 3_600.0)
    others = group.fill(1, topics=["orders"], client_id="other", protocol="consumer")
    group.wait_until(state="Reconciling", members=2)
    group.wait_until(lambda _: others[0].generation == group.generation)
    assert seats(others) == [[]]
    members.be_slow(0, 0.0)
    group.wait_until_stable(members=2)


def test_a_seat_that_is_taken_is_named(server: Tenure) -> None:
    """A second crew with the same instance ids is refused."""
    group, _ = filled(server, 1)
    twin = group.fill(1, topics=["orders"], protocol="consumer")
    with pytest.raises(NotSeated, match="UNRELEASED_INSTANCE_ID"):
        twin.wait_until_seated(within_s=WITHIN_S)


def test_members_outlive_a_coordinator(tmp_path_factory: pytest.TempPathFactory) -> None:
    """They connect again to a server that was killed, and nothing moves."""
    with Tenure({"orders": 6}, data_dir=tmp_path_factory.mktemp("data"), timeout=WITHIN_S) as server:
        group, members = filled(server, 3)
        epoch = group.generation
        server.kill()
        server.start()
        members.restart(2)
        group.wait_until(restarts=1).wait_until_stable(members=3)
        assert group.generation == epoch


def test_another_protocol_is_refused(server: Tenure) -> None:
    """There are two."""
    with pytest.raises(ValueError, match="classic or consumer, not share"):
        server.group("workers").fill(1, protocol="share")
