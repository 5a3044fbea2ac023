"""A group's own books: members, leader, protocols, subscriptions."""

from __future__ import annotations

import pytest

from coordinator.group.group import Group, Member, Waiting
from coordinator.group.invariants import violations
from coordinator.group.state import State
from tests.group.harness import subscription


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
