"""A group's own books: members, leader, protocols, subscriptions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.events import JoinGroup
from coordinator.group.group import Group, Held, Member, Waiting
from coordinator.group.state import State
from coordinator.group.vote import winner
from protocol.messages import JoinGroupRequest
from tests.group.harness import SOMEBODY, subscription
from tests.group.invariants import violations


def member(name: str, *names: str, instance: str | None = None) -> Member:
    """A member that lists these protocol names."""
    made = Member(name, instance, "c", "/h", 10_000, 6_000, [(each, b"") for each in names or ("range",)])
    made.timer_at_ms, made.deadline_ms = 1, 1
    return made


def group_of(*members: Member) -> Group:
    """A group with these members, in PreparingRebalance."""
    group = Group("g", None)
    group.protocol_type = "consumer"
    group.state = State.PREPARING_REBALANCE
    for each in members:
        group.add(each)
    assert violations(group) == []
    return group


def test_the_first_member_leads_and_the_next_succeeds() -> None:
    """A group with members always has a leader."""
    first, second = member("a"), member("b")
    group = group_of(first, second)
    assert group.leader == "a"
    group.remove(first)
    assert group.leader == "b"
    group.remove(second)
    assert group.leader is None


def test_an_id_or_name_twice_cannot_be() -> None:
    """The caller of `add` must check first."""
    group = group_of(member("a", instance="i"))
    with pytest.raises(AssertionError):
        group.add(member("a"))
    with pytest.raises(AssertionError):
        group.add(member("b", instance="i"))


def test_whoever_waits_is_not_removed() -> None:
    """Nothing would ever answer the request of a removed member."""
    waiting = member("a")
    group = group_of(waiting)
    group.update(waiting, waiting.protocols, 1, 1, Waiting("r", 5))
    with pytest.raises(AssertionError):
        group.remove(waiting)


def test_a_seat_keeps_its_lead_and_assignment() -> None:
    """`rename` changes the member id and nothing else."""
    seat = member("a-1", instance="a")
    seat.assignment = b"mine"
    group = group_of(seat, member("b"))
    group.rename(seat, "a-2")
    assert (group.leader, group.static_members, group.members["a-2"].assignment) == ("a-2", {"a": "a-2"}, b"mine")
    assert violations(group) == []


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([("range",)], "range"),
        ([("range", "roundrobin"), ("range", "roundrobin")], "range"),
        ([("range", "roundrobin"), ("roundrobin",)], "roundrobin"),
        ([("sticky", "range", "roundrobin"), ("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")], "roundrobin"),
        ([("range", "range")], "range"),
    ],
)
def test_vote(lists: list[tuple[str, ...]], chosen: str) -> None:
    """Each member votes for its first protocol name that all members list."""
    assert group_of(*(member(f"m{n}", *names) for n, names in enumerate(lists))).select_protocol() == chosen


NAMES = st.lists(st.sampled_from("abcdef"), max_size=7).map(lambda names: ("common", *names))


@given(st.lists(NAMES.flatmap(st.permutations), min_size=1, max_size=6), st.integers(0, 5), st.lists(NAMES, max_size=2))
def test_vote_is_the_plain_definition(lists: list[list[str]], gone: int, updates: list[tuple[str, ...]]) -> None:
    """After members came, left or changed lists, the candidates are what all list, and each votes for its first one."""
    group = group_of(*(member(f"m{n}", *names) for n, names in enumerate(lists)))
    members = list(group.members.values())
    for each in members[1:][:gone]:
        group.remove(each)
    for each, names in zip(list(group.members.values()), updates, strict=False):
        group.update(each, [(name, b"") for name in names], 1, 1, None)
    assert violations(group) == []
    listed = [[name for name, _ in each.protocols] for each in group.members.values()]
    candidates = {name for name in "abcdef" if all(name in names for names in listed)} | {"common"}
    votes = Counter(next(name for name in names if name in candidates) for names in listed)
    assert group.select_protocol() == winner(votes)
    for name in "abcdefg":
        assert group.all_support(name) == (name in candidates)
        assert group.supports("consumer", [("x", b""), (name, b"")]) == (name in candidates)


class Name(str):
    """A protocol name that counts how often it is compared or hashed."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Name.looks += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Name.looks += 1
        return str.__eq__(self, other)


