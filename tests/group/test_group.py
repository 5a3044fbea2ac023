"""A group's books."""

from __future__ import annotations

import pytest

from coordinator.group.group import Group, Member, Waiting
from coordinator.group.invariants import violations
from coordinator.group.state import State
from tests.group.harness import subscription


def member(name: str, *names: str, instance: str | None = None) -> Member:
    """A member that lists these protocols."""
    made = Member(name, instance, "c", "/h", 10_000, 6_000, [(each, b"") for each in names or ("range",)])
    made.timer_at_ms, made.deadline_ms = 1, 1
    return made


def group_of(*members: Member) -> Group:
    """A group that waits for all of them."""
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
    """Whoever adds has to look first."""
    group = group_of(member("a", instance="i"))
    with pytest.raises(AssertionError):
        group.add(member("a"))
    with pytest.raises(AssertionError):
        group.add(member("b", instance="i"))


def test_whoever_waits_is_not_removed() -> None:
    """Its request would never be answered."""
    waiting = member("a")
    group = group_of(waiting)
    group.update(waiting, waiting.protocols, 1, 1, Waiting("r", 5))
    with pytest.raises(AssertionError):
        group.remove(waiting)


def test_a_seat_keeps_its_lead_and_assignment() -> None:
    """Only the id changes."""
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
    """Everybody votes for its first that all list."""
    assert group_of(*(member(f"m{n}", *names) for n, names in enumerate(lists))).select_protocol() == chosen


def test_who_fits() -> None:
    """The same type, and at least one name that every member lists; an empty group takes anything but nothing."""
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
    """Of consumers, if all of them can be read; absurd lengths are no harm."""
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
    """Whether all list the same names in the same order or not; of a name that is listed twice the first counts."""
    group = Group("g", None)
    for number, protocols in enumerate(lists):
        peer = member(f"m{number}")
        peer.protocols = protocols
        group.add(peer)
    group.protocol_name = "range"
    assert group.metadata() == [b"2", b"5"]


def test_an_unknown_subscription_may_be_to_anything() -> None:
    """Nothing of such a group expires or is deleted by topic."""
    group = Group("g", None)
    assert group.is_subscribed("t")
    group.subscribed_topics = frozenset({"u"})
    assert not group.is_subscribed("t")