def test_the_work_of_a_vote_is_linear_in_the_names() -> None:
    """Two members with n other names each, and one in common: twice the names are twice the work."""

    def work(n: int) -> int:
        first = member("a", *(Name(f"a{i}") for i in range(n)), Name("common"))
        second = member("b", *(Name(f"b{i}") for i in range(n)), Name("common"))
        Name.looks = 0
        group = group_of(first)
        assert group.supports("consumer", second.protocols)
        group.add(second)
        assert group.select_protocol() == "common"
        return Name.looks

    assert work(200) < 2.5 * work(100)


def test_who_fits() -> None:
    """A member fits if it has the group's type and a name that all list. An empty group needs a type and a name."""
    group = group_of(member("a", "range", "sticky"), member("b", "range"))
    assert group.supports("consumer", [("other", b""), ("range", b"")])
    assert not group.supports("consumer", [("sticky", b"")])
    assert not group.supports("connect", [("range", b"")])
    assert not group.supports("consumer", [])
    empty = Group("e", None)
    assert empty.supports("anything", [("x", b"")])
    assert not empty.supports("", [("x", b"")])
    assert not empty.supports("anything", [])


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "topics"),
    [
        ("consumer", [subscription("t"), subscription("u", "t")], {"t", "u"}),
        ("consumer", [subscription("t"), b"\xff"], None),
        ("consumer", [b"\x00\x01\x7f\xff\xff\xff"], None),
        ("connect", [subscription("t")], None),
        ("consumer", [], set()),
    ],
)
def test_subscribed_topics(protocol_type: str, metadata: list[bytes], topics: set[str] | None) -> None:
    """They are known for consumers, if every subscription can be read; wrong lengths in the bytes do no harm."""
    group = Group("g", None)
    for number, each in enumerate(metadata):
        peer = member(f"m{number}")
        peer.protocols = [("range", each)]
        group.add(peer)
    group.protocol_type, group.protocol_name = protocol_type, "range"
    assert group.find_subscribed_topics() == topics


@pytest.mark.parametrize(
    "lists",
    [
        [[("sticky", b"1"), ("range", b"2"), ("range", b"3")], [("sticky", b"4"), ("range", b"5"), ("range", b"6")]],
        [[("sticky", b"1"), ("range", b"2")], [("range", b"5"), ("sticky", b"6")]],
    ],
)
def test_metadata_is_what_each_said_for_the_protocol(lists: list[list[tuple[str, bytes]]]) -> None:
    """The members may list different names in any order; of a name that a member lists twice the first counts."""
    group = Group("g", None)
    for number, protocols in enumerate(lists):
        peer = member(f"m{number}")
        peer.protocols = protocols
        group.add(peer)
    group.protocol_name = "range"
    assert group.metadata() == [b"2", b"5"]


def test_an_unknown_subscription_may_be_to_anything() -> None:
    """No offset of such a group expires or is deleted with its topic."""
    group = Group("g", None)
    assert group.is_subscribed("t")
    group.subscribed_topics = frozenset({"u"})
    assert not group.is_subscribed("t")


def held(member_id: str, instance: str | None) -> Held:
    """A held join."""
    body = JoinGroupRequest(group_instance_id=instance)
    return Held(JoinGroup("", 5, SOMEBODY, body, "1"), member_id, 0)


def test_a_client_that_asks_again_has_the_same_key() -> None:
    """A static one by its instance id, whatever member id it gets; a dynamic one by its member id. They never mix."""
    assert held("a-1", "a").key == held("a-2", "a").key
    assert held("a", None).key == held("a", None).key
    assert len({held("a", "a").key, held("a", None).key, held("b", None).key}) == 3
